//! One of several paths, and what is kept for it.

use alloc::collections::VecDeque;

use engine::{Buffer, Instant};

use super::wire::{PREAMBLE_LENGTH, RECORD_LENGTH};
use super::{RECORD_MAX, SILENCE, SPEAK_INTERVAL};

/// A part of our stream.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) bytes: Buffer,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// What of `kept`, which are in order and without gaps, begins at `offset`: as much as a record takes of one piece.
    pub(super) fn at(kept: &VecDeque<Self>, offset: u64) -> Option<Buffer> {
        // Mostly the latest piece is the one.
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

/// See the module.
#[derive(Debug)]
pub(super) struct Path {
    /// The preamble of the other end has come.
    pub(super) is_greeted: bool,
    /// A preamble or a record, as far as it has come.
    head: [u8; PREAMBLE_LENGTH],
    head_length: usize,
    /// Bytes of the record that have not come, and where they belong.
    pub(super) body: u32,
    pub(super) body_offset: u64,
    /// Where in our stream it goes on.
    pub(super) next: u64,
    /// Bytes that it has not taken yet.
    pub(super) given: usize,
    /// A record is due even when there is no data: something was left out, or is to be acknowledged.
    pub(super) owes: bool,
    /// What was acknowledged on it.
    pub(super) told: u64,
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
            told: 0,
            heard: now,
            spoke: now,
        }
    }

    /// Collects the next `N` bytes: how many of `bytes` were taken, and all of them once they have come.
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

    /// Takes `count` bytes of the record; where they belong.
    pub(super) fn on_body(&mut self, count: usize) -> u64 {
        let offset = self.body_offset;
        self.body -= u32::try_from(count).expect("no more than the record's");
        self.body_offset += count as u64;
        offset
    }

    /// A record with `length` bytes of data is given to it, which says that `delivered` have come.
    pub(super) const fn on_record(&mut self, now: Instant, length: usize, delivered: u64) {
        self.next += length as u64;
        self.given += RECORD_LENGTH + length;
        (self.owes, self.told, self.spoke) = (false, delivered, now);
    }

    /// When it is lost.
    pub(super) fn silent_at(&self) -> Instant {
        self.heard + SILENCE
    }

    /// When it wants to say that it is there: not while it has something to take.
    pub(super) fn speak_at(&self) -> Option<Instant> {
        (self.given == 0).then(|| self.spoke + SPEAK_INTERVAL)
    }
}
