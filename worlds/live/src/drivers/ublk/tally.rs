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
