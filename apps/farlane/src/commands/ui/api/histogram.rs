//! Distributions as histograms with a logarithmic scale.

use distribution::Distribution;
use schemars::JsonSchema;
use serde::Serialize;

use super::query::{Query, Refusal};
use crate::commands::ui::index::Index;

/// The most bins of a histogram.
const BINS: u32 = 72;
/// The least ratio of a bin's ends: distributions distinguish no smaller differences.
const RATIO_MIN: f64 = 1.002;

/// One distribution of one capture or of two, in bins with a logarithmic scale: from each bound to
/// the next.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Histogram<'a> {
    command: &'a str,
    /// `latency`, `whole`, or the name of a step.
    of: &'a str,
    bounds_ns: Vec<u64>,
    /// The counts of each capture.
    counts: Vec<Vec<u64>>,
    /// The distribution of each capture.
    times_ns: Vec<Distribution>,
}

/// The distribution of `what` of the kind with the name `kind`: `latency`, `whole`, or the name of
/// a step.
fn distribution<'a>(index: &'a Index, kind: &str, what: &str) -> Option<&'a Distribution> {
    let population = &index.kinds.iter().find(|one| one.name == kind)?.population;
    match what {
        "latency" => Some(&population.latency),
        "whole" => Some(&population.whole),
        step => population.steps.iter().find(|(one, _)| one.name() == step).map(|(_, of)| &of.times),
    }
}

/// Answers a request for one distribution of each of some captures.
pub(super) fn of<'a>(captures: &[&Index], query: &'a Query) -> Result<Histogram<'a>, Refusal> {
    let kind = query.text("kind").ok_or_else(|| Refusal::value("kind", "", "the name of a command"))?;
    let what = query.text("of").unwrap_or("latency");
    let filter = query.flag("three_sigma");
    let find = |index: &&Index| {
        let found = distribution(index, kind, what).cloned().unwrap_or_default();
        if filter { found.within_deviations(3.0) } else { found }
    };
    let all: Vec<_> = captures.iter().map(find).collect();
    if all.iter().all(|one| one.count() == 0) {
        return Err(Refusal::nothing(&format!("{what} of {kind}")));
    }
    let bounds = bounds(&all);
    let counts = all.iter().map(|one| one.counts_within(&bounds)).collect();
    Ok(Histogram { command: kind, of: what, bounds_ns: bounds, counts, times_ns: all })
}

/// The ends of bins that hold all of `all`, each the same factor after the one before, in
/// whole nanoseconds.
fn bounds(all: &[Distribution]) -> Vec<u64> {
    let some = || all.iter().filter(|one| one.count() > 0);
    let least = some().map(|one| one.min().get()).min().unwrap_or(0);
    let most = some().map(|one| one.quantile(1.0).get()).max().unwrap_or(0).saturating_add(1);
    let (start, end) = (least.max(1) as f64, most.max(2) as f64);
    let ratio = (end / start).powf(1.0 / f64::from(BINS)).max(RATIO_MIN);
    let mut bounds = vec![least];
    let mut bound = start;
    for _ in 0..BINS {
        bound *= ratio;
        let next = rounded(bound).min(most);
        if next > bounds[bounds.len() - 1] {
            bounds.push(next);
        }
    }
    if bounds[bounds.len() - 1] < most {
        bounds.push(most);
    }
    bounds
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
const fn rounded(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use engine::Nanos;

    use super::*;

    #[test]
    fn bins_hold_every_value_once() {
        let of = |values: &[u64]| values.iter().copied().map(Nanos::new).collect::<Distribution>();
        for values in [&[0, 0, 1][..], &[5], &[1_000, 1_001, 1_002], &[7, 90_000, 3_000_000_000], &[0]] {
            let one = of(values);
            let bounds = bounds(std::slice::from_ref(&one));
            assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{bounds:?}");
            let counts = one.counts_within(&bounds);
            assert_eq!(counts.len(), bounds.len() - 1);
            assert_eq!(counts.iter().sum::<u64>(), values.len() as u64, "{values:?} in {bounds:?}");
        }
    }
}
