//! How much data an I/O command moves.

use nvme::wire::{IoOpcode, SubmissionQueueEntry};

/// Bytes of a Dataset Management range, of a Copy source range of format 0, and of reservation
/// data.
const DATASET_RANGE: u64 = 16;
const COPY_RANGE: u64 = 32;
const RESERVATION_KEYS: u64 = 16;
const RESERVATION_KEY: u64 = 8;

/// How much data a command moves, and in which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// Length of the data in bytes, not 0.
    pub(crate) length: u64,
    /// Whether the data moves from host memory to the controller.
    pub(crate) to_controller: bool,
}

impl Transfer {
    /// The transfer of an I/O command of the NVM Command Set, if the command is known to move data.
    /// `block` is the number of bytes of a logical block with all that travels with it.
    pub(crate) fn of(entry: &SubmissionQueueEntry, block: u64) -> Option<Self> {
        let [count, format, ..] = entry.cdw12.to_le_bytes();
        // Number of Logical Blocks (NLB) and similar fields are 0's based.
        let blocks = u64::from(u16::from_le_bytes([count, format])) + 1;
        let [ranges, ..] = entry.cdw10.to_le_bytes();
        let (length, to_controller) = match IoOpcode::from(entry.opcode) {
            IoOpcode::Write | IoOpcode::Compare => (blocks * block, true),
            IoOpcode::Read => (blocks * block, false),
            IoOpcode::DatasetManagement => ((u64::from(ranges) + 1) * DATASET_RANGE, true),
            IoOpcode::Copy if format & 0xf == 0 => ((u64::from(count) + 1) * COPY_RANGE, true),
            IoOpcode::ReservationRegister | IoOpcode::ReservationAcquire => (RESERVATION_KEYS, true),
            IoOpcode::ReservationRelease => (RESERVATION_KEY, true),
            _ => return None,
        };
        Some(Self { length, to_controller })
    }
}
