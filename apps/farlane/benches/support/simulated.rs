//! The same commands in the simulation: the published machines, with the switch joined by a modelled network.

use engine::{Instant, Nanos, Rng};
use scenarios::file::link::Link;
use scenarios::rig::{Kind, Rig, Seen, Setup, Task, What};
use tunnel::lookahead::Statistics;

const SEED: u64 = 1;
/// Of simulated time, for one measurement.
const LIMIT: Nanos = Nanos::from_secs(36_000);

/// What commands are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) write: bool,
    pub(crate) bytes: u32,
    pub(crate) depth: u32,
    pub(crate) count: u64,
    /// From one to the next at a depth of 1, half of it to three halves: no schedule of a link is met in step.
    pub(crate) gap: Nanos,
    /// One behind the other rather than anywhere.
    pub(crate) in_order: bool,
}

impl Load {
    /// 4 KiB commands anywhere.
    pub(crate) const fn small(write: bool, depth: u32, count: u64) -> Self {
        Self { write, bytes: 4096, depth, count, gap: Nanos::from_millis(10), in_order: false }
    }
}

/// What came of them.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Of each command, sorted.
    times: Vec<Nanos>,
    /// From the first one's beginning to the last one's end.
    elapsed: Nanos,
    bytes: u64,
    count: u64,
    /// What passed the host's port.
    seen: Vec<Seen>,
    /// What went ahead, of all of them.
    pub(crate) ahead: Option<Statistics>,
}

impl Outcome {
    /// What so many of a thousand commands took at most.
    pub(crate) fn quantile(&self, of_a_thousand: usize) -> u64 {
        self.times[(self.times.len() - 1) * of_a_thousand / 1000].get()
    }
    pub(crate) fn commands_per_second(&self) -> f64 {
        self.times.len() as f64 * 1e9 / self.elapsed.get() as f64
    }
    pub(crate) fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.elapsed.get() as f64
    }

    /// How many times a command went there and back one after the other, over a link on which that takes `round_trip` at
    /// least: a packet that came up that much after one that went down, before which no other went down that it could be
    /// the answer to.
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

/// The host's machine at work over `link`.
pub(crate) fn over(link: &Link, lookahead: bool, load: Load) -> Outcome {
    let queue_entries = if load.depth == 1 { 4 } else { (load.depth + 1).next_power_of_two() };
    let data_bytes = u64::from(load.depth * load.bytes).max(Setup::DATA_BYTES);
    let setup = Setup { lookahead, queue_entries, data_bytes, ..Setup::published(SEED) };
    let mut rig = Rig::new(&setup, Some(link.network(&Rng::from_seed(SEED))));
    rig.boot().expect("the far SSD comes up");
    let before = rig.lookahead();
    rig.analyse(load.depth == 1);
    let task = Task::Commands {
        kind: if load.write { Kind::Write } else { Kind::Read },
        count: load.count,
        bytes: load.bytes,
        depth: load.depth,
        gap: load.gap,
        random: !load.in_order,
    };
    let outcome = rig.run(task, LIMIT).expect("the commands end");
    assert_eq!(outcome.failed, 0, "commands failed in the simulation");
    let mut times = outcome.times;
    times.sort_unstable();
    Outcome {
        times,
        elapsed: outcome.ended - outcome.began,
        bytes: outcome.bytes,
        count: load.count,
        seen: rig.analyse(false),
        ahead: rig.lookahead().zip(before).map(|(after, before)| since(&after, &before)),
    }
}

/// How long the host takes until it drives the controller: enumeration, and the controller's initialisation.
pub(crate) fn boot(link: &Link) -> Nanos {
    let setup = Setup { lookahead: true, ..Setup::published(SEED) };
    Rig::new(&setup, Some(link.network(&Rng::from_seed(SEED)))).boot().expect("the far SSD comes up")
}

/// What was added.
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
