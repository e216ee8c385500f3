//! `farlane measure rdma`: latency and bandwidth of RDMA connections, in perftest's words.

pub(crate) mod serve;
mod table;

use distribution::Distribution;
use engine::Nanos;
use indicatif::ProgressBar;
use live::drivers::perftest::{
    Failure, Measurement, Mode, Output, Provider, SIZE_MAX, Step, Test, Verb, Way,
};
use live::reactor::blocking::Blocking;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::{PeerArg, RdmaAction, RdmaMeasureArgs};
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::processor::stay_on;
use table::Row;

/// Bytes of an iteration where none are given, as perftest has them.
const PING_BYTES: u32 = 2;
const BENCH_BYTES: u32 = 64 << 10;

/// Measurements of RDMA connections, in perftest's words.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json {
    rows: Vec<Row>,
}

pub(crate) fn run(action: &RdmaAction) -> Result<(), Error> {
    match action {
        RdmaAction::Ping(args) => measure(args, Mode::Latency),
        RdmaAction::Bench(args) => measure(args, Mode::Bandwidth),
        RdmaAction::Serve(args) => serve::run(args),
    }
}

/// Bytes of an iteration where none are given.
const fn usual_size(mode: Mode) -> u32 {
    match mode {
        Mode::Latency => PING_BYTES,
        Mode::Bandwidth => BENCH_BYTES,
    }
}

/// Whether the server has such a test at all.
fn check(args: &RdmaMeasureArgs, mode: Mode) -> Result<(), Error> {
    let (why, remedy) = match (args.peer, mode) {
        (PeerArg::Rping, Mode::Bandwidth) => {
            ("rping measures no bandwidth", "farlane measure rdma ping --peer rping times its pings")
        }
        (PeerArg::Rping, Mode::Latency) if args.verb.is_some() => (
            "a ping of rping is a read, a write and messages, so it takes no --verb",
            "leave --verb out; --peer perftest measures each of them",
        ),
        (PeerArg::Perftest, _) if args.all => (
            "perftest's servers end after one test, and --all is one test for each size",
            "give one --size, and start the server with the same -s",
        ),
        _ => return Ok(()),
    };
    Err(Error::NoSuchMeasurement { why, remedy })
}

/// The remedy when a measurement with a server of this kind fails.
const fn remedy(peer: PeerArg) -> &'static str {
    match peer {
        PeerArg::Farlane => {
            "does farlane measure rdma serve run there, with the same --provider? see farlane measure rdma --help"
        }
        PeerArg::Perftest => {
            "does the program of perftest for this test run there, with -R and the same -s and -n? see \
             farlane measure rdma --help"
        }
        PeerArg::Rping => {
            "does rping -s run there, with -S of the same size? see farlane measure rdma --help"
        }
    }
}

fn measure(args: &RdmaMeasureArgs, mode: Mode) -> Result<(), Error> {
    check(args, mode)?;
    stay_on(args.spin.cpu)?;
    if args.server.ip().is_loopback() && args.spin.cpu.is_none() {
        // Medians of one processor and of two differ by three times and more.
        warn!("both ends run here, so times depend on where the system puts them: give each --cpu");
    }
    let sizes: Vec<u32> = match args.all {
        true => (1..=SIZE_MAX.ilog2()).map(|power| 1 << power).collect(),
        false => vec![args.size.unwrap_or(usual_size(mode))],
    };
    let mut rows = Vec::new();
    for size in sizes {
        let row = one(args, mode, size)?;
        if !args.output.json {
            if rows.is_empty() {
                print(row.heading())?;
            }
            print(&row.line())?;
        }
        rows.push(row);
    }
    match args.output.json {
        true => print_json(&Json { rows }),
        false => Ok(()),
    }
}

/// Measures one size.
fn one(args: &RdmaMeasureArgs, mode: Mode, size: u32) -> Result<Row, Error> {
    // The first of a latency test warms up, and does not count. perftest's servers expect a fixed
    // number of iterations.
    let iterations = args.iters + u32::from(mode == Mode::Latency && args.peer != PeerArg::Perftest);
    // All that is done with rping counts, as with a read.
    let verb =
        if args.peer == PeerArg::Rping { Verb::Read } else { args.verb.map_or(Verb::Send, Verb::from) };
    let test = Test { verb, mode, size, iterations, depth: args.tx_depth };
    let failed = |why: String| Error::Measurement { server: args.server, why, remedy: remedy(args.peer) };
    let provider = Provider::from(args.provider);
    let way = Way { provider, server: args.server, local: args.local, timeout: args.timeout };
    let measurement = Measurement::begin(way, args.peer.into(), test, args.spin.spin.into());
    let mut measurement = measurement.map_err(|error| failed(error.to_string()))?;
    let bar = ProgressBar::new(iterations.into());
    let reported = follow(&mut measurement, args, test, &bar);
    bar.finish_and_clear();
    reported?.map_err(|failure| failed(failure.to_string()))
}

/// Follows the reports of the measurement, to its end.
fn follow(
    measurement: &mut Blocking<Measurement>,
    args: &RdmaMeasureArgs,
    test: Test,
    bar: &ProgressBar,
) -> Result<Result<Row, Failure>, Error> {
    let (mut latency, mut steps, mut samples) = (Distribution::new(), Vec::<Step>::new(), 0_u64);
    loop {
        let deadline = measurement.now() + Nanos::from(args.timeout);
        let Some(output) = measurement.next_event(Some(deadline))? else {
            let why = format!("no message has arrived for {}", humantime::format_duration(args.timeout));
            return Err(Error::Measurement { server: args.server, why, remedy: remedy(args.peer) });
        };
        match output {
            Output::Sample(length) => {
                samples += 1;
                if samples > 1 {
                    latency.record(table::counted(test.verb, length));
                }
                if samples % 1_024 == 0 {
                    bar.set_position(samples);
                }
            }
            Output::Progress(step) => {
                bar.set_position(step.done.into());
                steps.push(step);
            }
            Output::Finished(elapsed) => {
                return Ok(Ok(match test.mode {
                    Mode::Latency => Row::latency(test, args.peer, latency),
                    Mode::Bandwidth => Row::bandwidth(test, &steps, elapsed),
                }));
            }
            Output::Failed(failure) => return Ok(Err(failure)),
            // The driver makes connections.
            Output::Connect => {}
        }
    }
}
