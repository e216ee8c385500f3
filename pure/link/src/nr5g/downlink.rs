//! From the core network to a device.

use alloc::collections::VecDeque;

use engine::{Instant, Nanos, Rng};

use super::cell::{Cell, Direction};
use crate::{Counts, Frame, Hop};

/// One direction of a radio link: the base station schedules, sends, and the device decodes.
#[derive(Clone, Debug)]
pub struct Downlink {
    cell: Cell,
    rng: Rng,
    /// The slot that was last used, and what is left of it.
    slot: Instant,
    left: u32,
    /// What failures add to that slot's transmission: all frames in it share it.
    failures: Nanos,
    inside: VecDeque<(Instant, Frame)>,
    counts: Counts,
}

impl Downlink {
    /// The most frames inside; more are lost.
    pub const INSIDE_MAX: usize = 1 << 14;

    /// The link down to a device of `cell`; failures come out of `rng`.
    pub const fn new(cell: Cell, rng: Rng) -> Self {
        let counts = Counts { entered: 0, left: 0, lost: 0, copied: 0 };
        Self {
            cell,
            rng,
            slot: Instant::ZERO,
            left: 0,
            failures: Nanos::ZERO,
            inside: VecDeque::new(),
            counts,
        }
    }

    /// The cell.
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }
}

impl Hop for Downlink {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        if self.inside.len() >= Self::INSIDE_MAX {
            self.counts.lost += 1;
            return;
        }
        let ready = now + core::mem::take(&mut frame.tail) + self.cell.station;
        let mut bytes = frame.length;
        let (mut start, mut end) = self.cell.next(Direction::Down, ready.max(self.slot));
        loop {
            if start != self.slot {
                (self.slot, self.left) = (start, self.cell.down_bytes.max(1));
                self.failures = self.cell.harq_down.sample(&mut self.rng);
            }
            let part = bytes.min(self.left);
            bytes -= part;
            self.left -= part;
            if bytes == 0 {
                break;
            }
            let after = start + Nanos::new(1);
            (start, end) = self.cell.next(Direction::Down, after);
        }
        let out = end + self.failures + self.cell.symbols(self.cell.n1);
        let out = self.inside.back().map_or(out, |(last, _)| out.max(*last));
        self.inside.push_back((out, frame));
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        self.inside.front().filter(|(at, _)| *at <= now)?;
        self.counts.left += 1;
        self.inside.pop_front().map(|(_, frame)| frame)
    }

    fn next(&self) -> Option<Instant> {
        self.inside.front().map(|(at, _)| *at)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
