//! When the packets of a command pass the near host.

use alloc::vec::Vec;

use engine::Instant;
use pcie::wire::{Kind, MemoryOperation, Packet};
use tunnel::session::Arrival;

use super::Near;

/// Maximum number of observations kept until they are taken; more are dropped.
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
    /// The completion of a device's read went down.
    CompletionSent,
    /// A device's write of host memory arrived: data, or a completion queue entry.
    MemoryWrite,
    /// A command completed to its caller.
    Completed,
}

/// Something that happened at the near host, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// When it happened, by the near clock.
    pub at: Instant,
    /// What happened.
    pub point: Point,
    /// For a packet that came through a tunnel: when it arrived, and the time stamps of its frame.
    pub arrival: Option<Arrival>,
}

impl Near {
    /// Starts or stops noting when the packets of commands pass; see [`Near::take_observations`].
    pub fn set_trace(&mut self, on: bool) {
        self.trace.set(on);
    }
    /// The observations since the last call, oldest first.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        self.trace.take()
    }
}

/// Observations, recorded while the trace is on.
#[derive(Debug, Default)]
pub(super) struct Trace {
    on: bool,
    observations: Vec<Observation>,
    /// Number of observations whose time is final: packets noted before this index have left.
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
    /// Everything sent so far leaves now.
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
