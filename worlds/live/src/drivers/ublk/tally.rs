//! Counts of a block device's requests, and how long they took.

use engine::Nanos;
use nvme::subsystem::Latencies;

use crate::sys::ublk::{Operation, Request};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make writes durable.
    Flush,
    /// Give space back, or write zeroes.
    Discard,
}

impl Kind {
    /// All kinds, in the order in which a tally has them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Discard];

    /// The kind in a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        }
    }

    const fn of(operation: Operation) -> Option<Self> {
        Some(match operation {
            Operation::Read => Self::Read,
            Operation::Write => Self::Write,
            Operation::Flush => Self::Flush,
            Operation::Discard | Operation::WriteZeroes { .. } => Self::Discard,
            Operation::Other(_) => return None,
        })
    }
}

/// Counts of the requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct KindTally {
    /// Requests that succeeded.
    pub operations: u64,
    /// Bytes that these were about.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// How long requests took, those that failed included.
    pub latencies: Latencies,
}

/// Counts of a block device's requests, by [`Kind`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally([KindTally; Kind::ALL.len()]);

impl Tally {
    /// Counts of the requests of `kind`.
    pub const fn of(&self, kind: Kind) -> &KindTally {
        &self.0[kind as usize]
    }

    /// Adds the counts of other requests.
    pub fn add(&mut self, other: &Self) {
        for (ours, theirs) in self.0.iter_mut().zip(&other.0) {
            ours.operations += theirs.operations;
            ours.bytes += theirs.bytes;
            ours.errors += theirs.errors;
            ours.latencies.add(&theirs.latencies);
        }
    }

    pub(super) fn count(&mut self, request: &Request, is_done: bool, length: Nanos) {
        let Some(kind) = Kind::of(request.operation) else { return };
        let tally = &mut self.0[kind as usize];
        if is_done {
            tally.operations += 1;
            tally.bytes += request.length;
        } else {
            tally.errors += 1;
        }
        tally.latencies.count(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let request = |operation| Request { name: 0, operation, durable: false, offset: 0, length: 4096 };
        let (mut one, mut other) = (Tally::default(), Tally::default());
        one.count(&request(Operation::Read), true, Nanos::from_micros(10));
        other.count(&request(Operation::Read), true, Nanos::from_micros(20));
        other.count(&request(Operation::Write), false, Nanos::from_micros(20));
        one.add(&other);
        let (reads, writes) = (one.of(Kind::Read), one.of(Kind::Write));
        assert_eq!((reads.operations, reads.bytes, reads.errors), (2, 8192, 0));
        assert_eq!((writes.operations, writes.errors), (0, 1));
        let each = [reads, writes].map(|kind| kind.latencies.counts().iter().sum::<u64>());
        assert_eq!((each, reads.latencies.sum()), ([2, 1], Nanos::from_micros(30)));
    }
}
