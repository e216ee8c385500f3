//! `farlane observe trace compare`: two captures, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use captures::{Population, Source, Times, populations};
use distribution::{Distribution, Ranks};
use schemars::JsonSchema;
use serde::Serialize;
use trace::Step;

use crate::args::CompareArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// A difference counts if chance explains it less often than this, shared among all rows.
const CHANCE: f64 = 0.01;

/// A row: the measured step, and its times in each capture.
struct Row {
    command: String,
    what: &'static str,
    times: [Distribution; 2],
    ranks: Ranks,
}

/// Two captures, step by step.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Compared<'a> {
    first: &'a Path,
    second: &'a Path,
    rows: Vec<PrintedRow>,
}

/// A step of a kind of command in both captures.
#[derive(Serialize, JsonSchema)]
struct PrintedRow {
    command: String,
    step: &'static str,
    first_ns: Distribution,
    second_ns: Distribution,
    /// How much longer the second capture's median is: 0.5 is half as long again.
    difference: Option<f64>,
    /// How often a time of the second capture is longer than one of the first, from 0 to 1.
    second_longer: f64,
    /// How often chance alone makes such a difference, from 0 to 1.
    chance: f64,
    /// Whether chance explains the difference too rarely.
    significant: bool,
}

impl<'a> Compared<'a> {
    /// The comparison of the captures at two paths.
    pub(in crate::commands) fn of(
        [first, second]: [&'a Path; 2],
        captures: [&BTreeMap<String, Population>; 2],
    ) -> Self {
        let rows = rows(captures);
        let count = rows.len();
        Self { first, second, rows: rows.into_iter().map(|row| row.printed(count)).collect() }
    }
}

/// The times of the two captures.
type Measure<'a> = Box<dyn Fn(&Population) -> Distribution + 'a>;

impl Row {
    fn of(command: &str, what: &'static str, both: [Option<&Population>; 2], measure: &Measure<'_>) -> Self {
        let times = both.map(|one| one.map(measure).unwrap_or_default());
        let ranks = times[0].ranks(&times[1]);
        Self { command: command.to_owned(), what, times, ranks }
    }

    /// How much longer the second capture's median is: 0.5 is half as long again.
    fn difference(&self) -> Option<f64> {
        let [first, second] = [0, 1].map(|at| self.times[at].median().get() as f64);
        (first > 0.0 && self.times[1].count() > 0).then(|| second / first - 1.0)
    }

    fn is_significant(&self, rows: usize) -> bool {
        self.ranks.chance < CHANCE / rows as f64
    }

    /// The row for machines, as one of `rows`.
    fn printed(self, rows: usize) -> PrintedRow {
        let (difference, significant) = (self.difference(), self.is_significant(rows));
        let [first_ns, second_ns] = self.times;
        PrintedRow {
            command: self.command,
            step: self.what,
            first_ns,
            second_ns,
            difference,
            second_longer: self.ranks.greater,
            chance: self.ranks.chance,
            significant,
        }
    }
}

pub(super) fn run(args: &CompareArgs) -> Result<(), Error> {
    let read = |from| populations(from, args.three_sigma);
    let of = |file| Source { file, columns: args.columns.as_ref() };
    let captures = [read(of(&args.first))?, read(of(&args.second))?];
    if args.output.json {
        return print_json(&Compared::of([&args.first, &args.second], captures.each_ref()));
    }
    print(&text(&rows(captures.each_ref())))
}

/// A row for each step of each kind of command.
fn rows(captures: [&BTreeMap<String, Population>; 2]) -> Vec<Row> {
    let names: BTreeSet<_> = captures.iter().flat_map(|kinds| kinds.keys()).collect();
    let mut rows = Vec::new();
    for name in names {
        let both = captures.map(|kinds| kinds.get(name));
        let latency: Measure<'_> = Box::new(|of| of.latency.clone());
        rows.push(Row::of(name, "until completion", both, &latency));
        let steps: BTreeSet<Step> = both.iter().flatten().flat_map(|of| of.steps.keys()).copied().collect();
        for step in steps {
            let times = move |of: &Population| of.steps.get(&step).map(|Times { times, .. }| times.clone());
            let measure: Measure<'_> = Box::new(move |of| times(of).unwrap_or_default());
            rows.push(Row::of(name, step.name(), both, &measure));
        }
    }
    rows
}

/// A table of 80 columns.
fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut command = None;
    for row in rows {
        if command.replace(&row.command) != Some(&row.command) {
            let [first, second] = [0, 1].map(|at| row.times[at].count());
            text += &format!("{}: {first} and {second} commands\n", row.command);
            text += &format!(
                "  {:18}{:>13}{:>13}{:>12}{:>9}\n",
                "medians", "first", "second", "difference", "longer"
            );
        }
        let median = |at: usize| match row.times[at].count() {
            0 => "-".to_owned(),
            _ => row.times[at].median().to_string(),
        };
        let difference = row.difference().map_or("-".to_owned(), |share| format!("{:+.1} %", share * 100.0));
        let mark = if row.is_significant(rows.len()) { "  *" } else { "" };
        text += &format!(
            "  {:18}{:>13}{:>13}{difference:>12}{:>7.0} %{mark}\n",
            row.what,
            median(0),
            median(1),
            row.ranks.greater * 100.0
        );
    }
    if text.is_empty() {
        return "neither capture has an NVMe command\n".to_owned();
    }
    text + &format!(
        "longer: how often one of the second capture takes longer than one of the first\n\
         * differs: chance explains it in less than {:.0} % of such tables (Mann and Whitney)\n",
        CHANCE * 100.0
    )
}
