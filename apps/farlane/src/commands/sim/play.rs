//! `farlane sim SCENARIO`: plays a scenario once.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use engine::Nanos;
use scenarios::file::scenario::{Done, Played};
use serde_json::{Value, json};

use super::{read_scenario, timeline, write};
use crate::args::PlayArgs;
use crate::capture::Simulated;
use crate::commands::{print, print_json};
use crate::error::Error;

pub(crate) fn run(args: &PlayArgs) -> Result<(), Error> {
    let path = args.scenario.as_deref().expect("without a subcommand it is required");
    let name = path.display();
    let wrong = |error| Error::Simulation(format!("{name}: {error}"));
    let scenario = read_scenario(path)?;
    let seed = args.seed.unwrap_or(scenario.seed);
    // A mistake is reported before minutes of work, not after.
    args.timeline.iter().try_for_each(|path| timeline::Form::of(path).map(|_| ()))?;
    let capture = args.trace.as_deref().filter(|path| is_capture(path));
    let played = match (args.timeline.is_empty(), capture) {
        (true, Some(path)) => {
            let capture = Rc::new(RefCell::new(Simulated::create(path)?));
            let played = scenario.play_watched(seed, capture.clone()).map_err(wrong)?;
            capture.borrow_mut().finish()?;
            played
        }
        (true, None) => scenario.play(seed, args.trace.is_some()).map_err(wrong)?,
        (false, _) => {
            let (played, line) = scenario.timeline(seed).map_err(wrong)?;
            let title = args.scenario.as_deref().and_then(|path| path.file_name()).unwrap_or_default();
            let title = title.to_string_lossy();
            args.timeline.iter().try_for_each(|path| timeline::write(path, &line, &title))?;
            played
        }
    };
    if let Some(path) = args.trace.as_deref().filter(|path| !is_capture(path)) {
        write(path, &trace(&played))?;
    }
    if args.output.json {
        let tasks: Vec<_> = played.tasks.iter().map(task_json).collect();
        return print_json(&json!({
            "scenario": name.to_string(),
            "seed": seed,
            "boot_ns": played.boot.get(),
            "events": played.events,
            "digest": format!("{:016x}", played.digest),
            "tasks": tasks,
        }));
    }
    let mut text = match played.boot {
        Nanos::ZERO => format!("{name}, seed {seed}\n"),
        boot => format!("{name}, seed {seed}: up after {boot}\n"),
    };
    for task in &played.tasks {
        text += &task_text(task);
    }
    print(&text)
}

/// Whether a trace is to be a capture of packets, and no table.
fn is_capture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pcapng"))
}

/// The least of `times` that at least `thousandths` of all `times` do not exceed; zero if there
/// are none.
pub(super) fn quantile(times: &[Nanos], thousandths: usize) -> Nanos {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * thousandths).div_ceil(1000).max(1) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

/// The mean, rounded down to a nanosecond.
pub(super) fn mean(times: &[Nanos]) -> Nanos {
    let sum = times.iter().fold(0_u64, |sum, time| sum + time.get());
    Nanos::new(sum / (times.len() as u64).max(1))
}

/// The rate of a task in bits per second.
pub(super) fn rate(done: &Done) -> u64 {
    let took = (done.outcome.ended - done.outcome.began).get().max(1);
    let bits = u128::from(done.outcome.bytes) * 8 * 1_000_000_000 / u128::from(took);
    u64::try_from(bits).unwrap_or(u64::MAX)
}

fn task_text(task: &Done) -> String {
    let times = &task.outcome.times;
    let q = |thousandths| quantile(times, thousandths);
    let mut text = format!(
        "  {}: {} times, mean {}, median {}, p99 {}, p99.9 {}, longest {}\n",
        task.name,
        times.len(),
        mean(times),
        q(500),
        q(990),
        q(999),
        q(1000)
    );
    if task.outcome.bytes > 0 {
        text += &format!("    {} bytes at {} kbit/s\n", task.outcome.bytes, rate(task) / 1000);
    }
    if task.outcome.failed > 0 {
        text += &format!("    {} failed\n", task.outcome.failed);
    }
    text
}

fn task_json(task: &Done) -> Value {
    let times = &task.outcome.times;
    let q = |thousandths| quantile(times, thousandths).get();
    json!({
        "task": task.name,
        "count": times.len(),
        "failed": task.outcome.failed,
        "bytes": task.outcome.bytes,
        "bits_per_second": rate(task),
        "mean_ns": mean(times).get(),
        "min_ns": q(0),
        "p50_ns": q(500),
        "p99_ns": q(990),
        "p999_ns": q(999),
        "max_ns": q(1000),
    })
}

fn trace(played: &Played) -> String {
    let mut text = String::from("task,at_ns,direction,packet,bytes\n");
    let tasks = played.tasks.iter().map(|task| (task.name.as_str(), &task.seen));
    for (name, seen) in tasks.chain([("workloads", &played.seen)]) {
        for seen in seen {
            let direction = if seen.down { "down" } else { "up" };
            let at = seen.at.as_nanos();
            text += &format!("{name},{at},{direction},{:?},{}\n", seen.what, seen.bytes);
        }
    }
    text
}
