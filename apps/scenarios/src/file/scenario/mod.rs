//! A scenario to be simulated: a host, an SSD, the path between them, and the host's work.

use std::path::Path;

use assemblies::watch::Port;
use engine::{Instant, Nanos, Rng, Watcher};
use network_models::Network;
use serde::Deserialize;
use sim::models::ssd::jobs;
use toml::Spanned;

use super::Wrong;
use super::fabric::FabricTable;
use super::fault::{FaultTable, fault};
use super::link::{Link, LinkTable};
use super::load::{LOADS_MAX, LoadTable};
use super::machine::{HostTable, PcieTable, SsdTable};
use super::text::{Bytes, Text, one_of};
use super::workload::{UNDER_WAY_MAX, Workload, WorkloadTable};
use crate::fabric_bench::{self, FabricBench};
use crate::published::PIPELINE;
use crate::test_bench::{self, Job, Kind, Outcome, Seen, Setup, Task, TestBench, Trouble, When};
use crate::timeline::Timeline;
pub use streams::StreamDone;
use streams::{Stream, StreamTable};

/// The largest number of operations of a task.
const COUNT_MAX: u64 = 10_000_000;
/// Allowed lengths of a command's data in bytes.
const SIZE_RANGE: std::ops::RangeInclusive<u64> = 512..=128 << 10;
/// Allowed numbers of commands that a task has outstanding.
const DEPTH_RANGE: std::ops::RangeInclusive<u32> = 1..=64;
/// How long a task may take in virtual time.
pub(crate) const LIMIT: Nanos = Nanos::from_secs(1_000_000);

/// A scenario as a file describes it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of everything random, unless the caller gives another one.
    pub seed: u64,
    link: Option<Link>,
    /// NVMe over Fabrics in the place of the switch.
    fabric: Option<fabric_bench::Setup>,
    setup: Setup,
    tasks: Vec<(String, Task)>,
    /// Workloads that run side by side, after the tasks.
    workloads: Vec<Workload>,
    /// Loads of the SSD alone, side by side, in the place of tasks and workloads.
    loads: Vec<(String, jobs::Job)>,
    faults: Vec<(When, Trouble)>,
    /// Streams that cross the link beside everything else.
    streams: Vec<Stream>,
}

/// The result of a task.
#[derive(Clone, Debug)]
pub struct Done {
    /// The name of the task.
    pub name: String,
    /// The kind of its commands; none of a task that reads configuration space.
    pub kind: Option<Kind>,
    /// The measurements of the task.
    pub outcome: Outcome,
    /// The packets that passed the root port's link; empty without a trace.
    pub seen: Vec<Seen>,
}

/// The result of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// How long the host took to bring the device up.
    pub boot: Nanos,
    /// The results of the tasks in order, then the results of each workload by kind of command.
    pub tasks: Vec<Done>,
    /// The results of the streams, in order.
    pub streams: Vec<StreamDone>,
    /// The packets that passed the root port's link during the workloads; empty without a trace.
    pub seen: Vec<Seen>,
    /// Number of events of the world.
    pub events: u64,
    /// A fingerprint of all that happened in the world.
    pub digest: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    #[serde(default)]
    seed: Option<u64>,
    link: Option<Spanned<LinkTable>>,
    #[serde(default)]
    host: HostTable,
    fabric: Option<Spanned<FabricTable>>,
    #[serde(default)]
    ssd: SsdTable,
    #[serde(default)]
    switch: SwitchTable,
    #[serde(default)]
    pcie: PcieTable,
    #[serde(default)]
    task: Vec<Spanned<TaskTable>>,
    #[serde(default)]
    workload: Vec<Spanned<WorkloadTable>>,
    #[serde(default)]
    load: Vec<Spanned<LoadTable>>,
    #[serde(default)]
    fault: Vec<Spanned<FaultTable>>,
    #[serde(default)]
    stream: Vec<Spanned<StreamTable>>,
}

/// `[switch]`: the distributed switch, which is there where there is a `[link]`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SwitchTable {
    pipeline: Option<Text<Nanos>>,
    lookahead: bool,
}

/// `[[task]]`: a task of the host. Tasks run one after another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskTable {
    kind: Spanned<String>,
    name: Option<String>,
    count: Option<Spanned<u64>>,
    size: Option<Spanned<Text<Bytes>>>,
    depth: Option<Spanned<u32>>,
    gap: Option<Text<Nanos>>,
    #[serde(default)]
    sequential: bool,
}

impl Scenario {
    /// Reads the scenario in `text`. Names of other files are relative to the working directory.
    ///
    /// # Errors
    /// A message with the line, the key and the expected value.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_in(text, Path::new("."))
    }

    /// Reads the scenario in the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, or a value is not allowed; the message names line and key.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = texts::read(path, texts::FILE_MAX).map_err(|error| error.to_string())?;
        Self::parse_in(&text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads the scenario in `text`. Names of other files are relative to `directory`.
    ///
    /// # Errors
    /// A message with the line, the key and the expected value.
    pub fn parse_in(text: &str, directory: &Path) -> Result<Self, String> {
        let scenario = Self::instead(text, directory, &[])?;
        let is_idle = scenario.tasks.is_empty() && scenario.workloads.is_empty();
        if is_idle && scenario.loads.is_empty() && scenario.streams.is_empty() {
            let loads = "a [[task]], a [[workload]] or a [[load]] at least, or a [[stream]]";
            return Err(format!("missing field `task`: expected {loads}"));
        }
        Ok(scenario)
    }

    /// Reads the scenario or the link in `text`, with the named `tasks` instead of the tasks and
    /// workloads in the text.
    ///
    /// # Errors
    /// A message with the line, the key and the expected value.
    pub fn with_tasks(text: &str, tasks: &[(&str, Task)]) -> Result<Self, String> {
        Self::instead(text, Path::new("."), tasks)
    }

    fn instead(text: &str, directory: &Path, tasks: &[(&str, Task)]) -> Result<Self, String> {
        let file: FileTable = texts::parse(text)?;
        Self::from_table(&file, directory, tasks).map_err(|wrong| wrong.explain(text))
    }

    /// A scenario of an SSD alone.
    fn of_loads(file: &FileTable) -> Result<Self, Wrong> {
        if let Some(link) = &file.link {
            return Err(Wrong::at(link, "link", "expected no [link]: a [[load]] has no host and no network"));
        }
        if let Some(stream) = file.stream.first() {
            let why = "expected no [[stream]] beside a [[load]], which has no network";
            return Err(Wrong::at(stream, "stream", why));
        }
        let elsewhere = file.task.first().map(Spanned::span).or_else(|| Some(file.workload.first()?.span()));
        if let Some(span) = elsewhere {
            let why = "expected no [[task]] and no [[workload]] beside a [[load]], which has no host";
            return Err(Wrong { span, key: "load".into(), why: why.into() });
        }
        if let Some(load) = file.load.get(LOADS_MAX) {
            return Err(Wrong::at(load, "load", format!("expected {LOADS_MAX} loads at most")));
        }
        let mut ssd = file.ssd.parameters()?;
        let capacity = file.ssd.own_capacity(&mut ssd)?;
        let loads = file.load.iter().map(|load| load.get_ref().job(capacity)).collect::<Result<_, _>>()?;
        let setup = Setup { ssd, aged: file.ssd.aged()?, ..Setup::published(0) };
        let (tasks, workloads, faults, streams) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (seed, link, fabric) = (file.seed.unwrap_or(1), None, None);
        Ok(Self { seed, link, fabric, setup, tasks, workloads, loads, faults, streams })
    }

    fn from_table(file: &FileTable, directory: &Path, instead: &[(&str, Task)]) -> Result<Self, Wrong> {
        if !file.load.is_empty() && instead.is_empty() {
            return Self::of_loads(file);
        }
        let link = file.link.as_ref().map(Link::from_table).transpose()?;
        let is_own = instead.is_empty();
        let own = file.task.iter().map(task).collect::<Result<Vec<_>, _>>()?;
        let own_workloads = if instead.is_empty() { &file.workload[..] } else { &[] };
        let instead: Vec<_> = instead.iter().map(|(name, task)| ((*name).to_owned(), *task)).collect();
        let tasks = if instead.is_empty() { own } else { instead };
        let capacity = file.ssd.capacity()?;
        let mut workloads = Vec::new();
        let mut at_a_time = 0;
        for place in own_workloads {
            let workload = Workload::new(place, directory, capacity)?;
            at_a_time += workload.jobs.iter().map(|job| u64::from(job.depth)).sum::<u64>();
            if at_a_time > UNDER_WAY_MAX {
                let why = format!("expected {UNDER_WAY_MAX} commands at a time at most in all workloads");
                return Err(Wrong::at(place, "iodepth", why));
            }
            workloads.push(workload);
        }
        if let Some(first) = file.fault.first().filter(|_| link.is_none()) {
            return Err(Wrong::at(first, "fault", "expected a [link] that it can happen to"));
        }
        let deepest = tasks.iter().map(|(_, task)| match task {
            Task::Commands { depth, .. } => u64::from(*depth),
            Task::ConfigReads { .. } => 1,
        });
        let deepest = deepest.chain([at_a_time]).max().unwrap_or(1);
        let entries = if deepest <= 1 { 4 } else { (deepest + 1).next_power_of_two().max(128) };
        let jobs: Vec<Job> = workloads.iter().flat_map(|workload| workload.jobs.clone()).collect();
        let setup = Setup {
            seed: 0,
            host: file.host.parameters()?,
            ssd: file.ssd.parameters()?,
            link: file.pcie.link()?,
            payload_size: file.pcie.payload_size()?,
            read_request_size: file.pcie.read_request_size()?,
            queue_entries: u32::try_from(entries).expect("the depths are limited"),
            rings_for_each: tasks.iter().any(|(_, task)| matches!(task, Task::Commands { depth: 1, .. })),
            timeout: file.host.timeout()?,
            data_bytes: Setup::DATA_BYTES.max(test_bench::data_bytes(&jobs)),
            namespace_bytes: capacity,
            pipeline: file.switch.pipeline.map_or(PIPELINE, |Text(time)| time),
            lookahead: file.switch.lookahead,
            aged: file.ssd.aged()?,
        };
        let faults = file.fault.iter().map(fault).collect::<Result<_, _>>()?;
        // Tasks that stand in for those of the file are those of a switch.
        let fabric = if is_own { of_fabric(file, link.as_ref(), capacity)? } else { None };
        let (seed, loads, streams) = (file.seed.unwrap_or(1), Vec::new(), Vec::new());
        let mut scenario = Self { seed, link, fabric, setup, tasks, workloads, loads, faults, streams };
        if is_own {
            let names = scenario.result_names();
            scenario.streams = streams::streams(&file.stream, scenario.link.as_ref(), &names)?;
        }
        Ok(scenario)
    }

    /// Turns the switch's lookahead on or off, regardless of the file.
    pub const fn look_ahead(&mut self, on: bool) {
        self.setup.lookahead = on;
    }

    /// The scenario's machines, switched off.
    pub(crate) fn bench(&self, seed: u64) -> TestBench {
        let setup = Setup { seed, ..self.setup.clone() };
        let paths = self.link.as_ref().zip(self.paths(seed));
        let network = paths.map(|(link, paths)| Network::new(*link.config(), paths));
        let mut bench = TestBench::new(&setup, network);
        bench.disturb(&self.faults, &Rng::from_seed(seed).fork("faults"));
        bench
    }

    /// The host's tasks with their names, in the order in which they run.
    pub(crate) fn tasks(&self) -> &[(String, Task)] {
        &self.tasks
    }

    /// The names that the results of the scenario may have: those of its tasks and streams, and
    /// those of its workloads and loads with a kind of command behind each.
    pub fn result_names(&self) -> Vec<String> {
        let of = |name: &str, kinds: &[Kind]| {
            kinds.iter().map(|kind| format!("{name} {}", kind.name())).collect::<Vec<_>>()
        };
        let tasks = self.tasks.iter().map(|(name, _)| name.clone());
        let workloads = self.workloads.iter().flat_map(|workload| of(&workload.name, &Kind::ALL));
        let loads = self.loads.iter().flat_map(|(name, _)| of(name, &[Kind::Read, Kind::Write]));
        let streams = self.streams.iter().map(|stream| stream.name().to_owned());
        tasks.chain(workloads).chain(loads).chain(streams).collect()
    }

    /// Plays the scenario; `trace` keeps the packets that pass the root port's link.
    ///
    /// # Errors
    /// The part that did not come up or did not end, as a sentence.
    pub fn play(&self, seed: u64, trace: bool) -> Result<Played, String> {
        self.play_with(seed, trace, |_| ())
    }

    /// Plays the scenario, and shows `watcher` each packet on the root port's link from power-up
    /// on, as [`TestBench::watch`] has it.
    ///
    /// # Errors
    /// The part that did not come up or did not end, as a sentence.
    pub fn play_watched(&self, seed: u64, watcher: impl Watcher<Port> + 'static) -> Result<Played, String> {
        self.play_with(seed, true, |bench| bench.watch().add(watcher))
    }

    fn play_with(
        &self,
        seed: u64,
        trace: bool,
        prepare: impl FnOnce(&mut TestBench),
    ) -> Result<Played, String> {
        if self.fabric.is_some() {
            if trace {
                return Err("a [fabric] has no root port's link that a trace could show".to_owned());
            }
            return self.play_fabric(seed);
        }
        if !self.loads.is_empty() {
            if trace {
                return Err("a [[load]] has no packets that a trace could show".to_owned());
            }
            return Ok(self.play_loads(seed, |_| ()));
        }
        if self.is_streams_alone() {
            if trace {
                return Err("a [[stream]] alone has no root port's link that a trace could show".to_owned());
            }
            return self.play_streams(seed);
        }
        let mut bench = self.bench(seed);
        prepare(&mut bench);
        let boot = bench.boot()?;
        self.measure_streams(&mut bench);
        let mut tasks = Vec::new();
        for (name, task) in &self.tasks {
            bench.analyse(trace);
            let outcome = bench.run(*task, LIMIT).ok_or_else(|| format!("task {name} does not end"))?;
            let seen = bench.analyse(false);
            let kind = match task {
                Task::Commands { kind, .. } => Some(*kind),
                Task::ConfigReads { .. } => None,
            };
            tasks.push(Done { name: name.clone(), kind, outcome, seen });
        }
        let seen = self.play_workloads(&mut bench, trace, &mut tasks)?;
        self.ended(&mut bench, Played { boot, tasks, seen, ..Played::default() })
    }

    /// Plays the scenario without a trace, and returns the times of all reads and writes. The time
    /// counts from the beginning of the first task, workload or load.
    ///
    /// # Errors
    /// The part that did not come up or did not end, as a sentence.
    pub fn timeline(&self, seed: u64) -> Result<(Played, Timeline), String> {
        let mut timeline = Timeline::default();
        if self.is_streams_alone() {
            return Err("a [[stream]] has no reads and writes that a time line could show".to_owned());
        }
        if self.loads.is_empty() {
            let played = self.play(seed, false)?;
            timeline.add_all(&played.tasks);
            return Ok((played, timeline));
        }
        let played = self.play_loads(seed, |done| {
            timeline.add(done.is_read, done.at, done.at - done.due, done.bytes);
        });
        Ok((played, timeline))
    }

    /// The scenario's host and controller of NVMe over Fabrics, switched off; `None` if the
    /// scenario has none.
    pub(crate) fn fabric_bench(&self, seed: u64) -> Option<FabricBench> {
        let setup = fabric_bench::Setup { seed, ..self.fabric.clone()? };
        Some(FabricBench::new(&setup, self.paths(seed)?))
    }

    fn play_fabric(&self, seed: u64) -> Result<Played, String> {
        let mut bench = self.fabric_bench(seed).ok_or("there is no [fabric]")?;
        let boot = bench.boot()?;
        self.measure_streams(&mut bench);
        let mut tasks = Vec::new();
        for (name, task) in &self.tasks {
            let Task::Commands { kind, .. } = task else { continue };
            let outcome = bench.run(*task, LIMIT).ok_or_else(|| format!("task {name} does not end"))?;
            tasks.push(Done { name: name.clone(), kind: Some(*kind), outcome, seen: Vec::new() });
        }
        self.ended(&mut bench, Played { boot, tasks, ..Played::default() })
    }

    fn play_loads(&self, seed: u64, mut report: impl FnMut(&jobs::Done)) -> Played {
        let rng = Rng::from_seed(seed);
        let mut ssd = self.setup.ssd(rng.fork("ssd"));
        let all: Vec<_> = self.loads.iter().map(|(_, job)| *job).collect();
        let mut outcomes = vec![[Outcome::default(), Outcome::default()]; all.len()];
        let (mut events, mut digest) = (0, sim::Digest::default());
        jobs::run(&mut ssd, &all, Instant::ZERO, &rng, |done| {
            let outcome = &mut outcomes[done.job][usize::from(!done.is_read)];
            outcome.numbers.push(events);
            outcome.times.push(done.at - done.due);
            outcome.bytes += done.bytes;
            outcome.ended = outcome.ended.max(done.at);
            events += 1;
            digest.word(done.at.as_nanos());
            report(&done);
        });
        let mut tasks = Vec::new();
        for ((name, _), both) in self.loads.iter().zip(outcomes) {
            for (kind, outcome) in [Kind::Read, Kind::Write].into_iter().zip(both) {
                if !outcome.times.is_empty() {
                    let name = format!("{name} {}", kind.name());
                    tasks.push(Done { name, kind: Some(kind), outcome, seen: Vec::new() });
                }
            }
        }
        Played { tasks, events, digest: digest.value(), ..Played::default() }
    }

    /// Plays the workloads side by side, and returns the packets that passed the root port's link.
    fn play_workloads(
        &self,
        bench: &mut TestBench,
        trace: bool,
        done: &mut Vec<Done>,
    ) -> Result<Vec<Seen>, String> {
        if self.workloads.is_empty() {
            return Ok(Vec::new());
        }
        bench.analyse(trace);
        let jobs = self.workloads.iter().flat_map(|workload| workload.jobs.clone()).collect();
        let outcomes = bench.run_jobs(jobs, LIMIT).ok_or("the workloads do not end")?;
        let mut outcomes = outcomes.into_iter();
        for workload in &self.workloads {
            let mut kinds = Kind::ALL.map(|kind| (kind, None::<Outcome>));
            for outcome in outcomes.by_ref().take(workload.jobs.len()) {
                for ((_, sum), outcome) in kinds.iter_mut().zip(outcome) {
                    match sum {
                        Some(sum) => sum.add(outcome),
                        None => *sum = Some(outcome),
                    }
                }
            }
            for (kind, outcome) in kinds {
                if let Some(outcome) =
                    outcome.filter(|outcome| outcome.failed > 0 || !outcome.times.is_empty())
                {
                    let name = format!("{} {}", workload.name, kind.name());
                    done.push(Done { name, kind: Some(kind), outcome, seen: Vec::new() });
                }
            }
        }
        Ok(bench.analyse(false))
    }
}

/// The bench of `[fabric]`, if the file has one.
fn of_fabric(
    file: &FileTable,
    link: Option<&Link>,
    capacity: u64,
) -> Result<Option<fabric_bench::Setup>, Wrong> {
    let Some(place) = &file.fabric else { return Ok(None) };
    let refuse = |why: &str| Err(Wrong::at(place, "fabric", why));
    let Some(link) = link else { return refuse("expected a [link] that carries the fabric") };
    if file.host != HostTable::default() || file.switch != SwitchTable::default() {
        return refuse("expected no [host] and no [switch] beside [fabric], which has its own times");
    }
    if let Some(workload) = file.workload.first() {
        return Err(Wrong::at(workload, "workload", "expected [[task]]s: a [fabric] has no workloads"));
    }
    if let Some(fault) = file.fault.first() {
        let why = "expected [[link.fault]]: a [fabric] has no switch whose ends could fail";
        return Err(Wrong::at(fault, "fault", why));
    }
    for task in &file.task {
        let kind = &task.get_ref().kind;
        if kind.get_ref() == "config-read" {
            let why = "expected 'read' or 'write': a [fabric] has no configuration space";
            return Err(Wrong::at(kind, "kind", why));
        }
    }
    let setup = place.get_ref().setup(link, file.ssd.parameters()?, &file.pcie, capacity)?;
    let deepest = file.task.iter().filter_map(|task| task.get_ref().depth.as_ref());
    if let Some(depth) = deepest.into_iter().find(|depth| *depth.get_ref() > u32::from(setup.queue_size)) {
        let why = format!("expected {} at most, the commands of the queue", setup.queue_size);
        return Err(Wrong::at(depth, "depth", why));
    }
    Ok(Some(setup))
}

fn task(place: &Spanned<TaskTable>) -> Result<(String, Task), Wrong> {
    let table = place.get_ref();
    let kinds = [("config-read", None), ("read", Some(Kind::Read)), ("write", Some(Kind::Write))];
    let kind = one_of(table.kind.get_ref(), &kinds).map_err(|why| Wrong::at(&table.kind, "kind", why))?;
    let count = match &table.count {
        None => 1_000,
        Some(count) if (1..=COUNT_MAX).contains(count.get_ref()) => *count.get_ref(),
        Some(count) => return Err(Wrong::at(count, "count", format!("expected 1 to {COUNT_MAX}"))),
    };
    let gap = table.gap.map_or(Nanos::from_micros(100), |Text(gap)| gap);
    let name = table.name.clone().unwrap_or_else(|| table.kind.get_ref().clone());
    let Some(kind) = kind else {
        if let Some(size) = &table.size {
            return Err(Wrong::at(size, "size", "a configuration read has 4 bytes; expected no size"));
        }
        return Ok((name, Task::ConfigReads { count, gap }));
    };
    let bytes = match &table.size {
        None => 4096,
        Some(size) => {
            let bytes = size.get_ref().0.0;
            u32::try_from(bytes)
                .ok()
                .filter(|_| SIZE_RANGE.contains(&bytes) && bytes % 512 == 0)
                .ok_or_else(|| Wrong::at(size, "size", "expected 512B to 128KiB, a multiple of 512B"))?
        }
    };
    let depth = match &table.depth {
        None => 1,
        Some(depth) if DEPTH_RANGE.contains(depth.get_ref()) => *depth.get_ref(),
        Some(depth) => return Err(Wrong::at(depth, "depth", "expected 1 to 64")),
    };
    Ok((name, Task::Commands { kind, count, bytes, depth, gap, random: !table.sequential }))
}

mod phases;
mod streams;
#[cfg(test)]
mod tests;
