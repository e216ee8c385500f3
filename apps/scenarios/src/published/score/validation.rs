//! Cross-validation: each experiment without its own rows.
//!
//! The constants that were taken from the rows of an experiment are forgotten, and determined again
//! from the rows of others. Only a row that no constant was taken from can do that, because other
//! rows are used up by their own constants. The experiment is then run with the new values.

use super::super::constants::{ALL, Constants};
use super::super::{Class, EXPERIMENTS, Effort, Row, decimal, run_with};
use super::{Errors, Perturbed};

/// A change of 10 % of a constant must change a row by this share of its value to be determined by
/// it.
const DETERMINES: f64 = 1e-3;
/// A row of the experiment that was left out is compared if each forgotten constant without another
/// source changes it by less than this share of its value.
const UNKNOWN_MAX: f64 = 0.01;
/// Number of steps in which a constant is determined.
const STEPS: usize = 4;

/// A constant that was determined from another experiment's row.
#[derive(Clone, Debug, PartialEq)]
pub struct Refit {
    /// The constant.
    pub constant: &'static str,
    /// Its value from the experiment that was left out.
    pub before: u64,
    /// Its value from the other experiment.
    pub after: u64,
    /// The experiment and the row that it was determined from.
    pub row: String,
}

/// An experiment without its own rows.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// The experiment that was left out.
    pub experiment: &'static str,
    /// The constants that other experiments determine.
    pub refits: Vec<Refit>,
    /// The constants that no other experiment determines.
    pub lost: Vec<&'static str>,
    /// The errors of those rows that the lost constants hardly change; `None` if no constant could
    /// be determined again.
    pub errors: Option<Errors>,
}

/// Leaves each experiment of which `perturbed` has rows out in turn.
///
/// # Errors
/// When an experiment does not come up with other constants.
pub fn leave_each_out(perturbed: &Perturbed, seed: u64) -> Result<Vec<LeftOut>, String> {
    let has_rows = |name: &str| perturbed.rows().any(|row| row.experiment == name);
    let names = EXPERIMENTS.iter().map(|(name, _)| *name).filter(|name| has_rows(name));
    names.map(|name| leave_out(perturbed, name, seed)).collect()
}

fn leave_out(perturbed: &Perturbed, experiment: &'static str, seed: u64) -> Result<LeftOut, String> {
    let mut constants = Constants::default();
    let (mut refits, mut lost, mut used) = (Vec::new(), Vec::new(), Vec::new());
    for (index, constant) in ALL.iter().enumerate() {
        if constant.experiment != experiment || !constant.is_taken() {
            continue;
        }
        let free = perturbed.rows().filter(|row| {
            let is_free = row.class() == Class::Predicted && row.error_percent().is_some();
            is_free && row.experiment != experiment && !used.contains(&row.row)
        });
        let most = free.map(|row| (perturbed.moved(index, row), row)).max_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, row)) = most.filter(|(moved, _)| *moved > DETERMINES) else {
            lost.push(index);
            continue;
        };
        used.push(row.row.clone());
        let before = (constant.place)(&mut constants).get();
        let after = determine(index, row, &mut constants, seed)?;
        let row = format!("{}: {}", row.experiment, row.row);
        refits.push(Refit { constant: constant.name, before, after, row });
    }
    let mut errors = None;
    if !refits.is_empty() {
        let report = run_with(experiment, seed, &constants, Effort::Quick)?;
        let known = |row: &&Row| {
            let usual = perturbed.rows().find(|usual| usual.experiment == experiment && usual.row == row.row);
            let is_known = |usual| lost.iter().all(|index| perturbed.moved(*index, usual) < UNKNOWN_MAX);
            usual.is_some_and(is_known)
        };
        errors = Some(Errors::of(report.rows.iter().filter(known)));
    }
    let lost = lost.into_iter().map(|index| ALL[index].name).collect();
    Ok(LeftOut { experiment, refits, lost, errors })
}

/// Changes constant `index` until `row` comes out as published, by the secant method.
fn determine(index: usize, row: &Row, constants: &mut Constants, seed: u64) -> Result<u64, String> {
    let Some(published) = row.published else { return Err(format!("{}: nothing was published", row.row)) };
    let ours = |value: u64, constants: &mut Constants| -> Result<f64, String> {
        (ALL[index].place)(constants).set(value);
        let report = run_with(row.experiment, seed, constants, Effort::Quick)?;
        let same = report.rows.iter().find(|found| found.row == row.row);
        same.map(|found| found.ours).ok_or_else(|| format!("{} did not come out", row.row))
    };
    let first = (ALL[index].place)(constants).get();
    let (mut before, mut value) = (first, first + (first / 10).max(1));
    let mut known = ours(before, constants)?;
    for _ in 0..STEPS {
        let found = ours(value, constants)?;
        let slope = (found - known) / (decimal(value) - decimal(before));
        if slope == 0.0 || !slope.is_finite() {
            break;
        }
        (before, known) = (value, found);
        value = whole(decimal(value) + (published - found) / slope);
        if value == before {
            break;
        }
    }
    (ALL[index].place)(constants).set(value);
    Ok(value)
}

/// `value` rounded to a whole number, 0 at least.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is in range")]
fn whole(value: f64) -> u64 {
    value.clamp(0.0, 1e15).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other experiment has a row that the card's constants change.
    #[test]
    fn without_its_own_rows_the_card_is_unknown() {
        let perturbed = Perturbed::run(&["niq"], 1).unwrap();
        let [left] = &leave_each_out(&perturbed, 1).unwrap()[..] else { panic!("one experiment") };
        let taken = ALL.iter().filter(|constant| constant.experiment == "niq" && constant.is_taken());
        assert_eq!((left.lost.len(), left.refits.len()), (taken.count(), 0));
        assert_eq!(left.errors, None);
    }

    #[test]
    fn a_constant_is_determined_by_a_row() {
        let report = run_with("niq", 1, &Constants::default(), Effort::Quick).unwrap();
        let index = ALL.iter().position(|constant| constant.name == "PHY").unwrap();
        let mut row = report.rows.into_iter().find(|row| row.row == "one_way_64b_dma: total").unwrap();
        // The packet passes a PHY twice.
        row.published = Some(row.ours + 20.0);
        let mut constants = Constants::default();
        assert_eq!(determine(index, &row, &mut constants, 1), Ok(145));
        assert_eq!((ALL[index].place)(&mut constants).get(), 145);
    }
}
