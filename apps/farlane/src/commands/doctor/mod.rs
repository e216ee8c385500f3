//! `farlane setup doctor`: the parts that this machine has and lacks, with remedies.

mod checks;
mod finding;
mod machine;
#[cfg(test)]
mod tests;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use super::{print, print_json};
use crate::args::{DoctorArgs, Purpose};
use crate::error::Error;
use finding::{Finding, State};
use machine::Machine;

/// A purpose, and the findings about it.
#[derive(Serialize, JsonSchema)]
struct Examined {
    purpose: String,
    about: String,
    findings: Vec<Finding>,
}

/// The requirements of each purpose that this machine meets and lacks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Json<'a> {
    purposes: &'a [Examined],
    /// The number of findings that are missing.
    missing: usize,
    /// The number of findings that are weak.
    weak: usize,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Error> {
    let asked = if args.purposes.is_empty() { Purpose::value_variants() } else { &args.purposes };
    let examined = examine(&Machine::here(), asked);
    let count = |state| all(&examined).filter(|one| one.state == state).count();
    let (missing, weak) = (count(State::Missing), count(State::Weak));
    if args.output.json {
        print_json(&Json { purposes: &examined, missing, weak })?;
    } else {
        print(&text(&examined))?;
    }
    // Few users need every purpose: so a missing part is a fault only where it was asked for.
    match missing {
        1.. if !args.purposes.is_empty() => Err(Error::Lacking { missing }),
        _ => Ok(()),
    }
}

fn examine(machine: &Machine, purposes: &[Purpose]) -> Vec<Examined> {
    let one = |purpose: &Purpose| {
        let value = purpose.to_possible_value().unwrap_or_default();
        Examined {
            purpose: value.get_name().to_owned(),
            about: value.get_help().map(ToString::to_string).unwrap_or_default(),
            findings: checks::of(machine, *purpose),
        }
    };
    purposes.iter().map(one).collect()
}

fn all(examined: &[Examined]) -> impl Iterator<Item = &Finding> {
    examined.iter().flat_map(|one| &one.findings)
}

fn text(examined: &[Examined]) -> String {
    let width = all(examined).map(|one| one.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Examined { purpose, about, findings } in examined {
        text += &format!("{purpose}: {about}\n");
        for Finding { name, state, found, remedy } in findings {
            let word = match state {
                State::Ok => "ok",
                State::Weak => "weak",
                State::Missing => "missing",
            };
            text += &format!("  {word:7}  {name:width$}  {found}\n");
            if let Some(remedy) = remedy {
                text += &format!("  {:7}  {:width$}  -> {remedy}\n", "", "");
            }
        }
    }
    text
}
