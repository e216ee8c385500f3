//! The stream that packets go to.

use engine::Instant;

use super::Taker;
use crate::Missed;
use crate::format::{Place, Time};
use crate::sequence::{Loss, Losses};

/// A stream of a recorder, at one moment.
pub struct Lane<'a> {
    /// The recorder.
    pub taker: &'a mut dyn Taker,
    /// The number of the stream.
    pub stream: usize,
    /// The time now.
    pub now: Instant,
}

impl core::fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { stream, now, .. } = self;
        f.debug_struct("Lane").field("stream", stream).field("now", now).finish_non_exhaustive()
    }
}

impl Lane<'_> {
    /// Where the next bytes go, if there is room.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        self.taker.room(self.now, self.stream)
    }

    /// The first `bytes` of the room are filled, at `time`.
    pub fn filled(&mut self, bytes: usize, time: Time) {
        if bytes > 0 {
            self.taker.filled(self.now, self.stream, bytes, time);
        }
    }

    /// Declares `bytes` of a stream without packets lost, because the buffer is full.
    pub fn lose(&mut self, bytes: u64, when: u64) {
        self.declare(Missed { packets: 0, bytes, when, place: Place::Ring });
    }

    /// Room for at least `bytes` bytes, in a new chunk if need be.
    pub(super) fn room_for(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.room()?.len() < bytes {
            self.taker.end_chunk(self.stream);
        }
        self.room().filter(|room| room.len() >= bytes)
    }

    pub(super) fn declare(&mut self, missed: Missed) {
        self.taker.miss(self.now, self.stream, missed);
    }

    /// Declares packets lost, each with a head of `head` bytes.
    pub(super) fn miss(&mut self, loss: Loss, head: usize, when: u64, place: Place) {
        let heads = loss.packets.saturating_mul(head as u64);
        let bytes = if loss.bytes > 0 { loss.bytes.saturating_add(heads) } else { 0 };
        self.declare(Missed { packets: loss.packets, bytes, when, place });
    }

    /// Declares the losses before a packet. A restart by itself is no known loss.
    pub(super) fn miss_before(&mut self, losses: &Losses, head: usize, when: u64) {
        let known = [(losses.socket, Place::Socket), (losses.wire, Place::Wire)];
        let restart = losses.restarted.then(|| (Loss::default(), Place::Wire));
        for (loss, place) in known.into_iter().filter(|(loss, _)| loss.packets > 0).chain(restart) {
            self.miss(loss, head, when, place);
        }
    }

    /// Declares a packet lost that has no room. `bytes` is the length of the missing part of its
    /// record.
    pub(super) fn lose_packet(&mut self, bytes: usize, when: u64) {
        self.declare(Missed { packets: 1, bytes: bytes as u64, when, place: Place::Ring });
    }

    /// Records the bytes of a packet across chunks. Bytes without room are lost.
    pub(super) fn spread(&mut self, mut bytes: &[u8], time: Time) {
        while !bytes.is_empty() {
            let Some(room) = self.room() else { return self.lose_packet(bytes.len(), time.nanos) };
            let (first, rest) = bytes.split_at(room.len().min(bytes.len()));
            room[..first.len()].copy_from_slice(first);
            self.filled(first.len(), time);
            bytes = rest;
        }
    }
}
