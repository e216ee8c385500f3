//! Counts and durations of the I/O commands of each namespace and each controller.
//!
//! A tally only counts: nothing in the subsystem depends on it. It has a fixed size, and grows when
//! a namespace or a status is seen for the first time.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::{Instant, Nanos};
use serde::{Deserialize, Serialize};

use super::slots::Slot;
use crate::wire::{IoOpcode, NamespaceId, Status, StatusCode};

/// The upper bounds of the classes into which [`Latencies`] sorts times. Longer times have a class
/// of their own.
pub const LATENCY_BOUNDS: [Nanos; 21] = {
    let mut bounds = [Nanos::ZERO; 21];
    let (mut index, mut decade) = (0, 1_000);
    while index < bounds.len() {
        // 2, 5 and 10 of each decade.
        let factor = [2, 5, 10][index % 3];
        bounds[index] = Nanos::new(decade * factor);
        if factor == 10 {
            decade *= 10;
        }
        index += 1;
    }
    bounds
};

/// Maximum number of statuses that a tally distinguishes. Further ones are counted as one.
const STATUSES_MAX: usize = 32;

/// A distribution of times, in the classes of [`LATENCY_BOUNDS`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    counts: [u64; LATENCY_BOUNDS.len() + 1],
    sum: Nanos,
}

impl Latencies {
    /// Counts something that took `length`.
    pub fn count(&mut self, length: Nanos) {
        self.counts[LATENCY_BOUNDS.partition_point(|bound| *bound < length)] += 1;
        self.sum += length;
    }

    /// Adds the counts of other times.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }

    /// How many times each class has, the class beyond the last bound included.
    pub const fn counts(&self) -> &[u64; LATENCY_BOUNDS.len() + 1] {
        &self.counts
    }

    /// All times added.
    pub const fn sum(&self) -> Nanos {
        self.sum
    }
}

/// The kind of access of a command to its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command reads blocks.
    Read,
    /// The command writes blocks.
    Write,
    /// Any other I/O command.
    Other,
}

impl Kind {
    /// All kinds, in the order in which tallies have them.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    fn of(slot: &Slot) -> Self {
        match IoOpcode::from(slot.entry.opcode) {
            IoOpcode::Read => Self::Read,
            IoOpcode::Write => Self::Write,
            _ => Self::Other,
        }
    }
}

/// A part of a command's time in the subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting for the host's data.
    Link,
    /// Waiting for the medium.
    Medium,
    /// The rest: waiting for other commands.
    Wait,
    /// From the arrival of the command to its completion.
    Whole,
}

impl Phase {
    /// All phases, in the order in which tallies have them.
    pub const ALL: [Self; 4] = [Self::Link, Self::Medium, Self::Wait, Self::Whole];
}

/// When the command in a slot began, and how long it has waited for each party.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Spent {
    begun: Instant,
    /// When the command began to wait for its host or its medium.
    since: Instant,
    link: Nanos,
    medium: Nanos,
}

impl Spent {
    /// The time of a command that arrives at `now`.
    pub(super) const fn new(now: Instant) -> Self {
        Self { begun: now, since: now, link: Nanos::ZERO, medium: Nanos::ZERO }
    }

    /// Notes that the command begins to wait for its host or its medium.
    #[inline]
    pub(super) const fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// Notes that the command's wait for its host is over.
    #[inline]
    pub(super) fn end_link(&mut self, now: Instant) {
        self.link += now - self.since;
    }

    /// Notes that the medium has answered the command.
    #[inline]
    pub(super) fn end_medium(&mut self, now: Instant) {
        self.medium += now - self.since;
    }
}

/// Counts of commands of one kind.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct KindTally {
    /// Commands that succeeded.
    pub operations: u64,
    /// Bytes that these transferred between host and controller.
    pub bytes: u64,
    /// Commands that failed.
    pub errors: u64,
}

impl KindTally {
    const fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.errors += other.errors;
    }

    fn count(&mut self, slot: &Slot, status: Status) {
        if status.is_success() {
            self.operations += 1;
            self.bytes += u64::from(slot.length);
        } else {
            self.errors += 1;
        }
    }
}

/// Counts of a host's commands through one controller, by [`Kind`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HostTally([KindTally; Kind::ALL.len()]);

impl HostTally {
    /// The counts of commands of `kind`.
    pub const fn of(&self, kind: Kind) -> &KindTally {
        &self.0[kind as usize]
    }

    /// Adds the counts of a lane.
    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(kind, more)| kind.add(more));
    }

    #[inline]
    pub(super) fn count(&mut self, slot: &Slot, status: Status) {
        self.0[Kind::of(slot) as usize].count(slot, status);
    }
}

/// Counts of the commands to one namespace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NamespaceTally {
    kinds: [KindTally; Kind::ALL.len()],
    latencies: [[Latencies; Phase::ALL.len()]; Kind::ALL.len()],
    statuses: Vec<(StatusCode, u64)>,
    /// Failures whose statuses had no room.
    other_statuses: u64,
}

impl NamespaceTally {
    /// The counts of commands of `kind`.
    pub const fn of(&self, kind: Kind) -> &KindTally {
        &self.kinds[kind as usize]
    }

    /// How long commands of `kind` took, those that failed included.
    pub const fn latencies(&self, kind: Kind, phase: Phase) -> &Latencies {
        &self.latencies[kind as usize][phase as usize]
    }

    /// The statuses with which commands failed, each with its number of commands.
    pub fn statuses(&self) -> &[(StatusCode, u64)] {
        &self.statuses
    }

    /// The number of commands that failed with further statuses.
    pub const fn other_statuses(&self) -> u64 {
        self.other_statuses
    }

    fn add(&mut self, other: &Self) {
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(kind, more)| kind.add(more));
        let latencies = self.latencies.iter_mut().flatten().zip(other.latencies.iter().flatten());
        latencies.for_each(|(latencies, more)| latencies.add(more));
        other.statuses.iter().for_each(|(code, count)| self.count_statuses(*code, *count));
        self.other_statuses += other.other_statuses;
    }

    #[inline]
    fn count(&mut self, now: Instant, slot: &Slot, status: Status) {
        let kind = Kind::of(slot) as usize;
        self.kinds[kind].count(slot, status);
        let Spent { begun, link, medium, .. } = slot.spent;
        let whole = now - begun;
        let wait = whole.saturating_sub(link).saturating_sub(medium);
        let lengths = [link, medium, wait, whole];
        for (latencies, length) in self.latencies[kind].iter_mut().zip(lengths) {
            latencies.count(length);
        }
        if !status.is_success() {
            self.count_statuses(status.code(), 1);
        }
    }

    #[cold]
    fn count_statuses(&mut self, code: StatusCode, failures: u64) {
        let has_room = self.statuses.len() < STATUSES_MAX;
        match self.statuses.iter_mut().find(|(one, _)| *one == code) {
            Some((_, count)) => *count += failures,
            None if has_room => self.statuses.push((code, failures)),
            None => self.other_statuses += failures,
        }
    }
}

/// The tallies of all namespaces: index n is for namespace n + 1.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Tallies(Vec<Option<Box<NamespaceTally>>>);

impl Tallies {
    /// Counts a command that ends at `now` with `status`. `is_valid` says whether its namespace
    /// identifier is one that the subsystem can have.
    #[inline]
    pub(super) fn count(&mut self, now: Instant, slot: &Slot, status: Status, is_valid: bool) {
        let index = usize::try_from(slot.entry.namespace.0.wrapping_sub(1)).unwrap_or(usize::MAX);
        match self.0.get_mut(index) {
            Some(Some(tally)) => tally.count(now, slot, status),
            _ if is_valid => self.begin(index).count(now, slot, status),
            _ => {}
        }
    }

    /// Adds the counts of a lane.
    pub(super) fn add(&mut self, other: &Self) {
        for (index, tally) in other.0.iter().enumerate() {
            if let Some(tally) = tally {
                self.begin(index).add(tally);
            }
        }
    }

    #[cold]
    fn begin(&mut self, index: usize) -> &mut NamespaceTally {
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index].get_or_insert_default()
    }

    /// The tallies of the namespaces that commands have named.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NamespaceId, &NamespaceTally)> {
        (1..).map(NamespaceId).zip(&self.0).filter_map(|(id, tally)| Some((id, tally.as_deref()?)))
    }
}
