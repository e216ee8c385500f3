//! The write buffer in DRAM, and the part of the flash that is written one bit a cell.

use std::collections::VecDeque;

use engine::{Instant, Nanos};

use super::transferred;

/// The largest number of rows in the buffer.
const ROWS_MAX: usize = 1 << 16;

/// Data that were accepted and are not yet in the flash.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// When each row is programmed, and the bytes in it.
    rows: VecDeque<(Instant, u64)>,
    /// Number of bytes accepted and not known to be programmed.
    held: u64,
    /// Number of bytes of them that fill no row yet.
    pub(super) open: u64,
}

impl Buffer {
    /// When there is room for `length` more bytes of `size`, from `now` on.
    pub(super) fn room(&mut self, now: Instant, length: u64, size: u64) -> Instant {
        let mut at = now;
        while let Some((programmed, bytes)) = self.rows.front().copied() {
            let full = self.held + length > size || self.rows.len() >= ROWS_MAX;
            if programmed > at && !full {
                break;
            }
            at = at.max(programmed);
            self.held -= bytes;
            self.rows.pop_front();
        }
        at
    }

    /// Accepts `length` bytes.
    pub(super) fn accept(&mut self, length: u64) {
        self.held += length;
        self.open += length;
    }

    /// The next `bytes` of the open ones are programmed at `at`.
    pub(super) fn programmed(&mut self, at: Instant, bytes: u64) {
        self.open -= bytes;
        self.rows.push_back((at, bytes));
    }
}

/// Fast flash with one bit a cell, which is folded into denser flash when there is time.
#[derive(Debug, Default)]
pub(super) struct FastCells {
    /// Number of bytes written to the cache and not folded yet.
    used: u64,
}

impl FastCells {
    /// Whether another `bytes` find room in a cache of `size`; they then take it.
    pub(super) fn take(&mut self, bytes: u64, size: u64) -> bool {
        let room = self.used + bytes <= size;
        self.used += if room { bytes } else { 0 };
        room
    }

    /// Folds for `time` at `rate` bytes a second.
    pub(super) fn fold(&mut self, time: Nanos, rate: u64) {
        self.used = self.used.saturating_sub(transferred(time, rate));
    }

    /// Fills a cache of `size`.
    pub(super) fn fill(&mut self, size: u64) {
        self.used = size;
    }
}
