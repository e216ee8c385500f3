//! The radio link from a device up to the base station.

use alloc::collections::VecDeque;

use engine::{Instant, Rng};

use super::cell::{Cell, Direction, Grants, Harq};
use crate::leaving::Leaving;
use crate::{Counts, Frame, Hop};

/// Room in an uplink slot.
#[derive(Clone, Copy, Debug)]
struct Grant {
    start: Instant,
    end: Instant,
    bytes: u32,
}

/// One direction of a radio link, from device to base station: the device asks for grants if needed
/// and sends, and the base station decodes.
#[derive(Clone, Debug)]
pub struct Uplink {
    cell: Cell,
    rng: Rng,
    /// Frames that wait, each with the time when it is ready and the number of bytes still to be
    /// sent.
    waiting: VecDeque<(Instant, u32, Frame)>,
    grant: Option<Grant>,
    /// When the device last had something to send.
    active: Option<Instant>,
    leaving: Leaving,
}

impl Uplink {
    /// Maximum number of frames inside; further frames are lost.
    pub const INSIDE_MAX: usize = 1 << 12;

    /// The uplink of a device in `cell`. Random failures come from `rng`.
    pub const fn new(cell: Cell, rng: Rng) -> Self {
        Self { cell, rng, waiting: VecDeque::new(), grant: None, active: None, leaving: Leaving::new() }
    }

    /// The cell that the device is in.
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }

    fn in_uplink(&self, at: Instant, bytes: u32) -> Grant {
        let (start, end) = self.cell.next(Direction::Up, at);
        Grant { start, end, bytes: bytes.max(1) }
    }

    /// The slot that the base station grants after it learned at `at` that data waits.
    fn granted(&self, at: Instant, bytes: u32) -> Grant {
        self.in_uplink(self.cell.granted(at), bytes)
    }

    /// The grant that an idle device gets for data that is ready at `ready`.
    fn ask(&mut self, ready: Instant) -> Grant {
        match self.cell.grants {
            Grants::Configured { period, offset, bytes, .. } => {
                let (start, end) = self.cell.configured(period, offset, ready);
                Grant { start, end, bytes: bytes.max(1) }
            }
            Grants::Dynamic { proactive: Some(proactive), .. }
                if self.active.is_some_and(|active| ready - active <= proactive.lasts) =>
            {
                self.in_uplink(ready, proactive.bytes)
            }
            Grants::Dynamic { request_period, request_offset, first, .. } => {
                let request = self.cell.occasion(request_period, request_offset, ready);
                self.granted(request + self.cell.slot(), first)
            }
        }
    }

    /// Sends in `grant` and repeats as often as configured. Returns the end of the last repetition,
    /// and the time at which the base station has received the data.
    fn send(&mut self, grant: Grant) -> (Instant, Instant) {
        let Grants::Configured { repetitions: repetitions @ 2.., .. } = self.cell.grants else {
            return (grant.end, self.cell.delivered(Direction::Up, grant.end, &mut self.rng));
        };
        let (harq, mut end) = (self.cell.harq_up, grant.end);
        let mut decoded = None;
        for repetition in 0..repetitions {
            if repetition > 0 {
                end = self.cell.next(Direction::Up, end).1;
            }
            let chance = if repetition == 0 { harq.first } else { harq.later };
            if decoded.is_none() && !chance.happens(&mut self.rng) {
                decoded = Some(end);
            }
        }
        // A transmission that no repetition brought through is sent again as any other.
        let again = Harq { first: harq.later, ..harq };
        let received = decoded.unwrap_or_else(|| {
            let repeated = self.cell.repeated(harq.round_trip, Direction::Up, end);
            self.cell.recovered(&again, Direction::Up, repeated, &mut self.rng)
        });
        (end, received)
    }

    /// Sends what fits into the grant, whose slot has come.
    fn transmit(&mut self, grant: Grant) {
        let mut left = grant.bytes;
        let (last, decoded) = self.send(grant);
        let out = decoded + self.cell.station;
        while let Some((_, bytes, _)) = self.waiting.front_mut().filter(|(ready, ..)| *ready <= grant.start) {
            let part = (*bytes).min(left);
            *bytes -= part;
            left -= part;
            if *bytes > 0 {
                break;
            }
            if let Some((_, _, frame)) = self.waiting.pop_front() {
                self.leaving.push(out, frame);
            }
        }
        self.active = Some(last);
        self.grant = self.waiting.front().map(|(ready, ..)| *ready).map(|ready| match self.cell.grants {
            // The buffer status report was sent with the data.
            Grants::Dynamic { .. } if ready <= grant.start => self.granted(grant.end, self.cell.up_bytes),
            // Repetitions of a transmission end before the next one begins (TS 38.214 6.1.2.3.1).
            Grants::Configured { repetitions: 2.., .. } => self.ask(ready.max(last)),
            Grants::Configured { .. } => self.ask(ready.max(grant.start + engine::Nanos::new(1))),
            Grants::Dynamic { .. } => self.ask(ready),
        });
    }
}

impl Hop for Uplink {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        if !self.leaving.admit(self.waiting.len(), Self::INSIDE_MAX) {
            return;
        }
        let ready = now + core::mem::take(&mut frame.tail) + self.cell.symbols(self.cell.n2);
        self.waiting.push_back((ready, frame.length, frame));
        if self.grant.is_none() {
            self.grant = Some(self.ask(ready));
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        while let Some(grant) = self.grant.filter(|grant| grant.start <= now) {
            self.transmit(grant);
        }
        self.leaving.poll(now)
    }

    fn next(&self) -> Option<Instant> {
        let grant = self.grant.map(|grant| grant.start);
        [grant, self.leaving.next()].into_iter().flatten().min()
    }

    fn counts(&self) -> Counts {
        self.leaving.counts()
    }
}
