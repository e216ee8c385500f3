//! Data of long segments, which arrive directly in their place, before their CRC is checked.
//!
//! Until then, they do not count as written, and an end that finds a wrong CRC ends the connection.
//! Bytes of an earlier write at that place may be lost then.

use alloc::collections::VecDeque;

use engine::BufferMut;
use rdma::{AccessError, Disconnected, Key, Remote, WorkError};

use super::receive::Refusal;
use super::transmit::{Reading, narrow};
use super::{Connection, State};
use crate::Config;
use crate::inbound::{HEAD_LENGTH, Place, Placed};
use crate::wire::{CRC_LENGTH, Fault, Header, LENGTH_FIELD, Opcode, Shown};

/// Shorter data are assembled with the rest of their FPDU.
const PLACED_MIN: usize = 512;

/// The head of a tagged segment.
#[derive(Clone, Copy, Debug)]
struct Tagged {
    opcode: Opcode,
    last: bool,
    key: Key,
    address: u64,
    /// Length of its data in bytes.
    length: usize,
}

impl Tagged {
    /// Parses the head of a tagged segment; `None` for other segments.
    fn parse(head: &[u8; HEAD_LENGTH]) -> Option<Self> {
        let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let length = length.checked_sub(Header::TAGGED_LENGTH)?;
        match Header::parse(&head[LENGTH_FIELD..]) {
            Ok(Header::Tagged { opcode, last, key, address }) => {
                Some(Self { opcode, last, key, address, length })
            }
            _ => None,
        }
    }

    /// The memory that it names.
    const fn remote(&self) -> Remote {
        #[expect(clippy::cast_possible_truncation, reason = "a segment is shorter than 64 KiB")]
        let length = self.length as u32;
        Remote { key: self.key, address: self.address, length }
    }
}

/// The place of a segment's data. `None` for an invalid segment, or one without a place of its own:
/// it is checked when it is complete.
pub(super) fn place(
    config: &Config,
    reads: &mut VecDeque<Reading>,
    head: &[u8; HEAD_LENGTH],
) -> Option<Place> {
    let tagged = Tagged::parse(head).filter(|tagged| tagged.length >= PLACED_MIN)?;
    if tagged.opcode == Opcode::Write {
        return config.domain.borrow_mut().lift(config.queue_pair, tagged.remote()).ok();
    }
    let reading = reads.front_mut()?;
    let bytes = narrow(tagged.length);
    if reading.judge(tagged.last, tagged.key, tagged.address, bytes).is_err() {
        return None;
    }
    let block = reading.block.take();
    let block = block.unwrap_or_else(|| config.pool.borrow_mut().take(reading.length as usize));
    let start = reading.filled as usize;
    Some((block, start..start + tagged.length))
}

impl Connection {
    /// Handles a complete segment whose data are in their place.
    pub(super) fn on_placed(&mut self, placed: Placed) {
        if !matches!(self.state, State::Ready) {
            return;
        }
        let (padding, crc) = placed.tail().split_at(placed.tail().len() - CRC_LENGTH);
        let parts: [&[u8]; 3] = [&placed.head, placed.data(), padding];
        let sum = parts.iter().fold(0, |sum, part| (self.config.crc32c)(sum, part));
        if self.crc && sum.to_le_bytes() != *crc {
            self.put_back(placed);
            let why = Disconnected::PeerFault(Fault::CRC.describe());
            self.terminate(Fault::CRC, Shown::Nothing, why, WorkError::Flushed);
            return;
        }
        self.may_send = true;
        self.wake = None;
        let Placed { head, block, range, .. } = placed;
        let Some(tagged) = Tagged::parse(&head) else { return };
        if tagged.opcode != Opcode::Write {
            self.on_part(narrow(tagged.length), block);
            return;
        }
        let mut domain = self.config.domain.borrow_mut();
        let written = domain.put_back(self.config.queue_pair, tagged.key, block, range);
        drop(domain);
        if let Err(error) = written {
            let Refusal { fault, why, request, .. } = Refusal::access(Fault::of_write(error), error);
            self.terminate(fault, Shown::Segment(&head), why, request);
        }
    }

    /// Handles a part of the response to the oldest read, in `block`.
    fn on_part(&mut self, bytes: u32, block: BufferMut) {
        let Some(reading) = self.reads.front_mut() else { return };
        reading.filled += bytes;
        if reading.filled < reading.length {
            reading.block = Some(block);
            return;
        }
        let data = self.config.pool.borrow_mut().seal(block);
        self.finish_read(data);
    }

    /// Gives the place of a segment back, without its data.
    fn put_back(&mut self, placed: Placed) {
        let Some(tagged) = Tagged::parse(&placed.head) else { return };
        if tagged.opcode == Opcode::Write {
            let mut domain = self.config.domain.borrow_mut();
            // A region that no longer exists needs no memory.
            let _: Result<(), AccessError> =
                domain.put_back(self.config.queue_pair, tagged.key, placed.block, 0..0);
        }
    }

    /// Takes the place away from data that are still arriving in the memory of `key`, or in any
    /// memory if the connection is over: the user wants the memory back.
    pub(super) fn displace(&mut self, key: Option<Key>) {
        let is_it = |head: &[u8; HEAD_LENGTH]| {
            let named = Tagged::parse(head).filter(|tagged| tagged.opcode == Opcode::Write);
            named.is_some_and(|tagged| key.is_none_or(|key| tagged.key == key))
        };
        if let Some(placed) = self.inbound.displace(&self.config.pool, is_it) {
            self.put_back(placed);
        }
    }
}
