//! From the core network to a device.

use engine::{Instant, Nanos, Rng};

use super::cell::{Cell, Direction};
use crate::leaving::Leaving;
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
    leaving: Leaving,
}

impl Downlink {
    /// The most frames inside; more are lost.
    pub const INSIDE_MAX: usize = 1 << 14;

    /// The link down to a device of `cell`; failures come out of `rng`.
    pub const fn new(cell: Cell, rng: Rng) -> Self {
        Self { cell, rng, slot: Instant::ZERO, left: 0, failures: Nanos::ZERO, leaving: Leaving::new() }
    }

    /// The cell.
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }
}

impl Hop for Downlink {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        if !self.leaving.admit(0, Self::INSIDE_MAX) {
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
        self.leaving.push(end + self.failures + self.cell.symbols(self.cell.n1), frame);
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        self.leaving.poll(now)
    }

    fn next(&self) -> Option<Instant> {
        self.leaving.next()
    }

    fn counts(&self) -> Counts {
        self.leaving.counts()
    }
}
