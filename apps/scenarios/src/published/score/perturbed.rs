//! All experiments with each constant changed by a tenth in both directions.

use super::super::constants::{ALL, Constant, Constants};
use super::super::{Class, EXPERIMENTS, Effort, Report, Row, run_with};
use super::Errors;

/// A constant moves a row if a change of 10 % changes the row by more than this share of its value.
pub const MOVES: f64 = 1e-4;

/// The changes of constants, in percent.
const CHANGES: [i64; 2] = [-10, 10];

/// The experiments that were repeated with one constant changed: the index of each, and its report.
type Repeated = Vec<(usize, Report)>;

/// Short runs of the experiments as they are, and with each constant changed.
#[derive(Debug)]
pub struct Perturbed {
    /// A report of each experiment, in the order of [`EXPERIMENTS`].
    usual: Vec<Report>,
    /// For each constant of [`ALL`], the reports at 10 % less and at 10 % more.
    changed: Vec<[Repeated; 2]>,
}

/// The effect of a constant on the errors of predictions.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    /// The constant.
    pub constant: &'static str,
    /// The kind of its source.
    pub source: &'static str,
    /// Change of the median error of all predictions in percentage points, with 10 % less and 10 %
    /// more.
    pub median: [f64; 2],
    /// Change of their mean error, likewise.
    pub mean: [f64; 2],
    /// The experiment and the row with a published figure that changes most; empty if none does.
    pub row: String,
    /// The larger of this row's two changes, in percent of its value.
    pub row_percent: f64,
}

impl Perturbed {
    /// Runs the experiments called `names`, each as it is and with each of its constants changed.
    ///
    /// # Errors
    /// When an experiment does not come up.
    pub fn run(names: &[&str], seed: u64) -> Result<Self, String> {
        let run = |index: usize, constants: &Constants| {
            let (name, _) = EXPERIMENTS[index];
            if names.contains(&name) {
                run_with(name, seed, constants, Effort::Quick)
            } else {
                Ok(Report::default())
            }
        };
        let usual: Result<Vec<_>, _> =
            (0..EXPERIMENTS.len()).map(|index| run(index, &Constants::default())).collect();
        let mut changed = Vec::new();
        for constant in ALL {
            let repeat = |percent| -> Result<Repeated, String> {
                let mut constants = Constants::default();
                (constant.place)(&mut constants).shift(percent);
                let uses = |index: &usize| constant.experiments().any(|name| name == EXPERIMENTS[*index].0);
                let indices = (0..EXPERIMENTS.len()).filter(uses);
                indices.map(|index| Ok((index, run(index, &constants)?))).collect()
            };
            let [less, more] = CHANGES;
            changed.push([repeat(less)?, repeat(more)?]);
        }
        Ok(Self { usual: usual?, changed })
    }

    /// The report of each experiment as it is.
    pub fn usual(&self) -> &[Report] {
        &self.usual
    }

    /// The rows of all experiments as they are.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.usual.iter().flat_map(|report| &report.rows)
    }

    /// By which share of its value a change of constant `index` by 10 % changes `row` at most.
    pub fn moved(&self, index: usize, row: &Row) -> f64 {
        let reports = self.changed[index].iter().flatten().flat_map(|(_, report)| &report.rows);
        let same = reports.filter(|changed| changed.experiment == row.experiment && changed.row == row.row);
        same.map(|changed| share(row.ours, changed.ours)).fold(0.0, f64::max)
    }

    /// The effect of each constant on the errors of predictions.
    pub fn sensitivities(&self) -> Vec<Sensitivity> {
        let usual = predictions(self.usual.iter());
        let of = |(index, constant): (usize, &Constant)| {
            let errors = [0, 1].map(|way| {
                let repeated = &self.changed[index][way];
                let mut reports: Vec<&Report> = self.usual.iter().collect();
                for (experiment, report) in repeated {
                    reports[*experiment] = report;
                }
                predictions(reports)
            });
            let published = self.rows().filter(|row| row.published.is_some());
            let most = published
                .map(|row| (self.moved(index, row), row))
                .filter(|(moved, _)| *moved > 0.0 && moved.is_finite())
                .max_by(|a, b| a.0.total_cmp(&b.0));
            Sensitivity {
                constant: constant.name,
                source: constant.source.name(),
                median: errors.each_ref().map(|errors| errors.median - usual.median),
                mean: errors.each_ref().map(|errors| errors.mean - usual.mean),
                row: most.map_or(String::new(), |(_, row)| format!("{}: {}", row.experiment, row.row)),
                row_percent: most.map_or(0.0, |(moved, _)| 100.0 * moved),
            }
        };
        ALL.iter().enumerate().map(of).collect()
    }
}

/// The change from `before` to `after`, as a share of `before`.
fn share(before: f64, after: f64) -> f64 {
    let change = (after - before).abs();
    if change == 0.0 { 0.0 } else { change / before.abs() }
}

/// The errors of all predictions of these reports.
fn predictions<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Errors {
    let rows = reports.into_iter().flat_map(|report| &report.rows);
    Errors::of(rows.filter(|row| row.class() == Class::Predicted))
}
