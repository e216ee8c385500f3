//! A gate schedule for one flow: a window at each hop, in which the flow has the link to itself and which opens
//! when the flow's frames arrive from the hop before.

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

/// What is to be planned.
#[derive(Clone, Debug)]
pub struct Request {
    /// The flow's class; it has the queue of this number to itself.
    pub class: Class,
    /// The frames of a message, in their order: header, tag and check sequence included, bytes.
    pub frames: Vec<u32>,
    /// The least time from one message to the next.
    pub period: Nanos,
    /// How often the schedule starts anew.
    pub cycle: Nanos,
    /// The ports that the flow passes, the sender's first. Their gates, shapers and others' traffic are ignored.
    pub ports: Vec<PortSettings>,
    /// The longest payload of others' frames, bytes.
    pub others_mtu: u32,
    /// Whether others' frames are interrupted: the guard band is a fragment instead of a frame.
    pub preemption: bool,
    /// How wrong each node's clock may be, either way.
    pub clock_error: Nanos,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// No hop, or more than [`Plan::HOPS_MAX`].
    Hops(usize),
    /// No frame, or more than [`Plan::FRAMES_MAX`] in a cycle.
    Frames(usize),
    /// A frame of this length does not fit the MTU of this hop (0 is the first).
    TooLong(usize, u32),
    /// At this hop (0 is the first), a window and its guard band don't fit into the cycle.
    Cycle {
        /// The hop, 0 is the first.
        hop: usize,
        /// The window.
        window: Nanos,
        /// The guard band.
        guard: Nanos,
    },
    /// The cycle or the clock's error is none.
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

/// What one hop does.
#[derive(Clone, Debug)]
pub struct HopPlan {
    /// When the flow's window opens, nanoseconds after (or before) that of the first hop.
    pub offset: i64,
    /// How long it is open.
    pub window: Nanos,
    /// How long before it nobody may start to send.
    pub guard: Nanos,
    /// The schedule; its base is the offset.
    pub schedule: GateSchedule,
}

/// A schedule for each hop, and what it promises.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What was asked.
    pub request: Request,
    /// Messages that a window has room for.
    pub messages: u64,
    /// Each hop's part.
    pub hops: Vec<HopPlan>,
    /// The longest a message takes that is sent when the first window opens by the sender's clock.
    pub synchronised: Nanos,
    /// The longest a message takes that comes at any time.
    pub unsynchronised: Nanos,
}

impl Plan {
    /// The most hops.
    pub const HOPS_MAX: usize = 64;
    /// The most frames of a cycle.
    pub const FRAMES_MAX: usize = 100_000;

    /// Plans for `request`.
    ///
    /// # Errors
    /// [`PlanError`] says what does not fit.
    pub fn new(request: Request) -> Result<Self, PlanError> {
        if request.ports.is_empty() || request.ports.len() > Self::HOPS_MAX {
            return Err(PlanError::Hops(request.ports.len()));
        }
        // In any time of a cycle there begin at most so many.
        let messages = request.cycle.get().div_ceil(request.period.get().max(1)).max(1);
        let count = usize::try_from(messages).unwrap_or(usize::MAX).saturating_mul(request.frames.len());
        if request.frames.is_empty() || count > Self::FRAMES_MAX {
            return Err(PlanError::Frames(count));
        }
        let mut hops: Vec<HopPlan> = Vec::with_capacity(request.ports.len());
        let error = signed(request.clock_error);
        let (longest, shortest) = request.extremes();
        // When the first frame arrives at the earliest, and when the last one is out at the latest.
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
                    // A slower link makes them wait for each other.
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

    /// The part of the link that the flow's windows and their guard bands take at the first hop, in thousandths.
    pub fn share(&self) -> u64 {
        let taken = self.hops.first().map_or(Nanos::ZERO, |hop| hop.window + hop.guard);
        taken.get().saturating_mul(1_000) / self.request.cycle.get().max(1)
    }

    /// The ports with their gates, clocks that are wrong by as much as they may be (each differently), and others that always have
    /// a frame to send.
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

    /// Delays of `messages` messages in a run of the models: from a message's sending to its last frame's arrival. The sender
    /// is synchronised, or its messages come at times that drift through the cycle.
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
        // Late enough for windows that open before the first hop's.
        let start = Instant::ZERO + self.request.cycle * 2;
        let spacing = match synchronised {
            true => self.request.cycle * self.request.period.get().div_ceil(self.request.cycle.get().max(1)),
            // A prime more than the period: after a while every phase has been.
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
    /// The longest and the shortest frame.
    fn extremes(&self) -> (u32, u32) {
        let lengths = || self.frames.iter().map(|length| (*length).max(crate::frame::FRAME_MIN));
        (lengths().max().unwrap_or(0), lengths().min().unwrap_or(0))
    }

    /// How long a port sends the frames of a cycle.
    fn work(&self, port: &PortSettings, messages: u64) -> Nanos {
        let frames =
            self.frames.iter().map(|length| Frame::new(0, *length, self.class, Buffer::EMPTY).wire_bytes());
        port.rate.time_of(frames.sum::<u64>() * messages)
    }

    /// Whose frames interrupt others.
    pub fn preempting(&self) -> Option<Preemption> {
        let express = GateStates::of([self.class.index()]);
        self.preemption.then_some(Preemption { express, additional: 0 })
    }

    /// The longest frame of others, bytes.
    fn others_frame(&self) -> u32 {
        self.others_mtu.saturating_add(HEADER + TAG + CHECK_SEQUENCE)
    }

    /// Others that always have a frame to send.
    pub fn others(&self) -> Vec<Source> {
        let class = if self.class == Class::BEST_EFFORT { Class::HIGHEST } else { Class::BEST_EFFORT };
        alloc::vec![Source { class, length: self.others_frame(), pattern: Pattern::Saturated }]
    }

    /// How long before a window nobody may start: a frame of others, or what can't be cut of it.
    fn guard(&self, port: &PortSettings) -> Nanos {
        let whole = u64::from(self.others_frame() + PREAMBLE + INTER_FRAME_GAP);
        port.rate.time_of(self.preempting().map_or(whole, |preemption| preemption.blocking().min(whole)))
    }

    /// The flow's window, others' time, the guard band; `None` where others would get nothing.
    fn schedule(
        &self,
        port: &PortSettings,
        offset: i64,
        window: Nanos,
        guard: Nanos,
    ) -> Option<Result<GateSchedule, ScheduleError>> {
        let others = self.cycle.get().checked_sub(window.get())?.checked_sub(guard.get())?;
        // At least a frame of theirs.
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
        // Whether it makes sense with such clocks; the plan itself is in true time.
        Some(schedule.and_then(|schedule| schedule.clone().with_clock(clock).map(|_| schedule)))
    }
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time.get()).unwrap_or(i64::MAX / 4)
}

fn nanos(time: i64) -> Nanos {
    Nanos::new(u64::try_from(time).unwrap_or(0))
}
