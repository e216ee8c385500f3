//! Where values lie on a plot's axes.

use engine::Nanos;
use network_models::Rate;
use scenarios::file::text::{Bytes, parse};

use super::super::table::Line;
use crate::drawing::scale::{Range, decimal, linear, logarithmic};

/// Ratio of the greatest to the least value from which an axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 8.0;

/// The axis of latencies.
#[derive(Clone, Debug)]
pub(super) struct Up {
    range: Range,
    /// Nanoseconds in the axis's unit, and the name of the unit.
    unit: (u64, &'static str),
    ticks: Vec<f64>,
}

impl Up {
    /// An axis with room for the latencies of all `lines`.
    pub(super) fn of(lines: &[&Line]) -> Self {
        let times = || lines.iter().flat_map(|line| [line.summary.median, line.summary.p99]);
        let low = decimal(times().map(Nanos::get).min().unwrap_or(1).max(1));
        let high = decimal(times().map(Nanos::get).max().unwrap_or(1).max(1));
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];
        let unit = units.into_iter().find(|(nanos, _)| low >= decimal(*nanos)).unwrap_or((1, "ns"));
        let (range, ticks) =
            if high / low >= LOGARITHMIC_FROM { logarithmic(low, high) } else { linear(high) };
        Self { range, unit, ticks }
    }

    pub(super) const fn unit(&self) -> &'static str {
        self.unit.1
    }

    pub(super) fn share(&self, time: Nanos) -> f64 {
        self.range.share(decimal(time.get().max(1))).clamp(0.0, 1.0)
    }

    /// The ticks, at round latencies: each with its place as a share of the axis, and its text.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        self.ticks.iter().map(|time| {
            let value = time / decimal(self.unit.0);
            let text = if value.fract().abs() < 1e-6 { format!("{value:.0}") } else { format!("{value:.2}") };
            (self.range.share(*time), text)
        })
    }
}

/// The axis of the values that were swept: to scale where they are sizes in rising order, at equal
/// distances where not.
#[derive(Clone, Debug)]
pub(super) struct Across {
    places: Vec<(String, f64)>,
}

impl Across {
    /// Distance of the outermost values from the edges, as a share of the width.
    const MARGIN: f64 = 0.07;

    pub(super) fn of(values: &[String]) -> Self {
        let last = decimal(values.len().saturating_sub(1).max(1) as u64);
        let sizes: Option<Vec<f64>> = values.iter().map(|value| size(value)).collect();
        let sizes = sizes.filter(|sizes| {
            sizes.len() > 1
                && sizes.is_sorted_by(|one, other| one < other)
                && sizes.iter().all(|size| *size > 0.0)
        });
        let share = |index: usize| match &sizes {
            None => decimal(index as u64) / last,
            Some(sizes) => {
                let (low, high) = (sizes[0], sizes[sizes.len() - 1]);
                let logarithmic = high / low >= LOGARITHMIC_FROM;
                Range::new(low, high, logarithmic).share(sizes[index])
            }
        };
        let places = values.iter().enumerate().map(|(index, value)| {
            let share = if values.len() == 1 { 0.5 } else { share(index) };
            (value.clone(), Self::MARGIN + share * (1.0 - 2.0 * Self::MARGIN))
        });
        Self { places: places.collect() }
    }

    pub(super) fn share(&self, value: &str) -> Option<f64> {
        self.places.iter().find(|(known, _)| known == value).map(|(_, share)| *share)
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        self.places.iter().map(|(value, share)| (*share, value.clone()))
    }
}

/// How much a value is, in its smallest unit; none if it is no number, time, rate or number
/// of bytes.
fn size(value: &str) -> Option<f64> {
    let number = value.parse::<u64>().ok();
    let time = || parse::<Nanos>(value).ok().map(Nanos::get);
    let rate = || parse::<Rate>(value).ok().map(Rate::bits);
    let bytes = || parse::<Bytes>(value).ok().map(|bytes| bytes.0);
    number.or_else(time).or_else(rate).or_else(bytes).map(decimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn across(values: &[&str]) -> Vec<f64> {
        let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        Across::of(&values).ticks().map(|(share, _)| share).collect()
    }

    #[test]
    fn sizes_are_to_scale_and_words_are_not() {
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        // A decade apart, the middle value is in the middle of a logarithmic axis.
        assert!(near(across(&["100Mbit/s", "1Gbit/s", "10Gbit/s"])[1], 0.5));
        // The middle value is a quarter of the way along a linear axis.
        assert!(near(across(&["100us", "200us", "500us"])[1], 0.07 + 0.86 * 0.25));
        assert!(near(across(&["linux", "npap", "other"])[1], 0.5));
        assert_eq!(across(&["1"]), [0.5]);
    }
}
