//! When the packets of a command pass the near host.

use alloc::vec::Vec;

use engine::Instant;
use pcie::wire::{Kind, MemoryOperation, Packet};
use tunnel::session::Arrival;

use super::Near;

/// Observations kept until they are taken; more are dropped.
const OBSERVATIONS_MAX: usize = 1 << 16;

/// What happened at the near host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A command was submitted.
    Submitted,
    /// A memory write went down: a doorbell.
    DoorbellSent,
    /// A device's read of host memory arrived.
    MemoryRead,
    /// Its completion went down.
    CompletionSent,
    /// A device's write of host memory arrived: data, or a completion queue entry.
    MemoryWrite,
    /// A command completed to its caller.
    Completed,
}

/// Something that happened, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When, by the near clock.
    pub at: Instant,
    /// What.
    pub point: Point,
    /// Of a packet that came through a tunnel: when it arrived and what its frame says about time.
    pub arrival: Option<Arrival>,
}

impl Near {
    /// Starts to note when the packets of commands pass, or stops; see [`Near::take_observations`].
    pub fn set_trace(&mut self, on: bool) {
        self.trace.set(on);
    }
    /// What was noted since the last call.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        self.trace.take()
    }
}

/// Observations, while they are wanted.
#[derive(Debug, Default)]
pub(super) struct Trace {
    on: bool,
    observations: Vec<Observation>,
    /// How many of them have left, as far as they are of something that leaves.
    left: usize,
}

impl Trace {
    pub(super) fn set(&mut self, on: bool) {
        self.on = on;
        self.observations.clear();
        self.left = 0;
    }
    pub(super) const fn is_on(&self) -> bool {
        self.on
    }
    pub(super) fn take(&mut self) -> Vec<Observation> {
        self.left = 0;
        core::mem::take(&mut self.observations)
    }
    pub(super) fn on(&mut self, now: Instant, point: Point) {
        self.on_up(now, point, None);
    }
    /// A packet is sent to the device.
    pub(super) fn on_down(&mut self, now: Instant, packet: &Packet) {
        if !self.on {
            return;
        }
        match &packet.header.kind {
            Kind::Memory(request) if request.operation == MemoryOperation::Write => {
                self.on(now, Point::DoorbellSent)
            }
            Kind::Completion(_) => self.on(now, Point::CompletionSent),
            _ => {}
        }
    }
    /// What was sent so far leaves now.
    pub(super) fn on_transmit(&mut self, now: Instant) {
        for seen in &mut self.observations[self.left..] {
            if matches!(seen.point, Point::DoorbellSent | Point::CompletionSent) {
                seen.at = now;
            }
        }
        self.left = self.observations.len();
    }
    /// A packet has come from the device.
    pub(super) fn on_up(&mut self, now: Instant, point: Point, arrival: Option<Arrival>) {
        if self.on && self.observations.len() < OBSERVATIONS_MAX {
            self.observations.push(Observation { at: now, point, arrival });
        }
    }
}
