//! The same commands in the simulation, on the machines of published measurements, with a modelled
//! network inside the switch.

use engine::{Instant, Nanos, Rng};
use nvme_lookahead::Statistics;
use scenarios::file::link::Link;
use scenarios::test_bench::{Kind, Seen, Setup, Task, TestBench, What};

const SEED: u64 = 1;
/// Most simulated time for one measurement.
const LIMIT: Nanos = Nanos::from_secs(36_000);

/// The commands to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) write: bool,
    pub(crate) bytes: u32,
    pub(crate) depth: u32,
    pub(crate) count: u64,
    /// Mean time from one command to the next at a depth of 1. Gaps vary from half to three halves
    /// of it, so that commands don't keep step with a link's schedule.
    pub(crate) gap: Nanos,
    /// Whether commands follow each other on the medium, rather than being anywhere.
    pub(crate) in_order: bool,
}

impl Load {
    /// A load of 4 KiB commands at random places, 10 ms apart at a depth of 1.
    pub(crate) const fn small(write: bool, depth: u32, count: u64) -> Self {
        Self { write, bytes: 4096, depth, count, gap: Nanos::from_millis(10), in_order: false }
    }
}

/// The measurements of the commands.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Latency of each command, in rising order.
    times: Vec<Nanos>,
    /// Time from the beginning of the first command to the end of the last one.
    elapsed: Nanos,
    bytes: u64,
    count: u64,
    /// Packets that passed the host's port.
    seen: Vec<Seen>,
    /// The data sent ahead for the commands; none without lookahead.
    pub(crate) ahead: Option<Statistics>,
}

impl Outcome {
    /// Nanoseconds that `of_a_thousand` thousandths of the commands took at most.
    pub(crate) fn quantile(&self, of_a_thousand: usize) -> u64 {
        self.times[(self.times.len() - 1) * of_a_thousand / 1000].get()
    }
    pub(crate) fn commands_per_second(&self) -> f64 {
        self.times.len() as f64 * 1e9 / self.elapsed.get() as f64
    }
    pub(crate) fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.elapsed.get() as f64
    }

    /// Round trips per command that had to follow each other, over a link whose round trip takes
    /// `round_trip` at least. A round trip is counted for a packet that came up at least that long
    /// after the first request, other than of configuration, that went down since the last counted
    /// trip.
    pub(crate) fn round_trips(&self, round_trip: Nanos) -> f64 {
        let (mut trips, mut asked) = (0_u64, None::<Instant>);
        for seen in &self.seen {
            match asked {
                None if seen.down && seen.what != What::Config => asked = Some(seen.at),
                Some(at) if !seen.down && seen.at >= at + round_trip => {
                    trips += 1;
                    asked = None;
                }
                _ => {}
            }
        }
        trips as f64 / self.count as f64
    }
}

/// Simulates `load` on the host's machine over `link`.
pub(crate) fn over(link: &Link, lookahead: bool, load: Load) -> Outcome {
    let queue_entries = if load.depth == 1 { 4 } else { (load.depth + 1).next_power_of_two() };
    let data_bytes = u64::from(load.depth * load.bytes).max(Setup::DATA_BYTES);
    let setup = Setup { lookahead, queue_entries, data_bytes, ..Setup::published(SEED) };
    let mut bench = TestBench::new(&setup, Some(link.network(&Rng::from_seed(SEED))));
    bench.boot().expect("the far SSD comes up");
    let before = bench.lookahead();
    bench.analyse(load.depth == 1);
    let task = Task::Commands {
        kind: if load.write { Kind::Write } else { Kind::Read },
        count: load.count,
        bytes: load.bytes,
        depth: load.depth,
        gap: load.gap,
        random: !load.in_order,
    };
    let outcome = bench.run(task, LIMIT).expect("the commands end");
    assert_eq!(outcome.failed, 0, "commands failed in the simulation");
    let mut times = outcome.times;
    times.sort_unstable();
    Outcome {
        times,
        elapsed: outcome.ended - outcome.began,
        bytes: outcome.bytes,
        count: load.count,
        seen: bench.analyse(false),
        ahead: bench.lookahead().zip(before).map(|(after, before)| since(&after, &before)),
    }
}

/// How long the host takes until it drives the controller: the enumeration and the controller's
/// initialisation.
pub(crate) fn boot(link: &Link) -> Nanos {
    let setup = Setup { lookahead: true, ..Setup::published(SEED) };
    TestBench::new(&setup, Some(link.network(&Rng::from_seed(SEED)))).boot().expect("the far SSD comes up")
}

/// The counts that were added from `before` to `after`.
fn since(after: &Statistics, before: &Statistics) -> Statistics {
    Statistics {
        entries: after.entries - before.entries,
        pieces: after.pieces - before.pieces,
        bytes: after.bytes - before.bytes,
        over_budget: after.over_budget - before.over_budget,
        given_up: after.given_up - before.given_up,
        reads: after.reads - before.reads,
        bytes_read: after.bytes_read - before.bytes_read,
        ..*after
    }
}
