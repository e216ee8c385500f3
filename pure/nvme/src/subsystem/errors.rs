//! Failures of commands, and the Error Information log that keeps them.

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::wire::log::ErrorEntry;
use crate::wire::{QueueId, Status, StatusCode, SubmissionQueueEntry};

/// Number of entries of the Error Information log (ELPE). Older entries are dropped.
pub const ERROR_LOG_ENTRIES: usize = 64;

/// Parameter Error Location: the byte and bit of the command that caused the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location(u16);

impl Location {
    /// No particular field caused the failure.
    pub(crate) const UNSPECIFIED: Self = Self(u16::MAX);
    pub(crate) const OPCODE: Self = Self::at(0, 0);
    pub(crate) const FUSED_OPERATION: Self = Self::at(1, 0);
    pub(crate) const NAMESPACE: Self = Self::at(4, 0);
    pub(crate) const DATA_POINTER: Self = Self::at(24, 0);
    pub(crate) const CDW10: Self = Self::at(40, 0);
    pub(crate) const CDW11: Self = Self::at(44, 0);
    pub(crate) const CDW12: Self = Self::at(48, 0);
    pub(crate) const CDW14: Self = Self::at(56, 0);

    /// The location of bit `bit` in byte `byte` of the command.
    pub(crate) const fn at(byte: u8, bit: u8) -> Self {
        Self(u16::from_le_bytes([byte, bit]))
    }
}

/// The reason why a command failed, and its entry in the Error Information log.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) location: Location,
    pub(crate) lba: u64,
    /// Command-specific result (DW0) of the completion.
    pub(crate) dw0: u32,
}

impl Failure {
    pub(crate) const fn new(code: StatusCode) -> Self {
        Self { status: Status::new(code), location: Location::UNSPECIFIED, lba: 0, dw0: 0 }
    }

    /// A failure that a field of the command caused.
    pub(crate) const fn field(code: StatusCode, location: Location) -> Self {
        Self { status: Status::new(code), location, lba: 0, dw0: 0 }
    }

    /// A failure at a logical block.
    pub(crate) const fn at_lba(code: StatusCode, lba: u64) -> Self {
        Self { status: Status::new(code), location: Location::UNSPECIFIED, lba, dw0: 0 }
    }
}

/// The Error Information log, newest first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    pub(super) fn record(&mut self, queue: QueueId, entry: &SubmissionQueueEntry, failure: &Failure) {
        self.count += 1;
        if self.entries.len() == ERROR_LOG_ENTRIES {
            self.entries.pop_back();
        }
        self.entries.push_front(ErrorEntry {
            error_count: self.count,
            submission_queue: queue.0,
            command_id: entry.command_id.0,
            // Bit 0 is the place of the Phase Tag, here as in a completion.
            status: failure.status.raw() << 1,
            parameter_location: failure.location.0,
            lba: failure.lba,
            namespace: entry.namespace.0,
            ..ErrorEntry::default()
        });
    }

    /// Number of Error Information Log Entries: errors since power-on.
    #[cfg(test)]
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The entries, newest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ErrorEntry> {
        self.entries.iter()
    }
}
