//! `farlane ping`: the round trip of configuration reads, or of Property Gets over a fabric.

use std::time::Duration;

use assemblies::near::Near;
use engine::Nanos;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::args::PingArgs;
use crate::commands::{print, print_json};
use crate::distribution::Distribution;
use crate::error::Error;
use crate::session::{Needs, Session};
use crate::workload::rate;

#[derive(Serialize)]
struct Json {
    function: String,
    id: String,
    count: u64,
    elapsed_s: f64,
    rate: f64,
    latency_ns: Distribution,
    /// Offset of the far clock from ours, and its error; none before the first exchange of times.
    clock: Option<ClockJson>,
}

#[derive(Serialize)]
struct ClockJson {
    offset_ns: i64,
    error_ns: u64,
}

pub(crate) fn run(args: &PingArgs) -> Result<(), Error> {
    let mut session = Session::attach(&args.target, Needs { round_trips: true, ..Needs::default() })?;
    let interval = args.rate.map(|rate| Nanos::from_secs(1) / rate);
    let bar = ProgressBar::new(args.count);
    let mut latency = Distribution::new();
    let start = session.now();
    let mut id = 0;
    for number in 0..args.count {
        if let Some(interval) = interval {
            session.idle_until(start + interval * number)?;
        }
        let (value, length) = session.probe()?;
        id = value;
        latency.record(length);
        if number % 1_024 == 0 {
            bar.set_position(number);
        }
    }
    bar.finish_and_clear();
    let elapsed = session.now() - start;
    let clock = session.near().and_then(Near::upstream).and_then(|upstream| {
        upstream.session(tunnel::upstream::PortIndex(0)).and_then(tunnel::Session::clock)
    });
    let clock = clock.map(|clock| ClockJson { offset_ns: clock.offset_ns, error_ns: clock.error.get() });
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
        count: args.count,
        elapsed_s: Duration::from(elapsed).as_secs_f64(),
        rate: rate(args.count, elapsed),
        latency_ns: latency,
        clock,
    };
    session.close()?;
    if args.output.json {
        return print_json(&json);
    }
    let mut text = format!(
        "{} {what} of {} ({}) in {elapsed}, {:.0} a second\n  round trip  {}\n",
        json.count, json.function, json.id, json.rate, json.latency_ns
    );
    if let Some(clock) = &json.clock {
        text.push_str(&format!(
            "  the far clock is {} ns {} ours, +/- {}\n",
            clock.offset_ns.unsigned_abs(),
            if clock.offset_ns < 0 { "behind" } else { "ahead of" },
            Nanos::new(clock.error_ns)
        ));
    }
    print(&text)
}
