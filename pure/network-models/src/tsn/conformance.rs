//! Whether the frames that left a port keep to a plan: to its windows, and to its rates.

use alloc::vec::Vec;

use engine::Nanos;

use super::gates::GateSchedule;
use crate::{Class, Rate};

/// A frame that left a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// When its first bit left, by the clock of the network (TAI).
    pub at: Nanos,
    /// Its class.
    pub class: Class,
    /// Its bytes on the link, preamble and gap included.
    pub bytes: u64,
    /// How far off `at` may be, either way.
    pub error: Nanos,
}

/// How far off a frame was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Worst {
    /// How much earlier or later the frame had to leave, to be within a window as a whole.
    pub off: Nanos,
    /// Number of the frame, from 0.
    pub frame: u64,
}

/// The figures of a class: its frames, and those outside of their windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Frames of the class.
    pub frames: u64,
    /// Frames that were outside of their windows by no more than the stamps' error.
    pub doubtful: u64,
    /// Frames that were outside of their windows by more than that.
    pub outside: u64,
    /// The frame that was farthest outside.
    pub worst: Worst,
    /// Frames that exceeded the rate of the class.
    pub too_many: u64,
    /// The most bytes beyond the rate at any time; the burst that was let through.
    pub burst: u64,
}

/// A rate that a class keeps.
#[derive(Clone, Copy, Debug)]
struct Limit {
    rate: Rate,
    burst: u64,
    /// Bytes beyond the rate, in thousandths, and when they were counted.
    level: u64,
    since: Nanos,
    /// The largest error of a stamp.
    error: Nanos,
}

/// Holds frames against a gate schedule and rates, one after another.
#[derive(Clone, Debug)]
pub struct Conformance {
    schedule: GateSchedule,
    /// The windows of each class: when each opens in a cycle, and for how long.
    windows: [Vec<(Nanos, Nanos)>; Class::COUNT],
    link: Rate,
    limits: [Option<Limit>; Class::COUNT],
    kept: [Kept; Class::COUNT],
    count: u64,
}

impl Conformance {
    /// Checks frames of a port of the rate `link`.
    pub fn new(schedule: GateSchedule, link: Rate) -> Self {
        let windows = Class::ALL.map(|class| schedule.windows(class.index()));
        Self {
            schedule,
            windows,
            link,
            limits: [None; Class::COUNT],
            kept: [Kept::default(); Class::COUNT],
            count: 0,
        }
    }

    /// Expects `class` to send no more than `rate`, and `burst` bytes at once beyond it. A shaper
    /// lets through a frame of its own and the frames that those of others have delayed.
    #[must_use]
    pub fn limited(mut self, class: Class, rate: Rate, burst: u64) -> Self {
        self.limits[class.index()] =
            Some(Limit { rate, burst, level: 0, since: Nanos::ZERO, error: Nanos::ZERO });
        self
    }

    /// Takes the next frame; returns by how much it was outside of its windows.
    pub fn observe(&mut self, frame: Departure) -> Nanos {
        let index = frame.class.index();
        let off = self.off(frame);
        let kept = &mut self.kept[index];
        kept.frames += 1;
        if off > frame.error {
            kept.outside += 1;
        } else if off > Nanos::ZERO {
            kept.doubtful += 1;
        }
        if off > kept.worst.off {
            kept.worst = Worst { off, frame: self.count };
        }
        if let Some(limit) = &mut self.limits[index] {
            let passed = frame.at.saturating_sub(limit.since).get();
            let drained = u128::from(limit.rate.bits()) * u128::from(passed) / 8_000_000;
            limit.since = frame.at.max(limit.since);
            limit.level = limit.level.saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX));
            limit.level = limit.level.saturating_add(frame.bytes.saturating_mul(1_000));
            let burst = limit.level / 1_000;
            kept.burst = kept.burst.max(burst);
            // A stamp that is too late by the error makes the next frames seem too early by it.
            limit.error = limit.error.max(frame.error);
            let allowed = limit.burst.saturating_add(limit.rate.bytes_in(limit.error * 2));
            kept.too_many += u64::from(burst > allowed);
        }
        self.count += 1;
        off
    }

    /// The figures of each class.
    pub fn kept(&self) -> impl Iterator<Item = (Class, Kept)> {
        Class::ALL.into_iter().zip(self.kept)
    }

    /// How much earlier or later a frame had to leave, to be within a window as a whole. A frame of
    /// a class that has no window is off by the cycle.
    fn off(&self, frame: Departure) -> Nanos {
        let cycle = self.schedule.cycle();
        let time = self.link.time_of(frame.bytes);
        let base = self.schedule.base();
        let phase = Nanos::new((frame.at.get() % cycle.get() + cycle.get() - base.get()) % cycle.get());
        let distance = |&(opens, length): &(Nanos, Nanos)| {
            if length >= cycle {
                return Nanos::ZERO;
            }
            // The frame may belong to the window of this cycle, of the one before or of the next.
            let latest = opens + length.saturating_sub(time);
            let of_cycle = |phase: Nanos| {
                if phase < opens { opens.saturating_sub(phase) } else { phase.saturating_sub(latest) }
            };
            let after = if phase >= opens { opens + cycle } else { opens }.saturating_sub(phase);
            of_cycle(phase).min(of_cycle(phase + cycle)).min(after)
        };
        self.windows[frame.class.index()].iter().map(distance).min().unwrap_or(cycle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::PortSettings;
    use crate::tsn::gates::{GateEntry, GateStates};
    use crate::tsn::plan::{Plan, Request};
    use engine::Instant;

    const CYCLE: u64 = 1_000_000;

    /// Class 7 for 100 µs, then none for 20 µs, then the others.
    fn schedule(base: u64) -> GateSchedule {
        let entry = |states, micros| GateEntry { states, length: Nanos::from_micros(micros) };
        let mine = GateStates::of([7]);
        let entries = [entry(mine, 100), entry(mine.inverted(), 880), entry(GateStates::CLOSED, 20)];
        GateSchedule::new(Instant::from_nanos(base), entries).unwrap()
    }

    fn class(number: u8) -> Class {
        Class::new(number).unwrap()
    }

    /// A frame whose stamp is right.
    fn exact(at: Nanos, class: Class, bytes: u64) -> Departure {
        Departure { at, class, bytes, error: Nanos::ZERO }
    }

    #[test]
    fn a_frame_is_off_by_what_would_have_to_change() {
        let mut check = Conformance::new(schedule(250_000), Rate::from_gigabits(1));
        let cycle = 77 * CYCLE + 250_000;
        // 1250 bytes take 10 µs.
        for (number, at, off) in [
            (7, 0, 0),
            (7, 90_000, 0),
            (7, 90_001, 1),
            (7, 97_000, 7_000),
            (7, 999_000, 1_000),
            (7, 500_000, 410_000),
            (7, 600_000, 400_000),
            (0, 100_000, 0),
            (0, 99_999, 1),
            (0, 970_000, 0),
            (0, 979_000, 9_000),
            (0, 5_000, 35_000),
        ] {
            let (at, error) = (Nanos::new(cycle + at), Nanos::from_micros(5));
            let frame = Departure { at, class: class(number), bytes: 1_250, error };
            assert_eq!(check.observe(frame).get(), off, "class {number} at {at}");
        }
        let kept: Vec<_> = check.kept().collect();
        let (other, mine) = (kept[0].1, kept[7].1);
        assert_eq!((mine.frames, mine.doubtful, mine.outside), (7, 2, 3));
        assert_eq!(mine.worst, Worst { off: Nanos::from_micros(410), frame: 5 });
        assert_eq!((other.frames, other.doubtful, other.outside), (5, 1, 2));
    }

    #[test]
    fn a_class_without_a_window_or_without_gates_is_recognised() {
        let only = [GateEntry { states: GateStates::of([7]), length: Nanos::from_micros(10) }];
        let schedule = GateSchedule::new(Instant::ZERO, only).unwrap();
        let mut check = Conformance::new(schedule, Rate::from_gigabits(1));
        let mut off = |number, at| check.observe(exact(Nanos::new(at), class(number), 84)).get();
        assert_eq!([off(7, 9_999), off(7, 123), off(0, 123)], [0, 0, 10_000]);
    }

    #[test]
    fn each_stamp_has_an_error_of_its_own() {
        let mut check = Conformance::new(schedule(0), Rate::from_gigabits(1));
        for micros in [1, 50, 1, 0] {
            let error = Nanos::from_micros(micros);
            // The frame takes 10 µs, and is 20 µs late.
            let at = Nanos::from_micros(110);
            check.observe(Departure { at, class: class(7), bytes: 1_250, error });
        }
        let mine = check.kept().nth(7).unwrap().1;
        assert_eq!((mine.frames, mine.doubtful, mine.outside), (4, 1, 3));
    }

    #[test]
    fn a_rate_is_kept_or_not() {
        let check = Conformance::new(schedule(0), Rate::from_gigabits(1));
        // 100 Mbit/s are a frame of 1250 bytes each 100 µs.
        let mut check = check.limited(class(3), Rate::from_megabits(100), 2_500);
        let at = |index: u64| Nanos::new(index * 100_000 + 100_000);
        for index in 0..100 {
            check.observe(exact(at(index), class(3), 1_250));
        }
        let kept = |check: &Conformance| check.kept().nth(3).unwrap().1;
        assert_eq!((kept(&check).too_many, kept(&check).burst), (0, 1_250));
        for _ in 0..3 {
            check.observe(exact(at(100), class(3), 1_250));
        }
        assert_eq!((kept(&check).too_many, kept(&check).burst), (1, 3_750));
    }

    /// The models and this check agree about which classes keep to a plan.
    #[test]
    fn what_the_plan_lets_leave_keeps_to_the_plan() {
        let rate = Rate::from_gigabits(1);
        let request = Request {
            class: class(7),
            frames: alloc::vec![1_000, 200],
            period: Nanos::from_micros(500),
            cycle: Nanos::from_micros(500),
            ports: alloc::vec![PortSettings::new(rate)],
            others_mtu: 1_500,
            preemption: false,
            clock_error: Nanos::ZERO,
        };
        let plan = Plan::new(request).unwrap();
        let hop = &plan.hops[0];
        let mut check = Conformance::new(hop.schedule.clone(), rate);
        let windows = super::super::launch::Windows {
            cycle: hop.schedule.cycle(),
            base: hop.schedule.base(),
            length: hop.window,
            rate,
        };
        let mut launcher = super::super::launch::Launcher::new(windows, Nanos::ZERO, 1_020).unwrap();
        for message in 0..1_000 {
            let now = Nanos::new(message * 523_001);
            for bytes in [1_020, 220] {
                let at = launcher.next(now, bytes);
                assert_eq!(check.observe(exact(at, class(7), bytes)), Nanos::ZERO);
            }
        }
        assert_eq!(check.kept().nth(7).unwrap().1.frames, 2_000);
    }
}
