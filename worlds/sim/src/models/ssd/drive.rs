//! An SSD driven to its limits without a host: with a number of commands at a time, or at a rate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use engine::{Instant, Rng};

use super::{Parameters, Sheet, Ssd};

/// Length of a command of a random workload, in bytes.
const SMALL: u64 = 4 << 10;
/// Length of a command of a sequential workload, in bytes.
const LARGE: u64 = 128 << 10;
/// Number of sequential commands at a time.
const LARGE_DEPTH: usize = 32;
/// Number of bytes in a megabyte.
const MB: u64 = 1_000_000;

/// Commands for an SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Whether the commands are writes.
    pub write: bool,
    /// Whether the offsets are random, and not one after the other.
    pub random: bool,
    /// Length of a command in bytes.
    pub length: u64,
    /// Number of commands at a time.
    pub depth: usize,
    /// Number of commands in all.
    pub count: u64,
    /// Bytes a second at which commands become due; `None` means as fast as possible.
    pub rate: Option<u64>,
}

/// An executed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// When the command was due.
    pub due: Instant,
    /// When the command was complete.
    pub at: Instant,
}

/// Gives `ssd` the commands of `load` from `start` on, and calls `done` after each, in the order in
/// which they were given; returns when the last one is complete. Offsets lie in the first `span`
/// bytes.
pub fn run(
    ssd: &mut Ssd,
    load: &Load,
    start: Instant,
    span: u64,
    rng: &mut Rng,
    mut done: impl FnMut(Done),
) -> Instant {
    let slots = (span / load.length.max(1)).max(1);
    let mut under_way = BinaryHeap::new();
    let (mut now, mut end) = (start, start);
    let before = ssd.parameters().fetch + ssd.parameters().firmware;
    let completion = ssd.parameters().completion;
    for number in 0..load.count {
        let due = load.rate.map_or(now, |rate| start + super::transfer(number * load.length, rate));
        now = now.max(due);
        if under_way.len() >= load.depth.max(1)
            && let Some(Reverse(at)) = under_way.pop()
        {
            now = now.max(at);
        }
        let due = if load.rate.is_some() { due } else { now };
        let offset = load.length * if load.random { rng.below(slots) } else { number % slots };
        let at = if load.write {
            ssd.write(now + before, offset, load.length)
        } else {
            ssd.read(now + before, offset, load.length, |_, _, _| ())
        } + completion;
        under_way.push(Reverse(at));
        end = end.max(at);
        done(Done { due, at });
    }
    end
}

/// Each figure of `sheet` compared with the model: the quantity, the sheet's value and the model's,
/// and the unit.
///
/// # Panics
/// When no model has the name in the sheet.
pub fn beside(sheet: &Sheet, seed: u64) -> Vec<(&'static str, Option<u64>, u64, &'static str)> {
    let parameters = Parameters::named(sheet.model).expect("a sheet of a known model");
    let rate = |write, random, length, depth, count, full: bool| {
        let mut rng = Rng::from_seed(seed);
        let mut ssd = Ssd::new(parameters, rng.fork("ssd"));
        if full {
            ssd.cells.fill(parameters.cache);
        }
        let load = Load { write, random, length, depth, count, rate: None };
        let end = run(&mut ssd, &load, Instant::ZERO, parameters.capacity, &mut rng, |_| ());
        let nanos = u128::from((end - Instant::ZERO).get().max(1));
        move |unit: u64| u64::try_from(u128::from(count * unit) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
    };
    let single = |at: usize| sheet.single.map(|single| single[at]);
    let large = |write, count, full| rate(write, false, LARGE, LARGE_DEPTH, count, full)(LARGE) / MB;
    let small = |write, depth, count| rate(write, true, SMALL, depth, count, false)(1);
    vec![
        ("sequential read", Some(sheet.sequential[0]), large(false, 20_000, false), "MB/s"),
        ("sequential write", Some(sheet.sequential[1]), large(true, 40_000, false), "MB/s"),
        ("sequential write, cache full", sheet.direct, large(true, 40_000, true), "MB/s"),
        ("random read", Some(sheet.random[0]), small(false, sheet.depth, 200_000), "a second"),
        ("random write", Some(sheet.random[1]), small(true, sheet.depth, 200_000), "a second"),
        ("random read, one at a time", single(0), small(false, 1, 20_000), "a second"),
        ("random write, one at a time", single(1), small(true, 1, 20_000), "a second"),
    ]
}
