//! The radio link from the base station down to a device.

use engine::{Instant, Nanos, Rng};

use super::cell::{Cell, Direction};
use crate::leaving::Leaving;
use crate::{Counts, Frame, Hop};

/// One direction of a radio link, from base station to device: the base station schedules and
/// sends, and the device decodes.
#[derive(Clone, Debug)]
pub struct Downlink {
    cell: Cell,
    rng: Rng,
    /// Start of the last slot that was used, and the number of bytes left in it.
    slot: Instant,
    left: u32,
    /// Time that failures add to the last slot's transmission; all frames in the slot share it.
    failures: Nanos,
    leaving: Leaving,
}

impl Downlink {
    /// Maximum number of frames inside; further frames are lost.
    pub const INSIDE_MAX: usize = 1 << 14;

    /// The downlink to a device in `cell`. Random failures come from `rng`.
    pub const fn new(cell: Cell, rng: Rng) -> Self {
        Self { cell, rng, slot: Instant::ZERO, left: 0, failures: Nanos::ZERO, leaving: Leaving::new() }
    }

    /// The cell that the device is in.
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
