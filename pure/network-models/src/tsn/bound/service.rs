//! The minimum service that a port gives to a queue.

use alloc::vec::Vec;

use engine::Nanos;

use super::{Curve, Flow, SECOND, Unbounded, bits, time, wire_bits};
use crate::Class;
use crate::ethernet::PortSettings;
use crate::frame::{INTER_FRAME_GAP, PREAMBLE};

/// A service of at least `rate` bits per second, from `latency` picoseconds after frames began to
/// wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    pub(super) rate: u128,
    pub(super) latency: u128,
    /// A finer bound, if the queue has exactly one window in each cycle.
    pub(super) stair: Option<Stair>,
}

/// A queue that has the whole link for `window` of each `cycle` picoseconds, except for `once` bits
/// at first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stair {
    link: u128,
    window: u128,
    cycle: u128,
    once: u128,
}

impl Stair {
    /// Maximum time that bits of `arrivals` wait, in picoseconds; `None` if the number of waiting
    /// bits grows without limit.
    pub(super) fn delay(&self, arrivals: Curve) -> Option<u128> {
        let step = self.link * self.window / SECOND;
        let waiting = arrivals.burst + self.once;
        if step == 0 || arrivals.rate * self.cycle > step * SECOND {
            return None;
        }
        let gap = self.cycle - self.window;
        let whole = waiting / step;
        let at_once = gap + whole * self.cycle + time(waiting % step, self.link);
        // The case that later arrivals fill another step: the last bits have waited since their own
        // arrival only.
        let since = ((whole + 1) * step - waiting) * SECOND / arrivals.rate.max(1);
        let later = (gap + (whole + 1) * self.cycle).saturating_sub(since);
        Some(at_once.max(later))
    }
}

/// The windows of a queue.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Length of a cycle in picoseconds, and the minimum time of a cycle in which the gate is open.
    cycle: u128,
    open: u128,
    /// Number of windows in a cycle.
    count: u128,
    /// In any time t, the gate is open for at least `open / cycle` times (t - `gap`).
    gap: u128,
}

/// A port as seen by one flow.
#[derive(Debug)]
pub(super) struct Analysis<'a> {
    hop: usize,
    port: &'a PortSettings,
    queue: usize,
    flow: &'a Flow,
    curve: Curve,
    /// Rate of the port in bits per second.
    rate: u128,
}

impl<'a> Analysis<'a> {
    pub(super) fn new(hop: usize, port: &'a PortSettings, flow: &'a Flow, curve: Curve) -> Self {
        let queue = port.queue_of[flow.class.index()];
        Self { hop, port, queue, flow, curve, rate: u128::from(port.rate.bits()) }
    }

    /// The minimum service for the flow's queue.
    ///
    /// # Errors
    /// [`Unbounded`] when other traffic or the schedule leaves no guaranteed service.
    pub(super) fn service(&self) -> Result<Service, Unbounded> {
        self.check()?;
        let mut above: [Option<Curve>; Class::COUNT] = [None; Class::COUNT];
        for queue in (self.queue..Class::COUNT).rev() {
            let own = self.own(queue);
            if own.is_none_or(|longest| longest == 0) {
                continue;
            }
            let (service, output) = self.of_queue(queue, &above)?;
            if queue == self.queue {
                return Ok(service);
            }
            above[queue] = output;
            if output.is_none() && self.overlap(queue, self.queue) {
                return Err(Unbounded::Envelope(self.hop, queue));
            }
        }
        Err(Unbounded::Window(self.hop))
    }

    /// The background traffic in the flow's own queue.
    pub(super) fn crossing(&self) -> Result<Curve, Unbounded> {
        self.others(self.queue).ok_or(Unbounded::Envelope(self.hop, self.queue))
    }

    /// The envelope of the background traffic in `queue`; `None` if it has none.
    fn others(&self, queue: usize) -> Option<Curve> {
        let mut sum = Curve::default();
        for source in
            self.port.background.iter().filter(|source| self.port.queue_of[source.class.index()] == queue)
        {
            sum = sum + Curve::from(source.envelope()?);
        }
        Some(sum)
    }

    /// Length of the longest frame in `queue` in bytes; `None` if no flow uses the queue.
    fn own(&self, queue: usize) -> Option<u32> {
        let others = self.port.background.iter();
        let lengths = others
            .filter(|source| self.port.queue_of[source.class.index()] == queue)
            .map(|source| source.length);
        lengths.chain((queue == self.queue).then_some(self.flow.frame_max)).max()
    }

    /// Link time of the shortest frame in `queue`, in bits.
    fn shortest(&self, queue: usize) -> u128 {
        let others = self.port.background.iter();
        let lengths = others
            .filter(|source| self.port.queue_of[source.class.index()] == queue)
            .map(|source| source.length);
        lengths.chain((queue == self.queue).then_some(self.flow.frame_min)).map(wire_bits).min().unwrap_or(1)
    }

    fn is_express(&self, queue: usize) -> bool {
        self.port.preemption.is_none_or(|preemption| preemption.express.is_open(queue))
    }

    /// Whether the gates of two queues are ever open at the same time.
    fn overlap(&self, one: usize, other: usize) -> bool {
        self.port.gates.as_ref().is_none_or(|gates| {
            gates.entries().iter().any(|entry| entry.states.is_open(one) && entry.states.is_open(other))
        })
    }

    /// Refuses settings for which no bound can be computed.
    fn check(&self) -> Result<(), Unbounded> {
        if self.port.preemption.is_none() {
            return Ok(());
        }
        let used = || (0..Class::COUNT).filter(|queue| self.own(*queue).is_some());
        let mut preemptable = used().filter(|queue| !self.is_express(*queue));
        let above = used().any(|express| {
            self.is_express(express) && used().any(|queue| !self.is_express(queue) && queue > express)
        });
        let gates = self.port.gates.as_ref();
        let windows = |queue| gates.map(|gates| gates.windows(queue));
        let first = preemptable.next();
        let differ = first.is_some_and(|first| preemptable.any(|other| windows(other) != windows(first)));
        let shaped =
            (0..Class::COUNT).any(|queue| !self.is_express(queue) && self.port.idle_slopes[queue].is_some());
        if above || (differ && !self.is_express(self.queue)) || shaped {
            return Err(Unbounded::Unsupported(self.hop));
        }
        Ok(())
    }

    /// Number of bits by which the model's rounding to nanoseconds may delay a cut or a count.
    fn rounding(&self) -> u128 {
        bits(self.rate, 3_000) + 16
    }

    /// Number of bits of a frame in a lower queue that `queue` waits for, because the frame has
    /// begun.
    fn blocking(&self, queue: usize) -> u128 {
        let lower = self.port.background.iter().filter_map(|source| {
            let other = self.port.queue_of[source.class.index()];
            (other < queue && self.overlap(queue, other)).then_some((other, wire_bits(source.length)))
        });
        let blocked = lower.map(|(other, whole)| match self.port.preemption {
            Some(preemption) if self.is_express(queue) && !self.is_express(other) => {
                whole.min(u128::from(preemption.blocking()) * 8 + self.rounding())
            }
            // The frame may have been interrupted, and the rest of it has another preamble.
            Some(preemption) if !self.is_express(other) => whole + u128::from(preemption.overhead()) * 8,
            _ => whole,
        });
        blocked.max().unwrap_or(0)
    }

    /// The service that the queues above take from `queue`.
    fn above(&self, queue: usize, outputs: &[Option<Curve>; Class::COUNT]) -> Result<Curve, Unbounded> {
        let mut sum = Curve::default();
        for (other, output) in outputs.iter().enumerate().skip(queue + 1) {
            if self.own(other).is_none() || !self.overlap(queue, other) {
                continue;
            }
            let mut curve = output.ok_or(Unbounded::Envelope(self.hop, other))?;
            if let Some(preemption) = self.port.preemption
                && self.is_express(other)
                && !self.is_express(queue)
            {
                // Each express frame may interrupt, which costs one more fragment.
                let (frame, extra) =
                    (self.shortest(other), u128::from(preemption.overhead()) * 8 + self.rounding());
                curve.burst = (curve.burst * (frame + extra)).div_ceil(frame);
                curve.rate = (curve.rate * (frame + extra)).div_ceil(frame);
            }
            sum = sum + curve;
        }
        Ok(sum)
    }

    /// The windows of `queue` without `lead` picoseconds at the beginning and `trail` picoseconds
    /// at the end of each, for the worst clock error. `None` if the gate never closes.
    fn windows(&self, queue: usize, lead: u128, trail: u128) -> Option<Windows> {
        let gates = self.port.gates.as_ref()?;
        let picoseconds = |time: Nanos| u128::from(time.get()) * 1_000;
        let (cycle, error) = (picoseconds(gates.cycle()), picoseconds(gates.clock().bound()));
        let whole = gates.windows(queue);
        if whole.iter().any(|(_, length)| picoseconds(*length) >= cycle) {
            return None;
        }
        // Beginning and end of each window.
        let shorter = whole.iter().filter_map(|(start, length)| {
            let begin = picoseconds(*start) + lead + error;
            let end = picoseconds(*start + *length).checked_sub(trail + error)?;
            (begin < end).then_some((begin, end))
        });
        let windows: Vec<_> = shorter.collect();
        let open: u128 = windows.iter().map(|(begin, end)| end - begin).sum();
        let mut gap = 0;
        for (first, (_, end)) in windows.iter().enumerate() {
            // From the end of one window to the beginning of each of the following windows.
            let mut served = 0;
            for step in 1..=windows.len() {
                let index = (first + step) % windows.len();
                let turns = (first + step) / windows.len();
                let (begin, until) = windows[index];
                let elapsed = begin + cycle * (turns as u128) - end;
                gap = gap.max(elapsed.saturating_sub(served * cycle / open));
                served += until - begin;
            }
        }
        Some(Windows { cycle, open, count: windows.len() as u128, gap })
    }

    /// Number of bits at the end of a window in which a frame of `queue` may not fit.
    fn unfit(&self, queue: usize) -> u128 {
        let whole = u128::from(self.own(queue).unwrap_or(0) + PREAMBLE) * 8;
        match self.port.preemption {
            Some(preemption) if !self.is_express(queue) => {
                let uncut = preemption.blocking() + preemption.overhead();
                let cut = u128::from(preemption.overhead()) * 8;
                (u128::from(uncut) * 8 + self.rounding()).min(whole + cut) + self.rounding()
            }
            _ => whole + self.rounding(),
        }
    }

    /// Number of bits at the beginning of a window in which the link may still be occupied: by a
    /// lower queue's frame, or by the gap after a frame.
    fn occupied(&self, queue: usize) -> u128 {
        u128::from(INTER_FRAME_GAP) * 8 + self.blocking(queue) + self.rounding()
    }

    /// The service of `queue`, and the traffic by which it delays the queues below, if this traffic
    /// has a limit.
    fn of_queue(
        &self,
        queue: usize,
        outputs: &[Option<Curve>; Class::COUNT],
    ) -> Result<(Service, Option<Curve>), Unbounded> {
        let above = self.above(queue, outputs)?;
        let lower = self.blocking(queue);
        let arrivals =
            self.others(queue).map(|others| if queue == self.queue { others + self.curve } else { others });
        if let Some(slope) = self.port.idle_slopes[queue] {
            return self.shaped(queue, u128::from(slope.bits()), above, lower);
        }
        let (lead, trail) = (time(self.occupied(queue), self.rate), time(self.unfit(queue), self.rate));
        // The average rate of the windows, and the bits that may be missing at first.
        let mut stair = None;
        let (mean, missing) = match self.windows(queue, lead, trail) {
            None => (self.rate, 0),
            Some(Windows { open: 0, .. }) => return Err(Unbounded::Window(self.hop)),
            Some(Windows { cycle, open, gap, count }) => {
                let mean = self.rate * open / cycle;
                if count == 1 && above.rate == 0 {
                    let once = lower + above.burst;
                    stair = Some(Stair { link: self.rate, window: open, cycle, once });
                }
                (mean, bits(mean, gap))
            }
        };
        let rate = mean.saturating_sub(above.rate);
        if rate == 0 {
            return Err(self.overload(above.rate));
        }
        let latency = time(missing + lower + above.burst, rate);
        let service = Service { rate, latency, stair };
        let output = arrivals
            .map(|curve| Curve { burst: curve.burst + bits(curve.rate, service.latency), rate: curve.rate });
        Ok((service, output.filter(|curve| curve.rate <= service.rate)))
    }

    /// The service of a queue with a credit-based shaper: its idle slope, after the time in which
    /// its credit may have grown to the maximum.
    fn shaped(
        &self,
        queue: usize,
        slope: u128,
        above: Curve,
        lower: u128,
    ) -> Result<(Service, Option<Curve>), Unbounded> {
        let (cycle, open, gap, wasted, count) = match self.windows(queue, 0, 0) {
            None => (1, 1, 0, 0, 0),
            Some(Windows { cycle, open, count, gap }) => {
                let longest = u128::from(self.own(queue).unwrap_or(0) + PREAMBLE) * 8;
                if open < count * time(longest, self.rate) || open == 0 {
                    return Err(Unbounded::Window(self.hop));
                }
                (cycle, open, gap, self.unfit(queue) + self.occupied(queue), count)
            }
        };
        // Loss per second of open time: to other queues and to the ends of the windows.
        let lost = (above.rate * cycle).div_ceil(open)
            + if count == 0 { 0 } else { (wasted * count * SECOND).div_ceil(open) };
        let once = lower + above.burst + bits(above.rate, gap) + 2 * wasted * count;
        let open_slope = (slope * cycle).div_ceil(open);
        if lost + open_slope > self.rate {
            return Err(self.overload(lost + open_slope));
        }
        // While frames wait, the credit grows for at most this much open time.
        let growing = time(once, self.rate - lost);
        // Starts and ends are whole nanoseconds, so each frame may cost some of its slope.
        let shortest = self.shortest(queue);
        let rate = slope * shortest / (shortest + self.rounding());
        let latency = gap + (growing * cycle).div_ceil(open);
        let longest = self.own(queue).map_or(0, wire_bits);
        let output = Curve {
            burst: bits(open_slope, growing) + longest + bits(slope, gap) + self.rounding(),
            rate: slope,
        };
        Ok((Service { rate, latency, stair: None }, Some(output)))
    }

    fn overload(&self, load: u128) -> Unbounded {
        let whole = |rate: u128| u64::try_from(rate).unwrap_or(u64::MAX);
        Unbounded::Overload { hop: self.hop, load: whole(load + self.curve.rate), capacity: whole(self.rate) }
    }
}
