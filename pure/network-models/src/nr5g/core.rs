//! The core network between base stations and other networks.

use engine::{Instant, Nanos, Rng};

use crate::leaving::{Delay, Leaving};
use crate::{Chance, sample};

/// Delay and losses of a core network. The delay depends on the momentary load of its machines, so
/// frames that come close together take equally long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreSettings {
    /// Minimum delay of a frame.
    pub delay: Nanos,
    /// Maximum additional delay, uniformly distributed.
    pub spread: Nanos,
    /// A frame that comes within this time after the previous one has the same delay as the
    /// previous one.
    pub coherence: Nanos,
    /// Chance that a frame is lost for good.
    pub loss: Chance,
}

impl CoreSettings {
    /// The core network of the published 5G experiment, including the machines that run it and the
    /// upper layers of the base station. Calibrated: the total on the mean of the register reads,
    /// the spread on their deviation (95 % of stand-alone downlink delays lie within 6 ms: Rischke
    /// et al.). One frame in 100,000 is lost for good, and TCP sends it again after its timeout of
    /// 200 ms or more. This is so rare that less than 0.01 % of reads take that long.
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
    /// Time and delay of the last frame.
    last: Option<(Instant, Nanos)>,
    leaving: Leaving,
}

impl Core {
    /// Maximum number of frames inside; further frames are lost.
    pub const INSIDE_MAX: usize = 1 << 14;

    /// A core network. `rng` supplies its delays and losses.
    pub const fn new(settings: CoreSettings, rng: Rng) -> Self {
        Self { settings, rng, last: None, leaving: Leaving::new() }
    }

    /// The settings that the core network was built with.
    pub const fn settings(&self) -> &CoreSettings {
        &self.settings
    }
}

impl Delay for Core {
    const INSIDE_MAX: usize = Self::INSIDE_MAX;

    fn delay(&mut self, arrived: Instant, _length: u32) -> Option<Instant> {
        if self.settings.loss.happens(&mut self.rng) {
            return None;
        }
        let time = match self.last {
            Some((before, time)) if arrived - before < self.settings.coherence => time,
            _ => self.settings.delay + sample::uniform(&mut self.rng, self.settings.spread),
        };
        self.last = Some((arrived, time));
        Some(arrived + time)
    }

    fn leaving(&self) -> &Leaving {
        &self.leaving
    }

    fn leaving_mut(&mut self) -> &mut Leaving {
        &mut self.leaving
    }
}
