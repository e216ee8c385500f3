//! `farlane sim sweep`: every combination of some values.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::Nanos;
use indicatif::ProgressBar;
use scenarios::file::scenario::Scenario;
use scenarios::file::sweep;

use super::play::{mean, quantile, rate};
use super::{plot, read, write};
use crate::args::SweepArgs;
use crate::commands::print;
use crate::error::Error;

/// What one task of one point gave.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) point: Vec<String>,
    pub(super) task: String,
    pub(super) median: Nanos,
    pub(super) p99: Nanos,
    rest: String,
}

pub(crate) fn run(args: &SweepArgs) -> Result<(), Error> {
    let text = read(&args.scenario)?;
    let points = sweep::points(&args.set).map_err(Error::Simulation)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(processors).clamp(1, points.len());
    let (next, bar) = (AtomicUsize::new(0), ProgressBar::new(points.len() as u64));
    let results = Mutex::new(vec![None; points.len()]);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((index, point)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|index| Some((index, points.get(index)?)))
                {
                    let lines = play(args, &text, point);
                    results.lock().expect("no thread panics with the lock")[index] = Some(lines);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut lines = Vec::new();
    for result in results.into_inner().expect("no thread panics with the lock").into_iter().flatten() {
        lines.extend(result.map_err(Error::Simulation)?);
    }
    let table = table(args, &lines);
    match &args.csv {
        Some(path) => write(path, &table)?,
        None => print(&table)?,
    }
    match &args.plot {
        Some(path) => write(path, &plot::svg(&args.set, &lines)),
        None => Ok(()),
    }
}

fn play(args: &SweepArgs, text: &str, point: &[String]) -> Result<Vec<Line>, String> {
    let file = sweep::apply(text, &args.set, point)?;
    let folder = args.scenario.parent().unwrap_or(Path::new("."));
    let scenario =
        Scenario::parse_in(&file, folder).map_err(|error| format!("{}: {error}", point.join(", ")))?;
    let played = scenario.play(args.seed.unwrap_or(scenario.seed), false)?;
    let line = |task: &scenarios::file::scenario::Done| {
        let times = &task.outcome.times;
        let q = |thousandths| quantile(times, thousandths);
        let rest = format!(
            "{},{},{},{},{},{},{},{}",
            times.len(),
            task.outcome.failed,
            mean(times).get(),
            q(500).get(),
            q(990).get(),
            q(999).get(),
            q(1000).get(),
            rate(task)
        );
        Line { point: point.to_vec(), task: task.name.clone(), median: q(500), p99: q(990), rest }
    };
    Ok(played.tasks.iter().map(line).collect())
}

fn table(args: &SweepArgs, lines: &[Line]) -> String {
    let mut text: String = args.set.iter().map(|axis| format!("{},", axis.path)).collect();
    text += "task,count,failed,mean_ns,p50_ns,p99_ns,p999_ns,max_ns,bits_per_second\n";
    for line in lines {
        text += &format!("{},{},{}\n", line.point.join(","), line.task, line.rest);
    }
    text
}
