//! The bytes of the stream that the peer has not acknowledged.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use engine::Buffer;

/// Bytes that were sent and must be kept, and bytes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Pieces of the stream, each with the offset of its first byte.
    pieces: VecDeque<(u64, Buffer)>,
    /// The peer has every byte before this one.
    base: u64,
    /// The first byte that was never sent.
    next: u64,
    /// The end of the data to send.
    end: u64,
    /// The peer accepts no byte from this one on.
    allowed: u64,
    /// Parts that were sent and got lost, in the order in which they are sent again.
    lost: VecDeque<Range<u64>>,
}

impl Outgoing {
    /// An empty stream; the peer accepts `window` bytes.
    pub(crate) fn new(window: u32) -> Self {
        Self { allowed: u64::from(window), ..Self::default() }
    }

    pub(crate) fn push(&mut self, bytes: Buffer) {
        if !bytes.is_empty() {
            let at = self.end;
            self.end += bytes.len() as u64;
            self.pieces.push_back((at, bytes));
        }
    }

    /// Number of bytes that the peer has not acknowledged.
    pub(crate) const fn unacknowledged(&self) -> u64 {
        self.end - self.base
    }

    /// Number of bytes that have never been sent.
    pub(crate) const fn unsent(&self) -> u64 {
        self.end - self.next
    }

    /// Whether there is a part to send, for the first time or again.
    pub(crate) fn has_work(&self) -> bool {
        !self.lost.is_empty() || self.next < self.end.min(self.allowed)
    }

    /// How many bytes the next part has, of at most `most`, or somewhat more.
    pub(crate) fn peek(&self, most: u64) -> u64 {
        let fresh = self.end.min(self.allowed).saturating_sub(self.next);
        self.lost.front().map_or(fresh, |part| part.end - part.start).min(most)
    }

    /// The next part to send, of at most `most` bytes: lost parts first.
    pub(crate) fn pop(&mut self, most: u64) -> Option<Range<u64>> {
        while let Some(part) = self.lost.front_mut() {
            part.start = part.start.max(self.base);
            if part.is_empty() {
                self.lost.pop_front();
                continue;
            }
            let taken = part.start..part.end.min(part.start + most);
            part.start = taken.end;
            if part.is_empty() {
                self.lost.pop_front();
            }
            return Some(taken);
        }
        let end = self.end.min(self.allowed).min(self.next + most);
        let part = self.next..end;
        self.next = self.next.max(end);
        (!part.is_empty()).then_some(part)
    }

    /// Appends the bytes of `part` to `room`.
    pub(crate) fn copy(&self, part: &Range<u64>, room: &mut Vec<u8>) {
        let first = self.pieces.partition_point(|(at, piece)| at + piece.len() as u64 <= part.start);
        for (at, piece) in self.pieces.range(first..) {
            if *at >= part.end {
                break;
            }
            let within = |offset: u64| usize::try_from(offset.saturating_sub(*at)).unwrap_or(usize::MAX);
            room.extend(&piece[within(part.start)..within(part.end).min(piece.len())]);
        }
    }

    /// Notes that the peer has every byte before `whole`, and accepts `window` more. Returns
    /// `false` if these bytes were never sent.
    pub(crate) fn acknowledge(&mut self, whole: u64, window: u32) -> bool {
        if whole > self.next {
            return false;
        }
        self.base = self.base.max(whole);
        self.allowed = self.allowed.max(whole.saturating_add(u64::from(window)));
        while self.pieces.front().is_some_and(|(at, piece)| at + piece.len() as u64 <= self.base) {
            self.pieces.pop_front();
        }
        true
    }

    /// A packet with `part` got lost.
    pub(crate) fn lose(&mut self, part: Range<u64>) {
        if part.end > self.base {
            self.lost.push_back(part);
        }
    }

    /// The first bytes that are not acknowledged, to be sent again by a probe.
    pub(crate) const fn oldest(&self) -> Range<u64> {
        self.base..self.next
    }
}
