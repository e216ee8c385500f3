//! Background traffic on the same port.

use engine::{Instant, Nanos, Rng};

use crate::sample;
use crate::{Class, Rate};

/// A source of frames that share a port with the frames of interest, and leave the path behind the
/// port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Class of the frames.
    pub class: Class,
    /// Length of each frame in bytes, including header and check sequence.
    pub length: u32,
    /// When the frames come.
    pub pattern: Pattern,
}

/// When the frames of a source come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Bursts at regular intervals.
    Periodic {
        /// Time from one burst to the next.
        period: Nanos,
        /// Time of the first burst.
        offset: Nanos,
        /// Number of frames in a burst.
        frames: u32,
        /// Maximum random delay of a burst.
        jitter: Nanos,
    },
    /// Single frames, independent of each other (a Poisson process), one each `mean` on average.
    Random {
        /// Mean time between two frames.
        mean: Nanos,
    },
    /// Single frames with normally distributed times between them.
    Normal {
        /// Mean time between two frames.
        mean: Nanos,
        /// Standard deviation of the time between two frames.
        deviation: Nanos,
    },
    /// As many frames as a token bucket lets pass, at random times.
    Policed {
        /// Average rate that may pass.
        rate: Rate,
        /// Maximum burst, in bytes of link time.
        burst: u64,
    },
    /// There is always another frame.
    Saturated,
}

/// The most that a source sends in any time t: `burst` plus `rate` times t, in bytes of link time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Burst in bytes of link time, including preamble and gap.
    pub burst: u64,
    /// Rate in bits per second.
    pub rate: u64,
}

impl core::ops::Add for Envelope {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { burst: self.burst.saturating_add(other.burst), rate: self.rate.saturating_add(other.rate) }
    }
}

impl Source {
    /// Maximum number of frames in a burst.
    pub const BURST_MAX: u32 = 1 << 16;

    /// Link time of each frame, in bytes.
    pub fn wire_bytes(&self) -> u64 {
        crate::Frame::new(0, self.length, self.class, engine::Buffer::EMPTY).wire_bytes()
    }

    /// The most that the source sends; `None` if there is no limit.
    pub fn envelope(&self) -> Option<Envelope> {
        match self.pattern {
            Pattern::Periodic { period, frames, jitter, .. } => {
                let each = self.wire_bytes() * u64::from(frames);
                let bits = u128::from(each) * 8 * 1_000_000_000;
                let rate = u64::try_from(bits.div_ceil(u128::from(period.get().max(1)))).ok()?;
                // Jitter brings bursts closer together: the traffic of this time may come at once.
                let early = u128::from(rate) * u128::from(jitter.get()) / 8_000_000_000 + 1;
                let burst =
                    each.saturating_add(if jitter == Nanos::ZERO { 0 } else { u64::try_from(early).ok()? });
                Some(Envelope { burst, rate })
            }
            Pattern::Policed { rate, burst } => {
                Some(Envelope { burst: burst.max(self.wire_bytes()), rate: rate.bits() })
            }
            Pattern::Random { .. } | Pattern::Normal { .. } | Pattern::Saturated => None,
        }
    }
}

/// A source in operation.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) source: Source,
    rng: Rng,
    /// Planned time of the burst, before jitter.
    planned: Instant,
    next: Instant,
    /// Number of frames still to come in the current burst.
    left: u32,
    /// Tokens of a policed source, in 10^-9 bits, and the time when they were counted.
    tokens: u128,
    counted: Instant,
}

impl Running {
    pub(crate) fn new(source: Source, rng: Rng) -> Self {
        let start = match source.pattern {
            Pattern::Periodic { offset, .. } => Instant::ZERO + offset,
            _ => Instant::ZERO,
        };
        let tokens = match source.pattern {
            Pattern::Policed { burst, .. } => full(burst.max(source.wire_bytes())),
            _ => 0,
        };
        let mut running = Self { source, rng, planned: start, next: start, left: 0, tokens, counted: start };
        running.plan(start);
        running
    }

    /// When the source's next frame comes; `None` for a saturated source, which has a frame
    /// whenever it is asked.
    pub(crate) fn next(&self) -> Option<Instant> {
        (self.source.pattern != Pattern::Saturated).then_some(self.next)
    }

    pub(crate) fn is_saturated(&self) -> bool {
        self.source.pattern == Pattern::Saturated
    }

    /// Moves on to the frame after the one of [`Running::next`].
    pub(crate) fn advance(&mut self) {
        if self.left > 1 {
            self.left -= 1;
            return;
        }
        let now = self.next;
        if let Pattern::Periodic { period, .. } = self.source.pattern {
            self.planned = self.planned + period.max(Nanos::new(1));
        }
        self.plan(now);
    }

    /// Continues shortly before `now`, after the port was not used for a long time.
    pub(crate) fn skip_to(&mut self, now: Instant) {
        if self.next >= now || self.is_saturated() {
            return;
        }
        match self.source.pattern {
            Pattern::Periodic { period, .. } => {
                let period = period.max(Nanos::new(1));
                let periods = (now - self.planned).get().div_ceil(period.get());
                self.planned = self.planned + period * periods;
                self.left = 0;
                self.plan(now);
            }
            _ => self.plan(now),
        }
    }

    /// Chooses the time of the next frame, not before `now`.
    fn plan(&mut self, now: Instant) {
        self.next = match self.source.pattern {
            Pattern::Periodic { frames, jitter, .. } => {
                self.left = frames.clamp(1, Source::BURST_MAX);
                (self.planned + sample::uniform(&mut self.rng, jitter)).max(now)
            }
            Pattern::Random { mean } => now + sample::exponential(&mut self.rng, mean).max(Nanos::new(1)),
            Pattern::Normal { mean, deviation } => {
                now + sample::normal(&mut self.rng, mean, deviation).max(Nanos::new(1))
            }
            Pattern::Policed { rate, burst } => self.police(now, rate, burst.max(self.source.wire_bytes())),
            Pattern::Saturated => now,
        };
    }

    /// A random time at which the bucket has enough tokens, which are then taken. One time in four,
    /// the source pauses, so that the bucket fills and a burst follows.
    fn police(&mut self, now: Instant, rate: Rate, burst: u64) -> Instant {
        let need = full(self.source.wire_bytes());
        let frame_time = rate.time_of(self.source.wire_bytes());
        let mut at = now;
        if self.rng.one_in(4) {
            at = at + sample::uniform(&mut self.rng, frame_time * 8);
        }
        let bits = u128::from(rate.bits());
        let earned = |tokens: u128, time: Nanos| (tokens + bits * u128::from(time.get())).min(full(burst));
        let mut tokens = earned(self.tokens, at - self.counted);
        if tokens < need {
            let wait = (need - tokens).div_ceil(bits);
            let wait = Nanos::new(u64::try_from(wait).unwrap_or(u64::MAX));
            at = at + wait;
            tokens = earned(tokens, wait);
        }
        self.tokens = tokens.saturating_sub(need);
        self.counted = at;
        at
    }
}

/// The number of tokens for `bytes`, in 10^-9 bits.
fn full(bytes: u64) -> u128 {
    u128::from(bytes) * 8_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use engine::Rng;
    use proptest::prelude::*;

    fn source(pattern: Pattern) -> Source {
        Source { class: Class::BEST_EFFORT, length: 480, pattern }
    }

    fn times(pattern: Pattern, seed: u64, count: usize) -> Vec<u64> {
        let mut running = Running::new(source(pattern), Rng::from_seed(seed));
        (0..count)
            .map(|_| {
                let at = running.next().unwrap().as_nanos();
                running.advance();
                at
            })
            .collect()
    }

    #[test]
    fn bursts_come_periodically() {
        let pattern = Pattern::Periodic {
            period: Nanos::new(100),
            offset: Nanos::new(7),
            frames: 2,
            jitter: Nanos::ZERO,
        };
        assert_eq!(times(pattern, 1, 5), [7, 7, 107, 107, 207]);
        let mut running = Running::new(source(pattern), Rng::from_seed(1));
        running.skip_to(Instant::from_nanos(1_000_000));
        assert_eq!(running.next(), Some(Instant::from_nanos(1_000_007)));
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        prop_oneof![
            (1_000_u64..50_000, 0_u64..1_000, 1_u32..5, 0_u64..60_000).prop_map(
                |(period, offset, frames, jitter)| {
                    Pattern::Periodic {
                        period: Nanos::new(period),
                        offset: Nanos::new(offset),
                        frames,
                        jitter: Nanos::new(jitter),
                    }
                }
            ),
            (1_u64..500, 500_u64..5_000)
                .prop_map(|(rate, burst)| Pattern::Policed { rate: Rate::from_megabits(rate), burst }),
        ]
    }

    proptest! {
        #[test]
        fn no_source_exceeds_its_envelope(pattern in pattern(), seed: u64) {
            let envelope = source(pattern).envelope().unwrap();
            let times = times(pattern, seed, 60);
            for (first, start) in times.iter().enumerate() {
                for (last, end) in times.iter().enumerate().skip(first) {
                    let sent = 500 * (last - first + 1) as u128;
                    let allowed = u128::from(envelope.burst)
                        + (u128::from(envelope.rate) * u128::from(end - start)).div_ceil(8_000_000_000);
                    prop_assert!(sent <= allowed, "{sent} B in {} ns, {envelope:?}", end - start);
                }
            }
        }
    }
}
