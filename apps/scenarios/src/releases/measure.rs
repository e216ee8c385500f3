//! One replication of one scenario.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::Nanos;
use toml::Table;

use super::{Effort, Estimate, RELEASES, REMEDIES, Release, Remedy};
use crate::file::scenario::Played;

/// The percentiles of the page: a name, and how many of 100,000 operations take no longer.
pub(super) const PERCENTILES: [(&str, u64); 5] =
    [("p50", 50_000), ("p99", 99_000), ("p99.9", 99_900), ("p99.99", 99_990), ("p99.999", 99_999)];
const ALL: u64 = 100_000;

/// Ranges of completion timeouts, by their longest time (PCI Express Base, Device Control 2).
pub(super) const TIMEOUTS: [&str; 4] = ["100us", "10ms", "50ms", "55ms"];
/// The longest completion timeout.
pub(super) const LONGEST: &str = "64s";
/// The file of the page in MiB.
pub(super) const FILE_MIB: u64 = 1_024;
/// Commands that write the file: their size, and how many are under way.
const FILE_COMMAND_KIB: u64 = 128;
const FILE_DEPTH: i64 = 8;

/// The operations that are measured, with the kinds of their tasks.
pub(super) const OPERATIONS: [(&str, &str); 3] =
    [("register read", "config-read"), ("4 KiB read", "read"), ("4 KiB write", "write")];

/// The result of all replications of one scenario.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) release: &'static Release,
    pub(super) remedy: Remedy,
    /// For each of [`OPERATIONS`] its [`PERCENTILES`] in ms; `None` where a run has too few
    /// operations for one.
    pub(super) times: Vec<Vec<Option<Estimate>>>,
    /// Mbit/s of the file.
    pub(super) rate: Estimate,
    /// Number of runs that boot with each of [`TIMEOUTS`].
    pub(super) boots: [u64; TIMEOUTS.len()],
    /// Time of a boot with the longest timeout in ms.
    pub(super) boot: Estimate,
}

/// One replication.
struct Run {
    times: Vec<Vec<Option<f64>>>,
    rate: f64,
    boots: [bool; TIMEOUTS.len()],
    boot: f64,
}

/// Measures each release with each remedy on `threads` threads.
pub(super) fn all(effort: Effort, threads: usize) -> Result<Vec<Measured>, String> {
    let cases = || RELEASES.iter().flat_map(|release| REMEDIES.iter().map(move |remedy| (release, *remedy)));
    let jobs: Vec<_> =
        cases().flat_map(|case| (1..=effort.replications).map(move |seed| (case, seed))).collect();
    let (next, runs) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(((release, remedy), seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = run(release, *remedy, effort, *seed);
                    let mut runs = runs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    runs.push(((release.name, remedy.name, *seed), run));
                }
            });
        }
    });
    let mut runs = runs.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    runs.sort_by_key(|((.., seed), _)| *seed);
    let of = |(release, remedy): (&'static Release, Remedy)| {
        let own = runs.iter().filter(|((of, with, _), _)| *of == release.name && *with == remedy.name);
        let own =
            own.map(|(_, run)| run.as_ref().map_err(Clone::clone)).collect::<Result<Vec<_>, String>>()?;
        summed(release, remedy, &own).ok_or_else(|| "expected two replications at least".to_owned())
    };
    cases().map(of).collect()
}

fn summed(release: &'static Release, remedy: Remedy, runs: &[&Run]) -> Option<Measured> {
    let estimate = |of: &dyn Fn(&Run) -> Option<f64>| {
        Estimate::of(&runs.iter().filter_map(|run| of(run)).collect::<Vec<_>>())
    };
    let times = |operation: usize| {
        (0..PERCENTILES.len()).map(|place| estimate(&|run| run.times[operation][place])).collect()
    };
    let boots = |place: usize| runs.iter().filter(|run| run.boots[place]).count() as u64;
    Some(Measured {
        release,
        remedy,
        times: (0..OPERATIONS.len()).map(times).collect(),
        rate: estimate(&|run| Some(run.rate))?,
        boots: std::array::from_fn(boots),
        boot: estimate(&|run| Some(run.boot))?,
    })
}

fn run(release: &Release, remedy: Remedy, effort: Effort, seed: u64) -> Result<Run, String> {
    let played = operations(release, remedy, [effort.registers, effort.commands], seed)?;
    let times = played.tasks.iter().map(|task| percentiles(&task.outcome.times)).collect();
    let count = effort.file_mib * 1024 / FILE_COMMAND_KIB;
    let file = release.scenario(remedy, vec![file_task(count)], LONGEST)?.play(seed, false)?;
    let written = file.tasks.first().map(|task| &task.outcome).ok_or("the file was not written")?;
    let rate = decimal(written.bytes) * 8e3 / decimal((written.ended - written.began).get());
    let mut boots = [false; TIMEOUTS.len()];
    for (boots, timeout) in boots.iter_mut().zip(TIMEOUTS) {
        *boots = boots_with(release, remedy, timeout, seed)?;
    }
    Ok(Run { times, rate, boots, boot: millis(played.boot) })
}

/// Whether the host drives the SSD with this completion timeout.
pub(super) fn boots_with(
    release: &Release,
    remedy: Remedy,
    timeout: &str,
    seed: u64,
) -> Result<bool, String> {
    Ok(release.scenario(remedy, vec![task("config-read", 1)], timeout)?.play(seed, false).is_ok())
}

/// The operations of one run, with the longest completion timeout: so many register reads, then so
/// many reads and writes.
pub(super) fn operations(
    release: &Release,
    remedy: Remedy,
    [registers, commands]: [u64; 2],
    seed: u64,
) -> Result<Played, String> {
    let count = |kind| if kind == "config-read" { registers } else { commands };
    let tasks = OPERATIONS.map(|(_, kind)| task(kind, count(kind)));
    let played = release.scenario(remedy, tasks.into(), LONGEST)?.play(seed, false)?;
    match played.tasks.iter().find(|task| task.outcome.failed > 0) {
        None => Ok(played),
        Some(task) => Err(format!("{} with {}: a {} failed", release.name, remedy.name, task.name)),
    }
}

fn task(kind: &str, count: u64) -> Table {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let pairs = [("kind", kind.into()), ("gap", "3ms".into()), ("count", toml::Value::Integer(count))];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn file_task(count: u64) -> Table {
    let mut table = task("write", count);
    table.insert("size".into(), format!("{FILE_COMMAND_KIB}KiB").into());
    table.insert("depth".into(), FILE_DEPTH.into());
    table.insert("sequential".into(), true.into());
    table
}

/// The percentiles in ms. One that fewer than one operation exceeds is unknown.
fn percentiles(times: &[Nanos]) -> Vec<Option<f64>> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let count = sorted.len() as u64;
    let of = |(_, share): (&str, u64)| {
        let is_known = count * (ALL - share) >= ALL;
        let place = usize::try_from((count * share).div_ceil(ALL).max(1) - 1).ok()?;
        is_known.then(|| sorted.get(place).copied().map(millis)).flatten()
    };
    PERCENTILES.into_iter().map(of).collect()
}

pub(super) fn millis(time: Nanos) -> f64 {
    decimal(time.get()) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "times and sizes of a run stay far below 2^53")]
const fn decimal(value: u64) -> f64 {
    value as f64
}
