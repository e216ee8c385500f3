//! Results of measurements, as perftest's tables show them and as machines read them.

use std::time::Duration;

use distribution::Distribution;
use engine::Nanos;
use live::drivers::perftest::{Step, Test, Verb};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::PeerArg;

const LATENCY: &str = " #bytes  #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec]  \
    t_stdev[usec]  99% percentile[usec]  99.9% percentile[usec]\n";
const BANDWIDTH: &str = " #bytes  #iterations  BW peak[MiB/sec]  BW average[MiB/sec]  MsgRate[Mpps]\n";

/// The result of a test.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Row {
    /// `send`, `write`, `read` or `rping`.
    verb: &'static str,
    /// Bytes of an iteration.
    bytes: u32,
    iterations: u64,
    #[serde(flatten)]
    result: Measured,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Measured {
    Latency {
        t_min_ns: u64,
        t_stdev_ns: f64,
        latency_ns: Distribution,
    },
    Bandwidth {
        /// Of the best sixteenth of the test.
        peak_mib_s: f64,
        mib_s: f64,
        messages_s: f64,
        elapsed_s: f64,
    },
}

/// The part of an iteration's time that counts: half, where it went to and fro.
pub(super) fn counted(verb: Verb, length: Nanos) -> Nanos {
    match verb {
        Verb::Read => length,
        Verb::Send | Verb::Write => length / 2,
    }
}

const fn name(verb: Verb) -> &'static str {
    match verb {
        Verb::Send => "send",
        Verb::Write => "write",
        Verb::Read => "read",
    }
}

/// How often something happens in a second that happened `count` times in `elapsed`.
fn rate(count: u32, elapsed: Nanos) -> f64 {
    f64::from(count) / Duration::from(elapsed).as_secs_f64().max(1e-9)
}

impl Row {
    /// Of messages, writes or reads; or of the pings of rping.
    pub(super) fn latency(test: Test, peer: PeerArg, latency: Distribution) -> Self {
        let (t_min_ns, t_stdev_ns) = (latency.min().get(), latency.deviation());
        let iterations = latency.count();
        let result = Measured::Latency { t_min_ns, t_stdev_ns, latency_ns: latency };
        let verb = if peer == PeerArg::Rping { "rping" } else { name(test.verb) };
        Self { verb, bytes: test.size, iterations, result }
    }

    pub(super) fn bandwidth(test: Test, steps: &[Step], elapsed: Nanos) -> Self {
        let mib = |rate: f64| rate * f64::from(test.size) / f64::from(1 << 20);
        let messages_s = rate(test.iterations, elapsed);
        let parts = steps
            .windows(2)
            .map(|pair| rate(pair[1].done - pair[0].done, pair[1].elapsed.saturating_sub(pair[0].elapsed)));
        let peak = parts.fold(messages_s, f64::max);
        let elapsed_s = Duration::from(elapsed).as_secs_f64();
        let result =
            Measured::Bandwidth { peak_mib_s: mib(peak), mib_s: mib(messages_s), messages_s, elapsed_s };
        Self { verb: name(test.verb), bytes: test.size, iterations: test.iterations.into(), result }
    }

    /// The line above the rows of a table.
    pub(super) const fn heading(&self) -> &'static str {
        match self.result {
            Measured::Latency { .. } => LATENCY,
            Measured::Bandwidth { .. } => BANDWIDTH,
        }
    }

    /// The row of a table.
    pub(super) fn line(&self) -> String {
        let micros = |time: Nanos| Duration::from(time).as_secs_f64() * 1e6;
        let Self { bytes, iterations, .. } = self;
        match &self.result {
            Measured::Latency { t_min_ns, t_stdev_ns, latency_ns: all } => format!(
                " {bytes:<7} {iterations:<12} {:<12.2} {:<12.2} {:<16.2} {:<12.2} {:<14.2} {:<21.2} {:.2}\n",
                micros(Nanos::new(*t_min_ns)),
                micros(all.quantile(1.0)),
                micros(all.median()),
                all.mean() / 1e3,
                t_stdev_ns / 1e3,
                micros(all.quantile(0.99)),
                micros(all.quantile(0.999)),
            ),
            Measured::Bandwidth { peak_mib_s, mib_s, messages_s, .. } => format!(
                " {bytes:<7} {iterations:<12} {peak_mib_s:<17.2} {mib_s:<20.2} {:.6}\n",
                messages_s / 1e6
            ),
        }
    }
}
