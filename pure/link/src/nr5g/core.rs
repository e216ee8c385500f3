//! From the base station through the core network, and to the next one.

use alloc::collections::VecDeque;

use engine::{Instant, Nanos, Rng};

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
    inside: VecDeque<(Instant, Frame)>,
    counts: Counts,
}

impl Core {
    /// The most frames inside; more are lost.
    pub const INSIDE_MAX: usize = 1 << 14;

    /// A core network whose variation and losses come out of `rng`.
    pub const fn new(settings: CoreSettings, rng: Rng) -> Self {
        let counts = Counts { entered: 0, left: 0, lost: 0, copied: 0 };
        Self { settings, rng, last: None, inside: VecDeque::new(), counts }
    }

    /// What it was told.
    pub const fn settings(&self) -> &CoreSettings {
        &self.settings
    }
}

impl Hop for Core {
    fn enter(&mut self, now: Instant, mut frame: Frame) {
        self.counts.entered += 1;
        if self.inside.len() >= Self::INSIDE_MAX || self.settings.loss.happens(&mut self.rng) {
            self.counts.lost += 1;
            return;
        }
        let arrived = now + core::mem::take(&mut frame.tail);
        let time = match self.last {
            Some((before, time)) if arrived - before < self.settings.coherence => time,
            _ => self.settings.delay + sample::uniform(&mut self.rng, self.settings.spread),
        };
        self.last = Some((arrived, time));
        let out = arrived + time;
        let out = self.inside.back().map_or(out, |(last, _)| out.max(*last));
        self.inside.push_back((out, frame));
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        self.inside.front().filter(|(at, _)| *at <= now)?;
        self.counts.left += 1;
        self.inside.pop_front().map(|(_, frame)| frame)
    }

    fn next(&self) -> Option<Instant> {
        self.inside.front().map(|(at, _)| *at)
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
