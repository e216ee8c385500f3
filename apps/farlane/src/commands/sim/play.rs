//! `farlane model sim SCENARIO`: plays a scenario once.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use captures::Simulated;
use engine::Nanos;
use live::sys::files::{self, Kind};
use scenarios::file::scenario::{Done, Played};
use scenarios::summary::Summary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::streams::Stream;
use super::{read_scenario, streams, timeline, write};
use crate::args::PlayArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

/// The results of the tasks and streams of a scenario.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Json {
    scenario: String,
    seed: u64,
    /// How long the host took to bring the device up.
    pub(crate) boot_ns: u64,
    /// The number of events of the simulated world.
    pub(crate) events: u64,
    /// A fingerprint of all that happened in the simulated world.
    digest: String,
    pub(crate) tasks: Vec<Task>,
    pub(crate) streams: Vec<Stream>,
}

/// The results of a task.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Task {
    task: String,
    /// Operations that were measured.
    count: u64,
    /// Operations that failed.
    failed: u64,
    /// Bytes that were transferred.
    bytes: u64,
    bits_per_second: u64,
    mean_ns: u64,
    min_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

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
        return print_json(&Json {
            scenario: name.to_string(),
            seed,
            boot_ns: played.boot.get(),
            events: played.events,
            digest: format!("{:016x}", played.digest),
            tasks: played.tasks.iter().map(Task::of).collect(),
            streams: played.streams.iter().map(Stream::of).collect(),
        });
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

impl Task {
    fn of(task: &Done) -> Self {
        let of = Summary::of(task);
        Self {
            task: task.name.clone(),
            count: of.count,
            failed: of.failed,
            bytes: of.bytes,
            bits_per_second: of.rate,
            mean_ns: of.mean.get(),
            min_ns: of.shortest.get(),
            p50_ns: of.median.get(),
            p99_ns: of.p99.get(),
            p999_ns: of.p999.get(),
            max_ns: of.longest.get(),
        }
    }
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
