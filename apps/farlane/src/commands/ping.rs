//! `farlane measure ping`: the round trip of configuration reads, or of Property Gets over a
//! fabric.

use std::time::Duration;

use distribution::Distribution;
use engine::Nanos;
use indicatif::ProgressBar;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::PingArgs;
use crate::commands::{print, print_json};
use crate::error::Error;
use crate::hops;
use crate::session::{Needs, Session};
use crate::workload::rate;

/// Round trips to a far function or controller.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json {
    /// The function or controller that answered.
    function: String,
    /// Its vendor and device, or its version of NVMe.
    id: String,
    count: u64,
    elapsed_s: f64,
    /// Round trips per second.
    rate: f64,
    latency_ns: Distribution,
    /// How well times of both ends can be compared; none before the first exchange of times.
    clock: Option<ClockJson>,
    /// Whether the user ended the measurement before its count was reached.
    interrupted: bool,
}

/// The round trips that were measured.
struct Measured {
    latency: Distribution,
    /// The last reply.
    id: u32,
    interrupted: bool,
}

/// How well times of both ends can be compared.
#[derive(Serialize, JsonSchema)]
struct ClockJson {
    /// Offset of the far clock from ours, if both ends follow one clock. The clocks of two programs
    /// that do not begin when their programs do, so their offset says nothing.
    offset_ns: Option<i64>,
    /// Times of the far end are known to within this time.
    error_ns: u64,
}

pub(crate) fn run(args: &PingArgs) -> Result<(), Error> {
    let mut session = Session::attach(&args.target, Needs { round_trips: true, ..Needs::default() })?;
    let start = session.now();
    let Measured { latency, id, interrupted } = measure(&mut session, args)?;
    let elapsed = session.now() - start;
    let is_shared = hops::follows_one_clock(&session);
    let clock = hops::clock(&session).map(|clock| ClockJson {
        offset_ns: is_shared.then_some(clock.offset_ns),
        error_ns: clock.error.get(),
    });
    let (what, function, id) = if session.is_fabric() {
        let version = format!("NVMe {}.{}.{}", id >> 16, id >> 8 & 0xff, id & 0xff);
        ("Property Gets of VS", args.target.url.to_string(), version)
    } else {
        let id = format!("{:04x}:{:04x}", id & 0xffff, id >> 16);
        ("configuration reads", session.name(), id)
    };
    let json = Json {
        function,
        id,
        count: latency.count(),
        elapsed_s: Duration::from(elapsed).as_secs_f64(),
        rate: rate(latency.count(), elapsed),
        latency_ns: latency,
        clock,
        interrupted,
    };
    session.close()?;
    if args.output.json {
        print_json(&json)?;
    } else {
        print_reply(&json, what, elapsed)?;
    }
    if interrupted { Err(Error::Interrupted) } else { Ok(()) }
}

/// Measures round trips until there are as many as were asked for, or the user interrupts.
fn measure(session: &mut Session, args: &PingArgs) -> Result<Measured, Error> {
    let interval = args.interval.map(Nanos::from).or(args.rate.map(|rate| Nanos::from_secs(1) / rate));
    let is_reported = args.interval.is_some() && !args.output.json;
    let bar = if is_reported { ProgressBar::hidden() } else { ProgressBar::new(args.count) };
    let mut measured = Measured { latency: Distribution::new(), id: 0, interrupted: false };
    let start = session.now();
    for number in 0..args.count {
        let due = interval.map(|interval| start + Nanos::new(interval.get().saturating_mul(number)));
        let length = match due.map_or(Ok(()), |at| session.idle_until(at)).and_then(|()| session.probe()) {
            Ok((id, length)) => {
                measured.id = id;
                length
            }
            // The results until now are worth a report. Before the first reply there are none.
            Err(Error::Interrupted) if number > 0 => {
                measured.interrupted = true;
                break;
            }
            Err(error) => return Err(error),
        };
        measured.latency.record(length);
        if is_reported {
            print(&format!("reply {} from {}: {length}\n", number + 1, args.target.url))?;
        } else if number % 1_024 == 0 {
            bar.set_position(number);
        }
    }
    bar.finish_and_clear();
    Ok(measured)
}

/// Prints the measurement of `what` for people.
fn print_reply(json: &Json, what: &str, elapsed: Nanos) -> Result<(), Error> {
    let mut text = format!(
        "{} {what} of {} ({}) in {elapsed}, {:.0} a second\n  round trip  {}\n",
        json.count, json.function, json.id, json.rate, json.latency_ns
    );
    if let Some(clock) = &json.clock {
        let error = Nanos::new(clock.error_ns);
        text.push_str(&match clock.offset_ns {
            None => format!("  times of both ends can be compared to within {error}\n"),
            Some(offset) => format!(
                "  both ends follow one clock: the far end's is {} ns {} ours, +/- {error}\n",
                offset.unsigned_abs(),
                if offset < 0 { "behind" } else { "ahead of" },
            ),
        });
    }
    print(&text)
}
