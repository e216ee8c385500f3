//! Distributions of latency: recorded in bounded memory, printed with count, median and tail,
//! compared by ranks.
//!
//! ```
//! use distribution::Distribution;
//! use engine::Nanos;
//!
//! let latencies: Distribution = (1..=100).map(Nanos::from_micros).collect();
//! assert_eq!(latencies.count(), 100);
//! assert!(latencies.median() < latencies.quantile(0.99));
//! ```

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;

use engine::Nanos;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// Latencies in nanoseconds, to three significant digits.
#[derive(Clone, Debug, JsonSchema)]
pub struct Distribution(#[schemars(with = "Summary")] Histogram<u64>);

/// A distribution as reports have it.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Summary {
    /// How many there are.
    count: u64,
    mean: f64,
    /// The standard deviation.
    deviation: f64,
    /// The median.
    p50: u64,
    p90: u64,
    p99: u64,
    /// 99.9 % are not longer.
    p999: u64,
    max: u64,
}

impl Distribution {
    /// An empty distribution.
    pub fn new() -> Self {
        Self(Histogram::new(3).expect("three significant digits are within the histogram's range"))
    }

    /// Adds a latency.
    pub fn record(&mut self, latency: Nanos) {
        self.0.record(latency.get()).expect("a histogram that resizes itself accepts every value");
    }

    /// How many latencies there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The median of the latencies; zero if there are none.
    pub fn median(&self) -> Nanos {
        self.quantile(0.5)
    }

    /// The latency that the share `quantile` of them, from 0 to 1, does not exceed.
    pub fn quantile(&self, quantile: f64) -> Nanos {
        Nanos::new(self.0.value_at_quantile(quantile))
    }

    /// The shortest.
    pub fn min(&self) -> Nanos {
        Nanos::new(self.0.min())
    }

    /// How many latencies were at least `from` nanoseconds and below `to`.
    pub fn count_between(&self, from: u64, to: u64) -> u64 {
        self.0.count_between(from, to.saturating_sub(1))
    }

    /// How many latencies are from each of `bounds` to the next, in nanoseconds. Those outside are
    /// left out.
    pub fn counts_within(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len().saturating_sub(1)];
        for bin in self.0.iter_recorded() {
            let value = self.0.lowest_equivalent(bin.value_iterated_to());
            let place = bounds.partition_point(|bound| *bound <= value);
            if let Some(count) = place.checked_sub(1).and_then(|place| counts.get_mut(place)) {
                *count += bin.count_at_value();
            }
        }
        counts
    }

    /// The mean in nanoseconds.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// The standard deviation in nanoseconds.
    pub fn deviation(&self) -> f64 {
        self.0.stdev()
    }

    /// The values within this number of standard deviations of the mean.
    pub fn within_deviations(&self, deviations: f64) -> Self {
        // The mean of equal values is not quite one of them.
        let (mean, reach) = (self.mean(), self.deviation() * deviations + self.mean() * 1e-9);
        let mut within = Self::new();
        for bin in self.0.iter_recorded() {
            let value = bin.value_iterated_to();
            // The mean uses the middle of each bin.
            if (self.0.median_equivalent(value) as f64 - mean).abs() <= reach {
                within
                    .0
                    .record_n(value, bin.count_at_value())
                    .expect("it accepts the values of the other one");
            }
        }
        within
    }

    /// Whether `other`'s values are greater than these, by the sums of their ranks: the test of
    /// Mann and Whitney by the normal distribution, corrected for equal values. Values of one bin
    /// of the histograms (three significant digits) count as equal.
    pub fn ranks(&self, other: &Self) -> Ranks {
        let (first, second) = (self.count() as f64, other.count() as f64);
        let total = first + second;
        if first == 0.0 || second == 0.0 {
            return Ranks { greater: 0.5, chance: 1.0 };
        }
        let mut bins = BTreeMap::<u64, [f64; 2]>::new();
        for (side, distribution) in [self, other].into_iter().enumerate() {
            for bin in distribution.0.iter_recorded() {
                bins.entry(bin.value_iterated_to()).or_default()[side] += bin.count_at_value() as f64;
            }
        }
        // How many pairs there are in which the other's value is greater, equal ones by half.
        let (mut below, mut pairs, mut ties) = (0.0, 0.0, 0.0);
        for [own, others] in bins.into_values() {
            pairs += others * (below + own / 2.0);
            below += own;
            let equal = own + others;
            ties += equal * equal * equal - equal;
        }
        let greater = pairs / (first * second);
        let variance = first * second / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)).max(1.0));
        let chance = match variance > 0.0 {
            true => two_sided((pairs - first * second / 2.0) / variance.sqrt()),
            false => 1.0,
        };
        Ranks { greater, chance }
    }

    /// Adds all latencies of another one.
    pub fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }
}

/// How two distributions differ.
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    /// How often a value of the second one is greater than one of the first, from 0 to 1.
    pub greater: f64,
    /// How often chance alone makes such a difference, from 0 to 1.
    pub chance: f64,
}

/// How often a value of the normal distribution is further from its mean than `deviations`.
///
/// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: to within 1.5e-7.
fn two_sided(deviations: f64) -> f64 {
    let x = deviations.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    factors.iter().fold(0.0, |sum, factor| (sum + factor) * t) * (-x * x).exp()
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<Nanos> for Distribution {
    fn from_iter<I: IntoIterator<Item = Nanos>>(latencies: I) -> Self {
        let mut distribution = Self::new();
        latencies.into_iter().for_each(|latency| distribution.record(latency));
        distribution
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let summary = Summary {
            count: self.0.len(),
            mean: self.0.mean(),
            deviation: self.0.stdev(),
            p50: self.0.value_at_quantile(0.5),
            p90: self.0.value_at_quantile(0.9),
            p99: self.0.value_at_quantile(0.99),
            p999: self.0.value_at_quantile(0.999),
            max: self.0.max(),
        };
        summary.serialize(serializer)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {}  p99 {}  p99.9 {}  max {}  ({} samples)",
            self.quantile(0.5),
            self.quantile(0.99),
            self.quantile(0.999),
            Nanos::new(self.0.max()),
            self.count()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_serialises_every_promised_field() {
        let distribution: Distribution = (1..=1_000).map(Nanos::new).collect();
        let json = serde_json::to_value(&distribution).unwrap();
        for (field, value) in
            [("count", 1_000.0), ("mean", 500.5), ("p50", 500.0), ("p99", 990.0), ("max", 1_000.0)]
        {
            let found = json[field].as_f64().unwrap();
            assert!((found - value).abs() <= value * 0.002, "{field}: {found} is not {value}");
        }
        assert!(json["p999"].is_u64());
    }

    #[test]
    fn ranks_distinguish_a_shift_from_chance() {
        let of = |values: std::ops::Range<u64>| values.map(Nanos::new).collect::<Distribution>();
        let same = of(100..200).ranks(&of(100..200));
        assert!((same.greater - 0.5).abs() < 1e-9 && same.chance > 0.99, "{same:?}");
        let later = of(100..200).ranks(&of(120..220));
        assert!(later.greater > 0.6 && later.chance < 1e-3, "{later:?}");
        let apart = of(100..200).ranks(&of(300..400));
        assert!(apart.greater == 1.0 && apart.chance < 1e-9, "{apart:?}");
        assert_eq!(of(0..0).ranks(&of(1..9)).chance, 1.0);
        // Counted pair by pair: 355.5 of 500 pairs, 2.41114 deviations; erfc of another library.
        let small = of(1..21).ranks(&of(4..29));
        assert!((small.greater - 0.711).abs() < 1e-9, "{small:?}");
        assert!((small.chance - 0.015_902_7).abs() < 1e-5, "{small:?}");
    }

    #[test]
    fn values_beyond_three_deviations_are_left_out() {
        let mut values: Vec<_> = (0..1_000).map(|at| Nanos::new(1_000 + at % 10)).collect();
        values.push(Nanos::new(900_000));
        let all: Distribution = values.into_iter().collect();
        let within = all.within_deviations(3.0);
        assert_eq!((all.count(), within.count()), (1_001, 1_000));
        assert!(within.quantile(1.0) < Nanos::new(1_100));
        let alone: Distribution = [Nanos::new(123_456_789)].into_iter().collect();
        assert_eq!(alone.within_deviations(3.0).count(), 1);
    }
}
