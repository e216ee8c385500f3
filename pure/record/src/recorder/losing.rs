//! Packets that did not come, or came and had no room.

use engine::Instant;

use super::{Phase, Recorder};
use crate::format::{Cause, Gap, Place};

/// How many gaps may end a chunk early, until as many chunks were full.
const CUTS_MAX: u32 = 64;
/// No stream is said to be longer than this, so that no number of bytes overflows.
const STREAM_MAX: u64 = 1 << 62;

/// How many gaps may still end a chunk before it is full. A sender of packets with bad numbers
/// could otherwise fill the buffer and the medium with short chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cuts(u32);

impl Default for Cuts {
    fn default() -> Self {
        Self(CUTS_MAX)
    }
}

impl Cuts {
    pub(super) fn on_full_chunk(&mut self) {
        self.0 = CUTS_MAX.min(self.0 + 1);
    }

    const fn take(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }
}

/// Packets that a stream has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// How many; 0 if that is not known, or if the sender started over and no byte is lost.
    pub packets: u64,
    /// How many bytes of the stream they would have been, heads of records included; 0 if that is
    /// not known.
    pub bytes: u64,
    /// When, in nanoseconds since 1970.
    pub when: u64,
    /// Where.
    pub place: Place,
}

impl Missed {
    /// Why they are missed.
    pub(crate) const fn cause(&self) -> Cause {
        match (self.place, self.packets, self.bytes) {
            (Place::Wire, 0, 0) => Cause::Restarted,
            (Place::Wire, ..) => Cause::NeverCame,
            _ => Cause::Overflow,
        }
    }
}

impl Recorder {
    /// Whether bytes are still taken.
    pub fn is_recording(&self) -> bool {
        self.phase == Phase::Recording
    }

    fn counts_bytes(&self, stream: usize, missed: &Missed) -> bool {
        let account = &self.streams[stream];
        let end = account.bytes_in.saturating_add(missed.bytes);
        // Received bytes without room are always counted: the certificate accounts for them.
        let may_cut = !self.has_bytes(stream) || missed.place == Place::Ring || account.cuts.0 > 0;
        missed.bytes > 0 && end <= STREAM_MAX && may_cut
    }

    pub(super) fn has_bytes(&self, stream: usize) -> bool {
        self.streams[stream].filling.as_ref().is_some_and(|filling| filling.length > 0)
    }

    /// Declares that packets of a stream are lost, before the byte that comes next. If their
    /// bytes are known, they count as bytes of the stream and end a chunk, as [`Recorder::lose`]
    /// does. A stream that lost packets before nearly every chunk was full declares further ones
    /// without bytes.
    ///
    /// # Panics
    /// When there is no such stream.
    pub fn miss(&mut self, now: Instant, stream: usize, missed: Missed) {
        if self.phase != Phase::Recording {
            return;
        }
        self.arm(now);
        let counts = self.counts_bytes(stream, &missed);
        if counts && self.has_bytes(stream) {
            self.streams[stream].cuts.take();
            self.close(stream);
            if self.phase != Phase::Recording {
                return;
            }
        }
        let bytes = if counts { missed.bytes } else { 0 };
        let from = self.streams[stream].bytes_in;
        self.streams[stream].bytes_in += bytes;
        self.progress.bytes_in += bytes;
        self.progress.never_came += if missed.place == Place::Wire { bytes } else { 0 };
        self.clock = self.clock.max(missed.when);
        let number = u32::try_from(stream).unwrap_or(u32::MAX);
        let (packets, when, place) = (missed.packets, missed.when, missed.place);
        let cause = missed.cause();
        self.declare(Gap { stream: number, from, bytes, packets, when, place, cause });
    }
}
