//! The radio link from the base station down to a device.

use engine::{Instant, Nanos, Rng};

use super::cell::{Cell, Direction};
use crate::leaving::{Delay, Leaving};

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

impl Delay for Downlink {
    const INSIDE_MAX: usize = Self::INSIDE_MAX;

    fn delay(&mut self, arrived: Instant, length: u32) -> Option<Instant> {
        let ready = arrived + self.cell.station;
        let mut bytes = length;
        let (mut start, mut end) = self.cell.next(Direction::Down, ready.max(self.slot));
        loop {
            if start != self.slot {
                (self.slot, self.left) = (start, self.cell.down_bytes.max(1));
                self.failures = self.cell.delivered(Direction::Down, end, &mut self.rng) - end;
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
        Some(end + self.failures + self.cell.symbols(self.cell.n1))
    }

    fn leaving(&self) -> &Leaving {
        &self.leaving
    }

    fn leaving_mut(&mut self) -> &mut Leaving {
        &mut self.leaving
    }
}
