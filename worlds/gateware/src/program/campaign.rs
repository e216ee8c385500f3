//! `farlane-gateware campaign`.

use std::ops::Range;
use std::process::ExitCode;

use campaigns::campaign::{Outcome, run_seeds};
use clap::Args;

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Run the seeds from A up to but without B.
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, default_value = "0..1000", conflicts_with = "seed")]
    seeds: Range<u64>,
    /// Run this seed alone, and print its outcome.
    #[arg(long)]
    seed: Option<u64>,
    /// Run these scenarios; all of them without this option.
    #[arg(long, value_delimiter = ',', value_parser = SCENARIOS.map(|(name, ..)| name))]
    scenario: Vec<String>,
    /// Run each seed twice: both runs must have the same digest.
    #[arg(long)]
    twice: bool,
    /// Seeds at a time; 0 is one for each processor.
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// End after this many failed seeds.
    #[arg(long, default_value_t = 10)]
    failures_max: u64,
}

/// The name, what runs a seed, and what its counts are of.
type Scenario = (&'static str, fn(u64) -> Outcome, [&'static str; 2]);

const SCENARIOS: [Scenario; 2] = [
    ("sessions-gateware", gateware::campaign::run, ["packets", "links went down"]),
    ("record-gateware", gateware::streamer::campaign::run, ["writes", "gaps"]),
];

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let (first, end) = text.split_once("..").ok_or("two numbers with .. between them, such as 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let range = number(first)?..number(end)?;
    if range.is_empty() { Err(format!("no seed lies in {text}")) } else { Ok(range) }
}

/// Runs a seed twice, and finds fault with runs that differ.
fn twice(run: fn(u64) -> Outcome, seed: u64) -> Outcome {
    let (mut one, other) = (run(seed), run(seed));
    if one.digest != other.digest {
        one.failures.push(format!("two runs have the digests {:016x} and {:016x}", one.digest, other.digest));
    }
    one
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let is_wanted =
        |name: &str| arguments.scenario.is_empty() || arguments.scenario.iter().any(|one| one == name);
    let wanted = SCENARIOS.into_iter().filter(|(name, ..)| is_wanted(name));
    let failed: u64 = wanted.map(|scenario| run_one(arguments, scenario)).sum();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a scenario, and returns how many seeds failed.
fn run_one(arguments: &Arguments, (name, run, [dones, downs_of]): Scenario) -> u64 {
    let seeds = arguments.seed.map_or_else(|| arguments.seeds.clone(), |seed| seed..seed + 1);
    let jobs = match arguments.jobs {
        0 => std::thread::available_parallelism().map_or(1, Into::into),
        jobs => jobs,
    };
    let (mut count, mut failed, mut events, mut done, mut downs) = (0_u64, 0_u64, 0, 0, 0);
    let of_seed = |seed| if arguments.twice { twice(run, seed) } else { run(seed) };
    run_seeds(name, seeds, jobs, of_seed, |outcome| {
        count += 1;
        failed += u64::from(!outcome.failures.is_empty());
        events += outcome.events;
        done += outcome.counts.done;
        downs += outcome.counts.failed;
        if arguments.seed.is_some() || !outcome.failures.is_empty() {
            let replay = format!("farlane-gateware campaign --scenario {name} --seed {}", outcome.seed);
            print!("{}", outcome.to_string().replace(&outcome.replay(), &replay));
        }
        failed < arguments.failures_max
    });
    println!("{name}: {count} seeds, {failed} failed; {events} events, {done} {dones}, {downs} {downs_of}");
    failed
}
