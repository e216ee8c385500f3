//! `farlane model sweep`: plays a scenario with every combination of some values.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use scenarios::file::scenario::Scenario;
use scenarios::file::sweep;

use super::table::{self, Line};
use super::{plot, read, warn_of, write};
use crate::args::SweepArgs;
use crate::commands::print;
use crate::drawing::Form;
use crate::error::Error;
use crate::whole_file;

pub(crate) fn run(args: &SweepArgs) -> Result<(), Error> {
    let text = read(&args.scenario)?;
    let points = sweep::points(&args.set).map_err(Error::Simulation)?;
    // A mistake is reported before hours of work, not after.
    args.plot.iter().try_for_each(|path| Form::of(path).map(|_| ()))?;
    let own = Scenario::parse_in(&text, folder(args));
    let own = own.map_err(|error| Error::Simulation(format!("{}: {error}", args.scenario.display())))?;
    warn_of(&args.scenario, &own);
    for axis in 0..args.set.len() {
        check(args, &text, axis)?;
    }
    check_task(args, &text, &points)?;
    for path in args.csv.iter().chain(&args.parquet).chain(&args.plot) {
        whole_file::check(path)?;
    }
    let (lines, failed) = play_all(args, &text, &points);
    let played = failed.map_or(Ok(()), |why| Err(Error::Simulation(why)));
    if lines.is_empty() && played.is_err() {
        return played;
    }
    // The points that ended well took hours, perhaps.
    print_lines(args, &lines)?;
    played
}

/// Writes the table and the pictures that are wanted.
fn print_lines(args: &SweepArgs, lines: &[Line]) -> Result<(), Error> {
    match &args.csv {
        Some(path) => write(path, &table::csv(&args.set, lines))?,
        None if args.parquet.is_none() => print(&table::csv(&args.set, lines))?,
        None => {}
    }
    if let Some(path) = &args.parquet {
        let wrong = |why: String| Error::Simulation(format!("{}: {why}", path.display()));
        let bytes = table::parquet(&args.set, lines).map_err(wrong)?;
        whole_file::replace(path, &bytes)?;
    }
    if args.plot.is_empty() {
        return Ok(());
    }
    let name = args.scenario.file_name().unwrap_or_default().to_string_lossy();
    let drawing = plot::draw(&args.set, lines, args.task.as_deref(), &name).map_err(Error::Simulation)?;
    args.plot.iter().try_for_each(|path| drawing.write(path))
}

/// Checks that the scenario can have every value of one axis. The other axes have their first
/// values meanwhile.
fn check(args: &SweepArgs, text: &str, axis: usize) -> Result<(), Error> {
    let mut point: Vec<String> = args.set.iter().map(|axis| axis.values[0].clone()).collect();
    for value in &args.set[axis].values {
        point[axis].clone_from(value);
        scenario(args, text, &point).map_err(Error::Simulation)?;
    }
    Ok(())
}

/// Checks that the task to be drawn is one of some point: a point may have names of its own.
fn check_task(args: &SweepArgs, text: &str, points: &[Vec<String>]) -> Result<(), Error> {
    let Some(task) = &args.task else { return Ok(()) };
    let mut known: Vec<String> = Vec::new();
    for point in points {
        // A point that can't be played returns its error when its turn comes.
        let Ok(scenario) = scenario(args, text, point) else { continue };
        for name in scenario.result_names() {
            if name == *task {
                return Ok(());
            }
            if !known.contains(&name) {
                known.push(name);
            }
        }
    }
    let known: Vec<_> = known.iter().map(|name| format!("'{name}'")).collect();
    Err(Error::Simulation(format!("--task {task}: the scenario has {}", known.join(", "))))
}

/// The folder in which the scenario's other files are.
fn folder(args: &SweepArgs) -> &Path {
    args.scenario.parent().unwrap_or(Path::new("."))
}

fn scenario(args: &SweepArgs, text: &str, point: &[String]) -> Result<Scenario, String> {
    let wrong = |error: String| match error.strip_prefix("with ") {
        Some(_) => format!("{} {error}", args.scenario.display()),
        None => error,
    };
    sweep::scenario_at(text, folder(args), &args.set, point).map_err(wrong)
}

/// Plays all points on as many threads as are wanted. The results are in the order of the points,
/// with any number of threads. The second result is why the first failing point failed.
fn play_all(args: &SweepArgs, text: &str, points: &[Vec<String>]) -> (Vec<Line>, Option<String>) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(processors).clamp(1, points.len());
    let (next, bar) = (AtomicUsize::new(0), ProgressBar::new(points.len() as u64));
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} points, {eta} left");
    bar.set_style(style.expect("the template is valid"));
    let results = Mutex::new(vec![None; points.len()]);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((index, point)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|index| Some((index, points.get(index)?)))
                {
                    let lines = play(args, text, point);
                    results.lock().expect("no thread panics with the lock")[index] = Some(lines);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let results = results.into_inner().expect("no thread panics with the lock");
    of_all(results.into_iter().flatten())
}

/// The lines of all points that ended well, and why the first of the others failed.
fn of_all(results: impl Iterator<Item = Result<Vec<Line>, String>>) -> (Vec<Line>, Option<String>) {
    let (mut lines, mut failed) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(of_point) => lines.extend(of_point),
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    (lines, failed)
}

fn play(args: &SweepArgs, text: &str, point: &[String]) -> Result<Vec<Line>, String> {
    let scenario = scenario(args, text, point)?;
    let wrong = |why: String| {
        let pairs = args.set.iter().zip(point).map(|(axis, value)| format!("{}={value}", axis.path));
        format!("{} with {}: {why}", args.scenario.display(), pairs.collect::<Vec<_>>().join(", "))
    };
    let played = scenario.play(args.seed.unwrap_or(scenario.seed), false).map_err(wrong)?;
    let streams = played.streams.iter().map(|stream| &stream.done);
    Ok(played.tasks.iter().chain(streams).map(|task| Line::new(point, task)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::line;
    use super::*;

    #[test]
    fn a_point_that_fails_leaves_the_lines_of_the_others() {
        let results = [
            Ok(vec![line(&["1"], 10)]),
            Err("first".to_owned()),
            Ok(vec![line(&["3"], 30)]),
            Err("second".to_owned()),
        ];
        let (lines, failed) = of_all(results.into_iter());
        let points: Vec<_> = lines.iter().map(|line| line.point.join(",")).collect();
        assert_eq!(points, ["1", "3"]);
        assert_eq!(failed.as_deref(), Some("first"));
    }
}
