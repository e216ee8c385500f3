//! A gate schedule for one flow: a window at each hop, in which the flow has the link to itself.
//! The window opens when the flow's frames arrive from the hop before.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use engine::{Buffer, Instant, Nanos, Rng};

use super::clock::ClockError;
use super::gates::{GateEntry, GateSchedule, GateStates, ScheduleError};
use super::preemption::Preemption;
use super::traffic::{Pattern, Source};
use crate::ethernet::{Port, PortSettings};
use crate::frame::{CHECK_SEQUENCE, HEADER, INTER_FRAME_GAP, PREAMBLE, TAG};
use crate::{Class, Frame, Hop, Path};

/// The flow to plan for, and the network that it passes.
#[derive(Clone, Debug)]
pub struct Request {
    /// Class of the flow, which has the queue of this number to itself.
    pub class: Class,
    /// Length in bytes of each frame of a message, in order, including header, tag and check
    /// sequence.
    pub frames: Vec<u32>,
    /// Minimum time from one message to the next.
    pub period: Nanos,
    /// Length of the schedule's cycle.
    pub cycle: Nanos,
    /// The ports that the flow passes, starting with the sender's. Their gates, shapers and
    /// background traffic are ignored.
    pub ports: Vec<PortSettings>,
    /// Maximum payload of other traffic's frames, in bytes.
    pub others_mtu: u32,
    /// Whether frames of other traffic are interrupted. The guard band is then a fragment instead
    /// of a frame.
    pub preemption: bool,
    /// Maximum error of each node's clock, in either direction.
    pub clock_error: Nanos,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// There is no hop, or there are more than [`Plan::HOPS_MAX`].
    Hops(usize),
    /// There is no frame, or there are more than [`Plan::FRAMES_MAX`] in a cycle.
    Frames(usize),
    /// A frame of this length does not fit the MTU of this hop (0 is the first).
    TooLong(usize, u32),
    /// A window and its guard band leave no time for other traffic in the cycle at one hop.
    Cycle {
        /// Index of the hop; 0 is the first.
        hop: usize,
        /// Length of the window.
        window: Nanos,
        /// Length of the guard band.
        guard: Nanos,
    },
    /// The gates cannot have a schedule with such a cycle or clock error.
    Schedule(ScheduleError),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hops(count) => write!(f, "{count} hops, 1 to {} are possible", Plan::HOPS_MAX),
            Self::Frames(count) => {
                write!(f, "{count} frames a cycle, 1 to {} are possible", Plan::FRAMES_MAX)
            }
            Self::TooLong(hop, length) => {
                write!(f, "hop {}: a frame of {length} bytes is longer than its MTU allows", hop + 1)
            }
            Self::Cycle { hop, window, guard } => write!(
                f,
                "hop {}: a window of {window} and a guard band of {guard} leave others nothing of the cycle; \
                 a longer cycle, fewer frames, better clocks or a faster link would do",
                hop + 1
            ),
            Self::Schedule(error) => error.fmt(f),
        }
    }
}

/// The plan for one hop.
#[derive(Clone, Debug)]
pub struct HopPlan {
    /// When the flow's window opens, in nanoseconds after the window of the first hop; negative if
    /// before.
    pub offset: i64,
    /// How long the window is open.
    pub window: Nanos,
    /// Time before the window in which no frame may start.
    pub guard: Nanos,
    /// The gate schedule; its base is the offset.
    pub schedule: GateSchedule,
}

/// A schedule for each hop, and the delays that these schedules guarantee.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The request that the plan is for.
    pub request: Request,
    /// Number of messages that a window has room for.
    pub messages: u64,
    /// The plan for each hop.
    pub hops: Vec<HopPlan>,
    /// Maximum delay of a message that is sent when the first window opens by the sender's clock.
    pub synchronised: Nanos,
    /// Maximum delay of a message that is sent at any time.
    pub unsynchronised: Nanos,
}

impl Plan {
    /// Maximum number of hops.
    pub const HOPS_MAX: usize = 64;
    /// Maximum number of frames in a cycle.
    pub const FRAMES_MAX: usize = 100_000;

    /// Plans for `request`.
    ///
    /// # Errors
    /// [`PlanError`] names the part that does not fit.
    pub fn new(request: Request) -> Result<Self, PlanError> {
        if request.ports.is_empty() || request.ports.len() > Self::HOPS_MAX {
            return Err(PlanError::Hops(request.ports.len()));
        }
        // The maximum number of messages that begin within the time of a cycle.
        let messages = request.cycle.get().div_ceil(request.period.get().max(1)).max(1);
        let count = usize::try_from(messages).unwrap_or(usize::MAX).saturating_mul(request.frames.len());
        if request.frames.is_empty() || count > Self::FRAMES_MAX {
            return Err(PlanError::Frames(count));
        }
        let mut hops: Vec<HopPlan> = Vec::with_capacity(request.ports.len());
        let error = signed(request.clock_error);
        let (longest, shortest) = request.extremes();
        // The earliest arrival of the first frame, and the latest time at which the last one is
        // out.
        let (mut offset, mut last) = (0_i64, 0_i64);
        for (hop, port) in request.ports.iter().enumerate() {
            if longest > port.frame_max() {
                return Err(PlanError::TooLong(hop, longest));
            }
            let work = request.work(port, messages);
            let frame = port.rate.time_of(Frame::new(0, longest, request.class, Buffer::EMPTY).wire_bytes());
            let open = offset + error;
            last = match hop.checked_sub(1).map(|before| &request.ports[before]) {
                None => open + signed(work),
                Some(before) => {
                    let arrived = last + signed(before.passage(longest) + port.processing);
                    // On a slower link, the frames wait for each other.
                    let rest = if port.rate < before.rate { work } else { frame };
                    (arrived + signed(rest)).max(open + signed(work))
                }
            };
            let window = nanos(last + error - offset);
            let guard = request.guard(port);
            let planned = request.schedule(port, offset, window, guard);
            let schedule = planned.ok_or(PlanError::Cycle { hop, window, guard })?;
            hops.push(HopPlan { offset, window, guard, schedule: schedule.map_err(PlanError::Schedule)? });
            if let Some(next) = request.ports.get(hop + 1) {
                let first = port.rate.time_of(u64::from(shortest + PREAMBLE));
                offset += signed(first + port.passage(shortest) + next.processing) - 2 * error;
            }
        }
        let arrived = request.ports.last().map_or(Nanos::ZERO, |port| port.passage(longest));
        let first = request.ports.first().map_or(Nanos::ZERO, |port| port.processing);
        let synchronised = nanos(last + error) + arrived + first;
        let unsynchronised = request.cycle + synchronised;
        Ok(Self { messages, hops, synchronised, unsynchronised, request })
    }

    /// The share of the link that the flow's windows and their guard bands take at the first hop,
    /// in thousandths.
    pub fn share(&self) -> u64 {
        let taken = self.hops.first().map_or(Nanos::ZERO, |hop| hop.window + hop.guard);
        taken.get().saturating_mul(1_000) / self.request.cycle.get().max(1)
    }

    /// The ports with their gates, with saturated background traffic, and with clocks whose errors
    /// go up to the limit and differ from each other.
    pub fn ports(&self, seed: u64) -> Vec<PortSettings> {
        let mut rng = Rng::from_seed(seed);
        let error = self.request.clock_error;
        let mut ports = self.request.ports.clone();
        for (port, hop) in ports.iter_mut().zip(&self.hops) {
            let clock = ClockError {
                wander: error,
                interval: Nanos::from_millis(125),
                seed: rng.next_u64(),
                ..ClockError::NONE
            };
            port.gates =
                Some(hop.schedule.clone().with_clock(clock).unwrap_or_else(|_| hop.schedule.clone()));
            port.idle_slopes = [None; Class::COUNT];
            port.queue_of = [0, 1, 2, 3, 4, 5, 6, 7];
            port.preemption = self.request.preempting();
            port.background = self.request.others();
        }
        ports
    }

    /// Delays of `messages` messages in a run of the models, from the sending of a message to the
    /// arrival of its last frame. The sender is synchronised, or its messages drift through the
    /// cycle.
    pub fn simulate(&self, messages: u64, synchronised: bool, seed: u64) -> Vec<Nanos> {
        let rng = Rng::from_seed(seed);
        let ports = self.ports(seed).into_iter().map(|port| Port::new(port, &rng.fork("others")));
        let mut path: Path = ports.collect();
        let mut delays = Vec::new();
        let frames = self.request.frames.len() as u64;
        let mut collect = |path: &mut Path, until: Instant| {
            while let Some(at) = path.next().filter(|at| *at <= until) {
                if let Some(frame) = path.poll(at).filter(|frame| frame.id % frames == frames - 1) {
                    delays.push(at - frame.sent);
                }
            }
        };
        // Late enough for windows that open before the window of the first hop.
        let start = Instant::ZERO + self.request.cycle * 2;
        let spacing = match synchronised {
            true => self.request.cycle * self.request.period.get().div_ceil(self.request.cycle.get().max(1)),
            // The period plus a prime: over time, messages come at every phase of the cycle.
            false => self.request.period + Nanos::new(997),
        };
        for message in 0..messages {
            let now = start + spacing * message;
            collect(&mut path, now);
            for (index, length) in (0..).zip(&self.request.frames) {
                let frame = Frame::new(message * frames + index, *length, self.request.class, Buffer::EMPTY);
                path.enter(now, Frame { sent: now, ..frame });
            }
        }
        collect(&mut path, Instant::from_nanos(u64::MAX));
        delays
    }
}

impl Request {
    /// Lengths of the longest and the shortest frame, in bytes.
    fn extremes(&self) -> (u32, u32) {
        let lengths = || self.frames.iter().map(|length| (*length).max(crate::frame::FRAME_MIN));
        (lengths().max().unwrap_or(0), lengths().min().unwrap_or(0))
    }

    /// Time that a port takes to send the frames of a cycle.
    fn work(&self, port: &PortSettings, messages: u64) -> Nanos {
        let frames =
            self.frames.iter().map(|length| Frame::new(0, *length, self.class, Buffer::EMPTY).wire_bytes());
        port.rate.time_of(frames.sum::<u64>() * messages)
    }

    /// Which queues' frames interrupt others, if preemption is requested.
    pub fn preempting(&self) -> Option<Preemption> {
        let express = GateStates::of([self.class.index()]);
        self.preemption.then_some(Preemption { express, additional: 0 })
    }

    /// Maximum length of other traffic's frames in bytes.
    fn others_frame(&self) -> u32 {
        self.others_mtu.saturating_add(HEADER + TAG + CHECK_SEQUENCE)
    }

    /// Background traffic that always has a frame to send.
    pub fn others(&self) -> Vec<Source> {
        let class = if self.class == Class::BEST_EFFORT { Class::HIGHEST } else { Class::BEST_EFFORT };
        alloc::vec![Source { class, length: self.others_frame(), pattern: Pattern::Saturated }]
    }

    /// Time before a window in which no frame may start: a frame of other traffic, or the part of
    /// it that can't be cut.
    fn guard(&self, port: &PortSettings) -> Nanos {
        let whole = u64::from(self.others_frame() + PREAMBLE + INTER_FRAME_GAP);
        port.rate.time_of(self.preempting().map_or(whole, |preemption| preemption.blocking().min(whole)))
    }

    /// The flow's window, the time of other traffic, and the guard band. `None` if other traffic
    /// would get no time.
    fn schedule(
        &self,
        port: &PortSettings,
        offset: i64,
        window: Nanos,
        guard: Nanos,
    ) -> Option<Result<GateSchedule, ScheduleError>> {
        let others = self.cycle.get().checked_sub(window.get())?.checked_sub(guard.get())?;
        // The other traffic needs time for at least one frame.
        if others <= port.rate.time_of(u64::from(self.others_frame() + PREAMBLE)).get() {
            return None;
        }
        let flow = GateStates::of([self.class.index()]);
        let base = offset.rem_euclid(signed(self.cycle).max(1)).unsigned_abs();
        let entries = [
            GateEntry { states: flow, length: window },
            GateEntry { states: flow.inverted(), length: Nanos::new(others) },
            GateEntry { states: GateStates::CLOSED, length: guard },
        ];
        let clock = ClockError { wander: self.clock_error, ..ClockError::NONE };
        let schedule = GateSchedule::new(Instant::from_nanos(base), entries);
        // The clock error is only checked here; the plan itself is in true time.
        Some(schedule.and_then(|schedule| schedule.clone().with_clock(clock).map(|_| schedule)))
    }
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time.get()).unwrap_or(i64::MAX / 4)
}

fn nanos(time: i64) -> Nanos {
    Nanos::new(u64::try_from(time).unwrap_or(0))
}
