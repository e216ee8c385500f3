//! The state that is kept for one of several paths.

use alloc::collections::VecDeque;

use engine::{Buffer, Instant};

use super::wire::{PREAMBLE_LENGTH, RECORD_LENGTH};
use super::{RECORD_MAX, SILENCE, SPEAK_INTERVAL};

/// A part of our stream, at its offset.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: Buffer,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// The bytes at `offset` of the stream: as many of one piece as a record takes. The pieces in
    /// `kept` are in order and without gaps.
    pub(super) fn at(kept: &VecDeque<Self>, offset: u64) -> Option<Buffer> {
        // Mostly the latest piece is the right one.
        let index = match kept.back() {
            Some(last) if last.offset <= offset => kept.len() - 1,
            _ => kept.partition_point(|piece| piece.end() <= offset),
        };
        let piece = kept.get(index)?;
        let start = usize::try_from(offset - piece.offset).ok()?;
        let end = piece.bytes.len().min(start + RECORD_MAX as usize);
        (start < end).then(|| piece.bytes.slice(start..end))
    }
}

/// One of several paths of a stream.
#[derive(Debug)]
pub(super) struct Path {
    /// Whether the other end's preamble has come.
    pub(super) is_greeted: bool,
    /// A preamble or a record header, as far as it has come.
    head: [u8; PREAMBLE_LENGTH],
    head_length: usize,
    /// How many bytes of the present record have not come, and where they belong.
    pub(super) body: u32,
    pub(super) body_offset: u64,
    /// Offset in our stream of the next record on this path.
    pub(super) next: u64,
    /// Bytes given to the path that it has not taken yet.
    pub(super) given: usize,
    /// Whether a record is due even without data, because something was left out or must be
    /// acknowledged.
    pub(super) owes: bool,
    /// How many bytes were acknowledged on this path.
    pub(super) confirmed: u64,
    pub(super) heard: Instant,
    spoke: Instant,
}

impl Path {
    pub(super) const fn new(now: Instant, next: u64, awaits_answer: bool) -> Self {
        Self {
            is_greeted: !awaits_answer,
            head: [0; PREAMBLE_LENGTH],
            head_length: 0,
            body: 0,
            body_offset: 0,
            next,
            given: 0,
            owes: false,
            confirmed: 0,
            heard: now,
            spoke: now,
        }
    }

    /// Collects the next `N` bytes. Returns how many of `bytes` were taken, and the whole `N` bytes
    /// once they have come.
    pub(super) fn head<const N: usize>(&mut self, bytes: &[u8]) -> (usize, Option<[u8; N]>) {
        if self.head_length == 0
            && let Some(whole) = bytes.first_chunk()
        {
            return (N, Some(*whole));
        }
        let taken = bytes.len().min(N - self.head_length);
        self.head[self.head_length..][..taken].copy_from_slice(&bytes[..taken]);
        self.head_length += taken;
        if self.head_length < N {
            return (taken, None);
        }
        self.head_length = 0;
        (taken, self.head.first_chunk().copied())
    }

    /// Takes `count` bytes of the present record and returns where they belong.
    pub(super) fn on_body(&mut self, count: usize) -> u64 {
        let offset = self.body_offset;
        self.body -= u32::try_from(count).expect("no more than the record's");
        self.body_offset += count as u64;
        offset
    }

    /// Notes a record given to this path, with `length` bytes of data and an acknowledgement of
    /// `delivered`.
    pub(super) const fn on_record(&mut self, now: Instant, length: usize, delivered: u64) {
        self.next += length as u64;
        self.given += RECORD_LENGTH + length;
        (self.owes, self.confirmed, self.spoke) = (false, delivered, now);
    }

    /// When the path is lost if it stays silent.
    pub(super) fn silent_at(&self) -> Instant {
        self.heard + SILENCE
    }

    /// When the path is due to send a sign of life; `None` while it has bytes to take.
    pub(super) fn speak_at(&self) -> Option<Instant> {
        (self.given == 0).then(|| self.spoke + SPEAK_INTERVAL)
    }
}
