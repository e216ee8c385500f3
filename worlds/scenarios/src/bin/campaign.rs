//! Runs fault campaigns over seeds; see `--help`.

use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use scenarios::campaign::{Outcome, run_seeds};
use scenarios::{ahead, disk, fabrics, sessions};

/// Runs simulated worlds in which things go wrong, and checks that nothing is lost, repeated, stale or stuck.
///
/// Each seed is a run of its own and always the same one. A failure prints the command that runs it again.
///
/// Example: campaign --seeds 0..1000 --jobs 4
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Run this seed alone and print its outcome.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds from A up to but without B.
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, default_value = "0..1000")]
    seeds: Range<u64>,
    /// Run these scenarios, with commas between them; otherwise each one.
    #[arg(long, value_delimiter = ',', value_parser = SCENARIOS.map(|(name, _)| name))]
    scenario: Vec<String>,
    /// Seeds at a time; 0 is one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// End after so many failed seeds; 0 is never.
    #[arg(long, default_value_t = 10)]
    failures_max: u64,
    /// Print each outcome as a line of JSON.
    #[arg(long)]
    json: bool,
}

/// A scenario's name and how it is run.
type Scenario = (&'static str, fn(u64) -> Outcome);

const SCENARIOS: [Scenario; 8] = [
    ("disk", disk::run),
    ("disk-ahead", disk::run_ahead),
    ("disk-both", disk::run_both),
    ("ahead", ahead::run),
    ("ahead-unruly", ahead::run_unruly),
    ("sessions", sessions::run),
    ("sessions-paths", sessions::run_paths),
    ("fabrics", fabrics::run),
];

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let (first, end) = text.split_once("..").ok_or("two numbers with .. between them, such as 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let range = number(first)?..number(end)?;
    if range.is_empty() { Err(format!("no seed lies in {text}")) } else { Ok(range) }
}

/// What all seeds of a scenario came to.
#[derive(Debug, Default)]
struct Total {
    seeds: u64,
    failed_seeds: u64,
    events: u64,
    done: u64,
    failed: u64,
}

impl Total {
    const fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.failed_seeds += !outcome.failures.is_empty() as u64;
        self.events += outcome.events;
        self.done += outcome.counts.done;
        self.failed += outcome.counts.failed;
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen = |name: &str| {
        arguments.scenario.is_empty() || arguments.scenario.iter().any(|scenario| scenario == name)
    };
    let failed = SCENARIOS
        .iter()
        .filter(|(name, _)| chosen(name))
        .map(|scenario| campaign(scenario, &arguments).failed_seeds)
        .sum::<u64>();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn campaign((name, run): &Scenario, arguments: &Arguments) -> Total {
    let seeds = arguments.seed.map_or_else(|| arguments.seeds.clone(), |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let processors = || std::thread::available_parallelism().map_or(1, Into::into);
    let jobs = if arguments.jobs == 0 { processors() } else { arguments.jobs };
    let progress = std::io::stderr().is_terminal() && !arguments.json && count > 1;
    let mut total = Total::default();
    run_seeds(name, seeds, jobs, run, |outcome| {
        total.add(&outcome);
        let mut written = true;
        if arguments.json {
            written = writeln!(std::io::stdout(), "{}", json(&outcome)).is_ok();
        } else if arguments.seed.is_some() || !outcome.failures.is_empty() {
            clear(progress);
            written = write!(std::io::stdout(), "{outcome}").is_ok();
        }
        if progress {
            let _ = write!(std::io::stderr(), "\r{name}: {} of {count} seeds", total.seeds);
        }
        // Whoever reads no further wants no further seeds.
        written && (arguments.failures_max == 0 || total.failed_seeds < arguments.failures_max)
    });
    clear(progress);
    if !arguments.json && count > 1 {
        let Total { seeds, failed_seeds, events, done, failed } = total;
        let _ = writeln!(
            std::io::stdout(),
            "{name}: {seeds} seeds, {failed_seeds} failed; {events} events, {done} done, {failed} ended badly as they may"
        );
    }
    total
}

/// Takes the progress line away.
fn clear(progress: bool) {
    if progress {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn json(outcome: &Outcome) -> serde_json::Value {
    let troubles: Vec<_> = outcome.troubles.iter().map(|trouble| format!("{trouble:?}")).collect();
    serde_json::json!({
        "scenario": outcome.scenario,
        "seed": outcome.seed,
        "digest": format!("{:016x}", outcome.digest),
        "events": outcome.events,
        "contents": format!("{:016x}", outcome.contents),
        "virtual_ns": outcome.elapsed.get(),
        "troubles": troubles,
        "done": outcome.counts.done,
        "failed": outcome.counts.failed,
        "abandoned": outcome.counts.abandoned,
        "failures": outcome.failures,
        "replay": outcome.replay(),
    })
}
