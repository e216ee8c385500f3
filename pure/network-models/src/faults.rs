//! Faults of links: at random, or at scheduled times.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::{Instant, Nanos, Rng};

use crate::leaving::take_due;
use crate::sample::{self, Chance};
use crate::{Counts, Frame, Hop, Rate, Transmitter};

/// How a link misbehaves. The default is no fault at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// Chance that a frame vanishes.
    pub loss: Chance,
    /// Chance that a frame is damaged, so that its check sequence no longer fits. The next
    /// store-and-forward switch or the receiver drops it.
    pub corruption: Chance,
    /// Chance that a frame arrives twice.
    pub duplication: Chance,
    /// Chance that a frame is held for [`Behaviour::reorder_by`] while others pass it.
    pub reorder: Chance,
    /// How long a reordered frame is held.
    pub reorder_by: Nanos,
    /// Fixed delay that is added for each frame.
    pub delay: Nanos,
    /// Random delay that is added for each frame. Frames keep their order.
    pub jitter: Jitter,
    /// Rate that the link is throttled to, if any.
    pub rate: Option<Rate>,
    /// Whether the link is down: every frame that enters is lost.
    pub down: bool,
}

/// Distribution of a random delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jitter {
    /// No delay.
    #[default]
    None,
    /// Uniformly distributed from zero to this time.
    Uniform(Nanos),
    /// Exponentially distributed with this mean.
    Exponential(Nanos),
    /// Normally distributed; zero where the value would be negative.
    Normal {
        /// Mean of the distribution.
        mean: Nanos,
        /// Standard deviation of the distribution.
        deviation: Nanos,
    },
}

impl Jitter {
    /// Draws one delay.
    pub fn sample(self, rng: &mut Rng) -> Nanos {
        match self {
            Self::None => Nanos::ZERO,
            Self::Uniform(longest) => sample::uniform(rng, longest),
            Self::Exponential(mean) => sample::exponential(rng, mean),
            Self::Normal { mean, deviation } => sample::normal(rng, mean, deviation),
        }
    }
}

/// Random cuts: the link is up and down for exponentially distributed times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaps {
    /// Mean time between two cuts.
    pub up: Nanos,
    /// Mean length of a cut.
    pub down: Nanos,
}

impl Flaps {
    /// Draws how long the link is down or up: one nanosecond at least, so that time goes on.
    fn length(self, is_down: bool, rng: &mut Rng) -> Nanos {
        sample::exponential(rng, if is_down { self.down } else { self.up }) + Nanos::new(1)
    }
}

/// After a pause of this many mean cycles of flaps, the state before has no influence any more.
const CYCLES_REMEMBERED: u64 = 1_024;

/// A hop that takes no time of its own and applies a [`Behaviour`] to frames.
#[derive(Clone, Debug)]
pub struct Faults {
    behaviour: Behaviour,
    /// Future changes of the behaviour, the next one first.
    schedule: VecDeque<(Instant, Behaviour)>,
    flaps: Option<Flapping>,
    rng: Rng,
    transmitter: Transmitter,
    /// Frames inside, in the order in which they leave.
    inside: VecDeque<(Instant, Frame)>,
    /// When the last frame that was not held for reordering leaves.
    last: Instant,
    counts: Counts,
}

#[derive(Clone, Debug)]
struct Flapping {
    flaps: Flaps,
    down: bool,
    /// When the link next goes up or down.
    until: Instant,
}

impl Faults {
    /// Maximum number of frames inside; further frames are lost.
    pub const INSIDE_MAX: usize = 1 << 16;

    /// A link with `behaviour` from the beginning. Random values come from `rng`.
    pub const fn new(behaviour: Behaviour, rng: Rng) -> Self {
        Self {
            behaviour,
            schedule: VecDeque::new(),
            flaps: None,
            rng,
            transmitter: Transmitter::IDLE,
            inside: VecDeque::new(),
            last: Instant::ZERO,
            counts: Counts { entered: 0, left: 0, lost: 0, copied: 0 },
        }
    }

    /// Adds changes of the behaviour, each from its time on.
    #[must_use]
    pub fn with_schedule(mut self, changes: impl IntoIterator<Item = (Instant, Behaviour)>) -> Self {
        let mut changes: Vec<_> = changes.into_iter().collect();
        changes.sort_by_key(|(at, _)| *at);
        self.schedule = changes.into();
        self
    }

    /// Adds random cuts.
    #[must_use]
    pub fn with_flaps(mut self, flaps: Flaps) -> Self {
        let until = Instant::ZERO + sample::exponential(&mut self.rng, flaps.up);
        self.flaps = Some(Flapping { flaps, down: false, until });
        self
    }

    /// Sets the behaviour from now on, until the next scheduled change.
    pub const fn set(&mut self, behaviour: Behaviour) {
        self.behaviour = behaviour;
    }

    /// Keeps frames that enter from now on inside until `until` at least. No frame is lost.
    pub fn hold_until(&mut self, until: Instant) {
        self.last = self.last.max(until);
    }

    /// The behaviour at this time.
    pub const fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// Whether a frame that enters at `now` finds the link down.
    fn is_down(&mut self, now: Instant) -> bool {
        while let Some((at, behaviour)) = self.schedule.front().copied()
            && at <= now
        {
            self.behaviour = behaviour;
            self.schedule.pop_front();
        }
        if let Some(Flapping { flaps, down, until }) = &mut self.flaps {
            let cycle = flaps.up + flaps.down;
            let is_forgotten = now - *until > cycle * CYCLES_REMEMBERED;
            if is_forgotten {
                // The exponential distribution has no memory: each state has its share of the time,
                // and lasts from now on as long as from its beginning.
                *down = self.rng.below(cycle.get().max(1)) < flaps.down.get();
                *until = now + flaps.length(*down, &mut self.rng);
            }
            while *until <= now {
                *down = !*down;
                *until = *until + flaps.length(*down, &mut self.rng);
            }
            return *down || self.behaviour.down;
        }
        self.behaviour.down
    }

    /// Schedules the exit of `frame` according to the behaviour.
    fn keep(&mut self, now: Instant, mut frame: Frame) {
        if self.inside.len() >= Self::INSIDE_MAX {
            self.counts.lost += 1;
            return;
        }
        let Behaviour { delay, jitter, reorder, reorder_by, rate, .. } = self.behaviour;
        let mut at = now;
        if let Some(rate) = rate {
            let arrived = now + core::mem::take(&mut frame.tail);
            at = self.transmitter.send(arrived, rate, frame.wire_bytes());
        }
        at = at + delay + jitter.sample(&mut self.rng);
        if reorder.happens(&mut self.rng) {
            at = at.max(self.last) + reorder_by;
        } else {
            at = at.max(self.last);
            self.last = at;
        }
        let place = self.inside.iter().rposition(|(before, _)| *before <= at).map_or(0, |place| place + 1);
        self.inside.insert(place, (at, frame));
    }
}

impl Hop for Faults {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        if self.is_down(now) || self.behaviour.loss.happens(&mut self.rng) {
            self.counts.lost += 1;
            return;
        }
        if self.behaviour.corruption.happens(&mut self.rng) {
            frame.intact = false;
        }
        if self.behaviour.duplication.happens(&mut self.rng) {
            self.counts.copied += 1;
            self.keep(now, frame.clone());
        }
        self.keep(now, frame);
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        take_due(&mut self.inside, &mut self.counts, now)
    }

    fn next(&self) -> Option<Instant> {
        self.inside.front().map(|(at, _)| *at)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use engine::{Buffer, Rng};
    use proptest::prelude::*;

    fn frame(id: u64) -> Frame {
        Frame::new(id, 100, Class::BEST_EFFORT, Buffer::EMPTY)
    }

    /// Sends a frame every microsecond; returns the frames that leave, in order, with their times.
    fn run(mut faults: Faults, frames: u64) -> (Vec<(u64, u64)>, Counts) {
        let mut out = Vec::new();
        let mut drain = |faults: &mut Faults, until: u64| {
            while let Some(at) = faults.next().filter(|at| at.as_nanos() <= until) {
                let frame = faults.poll(at).unwrap();
                out.push((frame.id, at.as_nanos()));
            }
        };
        for id in 0..frames {
            drain(&mut faults, id * 1_000);
            faults.enter(Instant::from_nanos(id * 1_000), frame(id));
        }
        drain(&mut faults, u64::MAX);
        (out, faults.counts())
    }

    #[test]
    fn nothing_happens_unless_it_is_said() {
        let (out, counts) = run(Faults::new(Behaviour::default(), Rng::from_seed(1)), 10);
        assert!(out.iter().enumerate().all(|(id, out)| *out == (id as u64, id as u64 * 1_000)));
        assert_eq!(counts, Counts { entered: 10, left: 10, ..Counts::default() });
    }

    #[test]
    fn losses_and_duplicates_are_as_many_as_the_chances_say() {
        let behaviour =
            Behaviour { loss: Chance::percent(10), duplication: Chance::percent(5), ..Behaviour::default() };
        let (_, counts) = run(Faults::new(behaviour, Rng::from_seed(1)), 20_000);
        assert!(counts.lost.abs_diff(2_000) < 150, "{counts:?}");
        assert!(counts.copied.abs_diff(900) < 100, "{counts:?}");
    }

    #[test]
    fn reordered_frames_are_passed_and_jitter_alone_reorders_none() {
        let reorder = Behaviour {
            reorder: Chance::percent(10),
            reorder_by: Nanos::from_micros(5),
            ..Behaviour::default()
        };
        let (out, _) = run(Faults::new(reorder, Rng::from_seed(1)), 1_000);
        let passed = out.windows(2).filter(|pair| pair[0].0 > pair[1].0).count();
        assert!((70..130).contains(&passed), "{passed}");
        for jitter in [Jitter::Exponential(Nanos::from_micros(10)), Jitter::Uniform(Nanos::from_micros(20))] {
            let (out, _) =
                run(Faults::new(Behaviour { jitter, ..Behaviour::default() }, Rng::from_seed(1)), 1_000);
            assert!(out.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
    }

    #[test]
    fn changes_happen_at_their_times() {
        let down = Behaviour { down: true, ..Behaviour::default() };
        let slow = Behaviour { rate: Some(Rate::from_megabits(8)), ..Behaviour::default() };
        let at = Instant::from_nanos;
        let faults = Faults::new(Behaviour::default(), Rng::from_seed(1))
            .with_schedule([(at(6_000), slow), (at(3_000), down)]);
        let (out, counts) = run(faults, 8);
        // 120 B at 8 Mbit/s are 120 µs.
        assert_eq!(out, [(0, 0), (1, 1_000), (2, 2_000), (6, 126_000), (7, 246_000)]);
        assert_eq!(counts.lost, 3);
    }

    #[test]
    fn flaps_take_their_share() {
        let flaps = Flaps { up: Nanos::from_millis(3), down: Nanos::from_millis(1) };
        let (_, counts) =
            run(Faults::new(Behaviour::default(), Rng::from_seed(9)).with_flaps(flaps), 1_000_000);
        assert!(counts.lost.abs_diff(250_000) < 25_000, "{counts:?}");
    }

    #[test]
    fn flaps_of_a_long_pause_are_not_counted_one_by_one() {
        let flaps = Flaps { up: Nanos::from_micros(3), down: Nanos::from_micros(1) };
        let mut faults = Faults::new(Behaviour::default(), Rng::from_seed(9)).with_flaps(flaps);
        for hour in 1..=2_000 {
            let now = Instant::from_nanos(hour * 3_600_000_000_000);
            faults.enter(now, frame(hour));
            while faults.poll(now).is_some() {}
        }
        assert!(faults.counts().lost.abs_diff(500) < 100, "{:?}", faults.counts());
    }

    #[test]
    fn a_damaged_frame_says_so() {
        let behaviour = Behaviour { corruption: Chance::ALWAYS, ..Behaviour::default() };
        let mut faults = Faults::new(behaviour, Rng::from_seed(1));
        faults.enter(Instant::ZERO, frame(0));
        assert!(!faults.poll(Instant::ZERO).unwrap().intact);
    }

    proptest! {
        #[test]
        fn frames_are_accounted_for(seed: u64, loss in 0_u32..50, twice in 0_u32..50, held in 0_u32..50) {
            let behaviour = Behaviour {
                loss: Chance::percent(loss),
                duplication: Chance::percent(twice),
                reorder: Chance::percent(held),
                reorder_by: Nanos::from_micros(3),
                jitter: Jitter::Normal { mean: Nanos::from_micros(2), deviation: Nanos::from_micros(1) },
                ..Behaviour::default()
            };
            let (out, counts) = run(Faults::new(behaviour, Rng::from_seed(seed)), 200);
            prop_assert_eq!(counts.entered + counts.copied, counts.left + counts.lost);
            prop_assert_eq!(counts.left, out.len() as u64);
            prop_assert!(out.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        }
    }
}
