//! Losses that come in bursts: the channel of Gilbert and Elliott.

use engine::{Instant, Nanos, Rng};

use crate::sample::{self, Chance};

/// After a pause of this many mean cycles, the state before has no influence any more.
const CYCLES_REMEMBERED: u64 = 1_024;

/// A channel with two states that alternate after exponentially distributed times (Gilbert, Bell
/// System Technical Journal 39(5), 1960; Elliott, the same 42(5), 1963).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Mean time in the good state.
    pub good: Nanos,
    /// Mean time in the bad state.
    pub bad: Nanos,
    /// Chance that a transmission that begins in the good state is lost.
    pub good_loss: Chance,
    /// Chance that a transmission that begins in the bad state is lost.
    pub bad_loss: Chance,
}

/// The state of a channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    bursts: Bursts,
    rng: Rng,
    is_bad: bool,
    until: Instant,
}

impl Channel {
    /// A channel that is in the good state at the beginning.
    pub(super) fn new(bursts: Bursts, mut rng: Rng) -> Self {
        let until = Instant::ZERO + sample::exponential(&mut rng, bursts.good);
        Self { bursts, rng, is_bad: false, until }
    }

    /// Whether a transmission that begins at `now` is lost.
    pub(super) fn loses(&mut self, now: Instant) -> bool {
        let Bursts { good, bad, good_loss, bad_loss } = self.bursts;
        let cycle = good + bad;
        if now - self.until > cycle * CYCLES_REMEMBERED {
            self.is_bad = self.rng.below(cycle.get().max(1)) < bad.get();
            self.until = now + self.length();
        }
        while self.until <= now {
            self.is_bad = !self.is_bad;
            self.until = self.until + self.length();
        }
        if self.is_bad { bad_loss.happens(&mut self.rng) } else { good_loss.happens(&mut self.rng) }
    }

    /// Draws how long the state lasts: one nanosecond at least, so that time goes on.
    fn length(&mut self) -> Nanos {
        let mean = if self.is_bad { self.bursts.bad } else { self.bursts.good };
        sample::exponential(&mut self.rng, mean) + Nanos::new(1)
    }
}
