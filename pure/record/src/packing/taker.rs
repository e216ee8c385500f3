//! The part of a recorder that packing needs, with a container or without.

use engine::Instant;

use crate::format::{Gap, Reason, Time};
use crate::{Missed, Progress, RawRecorder, Recorder};

/// Takes the bytes of streams: a [`Recorder`] or a [`RawRecorder`]. See these for each method.
pub trait Taker {
    /// See [`Recorder::room`].
    fn room(&mut self, now: Instant, stream: usize) -> Option<&mut [u8]>;

    /// See [`Recorder::filled`].
    fn filled(&mut self, now: Instant, stream: usize, bytes: usize, time: Time);

    /// See [`Recorder::end_chunk`].
    fn end_chunk(&mut self, stream: usize);

    /// See [`Recorder::miss`].
    fn miss(&mut self, now: Instant, stream: usize, missed: Missed);

    /// Whether a byte's place in its stream is its address on the medium. Packets then have no
    /// heads and lie across chunks, and a packet that was counted as lost has no place any more.
    fn keeps_places(&self) -> bool;

    /// How far the recording is.
    fn progress(&self) -> Progress;

    /// The gaps so far; the first 65,536 of them.
    fn gaps(&self) -> &[Gap];

    /// Whether bytes are still taken.
    fn is_recording(&self) -> bool;

    /// Ends the recording: everything that came is written. The first reason counts.
    fn finish(&mut self, reason: Reason);
}

impl Taker for Recorder {
    fn room(&mut self, now: Instant, stream: usize) -> Option<&mut [u8]> {
        self.room(now, stream)
    }

    fn filled(&mut self, now: Instant, stream: usize, bytes: usize, time: Time) {
        self.filled(now, stream, bytes, time);
    }

    fn end_chunk(&mut self, stream: usize) {
        self.end_chunk(stream);
    }

    fn miss(&mut self, now: Instant, stream: usize, missed: Missed) {
        self.miss(now, stream, missed);
    }

    fn keeps_places(&self) -> bool {
        false
    }

    fn progress(&self) -> Progress {
        self.progress()
    }

    fn gaps(&self) -> &[Gap] {
        self.gaps()
    }

    fn is_recording(&self) -> bool {
        self.is_recording()
    }

    fn finish(&mut self, reason: Reason) {
        self.finish(reason);
    }
}

/// The only stream has number 0.
impl Taker for RawRecorder {
    fn room(&mut self, now: Instant, _stream: usize) -> Option<&mut [u8]> {
        self.room(now)
    }

    fn filled(&mut self, _now: Instant, _stream: usize, bytes: usize, _time: Time) {
        self.filled(bytes);
    }

    fn end_chunk(&mut self, _stream: usize) {}

    fn miss(&mut self, _now: Instant, _stream: usize, missed: Missed) {
        self.miss(missed);
    }

    fn keeps_places(&self) -> bool {
        true
    }

    fn progress(&self) -> Progress {
        self.progress()
    }

    fn gaps(&self) -> &[Gap] {
        self.gaps()
    }

    fn is_recording(&self) -> bool {
        self.is_recording()
    }

    fn finish(&mut self, reason: Reason) {
        self.finish(reason);
    }
}
