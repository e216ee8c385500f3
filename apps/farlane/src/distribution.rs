//! Distributions of latency: recorded in bounded memory, printed with count, median and tail.

use std::fmt;

use engine::Nanos;
use hdrhistogram::Histogram;
use serde::{Serialize, Serializer, ser::SerializeStruct};

/// Latencies in nanoseconds, to three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Distribution(Histogram<u64>);

impl Distribution {
    pub(crate) fn new() -> Self {
        Self(Histogram::new(3).expect("three significant digits are within the histogram's range"))
    }
    pub(crate) fn record(&mut self, latency: Nanos) {
        self.0.record(latency.get()).expect("a histogram that resizes itself takes every value");
    }
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }
    pub(crate) fn median(&self) -> Nanos {
        self.quantile(0.5)
    }
    pub(crate) fn quantile(&self, quantile: f64) -> Nanos {
        Nanos::new(self.0.value_at_quantile(quantile))
    }
    pub(crate) fn min(&self) -> Nanos {
        Nanos::new(self.0.min())
    }
    /// The mean in nanoseconds.
    pub(crate) fn mean(&self) -> f64 {
        self.0.mean()
    }
    /// The standard deviation in nanoseconds.
    pub(crate) fn deviation(&self) -> f64 {
        self.0.stdev()
    }
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }
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
        let mut object = serializer.serialize_struct("Distribution", 6)?;
        object.serialize_field("count", &self.0.len())?;
        object.serialize_field("mean", &self.0.mean())?;
        object.serialize_field("p50", &self.0.value_at_quantile(0.5))?;
        object.serialize_field("p99", &self.0.value_at_quantile(0.99))?;
        object.serialize_field("p999", &self.0.value_at_quantile(0.999))?;
        object.serialize_field("max", &self.0.max())?;
        object.end()
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
}
