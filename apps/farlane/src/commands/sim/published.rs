//! `farlane model published`: simulated values beside published ones.

use scenarios::published::constants::{ALL, Constant};
use scenarios::published::{self, Class, Report, Row};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::PublishedArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// Published values beside ours.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json {
    rows: Vec<PublishedRow>,
}

/// A published value beside ours.
#[derive(Serialize, JsonSchema)]
struct PublishedRow {
    /// The name of the experiment.
    experiment: &'static str,
    /// The measured quantity.
    row: String,
    /// The published value; none if there is none.
    published: Option<f64>,
    /// The value that the simulation gives.
    ours: f64,
    /// The unit of both values.
    unit: &'static str,
    error_percent: Option<f64>,
    /// How much the row says about the models: echo, fitted or predicted.
    kind: &'static str,
    /// Number of rows less constants of the group that a fitted row belongs to; none for others.
    freedom: Option<i64>,
    /// The kind of quantity: phase, total, added, bound or verdict.
    measure: &'static str,
    /// Where the parameters behind the row come from.
    source: &'static str,
}

/// The experiment called `name`, or all of them.
pub(super) fn names(name: Option<&str>) -> Vec<&str> {
    match name {
        Some(name) => vec![name],
        None => published::EXPERIMENTS.iter().map(|(name, _)| *name).collect(),
    }
}

pub(crate) fn run(args: &PublishedArgs) -> Result<(), Error> {
    if args.score {
        return super::score::run(args);
    }
    let mut rows = Vec::new();
    for name in names(args.name.as_deref()) {
        let report = published::run(name, args.seed).map_err(Error::Simulation)?;
        if args.output.json {
            rows.extend(report.rows.iter().map(PublishedRow::of));
        } else {
            print(&table(name, &report, args.sources))?;
        }
    }
    if args.output.json { print_json(&Json { rows }) } else { Ok(()) }
}

impl PublishedRow {
    fn of(row: &Row) -> Self {
        Self {
            experiment: row.experiment,
            row: row.row.clone(),
            published: row.published,
            ours: rounded(row.ours),
            unit: row.unit,
            error_percent: row.error_percent().map(rounded),
            kind: row.class().name(),
            freedom: row.class().freedom(),
            measure: row.measure.name(),
            source: row.source,
        }
    }
}

/// `value` to three decimals, so that the printed number has no noise in it.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn table(name: &str, report: &Report, sources: bool) -> String {
    let title =
        published::EXPERIMENTS.iter().find(|(known, _)| *known == name).map_or("", |(_, title)| title);
    let mut text = format!("{name}: {title}\n");
    let width = report.rows.iter().map(|row| row.row.chars().count()).max().unwrap_or(0);
    text += &format!("  {:width$}  {:>12}  {:>12}  {:7}{:>8}  kind\n", "", "published", "ours", "", "error");
    for row in &report.rows {
        let published = row.published.map_or("-".into(), number);
        let error = row.error_percent().map_or(String::new(), |error| format!("{error:+.2} %"));
        text += &format!(
            "  {:width$}  {published:>12}  {:>12}  {:7}{error:>8}  {}",
            row.row,
            number(row.ours),
            shown(row.unit),
            kind(row)
        );
        if sources {
            text += &format!(": {}", row.source);
        }
        text += "\n";
    }
    let taken: Vec<&Constant> =
        ALL.iter().filter(|constant| constant.experiment == name && constant.is_taken()).collect();
    let names: Vec<_> = taken.iter().map(|constant| constant.name).collect();
    text += &format!("  {} constants were taken from these rows: {}\n", names.len(), names.join("; "));
    text + "\n"
}

/// The class of a row, with what a fitted one leaves free.
fn kind(row: &Row) -> String {
    match row.class() {
        class @ Class::Fitted { parameters, rows } => {
            format!("{}: {parameters} constants, {rows} rows", class.name())
        }
        class => class.name().to_owned(),
    }
}

/// A unit as people write it; programs get ASCII.
fn shown(unit: &str) -> &str {
    if unit == "us" { "µs" } else { unit }
}

/// A value with as many decimals as mean something.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 10_000.0 {
        format!("{value:.0}")
    } else if value.abs() >= 1.0 || value == 0.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2e}")
    }
}
