//! Where things are in the window.

use crate::line::LINE;

/// Number of queues of a card.
pub const QUEUES: usize = 4;
/// Number of transmit slots of a queue, and of its receive lines.
pub const SLOTS: u64 = 256;

/// Length in bytes of a queue's part of the window.
const QUEUE_BYTES: u64 = 0x1_0000;
/// Offset of the receive lines in a queue's part.
const RECEIVE: u64 = 0x4000;
/// Offset of the line in which the card reports transmit slots.
const CREDIT: u64 = 0x8000;
/// Offset of the line in which the host reports receive lines. It is a page away from the card's:
/// each line has one writer, and processors prefetch neighbours.
const TAKEN: u64 = 0x9000;
/// Length of the window in bytes.
#[expect(clippy::cast_possible_truncation, reason = "256 KiB, which any address space holds")]
pub const WINDOW_BYTES: usize = QUEUE_BYTES as usize * QUEUES;

const fn base(queue: usize) -> u64 {
    queue as u64 * QUEUE_BYTES
}

/// Offset of transmit slot `number` of a queue.
pub(crate) const fn slot_at(queue: usize, number: u64) -> u64 {
    base(queue) + number % SLOTS * LINE as u64
}

/// Offset of receive line `number` of a queue.
pub(crate) const fn line_at(queue: usize, number: u64) -> u64 {
    base(queue) + RECEIVE + number % SLOTS * LINE as u64
}

/// Offset of the card's credit line: the number of slots that it has taken, and the number of these
/// on the wire, up to the last that requested a completion; 8 bytes each.
pub(crate) const fn credit_at(queue: usize) -> u64 {
    base(queue) + CREDIT
}

/// Offset of the word, 8 bytes of the credit line, that is not 0 while the card sleeps.
pub(crate) const fn asleep_at(queue: usize) -> u64 {
    credit_at(queue) + 16
}

/// Offset of the host's line: the number of receive lines that it has taken, 8 bytes.
pub(crate) const fn taken_at(queue: usize) -> u64 {
    base(queue) + TAKEN
}

/// Offset of the word, 8 bytes of the host's line, with the number of receive lines for which the
/// host awaits an interrupt.
pub(crate) const fn awaited_at(queue: usize) -> u64 {
    taken_at(queue) + 8
}
