//! Runs fault campaigns over seeds; see `--help`.

#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use campaigns::campaign::{Outcome, run_seeds};
use campaigns::{ahead, disk, disk_hosts, disk_lanes, fabrics, fleet, lanes, recording, sessions, upgrades};
use clap::Parser;

/// Runs simulated worlds in which things go wrong, and checks that nothing is lost, repeated, stale
/// or stuck.
///
/// Each seed is a run of its own and always the same one. A failure prints the command that runs
/// it again.
///
/// Example: campaign --seeds 0..1000 --jobs 4
///
/// Example: campaign --fresh --minutes 10
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Run this seed alone and print its outcome.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds from A up to but without B.
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, default_value = "0..1000")]
    seeds: Range<u64>,
    /// Run new seeds: from a base drawn at random, which is printed, as many as --seeds has.
    #[arg(long, conflicts_with = "seed")]
    fresh: bool,
    /// Run the seeds that have failed once, each in its scenario.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "fresh", "minutes"])]
    known: bool,
    /// Run for this many minutes, shared among the scenarios, with as many seeds as fit.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=10_000), conflicts_with = "seed")]
    minutes: Option<u64>,
    /// Run these scenarios, with commas between them; otherwise each one.
    #[arg(long, value_delimiter = ',', value_parser = SCENARIOS.map(|(name, _)| name))]
    scenario: Vec<String>,
    /// Plant this fault into the machinery of the scenario, and end when a seed has found it; `all`
    /// plants each. A fault that no seed finds is a failure.
    #[arg(long, value_name = "FAULT", requires = "scenario", conflicts_with_all = ["known", "minutes", "json"])]
    mutant: Option<String>,
    /// Seeds at a time; 0 is one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// End after this many failed seeds; 0 is never.
    #[arg(long, default_value_t = 10)]
    failures_max: u64,
    /// Print each outcome as a line of JSON.
    #[arg(long)]
    json: bool,
}

/// A scenario's name, and the function that runs one of its seeds.
type Scenario = (&'static str, fn(u64) -> Outcome);

const SCENARIOS: [Scenario; 27] = [
    ("disk", disk::run),
    ("disk-ahead", disk::run_ahead),
    ("disk-both", disk::run_both),
    ("disk-protected", disk::run_protected),
    ("disk-hosts", disk_hosts::run),
    ("upgrades", upgrades::run),
    ("disk-lanes", disk_lanes::run),
    ("gate", disk::run_gate),
    ("ahead", ahead::run),
    ("ahead-unruly", ahead::run_unruly),
    ("sessions", sessions::run),
    ("sessions-paths", sessions::run_paths),
    ("sessions-datagrams", sessions::run_datagrams),
    ("fabrics", fabrics::run),
    ("fabrics-shared", fabrics::run_shared),
    ("fabrics-proxy", fabrics::run_proxy),
    ("fabrics-rdma", fabrics::run_rdma),
    ("fabrics-cores", fabrics::run_cores),
    ("fabrics-roce", fabrics::run_roce),
    ("fabrics-lanes", lanes::run),
    ("record", recording::run),
    ("record-ring", recording::run_ring),
    ("record-striped", recording::run_striped),
    ("record-pretrigger", recording::run_triggered),
    ("record-raw", recording::run_raw),
    ("fleet", fleet::run),
    ("fleet-large", fleet::run_large),
];

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let (first, end) = text.split_once("..").ok_or("two numbers with .. between them, such as 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let range = number(first)?..number(end)?;
    if range.is_empty() { Err(format!("no seed lies in {text}")) } else { Ok(range) }
}

/// A fault that can be planted: the scenario, the fault's name, and the function that runs a seed
/// with it.
type Mutant = (&'static str, String, Box<dyn Fn(u64) -> Outcome + Sync>);

/// All faults that can be planted.
fn mutants() -> Vec<Mutant> {
    let of_fleets = fleet::Plant::ALL.into_iter().map(|plant| {
        let run: Box<dyn Fn(u64) -> Outcome + Sync> =
            Box::new(move |seed| fleet::run_planted(seed, Some(plant)));
        ("fleet", format!("{plant:?}"), run)
    });
    let of_lanes = lanes::Plant::ALL.into_iter().map(|plant| {
        let run: Box<dyn Fn(u64) -> Outcome + Sync> =
            Box::new(move |seed| lanes::run_planted(seed, Some(plant)));
        ("fabrics-lanes", format!("{plant:?}"), run)
    });
    let of_disks = disk_lanes::Plant::ALL.into_iter().map(|plant| {
        let run: Box<dyn Fn(u64) -> Outcome + Sync> =
            Box::new(move |seed| disk_lanes::run_planted(seed, Some(plant)));
        ("disk-lanes", format!("{plant:?}"), run)
    });
    let of_hosts = disk_hosts::Plant::ALL.into_iter().map(|plant| {
        let run: Box<dyn Fn(u64) -> Outcome + Sync> =
            Box::new(move |seed| disk_hosts::run_planted(seed, Some(plant)));
        ("disk-hosts", format!("{plant:?}"), run)
    });
    of_fleets.chain(of_lanes).chain(of_disks).chain(of_hosts).collect()
}

/// Plants faults, and prints which seed has found each.
fn find_mutants(wanted: &str, arguments: &Arguments) -> ExitCode {
    let mut missed = 0;
    let chosen = mutants().into_iter().filter(|(scenario, name, _)| {
        arguments.scenario.iter().any(|one| one == scenario) && (wanted == "all" || name == wanted)
    });
    let chosen: Vec<_> = chosen.collect();
    if chosen.is_empty() {
        let known: Vec<_> =
            mutants().into_iter().map(|(scenario, name, _)| format!("{scenario} {name}")).collect();
        eprintln!("no fault {wanted:?} can be planted there; expected all, or one of: {}", known.join(", "));
        return ExitCode::from(2);
    }
    for (scenario, name, run) in chosen {
        let mut found = None;
        run_seeds(scenario, arguments.seeds.clone(), 1, run, |outcome| {
            found = (!outcome.failures.is_empty()).then_some(outcome);
            found.is_none()
        });
        let said = match &found {
            Some(outcome) => format!("found by seed {}: {}", outcome.seed, outcome.failures[0]),
            None => "NOT FOUND".to_owned(),
        };
        missed += u32::from(found.is_none());
        let _ = writeln!(std::io::stdout(), "{scenario} {name}: {said}");
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The sums over all seeds of a scenario.
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

/// The seeds that have failed once: a scenario and a seed on each line.
const KNOWN: &str = include_str!("../../known-seeds.txt");

/// The seeds of `scenario` that have failed once.
fn known(scenario: &str) -> Vec<u64> {
    let lines = KNOWN.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let fields = lines.filter_map(|line| line.split_once(' '));
    let its = fields.filter(|(name, _)| *name == scenario);
    its.map(|(_, seed)| seed.trim().parse().expect("a seed is a number")).collect()
}

/// A random seed from which on all seeds are probably new, short enough to be typed.
fn fresh_base() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(std::process::id()) % 900_000 + 100_000) * 1_000_000
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(wanted) = &arguments.mutant {
        return find_mutants(wanted, &arguments);
    }
    let chosen = |name: &str| {
        arguments.scenario.is_empty() || arguments.scenario.iter().any(|scenario| scenario == name)
    };
    let chosen: Vec<_> = SCENARIOS.iter().filter(|(name, _)| chosen(name)).collect();
    let share = arguments.minutes.map(|minutes| {
        Duration::from_secs(minutes * 60) / u32::try_from(chosen.len()).expect("few scenarios")
    });
    let base = if arguments.fresh { fresh_base() } else { 0 };
    if arguments.fresh && !arguments.json {
        let _ = writeln!(std::io::stdout(), "seeds from {base} on");
    }
    let seeds = |name: &str| -> Vec<Range<u64>> {
        let Range { start, end } = arguments.seeds;
        let range = match arguments.seed {
            Some(seed) => seed..seed + 1,
            None if arguments.known => {
                return known(name).into_iter().map(|seed| seed..seed + 1).collect();
            }
            None if share.is_some() => base + start..base + start + SEEDS_MAX,
            None => base + start..base + end,
        };
        std::iter::once(range).collect()
    };
    let failed = chosen
        .into_iter()
        .map(|scenario| campaign(scenario, &seeds(scenario.0), share, &arguments).failed_seeds)
        .sum::<u64>();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The largest number of seeds of a scenario that runs for a given time.
const SEEDS_MAX: u64 = 1 << 40;

fn campaign(
    (name, run): &Scenario,
    ranges: &[Range<u64>],
    share: Option<Duration>,
    arguments: &Arguments,
) -> Total {
    let until = share.map(|share| Instant::now() + share);
    let count = ranges.iter().map(|seeds| seeds.end - seeds.start).sum::<u64>();
    let processors = || std::thread::available_parallelism().map_or(1, Into::into);
    let jobs = if arguments.jobs == 0 { processors() } else { arguments.jobs };
    let progress = std::io::stderr().is_terminal() && !arguments.json && count > 1;
    let mut total = Total::default();
    let mut report = |outcome: Outcome| {
        total.add(&outcome);
        let mut written = true;
        if arguments.json {
            written = writeln!(std::io::stdout(), "{}", json(&outcome)).is_ok();
        } else if arguments.seed.is_some() || !outcome.failures.is_empty() {
            clear(progress);
            written = write!(std::io::stdout(), "{outcome}").is_ok();
        }
        if progress {
            let of = share.map_or_else(|| format!(" of {count}"), |_| String::new());
            let _ = write!(std::io::stderr(), "\r{name}: {}{of} seeds", total.seeds);
        }
        // A reader that has gone away needs no more seeds.
        written
            && (arguments.failures_max == 0 || total.failed_seeds < arguments.failures_max)
            && until.is_none_or(|until| Instant::now() < until)
    };
    for seeds in ranges {
        run_seeds(name, seeds.clone(), jobs, run, &mut report);
    }
    clear(progress);
    if !arguments.json && (count > 1 || arguments.known && count > 0) {
        let Total { seeds, failed_seeds, events, done, failed } = total;
        let _ = writeln!(
            std::io::stdout(),
            "{name}: {seeds} seeds, {failed_seeds} failed; {events} events, {done} done, {failed} ended badly as they may"
        );
    }
    total
}

/// Clears the line with the progress.
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
