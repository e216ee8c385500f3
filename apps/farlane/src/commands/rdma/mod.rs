//! `farlane rdma`: latency and bandwidth of RDMA connections, in perftest's words.

mod table;

use distribution::Distribution;
use engine::Nanos;
use indicatif::ProgressBar;
use live::drivers::attached::Attached;
use live::drivers::measure::{Failure, Measured, Measurement, Mode, Output, SIZE_MAX, Step, Test};
use live::reactor::Reactor;
use live::sys::clock::Clock;
use live::sys::telling;

use crate::args::{RdmaAction, RdmaMeasureArgs, ServeArgs};
use crate::commands::{OPENED_BY_LISTENER, begin_serving, print, print_json, report_json, stay_on};
use crate::error::Error;
use table::Row;

/// Bytes of an iteration where none are given, as perftest has them.
const PING_BYTES: u32 = 2;
const BENCH_BYTES: u32 = 64 << 10;

pub(crate) fn run(action: &RdmaAction) -> Result<(), Error> {
    match action {
        RdmaAction::Ping(args) => measure(args, Mode::Latency),
        RdmaAction::Bench(args) => measure(args, Mode::Bandwidth),
        RdmaAction::Serve(args) => serve(args),
    }
}

fn serve(args: &ServeArgs) -> Result<(), Error> {
    begin_serving(args.spin.cpu, OPENED_BY_LISTENER)?;
    let mut reactor = Reactor::new(Clock::start(), args.spin.spin.into()).map_err(Error::Output)?;
    reactor.stop().on_signals().map_err(Error::Output)?;
    let listen = |error| Error::Listen { address: args.listen, error };
    let mut server = Measured::open(args.provider.into(), args.listen, reactor.sources()).map_err(listen)?;
    let address = server.address().to_string();
    if args.output.json {
        report_json(&serde_json::json!({ "listening": address }))?;
    } else {
        telling::show(format!("listening at {address}; measure with: farlane rdma ping {address}\n"));
    }
    let outcome = reactor.run(&mut server);
    outcome.map(|_| ()).map_err(|error| Error::Child { what: "the server of measurements", error })
}

fn measure(args: &RdmaMeasureArgs, mode: Mode) -> Result<(), Error> {
    stay_on(args.spin.cpu)?;
    if args.server.ip().is_loopback() && args.spin.cpu.is_none() {
        // Medians of one processor and of two differ by three times and more.
        warn!("both ends run here, so times depend on where the system puts them: give each --cpu");
    }
    let usual = if mode == Mode::Latency { PING_BYTES } else { BENCH_BYTES };
    let sizes: Vec<u32> = match args.all {
        true => (1..=SIZE_MAX.ilog2()).map(|power| 1 << power).collect(),
        false => vec![args.size.unwrap_or(usual)],
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
        true => print_json(&serde_json::json!({ "rows": rows })),
        false => Ok(()),
    }
}

/// Measures one size.
fn one(args: &RdmaMeasureArgs, mode: Mode, size: u32) -> Result<Row, Error> {
    // The first of a latency test warms up, and does not count.
    let iterations = args.iters + u32::from(mode == Mode::Latency);
    let verb = args.verb.into();
    let test = Test { verb, mode, size, iterations, depth: args.tx_depth };
    let failed = |why: String| Error::Measurement { server: args.server, why };
    let times = (args.timeout, Nanos::from(args.spin.spin));
    let measurement = Measurement::begin(args.provider.into(), args.server, args.local, test, times);
    let mut measurement = measurement.map_err(|error| failed(error.to_string()))?;
    let bar = ProgressBar::new(iterations.into());
    let told = follow(&mut measurement, args, test, &bar);
    bar.finish_and_clear();
    told?.map_err(|failure| failed(failure.to_string()))
}

/// Waits for what the measurement tells, to its end.
fn follow(
    measurement: &mut Attached<Measurement>,
    args: &RdmaMeasureArgs,
    test: Test,
    bar: &ProgressBar,
) -> Result<Result<Row, Failure>, Error> {
    let (mut latency, mut steps, mut samples) = (Distribution::new(), Vec::<Step>::new(), 0_u64);
    loop {
        let deadline = measurement.now() + Nanos::from(args.timeout);
        let Some(output) = measurement.next_event(Some(deadline))? else {
            let why = format!("nothing has come for {}", humantime::format_duration(args.timeout));
            return Err(Error::Measurement { server: args.server, why });
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
                    Mode::Latency => Row::latency(test, latency),
                    Mode::Bandwidth => Row::bandwidth(test, &steps, elapsed),
                }));
            }
            Output::Failed(failure) => return Ok(Err(failure)),
        }
    }
}
