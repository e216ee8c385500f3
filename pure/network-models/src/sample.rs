//! Random times and chances in integer arithmetic, so that a seed gives the same run in every
//! build.

use engine::{Nanos, Rng};

/// ln 2, the reciprocal of log2(e), in units of 2^-32.
const LN_2: u64 = 2_977_044_472;
/// Number of bits of a logarithm's fraction that are computed, for an error below 10^-6.
const FRACTION_BITS: u32 = 20;

/// The probability of an event, in parts of 10^9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chance(u32);

impl Chance {
    /// The event never happens.
    pub const NEVER: Self = Self(0);
    /// The event happens each time.
    pub const ALWAYS: Self = Self(1_000_000_000);

    /// A chance of `parts` in 10^9, at most 1.
    pub const fn parts_per_billion(parts: u32) -> Self {
        if parts > Self::ALWAYS.0 { Self::ALWAYS } else { Self(parts) }
    }
    /// A chance of `parts` in 10^6, at most 1.
    pub const fn parts_per_million(parts: u32) -> Self {
        Self::parts_per_billion(parts.saturating_mul(1_000))
    }
    /// A chance of `percent` in 100, at most 1.
    pub const fn percent(percent: u32) -> Self {
        Self::parts_per_billion(percent.saturating_mul(10_000_000))
    }
    /// The chance in parts of 10^9.
    pub const fn in_parts_per_billion(self) -> u32 {
        self.0
    }

    /// Whether the event happens this time. [`Chance::NEVER`] and [`Chance::ALWAYS`] take no number
    /// from `rng`.
    pub fn happens(self, rng: &mut Rng) -> bool {
        match self {
            Self::NEVER => false,
            Self::ALWAYS => true,
            Self(parts) => rng.below(u64::from(Self::ALWAYS.0)) < u64::from(parts),
        }
    }
}

/// A uniformly distributed time in `0..=longest`.
pub fn uniform(rng: &mut Rng, longest: Nanos) -> Nanos {
    match longest {
        Nanos::ZERO => Nanos::ZERO,
        longest => Nanos::new(rng.below(longest.get().saturating_add(1))),
    }
}

/// An exponentially distributed time: a gap of a Poisson process with one event each `mean` on
/// average.
pub fn exponential(rng: &mut Rng, mean: Nanos) -> Nanos {
    // -ln(u) for a u in 0..1. The leading zeros of u are the whole part of -log2(u). Squaring the
    // rest gives one more bit of the fraction each time.
    let bits = rng.next_u64() | 1;
    let zeros = bits.leading_zeros();
    let mut mantissa = (bits << zeros) >> 32;
    let mut fraction = 0_u64;
    for _ in 0..FRACTION_BITS {
        mantissa = (mantissa * mantissa) >> 31;
        fraction <<= 1;
        if mantissa >= 1 << 32 {
            fraction |= 1;
            mantissa >>= 1;
        }
    }
    let whole = u64::from(zeros + 1) << 32;
    let log_2 = whole - (fraction << (32 - FRACTION_BITS));
    let log = (u128::from(log_2) * u128::from(LN_2)) >> 32;
    Nanos::new(u64::try_from((log * u128::from(mean.get())) >> 32).unwrap_or(u64::MAX))
}

/// A normally distributed time, zero where it would be negative. It is the sum of twelve uniform
/// numbers, which ends six deviations from the mean and is thin beyond four.
pub fn normal(rng: &mut Rng, mean: Nanos, deviation: Nanos) -> Nanos {
    let mut sum = 0_u64;
    for _ in 0..6 {
        let bits = rng.next_u64();
        sum += (bits >> 32) + (bits & u64::from(u32::MAX));
    }
    let scaled = u128::from(sum) * u128::from(deviation.get());
    // Subtract twelve halves, the mean of the sum.
    let too_much = 6 * u128::from(deviation.get());
    let value = (u128::from(mean.get()) + (scaled >> 32)).saturating_sub(too_much);
    Nanos::new(u64::try_from(value).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and standard deviation of 100,000 samples.
    fn measure(mut sample: impl FnMut(&mut Rng) -> Nanos) -> (f64, f64) {
        let mut rng = Rng::from_seed(1);
        let samples: std::vec::Vec<f64> = (0..100_000).map(|_| sample(&mut rng).get() as f64).collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let variance = samples.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / samples.len() as f64;
        (mean, variance.sqrt())
    }

    fn assert_near(found: f64, expected: f64, relative: f64) {
        assert!((found - expected).abs() <= relative * expected, "{found} is not {expected}");
    }

    #[test]
    fn distributions_have_the_moments_that_they_should() {
        let mean = Nanos::from_millis(1);
        let (found, deviation) = measure(|rng| exponential(rng, mean));
        assert_near(found, 1e6, 0.02);
        assert_near(deviation, 1e6, 0.02);
        let (found, deviation) = measure(|rng| normal(rng, mean, Nanos::from_micros(100)));
        assert_near(found, 1e6, 0.02);
        assert_near(deviation, 1e5, 0.02);
        let (found, _) = measure(|rng| uniform(rng, mean));
        assert_near(found, 5e5, 0.02);
    }

    #[test]
    fn a_seed_gives_the_same_samples_everywhere() {
        // Golden values: a debug and a release build gave the same.
        let mut rng = Rng::from_seed(7);
        let mean = Nanos::from_micros(10);
        let samples =
            [exponential(&mut rng, mean), exponential(&mut rng, mean), normal(&mut rng, mean, mean / 4)];
        assert_eq!(samples.map(Nanos::get), GOLDEN);
    }
    const GOLDEN: [u64; 3] = [3_558, 12_774, 11_679];

    #[test]
    fn a_chance_happens_as_often_as_it_says() {
        let mut rng = Rng::from_seed(3);
        let often = (0..100_000).filter(|_| Chance::percent(20).happens(&mut rng)).count();
        assert_near(often as f64, 20_000.0, 0.03);
        assert!(!Chance::NEVER.happens(&mut rng) && Chance::percent(200).happens(&mut rng));
    }
}
