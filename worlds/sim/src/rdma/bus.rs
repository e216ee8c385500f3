//! The PCIe link between a card and its host's memory.

use engine::{Instant, Nanos};

use crate::models::hca::Card;
use crate::models::pcie::{COMPLETION, Class, MEMORY_READ, MEMORY_WRITE, Transmitter};

/// Number of bytes that a card requests with one read (Max_Read_Request_Size).
const READ_MAX: u32 = 512;
/// Length of a completion queue entry in bytes.
const ENTRY: u32 = 64;
/// Length of a doorbell in bytes.
const DOORBELL: u32 = 8;
/// Length of a line of a processor's cache in bytes.
const LINE: u32 = 64;

/// Both directions of the link, and the memory behind it.
#[derive(Debug)]
pub(super) struct Bus {
    card: Card,
    /// From the host to the card.
    down: Transmitter,
    /// From the card to the host.
    up: Transmitter,
}

impl Bus {
    pub(super) fn new(card: Card) -> Self {
        Self { card, down: Transmitter::new(card.link), up: Transmitter::new(card.link) }
    }

    /// The time of a doorbell to the card, or of a request of `inline` bytes that goes with it.
    pub(super) fn ring(&self, inline: Option<u32>) -> Nanos {
        let link = &self.card.link;
        // Lines of 64 bytes, each a write of its own.
        let time = match inline {
            None => link.serialise(MEMORY_WRITE + DOORBELL),
            Some(bytes) => link.serialise(MEMORY_WRITE + LINE) * u64::from((LINE + bytes).div_ceil(LINE)),
        };
        self.card.store + time + link.propagation
    }

    /// Reads `bytes` of memory from `now` on, and calls `part` with the number of available bytes
    /// and the time. Returns when all are available.
    pub(super) fn read(&mut self, now: Instant, bytes: u32, mut part: impl FnMut(u32, Instant)) -> Instant {
        let payload = self.card.link.payload_size;
        let (mut done, mut end) = (0, now);
        while done < bytes {
            let asked = (bytes - done).min(READ_MAX);
            let request = self.up.send(now, Class::NonPosted, MEMORY_READ, 0).arrival;
            let answer = request + self.card.memory_read;
            let mut left = asked;
            while left > 0 {
                let piece = left.min(payload);
                end = self.down.send(answer, Class::Completion, COMPLETION + piece, piece).arrival;
                left -= piece;
                done += piece;
                part(done, end);
            }
        }
        end
    }

    /// Writes `bytes` to memory from `now` on; returns when software can see them.
    pub(super) fn write(&mut self, now: Instant, bytes: u32) -> Instant {
        let (mut left, mut end) = (bytes, now);
        while left > 0 {
            let piece = left.min(self.card.link.payload_size);
            end = self.up.send(now, Class::Posted, MEMORY_WRITE + piece, piece).arrival;
            left -= piece;
        }
        end + self.card.memory_write
    }

    /// Writes a completion queue entry.
    pub(super) fn complete(&mut self, now: Instant) -> Instant {
        self.write(now, ENTRY)
    }
}
