//! From the base station through the core network, and to the next one.

use engine::{Instant, Nanos, Rng};

use crate::leaving::Leaving;
use crate::{Chance, Counts, Frame, Hop, sample};

/// What a core network adds. Its time varies with what its machines do, so that frames which come together take equally
/// long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSettings {
    /// The least that a frame takes.
    pub delay: Nanos,
    /// Up to so much more, evenly.
    pub spread: Nanos,
    /// A frame that comes this soon after the one before takes as long as that.
    pub coherence: Nanos,
    /// Frames that are lost for good.
    pub loss: Chance,
}

impl CoreSettings {
    /// That of the published 5G experiment, and the machines that run it and the base station's upper layers. Calibrated: the sum on the mean of
    /// the register reads, the spread on their deviation (95 % of stand-alone downlink delays lie within 6 ms: Rischke et al.).
    /// One frame in 100,000 is lost for good, which TCP then repeats after its timeout of 200 ms or more: so few that less than
    /// 0.01 % of reads take that long.
    pub const CAMPUS: Self = Self {
        delay: Nanos::from_micros(330),
        spread: Nanos::from_micros(6_950),
        coherence: Nanos::from_millis(1),
        loss: Chance::parts_per_million(10),
    };
}

/// One direction of a core network. Frames keep their order.
#[derive(Clone, Debug)]
pub struct Core {
    settings: CoreSettings,
    rng: Rng,
    /// When the last frame came, and what it took.
    last: Option<(Instant, Nanos)>,
    leaving: Leaving,
}

impl Core {
    /// The most frames inside; more are lost.
    pub const INSIDE_MAX: usize = 1 << 14;

    /// A core network whose variation and losses come out of `rng`.
    pub const fn new(settings: CoreSettings, rng: Rng) -> Self {
        Self { settings, rng, last: None, leaving: Leaving::new() }
    }

    /// What it was told.
    pub const fn settings(&self) -> &CoreSettings {
        &self.settings
    }
}

impl Hop for Core {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        if !self.leaving.admit(0, Self::INSIDE_MAX) {
            return;
        }
        if self.settings.loss.happens(&mut self.rng) {
            return self.leaving.lose();
        }
        let arrived = now + core::mem::take(&mut frame.tail);
        let time = match self.last {
            Some((before, time)) if arrived - before < self.settings.coherence => time,
            _ => self.settings.delay + sample::uniform(&mut self.rng, self.settings.spread),
        };
        self.last = Some((arrived, time));
        self.leaving.push(arrived + time, frame);
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        self.leaving.poll(now)
    }

    fn next(&self) -> Option<Instant> {
        self.leaving.next()
    }

    fn counts(&self) -> Counts {
        self.leaving.counts()
    }
}
