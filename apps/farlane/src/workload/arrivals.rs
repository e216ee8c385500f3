//! When the commands of a load with a rate are due.

use engine::{Instant, Nanos, Rng};

/// When the commands of a load with a rate are due to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals {
    start: Instant,
    /// Commands, or bytes, a second.
    rate: u64,
    /// Commands, or bytes, that have begun.
    begun: u64,
    /// When the next command is due, where the times between commands are drawn.
    drawn: Option<Instant>,
}

impl Arrivals {
    /// Commands that arrive evenly from `start` on, `rate` a second.
    pub(super) const fn even(start: Instant, rate: u64) -> Self {
        Self { start, rate, begun: 0, drawn: None }
    }

    /// Commands that arrive independently of each other: a Poisson process.
    pub(super) const fn poisson(start: Instant, rate: u64) -> Self {
        Self { start, rate, begun: 0, drawn: Some(start) }
    }

    /// When the next command is due to begin.
    pub(super) fn next(&self) -> Instant {
        self.drawn.unwrap_or_else(|| {
            let nanos = u128::from(self.begun) * 1_000_000_000 / u128::from(self.rate);
            self.start + Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX / 4))
        })
    }

    /// Notes that a command of `units` has begun.
    pub(super) fn begin(&mut self, units: u64, rng: &mut Rng) {
        self.begun += units;
        if let Some(at) = self.drawn {
            self.drawn = Some(at + wait(rng.next_u64(), units, self.rate));
        }
    }

    /// Commands that were due to begin before `end` and have not; in bytes for a rate in bytes.
    pub(super) fn late(&self, end: Instant) -> u64 {
        if self.drawn.is_some() || end < self.start {
            return 0;
        }
        let due = u128::from((end - self.start).get()) * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.begun)
    }
}

/// The time until the next of `units` at `rate` a second, exponentially distributed.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time is positive and less than 2^53 ns"
)]
fn wait(drawn: u64, units: u64, rate: u64) -> Nanos {
    let uniform = ((drawn >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    Nanos::new((-uniform.ln() * 1e9 * units as f64 / rate as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_arrive_evenly() {
        let start = Instant::ZERO + Nanos::from_secs(5);
        let (mut arrivals, mut rng) = (Arrivals::even(start, 4), Rng::from_seed(1));
        assert_eq!(arrivals.next(), start);
        arrivals.begin(6, &mut rng);
        assert_eq!(arrivals.next(), start + Nanos::from_millis(1500));
        assert_eq!(arrivals.late(start + Nanos::from_secs(2)), 2);
        assert_eq!(arrivals.late(start), 0);
        // Bytes a second: a command of 4,096 bytes takes a second of them.
        let mut arrivals = Arrivals::even(start, 4096);
        arrivals.begin(4096, &mut rng);
        assert_eq!(arrivals.next(), start + Nanos::from_secs(1));
    }

    #[test]
    fn independent_commands_arrive_unevenly_and_as_often() {
        let (mut arrivals, mut rng) = (Arrivals::poisson(Instant::ZERO, 1000), Rng::from_seed(1));
        let mut gaps = Vec::new();
        for _ in 0..10_000 {
            let before = arrivals.next();
            arrivals.begin(1, &mut rng);
            gaps.push((arrivals.next() - before).get());
        }
        let mean = gaps.iter().sum::<u64>() / 10_000;
        assert!((970_000..1_030_000).contains(&mean), "{mean}");
        // Of exponential gaps, 63 % are shorter than the mean.
        let short = gaps.iter().filter(|gap| **gap < 1_000_000).count();
        assert!((6_000..6_600).contains(&short), "{short}");
    }
}
