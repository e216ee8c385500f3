//! Upper bounds of a frame's delay, by network calculus.
//!
//! The traffic of a flow has an envelope (a token bucket). A port serves a queue at least at some
//! rate after some latency. The delay is at most the horizontal distance of these two curves (Le
//! Boudec and Thiran, "Network Calculus", 1.4). The README derives the rate and the
//! latency under priorities, gates, shapers and preemption. Times are in picoseconds, amounts in
//! bits, and every division rounds to the safe side.

mod service;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use engine::Nanos;

use super::traffic::Envelope;
use crate::ethernet::{Forwarding, Handover, PortSettings};
use crate::frame::{INTER_FRAME_GAP, PREAMBLE};
use crate::{Class, Frame};
use service::Analysis;

/// The flow of frames whose delay is to be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Class of the frames.
    pub class: Class,
    /// Length in bytes of the shortest frame, including header and check sequence.
    pub frame_min: u32,
    /// Length in bytes of the longest frame, including header and check sequence.
    pub frame_max: u32,
    /// Upper bound of the flow's traffic.
    pub envelope: Envelope,
}

/// Why there is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbounded {
    /// The background traffic in this queue (second number) of this hop (first number, 0 is the
    /// first) has no envelope.
    Envelope(usize, usize),
    /// More traffic comes at one hop than its port can send from the queue.
    Overload {
        /// Index of the hop; 0 is the first.
        hop: usize,
        /// Traffic that comes, in bits per second.
        load: u64,
        /// Minimum rate at which the port sends, in bits per second.
        capacity: u64,
    },
    /// A window at this hop (0 is the first) is too short for the longest frame.
    Window(usize),
    /// The settings of this hop (0 is the first) cannot be computed: preemptable queues above
    /// express ones, with gates of their own, or with a credit-based shaper.
    Unsupported(usize),
}

impl fmt::Display for Unbounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Envelope(hop, queue) => {
                write!(f, "hop {}: what others send in queue {queue} has no limit", hop + 1)
            }
            Self::Overload { hop, load, capacity } => {
                write!(f, "hop {}: {load} bit/s come, {capacity} bit/s can go", hop + 1)
            }
            Self::Window(hop) => write!(f, "hop {}: no window is long enough for the longest frame", hop + 1),
            Self::Unsupported(hop) => {
                write!(f, "hop {}: no bound is known for preemptable queues like these", hop + 1)
            }
        }
    }
}

/// The maximum delay of a flow's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// From entering the first port to arrival behind the last one.
    pub total: Nanos,
    /// The part of each hop in the total.
    pub hops: Vec<Nanos>,
}

/// A token bucket in bits, as used in the calculation.
#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    burst: u128,
    rate: u128,
}

impl From<Envelope> for Curve {
    fn from(envelope: Envelope) -> Self {
        Self { burst: u128::from(envelope.burst) * 8, rate: u128::from(envelope.rate) }
    }
}

impl core::ops::Add for Curve {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { burst: self.burst + other.burst, rate: self.rate + other.rate }
    }
}

/// Picoseconds in a second.
const SECOND: u128 = 1_000_000_000_000;
/// Picoseconds that the model's rounding to nanoseconds adds at each hop: for arrival, start, end
/// and gap.
const ROUNDING: u128 = 4_000;

/// Time that `bits` take at `rate`, in picoseconds, rounded up.
fn time(bits: u128, rate: u128) -> u128 {
    (bits * SECOND).div_ceil(rate.max(1))
}

/// Number of bits that pass in `time` picoseconds at `rate`, rounded up.
fn bits(rate: u128, time: u128) -> u128 {
    (rate * time).div_ceil(SECOND)
}

/// Link time of a frame of `length` bytes, in bits.
fn wire_bits(length: u32) -> u128 {
    u128::from(Frame::new(0, length, Class::BEST_EFFORT, engine::Buffer::EMPTY).wire_bytes()) * 8
}

/// The maximum delay of a frame of `flow` through `ports`, in the order in which the frame passes
/// them.
///
/// # Errors
/// [`Unbounded`] says at which hop and why there is no bound.
pub fn worst_case(flow: &Flow, ports: &[PortSettings]) -> Result<Bound, Unbounded> {
    let mut curve = Curve::from(flow.envelope);
    curve.burst = curve.burst.max(wire_bits(flow.frame_max));
    // Traffic from a link comes no faster than the link's rate.
    let mut peak: Option<u128> = None;
    let mut hops = Vec::with_capacity(ports.len());
    for (hop, port) in ports.iter().enumerate() {
        let analysis = Analysis::new(hop, port, flow, curve);
        let service = analysis.service()?;
        let crossing = analysis.crossing()?;
        let load = curve.rate + crossing.rate;
        if load > service.rate {
            let whole = |rate: u128| u64::try_from(rate).unwrap_or(u64::MAX);
            return Err(Unbounded::Overload { hop, load: whole(load), capacity: whole(service.rate) });
        }
        let limit = peak.map(|peak| Curve { burst: wire_bits(flow.frame_max), rate: peak });
        let coarse = service.latency + horizontal(curve, limit, crossing, service.rate);
        let fine = service.stair.and_then(|stair| stair.delay(curve + crossing));
        let queued = fine.map_or(coarse, |fine| fine.min(coarse));
        let rate = u128::from(port.rate.bits());
        // The gap after the frame occupies the link, but does not delay the frame.
        let sent = queued.saturating_sub(u128::from(INTER_FRAME_GAP) * 8 * SECOND / rate) + ROUNDING;
        let length = flow.frame_min.max(crate::frame::FRAME_MIN);
        let least = u128::from(length + PREAMBLE) * 8 * SECOND / rate;
        let passage = port.passage(flow.frame_max) + port.processing;
        let varies = port.passage(flow.frame_max).saturating_sub(port.passage(flow.frame_min));
        let (saved, tails) = tail(flow, port, ports.get(hop + 1));
        let jitter = sent.saturating_sub(least) + u128::from(varies.get()) * 1_000 + tails;
        curve.burst += bits(curve.rate, jitter);
        peak = Some(rate);
        let total = sent + u128::from(passage.get()) * 1_000 - saved.min(sent);
        hops.push(Nanos::new(u64::try_from(total.div_ceil(1_000)).unwrap_or(u64::MAX)));
    }
    let total = hops.iter().fold(Nanos::ZERO, |sum, hop| sum + *hop);
    Ok(Bound { total, hops })
}

/// The maximum time by which `curve`, limited by `limit`, and `crossing` together run ahead of
/// `rate`, in picoseconds. This is a delay.
fn horizontal(curve: Curve, limit: Option<Curve>, crossing: Curve, rate: u128) -> u128 {
    let Some(limit) = limit.filter(|limit| limit.rate > curve.rate && limit.burst < curve.burst) else {
        return time(curve.burst + crossing.burst, rate);
    };
    // Both sides of the bend: `limit` counts before it, and the flow's own envelope after it.
    let bend = time(curve.burst - limit.burst, limit.rate - curve.rate);
    let at_bend = limit.burst + crossing.burst + bits(limit.rate + crossing.rate, bend);
    time(limit.burst + crossing.burst, rate).max(time(at_bend, rate).saturating_sub(bend))
}

/// Time that a cut-through switch behind `port` saves for the shortest frame, and how much more it
/// saves for the longest, in picoseconds.
fn tail(flow: &Flow, port: &PortSettings, next: Option<&PortSettings>) -> (u128, u128) {
    let express = |queue| port.preemption.is_none_or(|preemption| preemption.express.is_open(queue));
    let Some(next) = next.filter(|next| {
        next.forwarding == Forwarding::CutThrough
            && port.handover == Handover::Header
            && express(port.queue_of[flow.class.index()])
    }) else {
        return (0, 0);
    };
    let saved = |length: u32| {
        let bytes = u64::from(length.max(crate::frame::FRAME_MIN) + PREAMBLE);
        let tail = port.rate.picoseconds(bytes.saturating_sub(PortSettings::HEADER_BYTES));
        // A faster link must not run out of bits.
        u128::from(tail.min(next.rate.picoseconds(bytes)))
    };
    let (least, most) = (saved(flow.frame_min), saved(flow.frame_max));
    (least.saturating_sub(2_000), most.saturating_sub(least) + 2_000)
}
