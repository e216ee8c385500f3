//! `farlane model sim SCENARIO`: plays a scenario once.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use captures::Simulated;
use engine::Nanos;
use live::sys::files::{self, Kind};
use scenarios::file::scenario::{Done, Played};
use scenarios::summary::Summary;
use serde_json::{Value, json};

use super::{read_scenario, streams, timeline, write};
use crate::args::PlayArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

pub(crate) fn run(args: &PlayArgs) -> Result<(), Error> {
    let path = args.scenario.as_path();
    let name = path.display();
    let wrong = |error| Error::Simulation(format!("{name}: {error}"));
    let scenario = read_scenario(path)?;
    let seed = args.seed.unwrap_or(scenario.seed);
    // A mistake is reported before minutes of work, not after.
    args.timeline.iter().try_for_each(|path| timeline::Form::of(path).map(|_| ()))?;
    let capture = args.capture.as_deref().filter(|path| is_capture(path));
    let played = match (args.timeline.is_empty(), capture) {
        (true, Some(path)) => {
            let file = files::write(path, Kind::Private);
            let file = file.map_err(|error| Error::File { path: path.to_owned(), error })?;
            let capture = Rc::new(RefCell::new(Simulated::begin(path, file)?));
            let played = scenario.play_watched(seed, capture.clone()).map_err(wrong)?;
            capture.borrow_mut().finish()?;
            played
        }
        (true, None) => scenario.play(seed, args.capture.is_some()).map_err(wrong)?,
        (false, _) => {
            let (played, line) = scenario.timeline(seed).map_err(wrong)?;
            let title = path.file_name().unwrap_or_default();
            let title = title.to_string_lossy();
            args.timeline.iter().try_for_each(|path| timeline::write(path, &line, &title))?;
            played
        }
    };
    if let Some(path) = args.capture.as_deref().filter(|path| !is_capture(path)) {
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
            "streams": played.streams.iter().map(streams::to_json).collect::<Vec<_>>(),
        }));
    }
    let mut text = match played.boot {
        Nanos::ZERO => format!("{name}, seed {seed}\n"),
        boot => format!("{name}, seed {seed}: up after {boot}\n"),
    };
    for task in &played.tasks {
        text += &task_text(task);
    }
    played.streams.iter().for_each(|stream| text += &streams::text(stream));
    print(&text)
}

/// Whether a trace is to be a capture of packets, and no table.
fn is_capture(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pcapng"))
}

fn task_text(task: &Done) -> String {
    let of = Summary::of(task);
    let mut text = format!(
        "  {}: {} times, mean {}, median {}, p99 {}, p99.9 {}, longest {}\n",
        task.name, of.count, of.mean, of.median, of.p99, of.p999, of.longest
    );
    if of.bytes > 0 {
        text += &format!("    {} bytes at {} kbit/s\n", of.bytes, of.rate / 1000);
    }
    if of.failed > 0 {
        text += &format!("    {} failed\n", of.failed);
    }
    text
}

fn task_json(task: &Done) -> Value {
    let of = Summary::of(task);
    let figures = Summary::FIGURES.map(|(name, value)| (name.to_owned(), Value::from(value(&of))));
    [("task".to_owned(), Value::from(task.name.as_str()))].into_iter().chain(figures).collect()
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
