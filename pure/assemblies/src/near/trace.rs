//! When the packets of a command pass the near host.

use alloc::vec::Vec;

use engine::{Instant, Watcher};
use pcie::root_complex::INTERRUPT_WINDOW;
use pcie::wire::{Kind, MemoryOperation};
use tunnel::session::Arrival;

use crate::watch::{Direction, Port, Seen};

/// Maximum number of observations kept until they are taken; more are dropped.
const OBSERVATIONS_MAX: usize = 1 << 16;

/// An event at the near host.
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
    /// The event.
    pub point: Point,
    /// For a packet that came through a tunnel: when it arrived, and the time stamps of its frame.
    pub arrival: Option<Arrival>,
}

/// Records when the packets of commands pass a near host. It is a watcher: see
/// [`Near::watch`](super::Near::watch).
#[derive(Debug, Default)]
pub struct Trace {
    observations: Vec<Observation>,
    /// Number of observations whose time is final: packets noted before this index have left.
    left: usize,
}

impl Trace {
    /// The observations since the last call, oldest first.
    pub fn take(&mut self) -> Vec<Observation> {
        self.left = 0;
        core::mem::take(&mut self.observations)
    }

    fn note(&mut self, at: Instant, point: Point, arrival: Option<Arrival>) {
        if self.observations.len() < OBSERVATIONS_MAX {
            self.observations.push(Observation { at, point, arrival });
        }
    }

    /// Everything sent so far leaves now.
    fn on_transmit(&mut self, now: Instant) {
        for seen in &mut self.observations[self.left..] {
            if matches!(seen.point, Point::DoorbellSent | Point::CompletionSent) {
                seen.at = now;
            }
        }
        self.left = self.observations.len();
    }
}

impl Watcher<Port> for Trace {
    fn on_seen(&mut self, now: Instant, seen: Seen<'_>) {
        match seen {
            Seen::Submitted { .. } => self.note(now, Point::Submitted, None),
            Seen::Completed { .. } => self.note(now, Point::Completed, None),
            Seen::Packet { direction, packet, arrival } => {
                if let Some(point) = point_of(direction, &packet.header.kind) {
                    self.note(now, point, arrival.copied());
                }
            }
            Seen::Bytes { direction: Direction::Down, .. } => self.on_transmit(now),
            Seen::Bytes { direction: Direction::Up, .. } | Seen::Command { .. } | Seen::Response { .. } => {}
        }
    }
}

/// The meaning of a packet to the command that it belongs to, if any.
fn point_of(direction: Direction, kind: &Kind) -> Option<Point> {
    use MemoryOperation::{Read, Write};
    match (direction, kind) {
        (Direction::Down, Kind::Memory(request)) if request.operation == Write => Some(Point::DoorbellSent),
        (Direction::Down, Kind::Completion(_)) => Some(Point::CompletionSent),
        (Direction::Up, Kind::Memory(request)) if request.operation == Read => Some(Point::MemoryRead),
        (Direction::Up, Kind::Memory(request)) if request.operation == Write => {
            // A write to the interrupt window is an interrupt.
            (!INTERRUPT_WINDOW.contains(&request.address)).then_some(Point::MemoryWrite)
        }
        _ => None,
    }
}
