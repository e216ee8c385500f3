//! What is to be simulated: a host, an SSD, what joins them, and what the host does.

use engine::{Nanos, Rng};
use pcie::requester::CompletionTimeout;
use serde::Deserialize;
use sim::models::{host, pcie as pcie_model, ssd};
use toml::Spanned;

use super::Wrong;
use super::link::{Link, LinkTable};
use super::text::{Bytes, Text, one_of};
use crate::published::PIPELINE;
use crate::rig::{Kind, Outcome, Rig, Seen, Setup, Task};

/// Operations of a task at most.
const COUNT_MAX: u64 = 10_000_000;
/// Bytes of a command.
const SIZE_RANGE: std::ops::RangeInclusive<u64> = 512..=128 << 10;
/// Commands at a time.
const DEPTH_RANGE: std::ops::RangeInclusive<u32> = 1..=64;
/// How long a task may take, in its own time.
pub(crate) const LIMIT: Nanos = Nanos::from_secs(1_000_000);

/// A scenario as a file describes it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Decides what is random, unless something else does.
    pub seed: u64,
    link: Option<Link>,
    setup: Setup,
    tasks: Vec<(String, Task)>,
}

/// What came of a task.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its name.
    pub name: String,
    /// What was measured.
    pub outcome: Outcome,
    /// What passed the root port's link, if that was wanted.
    pub seen: Vec<Seen>,
}

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Played {
    /// How long the host took to bring the device up.
    pub boot: Nanos,
    /// Its tasks, in order.
    pub tasks: Vec<Done>,
    /// Events of the world.
    pub events: u64,
    /// A fingerprint of all that happened.
    pub digest: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    #[serde(default)]
    seed: Option<u64>,
    link: Option<Spanned<LinkTable>>,
    #[serde(default)]
    ssd: SsdTable,
    #[serde(default)]
    switch: SwitchTable,
    #[serde(default)]
    pcie: PcieTable,
    #[serde(default)]
    task: Vec<Spanned<TaskTable>>,
}

/// `[ssd]`: a known model, and what is different.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SsdTable {
    model: Option<Spanned<String>>,
    firmware: Option<Text<Nanos>>,
    array_read: Option<Text<Nanos>>,
    array_spread: Option<Text<Nanos>>,
    completion: Option<Text<Nanos>>,
}

/// `[switch]`: the distributed switch, where there is a `[link]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SwitchTable {
    pipeline: Option<Text<Nanos>>,
}

/// `[pcie]`: both PCIe links.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PcieTable {
    generation: Option<Spanned<u8>>,
    lanes: Option<Spanned<u8>>,
    payload: Option<Spanned<u32>>,
    read_request: Option<Spanned<u32>>,
}

/// `[[task]]`: what the host does, one after the other.
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
    /// The scenario that `text` describes.
    ///
    /// # Errors
    /// What can't be, with its line, its key and what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scenario = Self::with_tasks(text, &[])?;
        if scenario.tasks.is_empty() {
            return Err("missing field `task`: expected a [[task]] at least".to_owned());
        }
        Ok(scenario)
    }

    /// What `text` describes, a scenario or only a link, with these named `tasks` instead of its own if there are any.
    ///
    /// # Errors
    /// What can't be, with its line, its key and what was expected.
    pub fn with_tasks(text: &str, tasks: &[(&str, Task)]) -> Result<Self, String> {
        let file: FileTable = toml::from_str(text).map_err(|error| error.to_string())?;
        Self::from_table(&file, tasks).map_err(|wrong| wrong.explain(text))
    }

    fn from_table(file: &FileTable, instead: &[(&str, Task)]) -> Result<Self, Wrong> {
        let link = file.link.as_ref().map(Link::from_table).transpose()?;
        let own = file.task.iter().map(task).collect::<Result<Vec<_>, _>>()?;
        let instead: Vec<_> = instead.iter().map(|(name, task)| ((*name).to_owned(), *task)).collect();
        let tasks = if instead.is_empty() { own } else { instead };
        let deepest = tasks.iter().map(|(_, task)| match task {
            Task::Commands { depth, .. } => *depth,
            Task::ConfigReads { .. } => 1,
        });
        let deepest = deepest.max().unwrap_or(1);
        let setup = Setup {
            seed: 0,
            host: host::Parameters::RYZEN_3200G,
            ssd: ssd(&file.ssd)?,
            link: pcie_link(&file.pcie)?,
            payload_size: power(file.pcie.payload.as_ref(), "payload", 256)?,
            read_request_size: power(file.pcie.read_request.as_ref(), "read_request", 256)?,
            // With 4 entries each completion's doorbell is rung, which one command at a time is measured by.
            queue_entries: if deepest == 1 { 4 } else { 128 },
            timeout: CompletionTimeout::D2,
            pipeline: file.switch.pipeline.map_or(PIPELINE, |Text(time)| time),
            lookahead: false,
        };
        Ok(Self { seed: file.seed.unwrap_or(1), link, setup, tasks })
    }

    /// Its machines, switched off.
    pub(crate) fn rig(&self, seed: u64) -> Rig {
        let setup = Setup { seed, ..self.setup.clone() };
        let network = self.link.as_ref().map(|link| link.network(&Rng::from_seed(seed).fork("link")));
        Rig::new(&setup, network)
    }

    /// What the host does, by name, one after the other.
    pub(crate) fn tasks(&self) -> &[(String, Task)] {
        &self.tasks
    }

    /// Plays it; `trace` keeps what passes the root port's link.
    ///
    /// # Errors
    /// What did not come up, or did not end.
    pub fn play(&self, seed: u64, trace: bool) -> Result<Played, String> {
        let mut rig = self.rig(seed);
        let boot = rig.boot()?;
        let mut tasks = Vec::new();
        for (name, task) in &self.tasks {
            rig.analyse(trace);
            let outcome = rig.run(*task, LIMIT).ok_or_else(|| format!("task {name} does not end"))?;
            let seen = rig.analyse(false);
            tasks.push(Done { name: name.clone(), outcome, seen });
        }
        Ok(Played { boot, tasks, events: rig.events(), digest: rig.digest() })
    }
}

fn ssd(table: &SsdTable) -> Result<ssd::Parameters, Wrong> {
    let mut parameters = match &table.model {
        None => ssd::Parameters::SAMSUNG_970_PRO,
        Some(name) => ssd::Parameters::named(name.get_ref()).ok_or_else(|| {
            let known: Vec<_> = ssd::Parameters::names().collect();
            Wrong::at(
                name,
                "model",
                format!("expected one of {}, not '{}'", known.join(", "), name.get_ref()),
            )
        })?,
    };
    let set = |value: &mut Nanos, new: Option<Text<Nanos>>| *value = new.map_or(*value, |Text(new)| new);
    set(&mut parameters.firmware, table.firmware);
    set(&mut parameters.array_read, table.array_read);
    set(&mut parameters.array_spread, table.array_spread);
    set(&mut parameters.completion, table.completion);
    Ok(parameters)
}

fn pcie_link(table: &PcieTable) -> Result<pcie_model::Link, Wrong> {
    let mut link = pcie_model::Link::GEN2_X4;
    if let Some(generation) = &table.generation {
        if !(1..=5).contains(generation.get_ref()) {
            return Err(Wrong::at(generation, "generation", "expected 1 to 5"));
        }
        link.generation = *generation.get_ref();
    }
    if let Some(lanes) = &table.lanes {
        if ![1, 2, 4, 8, 16].contains(lanes.get_ref()) {
            return Err(Wrong::at(lanes, "lanes", "expected 1, 2, 4, 8 or 16"));
        }
        link.lanes = *lanes.get_ref();
    }
    Ok(link)
}

/// A size that PCIe has registers for.
fn power(value: Option<&Spanned<u32>>, key: &str, usual: u32) -> Result<u32, Wrong> {
    match value {
        None => Ok(usual),
        Some(value) if [128, 256, 512].contains(value.get_ref()) => Ok(*value.get_ref()),
        Some(value) => Err(Wrong::at(value, key, "expected 128, 256 or 512")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_plays_the_same_and_a_mistake_is_told_with_its_line() {
        let text = "[link]\nlatency = \"1ms\"\nrate = \"1Gbit/s\"\n\n[[task]]\nkind = \"read\"\ncount = 20\n";
        let scenario = Scenario::parse(text).unwrap();
        let [one, other] = [1, 1].map(|seed| scenario.play(seed, true).unwrap());
        assert_eq!((one.digest, one.events), (other.digest, other.events));
        assert_eq!(one.tasks[0].outcome.times.len(), 20);
        assert!(one.tasks[0].outcome.times.iter().all(|time| *time > Nanos::from_millis(4)));
        assert_ne!(scenario.play(2, false).unwrap().digest, one.digest);
        let error = Scenario::parse(&text.replace("\"read\"", "\"erase\"")).unwrap_err();
        assert!(error.starts_with("line 6, kind: expected 'config-read'"), "{error}");
    }

    #[test]
    fn a_link_is_played_with_tasks_of_the_callers() {
        let link = "[link]\nlatency = \"1ms\"\n";
        assert!(Scenario::parse(link).unwrap_err().contains("[[task]]"));
        let reads = Task::ConfigReads { count: 10, gap: Nanos::ZERO };
        let played = Scenario::with_tasks(link, &[("reads", reads)]).unwrap().play(1, false).unwrap();
        assert_eq!((played.tasks.len(), played.tasks[0].name.as_str()), (1, "reads"));
        assert!(played.tasks[0].outcome.times.iter().all(|time| *time > Nanos::from_millis(2)));
    }
}
