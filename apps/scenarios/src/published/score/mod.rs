//! How well the models predict: published rows by class, the errors of predictions alone, and the
//! share of each constant in them.
//!
//! [`Score::of`] counts one run of all experiments. [`Perturbed`] repeats the experiments with each
//! constant changed, and [`validation`] without the rows of one experiment.

mod perturbed;
pub mod validation;

use std::collections::BTreeSet;

pub use perturbed::{MOVES, Perturbed, Sensitivity};

use super::constants::{ALL, Source};
use super::{Class, EXPERIMENTS, Measure, Report, Row};

/// The errors of some rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    /// Number of rows.
    pub rows: usize,
    /// The median of the errors' magnitudes, in percent of the published figures.
    pub median: f64,
    /// Their mean.
    pub mean: f64,
    /// The largest of them.
    pub worst: f64,
    /// The experiment and the row with the largest error; empty if there are no rows.
    pub worst_row: String,
}

impl Errors {
    /// The errors of `rows`; a row without an error in percent does not count.
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut errors: Vec<(f64, &Row)> =
            rows.into_iter().filter_map(|row| Some((row.error_percent()?.abs(), row))).collect();
        errors.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some((worst, row)) = errors.last() else { return Self::default() };
        let count = errors.len();
        let median = f64::midpoint(errors[(count - 1) / 2].0, errors[count / 2].0);
        let sum: f64 = errors.iter().map(|(error, _)| error).sum();
        let mean = sum / super::decimal(count as u64);
        let worst_row = format!("{}: {}", row.experiment, row.row);
        Self { rows: count, median, mean, worst: *worst, worst_row }
    }
}

/// The rows of an experiment with a published figure, by class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// The name of the experiment.
    pub experiment: &'static str,
    /// Number of rows with a published figure.
    pub rows: usize,
    /// Number of these that show one constant again.
    pub echoes: usize,
    /// Number of these that constants were fitted to.
    pub fitted: usize,
    /// Number of these that are predicted.
    pub predicted: usize,
    /// Number of rows without a published figure.
    pub open: usize,
    /// Number of constants that were taken from rows of the experiment.
    pub parameters: usize,
    /// Number of rows that they were taken from.
    pub sources: usize,
    /// The errors of predicted rows.
    pub errors: Errors,
}

impl Tally {
    fn of(report: &Report, experiment: &'static str) -> Self {
        let taken = ALL.iter().filter(|known| known.experiment == experiment && known.is_taken());
        let sources: BTreeSet<_> = taken.clone().flat_map(|known| known.source.rows()).collect();
        let published = report.rows.iter().filter(|row| row.published.is_some());
        let count = |name: &str| published.clone().filter(|row| row.class().name() == name).count();
        Self {
            experiment,
            rows: published.clone().count(),
            echoes: count("echo"),
            fitted: count("fitted"),
            predicted: count("predicted"),
            open: report.rows.len() - published.clone().count(),
            parameters: taken.count(),
            sources: sources.len(),
            errors: Errors::of(published.filter(|row| row.class() == Class::Predicted)),
        }
    }

    /// Number of rows that constants were taken from, less the constants; negative if more
    /// constants were chosen than there are rows to determine them.
    pub fn freedom(&self) -> i64 {
        let of = |count| i64::try_from(count).unwrap_or(i64::MAX);
        of(self.sources) - of(self.parameters)
    }
}

/// How well one run of all experiments agrees with the publications.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The rows of each experiment that has some.
    pub experiments: Vec<Tally>,
    /// The errors of all predicted rows.
    pub errors: Errors,
    /// The errors of predicted rows of each measure.
    pub measures: Vec<(Measure, Errors)>,
    /// Number of predicted bounds and verdicts that come out as published, and of all of them.
    pub agreeing: (usize, usize),
    /// Number of constants that nothing published determines.
    pub estimates: usize,
    /// Number of constants from elsewhere: standards, data sheets, other publications.
    pub elsewhere: usize,
}

impl Score {
    /// The score of these reports, one of each experiment in the order of [`EXPERIMENTS`].
    pub fn of(reports: &[Report]) -> Self {
        let named = EXPERIMENTS.iter().map(|(name, _)| *name);
        let experiments = named.zip(reports).filter(|(_, report)| !report.rows.is_empty());
        let experiments = experiments.map(|(name, report)| Tally::of(report, name)).collect();
        let rows = reports.iter().flat_map(|report| &report.rows);
        let predicted = rows.filter(|row| row.class() == Class::Predicted);
        let verdicts: Vec<bool> = predicted.clone().filter_map(Row::agrees).collect();
        let of = |measure| Errors::of(predicted.clone().filter(move |row| row.measure == measure));
        let measures = Measure::ALL.into_iter().map(|measure| (measure, of(measure)));
        let count = |is: fn(&Source) -> bool| ALL.iter().filter(|known| is(&known.source)).count();
        Self {
            experiments,
            errors: Errors::of(predicted.clone()),
            measures: measures.filter(|(_, errors)| errors.rows > 0).collect(),
            agreeing: (verdicts.iter().filter(|agrees| **agrees).count(), verdicts.len()),
            estimates: count(|source| matches!(source, Source::Estimate(_))),
            elsewhere: count(|source| matches!(source, Source::Elsewhere(_))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(published: f64, ours: f64) -> Row {
        Row {
            experiment: "niq",
            row: format!("{published}"),
            published: Some(published),
            ours,
            unit: "",
            measure: Measure::Total,
            follows: Vec::new(),
            source: "",
        }
    }

    #[test]
    fn errors_have_a_median_and_name_the_worst_row() {
        let rows = [row(100.0, 90.0), row(200.0, 202.0), row(10.0, 12.0), row(0.0, 5.0), row(50.0, 52.0)];
        let errors = Errors::of(&rows);
        assert_eq!((errors.rows, errors.worst_row.as_str()), (4, "niq: 10"));
        assert!((errors.median - 7.0).abs() < 1e-9 && (errors.mean - 8.75).abs() < 1e-9, "{errors:?}");
        assert!((errors.worst - 20.0).abs() < 1e-9);
        assert_eq!(Errors::of([&row(0.0, 1.0)]), Errors::default());
    }
}
