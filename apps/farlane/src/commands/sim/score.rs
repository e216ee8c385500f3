//! `farlane model published --score`: how well the models predict.

use scenarios::published::constants::ALL;
use scenarios::published::score::validation::{self, LeftOut};
use scenarios::published::score::{Errors, Perturbed, Score, Sensitivity, Tally};
use scenarios::published::{self, Report};
use schemars::JsonSchema;
use serde::Serialize;

use super::published::{names, rounded};
use crate::args::PublishedArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// The agreement of the models with published figures.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json {
    /// Each experiment's rows and constants.
    experiments: Vec<ExperimentScore>,
    /// The errors of all predictions.
    predictions: ErrorSummary,
    /// The errors of predictions by kind of quantity: phase, total, added.
    measures: Vec<MeasureScore>,
    /// Number of predicted bounds and verdicts that come out as published.
    agreeing: usize,
    /// Number of predicted bounds and verdicts.
    verdicts: usize,
    /// Number of constants that nothing published determines.
    estimates: usize,
    /// Number of constants from standards, data sheets and other publications.
    elsewhere: usize,
    /// Each experiment without its own rows.
    cross_validation: Vec<LeftOutExperiment>,
    /// What an error of each constant by 10 % would do.
    sensitivity: Vec<ConstantSensitivity>,
}

/// The errors of some rows, in percent of the published figures.
#[derive(Serialize, JsonSchema)]
struct ErrorSummary {
    rows: usize,
    median: f64,
    mean: f64,
    worst: f64,
    /// The experiment and the row with the largest error.
    worst_row: String,
}

/// An experiment's rows with a published figure, by class.
#[derive(Serialize, JsonSchema)]
struct ExperimentScore {
    experiment: &'static str,
    rows: usize,
    echo: usize,
    fitted: usize,
    predicted: usize,
    /// Number of rows without a published figure.
    open: usize,
    /// Number of constants that were taken from rows.
    parameters: usize,
    /// Number of rows that constants were taken from, less the constants.
    freedom: i64,
    predictions: ErrorSummary,
}

/// The errors of predictions of one kind of quantity.
#[derive(Serialize, JsonSchema)]
struct MeasureScore {
    measure: &'static str,
    predictions: ErrorSummary,
}

/// An experiment without its own rows.
#[derive(Serialize, JsonSchema)]
struct LeftOutExperiment {
    experiment: &'static str,
    /// The constants that other experiments determine.
    refits: Vec<RefitConstant>,
    /// The constants that no other experiment determines.
    lost: Vec<&'static str>,
    /// The errors of the rows that the lost constants hardly change; none if no constant could be
    /// determined again.
    errors: Option<ErrorSummary>,
}

/// A constant that was determined from another experiment's row.
#[derive(Serialize, JsonSchema)]
struct RefitConstant {
    constant: &'static str,
    before: u64,
    after: u64,
    /// The experiment and the row.
    row: String,
}

/// The effect of 10 % less and 10 % more of a constant.
#[derive(Serialize, JsonSchema)]
struct ConstantSensitivity {
    constant: &'static str,
    /// The kind of source: figure, fitted, elsewhere or estimate.
    source: &'static str,
    /// Change of the median error of predictions in percentage points.
    median: [f64; 2],
    /// Change of their mean error in percentage points.
    mean: [f64; 2],
    /// The experiment and the published row that changes most.
    row: String,
    /// The larger change of this row in percent.
    row_percent: f64,
}

/// Runs the experiments for `--score`.
pub(super) fn run(args: &PublishedArgs) -> Result<(), Error> {
    let names = names(args.name.as_deref());
    // An experiment that was not asked for has no rows.
    let run = |(name, _): &(&'static str, _)| match names.contains(name) {
        true => published::run(name, args.seed),
        false => Ok(Report::default()),
    };
    published::known(&names).map_err(Error::Simulation)?;
    let reports: Result<Vec<Report>, String> = published::EXPERIMENTS.iter().map(run).collect();
    let score = Score::of(&reports.map_err(Error::Simulation)?);
    let perturbed = Perturbed::run(&names, args.seed).map_err(Error::Simulation)?;
    let left = validation::leave_each_out(&perturbed, args.seed).map_err(Error::Simulation)?;
    let sensitivities = perturbed.sensitivities();
    if args.output.json {
        print_json(&json(&score, left, sensitivities))
    } else {
        print(&(summary(&score) + &cross_validation(&left) + &sensitivity(&sensitivities)))
    }
}

fn json(score: &Score, left: Vec<LeftOut>, sensitivities: Vec<Sensitivity>) -> Json {
    let tally = |tally: &Tally| ExperimentScore {
        experiment: tally.experiment,
        rows: tally.rows,
        echo: tally.echoes,
        fitted: tally.fitted,
        predicted: tally.predicted,
        open: tally.open,
        parameters: tally.parameters,
        freedom: tally.freedom(),
        predictions: errors(&tally.errors),
    };
    let left = left.into_iter().map(|left| LeftOutExperiment {
        experiment: left.experiment,
        errors: left.errors.as_ref().map(errors),
        lost: left.lost,
        refits: left
            .refits
            .into_iter()
            .map(|refit| RefitConstant {
                constant: refit.constant,
                before: refit.before,
                after: refit.after,
                row: refit.row,
            })
            .collect(),
    });
    let sensitivities = sensitivities.into_iter().map(|found| ConstantSensitivity {
        constant: found.constant,
        source: found.source,
        median: found.median.map(rounded),
        mean: found.mean.map(rounded),
        row: found.row,
        row_percent: rounded(found.row_percent),
    });
    let measures = score.measures.iter();
    Json {
        experiments: score.experiments.iter().map(tally).collect(),
        predictions: errors(&score.errors),
        measures: measures
            .map(|(measure, of)| MeasureScore { measure: measure.name(), predictions: errors(of) })
            .collect(),
        agreeing: score.agreeing.0,
        verdicts: score.agreeing.1,
        estimates: score.estimates,
        elsewhere: score.elsewhere,
        cross_validation: left.collect(),
        sensitivity: sensitivities.collect(),
    }
}

fn errors(errors: &Errors) -> ErrorSummary {
    ErrorSummary {
        rows: errors.rows,
        median: rounded(errors.median),
        mean: rounded(errors.mean),
        worst: rounded(errors.worst),
        worst_row: errors.worst_row.clone(),
    }
}

fn summary(score: &Score) -> String {
    let mut text = String::from(
        "Rows with a published figure, and the errors of predictions\n\
         \n  experiment   rows  echo  fitted  predicted  constants  freedom   median    worst\n",
    );
    for tally in &score.experiments {
        text += &format!(
            "  {:10} {:6}{:6}{:8}{:11}{:11}{:9}",
            tally.experiment,
            tally.rows,
            tally.echoes,
            tally.fitted,
            tally.predicted,
            tally.parameters,
            tally.freedom()
        );
        text += &format!("  {}\n", percent(&tally.errors));
    }
    let sum = |of: fn(&Tally) -> usize| score.experiments.iter().map(of).sum::<usize>();
    let freedom: i64 = score.experiments.iter().map(Tally::freedom).sum();
    text += &format!(
        "  {:10} {:6}{:6}{:8}{:11}{:11}{freedom:9}  {}\n\n",
        "all",
        sum(|tally| tally.rows),
        sum(|tally| tally.echoes),
        sum(|tally| tally.fitted),
        sum(|tally| tally.predicted),
        sum(|tally| tally.parameters),
        percent(&score.errors)
    );
    for (measure, of) in &score.measures {
        text += &format!(
            "  {:10} {:6} predictions  {}  {}\n",
            measure.name(),
            of.rows,
            percent(of),
            of.worst_row
        );
    }
    let (agreeing, verdicts) = score.agreeing;
    text += &format!("  {agreeing} of {verdicts} predicted bounds and verdicts come out as published\n");
    text += &format!("  {} predictions have no published figure\n", sum(|tally| tally.open));
    text + &format!(
        "  {} more constants: {} from standards, data sheets and other publications, {} estimates\n\n",
        score.elsewhere + score.estimates,
        score.elsewhere,
        score.estimates
    )
}

fn percent(errors: &Errors) -> String {
    if errors.rows == 0 {
        return format!("{:>7}  {:>7}", "-", "-");
    }
    format!("{:5.1} %  {:5.1} %", errors.median, errors.worst)
}

fn cross_validation(left: &[LeftOut]) -> String {
    let mut text = String::from("Each experiment without its own rows\n\n");
    for LeftOut { experiment, refits, lost, errors } in left {
        let taken = refits.len() + lost.len();
        let Some(errors) = errors else {
            text += &format!(
                "  {experiment}: not possible, no other row determines any of its {taken} constants\n"
            );
            continue;
        };
        for refit in refits {
            text += &format!(
                "  {experiment}: {} {} instead of {}, from {}\n",
                refit.constant, refit.after, refit.before, refit.row
            );
        }
        text += &format!(
            "  {experiment}: {} rows that depend on these alone: median {:.1} %, worst {:.1} % ({}); {} of {taken} \
             constants have no other row\n",
            errors.rows,
            errors.median,
            errors.worst,
            errors.worst_row,
            lost.len()
        );
    }
    text + "\n"
}

fn sensitivity(sensitivities: &[Sensitivity]) -> String {
    let width = ALL.iter().map(|constant| constant.name.chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "10 % less and 10 % more of each constant, in short runs: points of the predictions' mean error\n\n  \
         {:width$}  {:9}  {:>7}  {:>7}  row that changes most\n",
        "", "source", "less", "more"
    );
    for found in sensitivities {
        let [less, more] = found.mean;
        text += &format!("  {:width$}  {:9}  {less:+7.2}  {more:+7.2}", found.constant, found.source);
        if !found.row.is_empty() {
            text += &format!("  {} ({:.1} %)", found.row, found.row_percent);
        }
        text += "\n";
    }
    text
}
