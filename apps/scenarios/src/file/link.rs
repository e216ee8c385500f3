//! The path between two ends: the `[link]` of a file.

use std::path::Path as FilePath;

use engine::{Instant, Nanos, Rng};
use network_models::faults::{Behaviour, Flaps, Jitter};
use network_models::network::{Config, Network};
use network_models::{Chance, Class, Path, Rate};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::Wrong;
use super::hop::{self, HopModel, HopTable};
use super::radio::{CellTable, CoreTable, Radio};
use super::stack::{StackTable, stack};
use super::text::{Bytes, Text, one_of};
use super::wifi::Media;

/// Payload in bytes of the longest frame: from RFC 791's least to a jumbo frame's.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=9216;
/// The least mean time between cuts, and the least mean length of one: each is an event.
const FLAP_MIN: Nanos = Nanos::from_micros(1);
/// The largest number of hops of a direction.
const HOPS_MAX: usize = 64;

/// A link as a file describes it.
#[derive(Clone, Debug)]
pub struct Link {
    config: Config,
    /// The hops from near to far, and those back.
    directions: [Vec<HopModel>; 2],
}

impl Link {
    /// Reads the link in the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, or a value is not allowed; the message names the line and the
    /// key.
    pub fn read(path: &FilePath) -> Result<Self, String> {
        Self::parse(&texts::read(path, texts::FILE_MAX).map_err(|error| error.to_string())?)
    }

    /// Reads the link in `text`, the contents of a link's file or of a scenario.
    ///
    /// # Errors
    /// A message with the line, the key and the expected value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: FileTable = texts::parse(text)?;
        Self::from_table(&file.link).map_err(|wrong| wrong.explain(text))
    }

    /// Reads the link from `table` of a larger file.
    ///
    /// # Errors
    /// The value that is not allowed, and its place.
    pub fn from_table(table: &Spanned<LinkTable>) -> Result<Self, Wrong> {
        let both = table.get_ref();
        let mtu = match &both.mtu {
            None => Config::default().mtu,
            Some(mtu) if MTU_RANGE.contains(mtu.get_ref()) => *mtu.get_ref(),
            Some(mtu) => {
                let why = format!("expected {} to {} bytes", MTU_RANGE.start(), MTU_RANGE.end());
                return Err(Wrong::at(mtu, "mtu", format!("{why}, not {}", mtu.get_ref())));
            }
        };
        let tcp = stack(both.tcp.as_ref(), both.stack.as_ref())?;
        let mut directions = [Vec::new(), Vec::new()];
        let mut line = [None, None];
        for (index, own) in [&both.there, &both.back].into_iter().enumerate() {
            let way = match own {
                None => Spanned::new(table.span(), both.clone()),
                Some(own) => Spanned::new(own.span(), over((**own.get_ref()).clone(), both, own)?),
            };
            directions[index] = hops(&way, Surroundings { mtu, radio: Radio::CAMPUS, within: false })?;
            line[index] = directions[index].iter().find_map(HopModel::rate);
        }
        let class = match &both.class {
            None => Class::BEST_EFFORT,
            Some(class) => Class::new(*class.get_ref()).ok_or_else(|| {
                Wrong::at(class, "class", format!("expected 0 to 7, not {}", class.get_ref()))
            })?,
        };
        let config = Config { tcp: [tcp; 2], mtu, class, line };
        Ok(Self { config, directions })
    }

    /// Whether a hop of the link is InfiniBand.
    pub fn is_infiniband(&self) -> bool {
        self.directions.iter().flatten().any(HopModel::is_infiniband)
    }

    /// The cycles of all gates (802.1Qbv) that are closed at times for the link's traffic.
    pub fn gate_cycles(&self) -> Vec<Nanos> {
        let hops = self.directions.iter().flatten();
        hops.flat_map(|hop| hop.gate_cycles(self.config.class)).collect()
    }

    /// The settings of the link besides its paths.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The paths from near to far and back; everything random in them follows from `rng`.
    pub fn paths(&self, rng: &Rng) -> [Path; 2] {
        let mut media = Media::default();
        let mut path = |index: usize, name: &str| {
            let rng = rng.fork(name);
            hop::path(&self.directions[index], &rng, &mut media)
        };
        [path(0, "there"), path(1, "back")]
    }

    /// A network with the settings and paths of the link.
    pub fn network(&self, rng: &Rng) -> Network {
        Network::new(self.config, self.paths(rng))
    }
}

/// The keys of a file. The tables of a scenario are allowed and ignored, so that a scenario's file
/// can serve as a link's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    link: Spanned<LinkTable>,
    #[serde(default, rename = "seed")]
    _seed: IgnoredAny,
    #[serde(default, rename = "host")]
    _host: IgnoredAny,
    #[serde(default, rename = "ssd")]
    _ssd: IgnoredAny,
    #[serde(default, rename = "switch")]
    _switch: IgnoredAny,
    #[serde(default, rename = "pcie")]
    _pcie: IgnoredAny,
    #[serde(default, rename = "fabric")]
    _fabric: IgnoredAny,
    #[serde(default, rename = "task")]
    _task: IgnoredAny,
    #[serde(default, rename = "workload")]
    _workload: IgnoredAny,
    #[serde(default, rename = "fault")]
    _fault: IgnoredAny,
    #[serde(default, rename = "stream")]
    _stream: IgnoredAny,
}

/// `[link]`, and the tables of one direction in it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkTable {
    mtu: Option<Spanned<u32>>,
    class: Option<Spanned<u8>>,
    tcp: Option<Spanned<String>>,
    stack: Option<Spanned<StackTable>>,
    there: Option<Spanned<Box<LinkTable>>>,
    back: Option<Spanned<Box<LinkTable>>>,
    latency: Option<Text<Nanos>>,
    rate: Option<Text<Rate>>,
    queue: Option<Text<Bytes>>,
    loss: Option<Text<Chance>>,
    corruption: Option<Text<Chance>>,
    duplication: Option<Text<Chance>>,
    reorder: Option<Text<Chance>>,
    reorder_by: Option<Text<Nanos>>,
    jitter: Option<Spanned<Text<Nanos>>>,
    jitter_shape: Option<Spanned<String>>,
    jitter_deviation: Option<Text<Nanos>>,
    flaps: Option<Spanned<FlapsTable>>,
    fault: Vec<Spanned<FaultTable>>,
    cell: Option<Spanned<CellTable>>,
    core: Option<Spanned<CoreTable>>,
    hop: Vec<Spanned<HopTable>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlapsTable {
    up: Text<Nanos>,
    down: Text<Nanos>,
}

/// `[[link.fault]]`: how the link behaves differently from one time to another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultTable {
    from: Text<Nanos>,
    to: Text<Nanos>,
    #[serde(default)]
    down: bool,
    loss: Option<Text<Chance>>,
    corruption: Option<Text<Chance>>,
    delay: Option<Text<Nanos>>,
    rate: Option<Text<Rate>>,
}

/// Settings that hold for all hops of a direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    /// Payload in bytes of the longest frame.
    pub(super) mtu: u32,
    /// The cell and the core network of hops that do not describe their own.
    pub(super) radio: Radio,
    /// Whether the hops belong to one of several ways.
    pub(super) within: bool,
}

/// Refuses keys that hold for both directions in the table of one direction, or of one of several
/// ways.
pub(super) fn is_of_one_direction<T>(own: &LinkTable, place: &Spanned<T>) -> Result<(), Wrong> {
    let misplaced = [
        ("mtu", own.mtu.is_some()),
        ("class", own.class.is_some()),
        ("tcp", own.tcp.is_some()),
        ("stack", own.stack.is_some()),
        ("there", own.there.is_some()),
        ("back", own.back.is_some()),
    ];
    if let Some((key, _)) = misplaced.into_iter().find(|(_, given)| *given) {
        return Err(Wrong::at(place, key, "expected in [link], not in one direction"));
    }
    Ok(())
}

/// The settings of one direction: its own, and those of both directions where it gives none.
fn over(own: LinkTable, both: &LinkTable, place: &Spanned<Box<LinkTable>>) -> Result<LinkTable, Wrong> {
    is_of_one_direction(&own, place)?;
    let both = both.clone();
    Ok(LinkTable {
        latency: own.latency.or(both.latency),
        rate: own.rate.or(both.rate),
        queue: own.queue.or(both.queue),
        loss: own.loss.or(both.loss),
        corruption: own.corruption.or(both.corruption),
        duplication: own.duplication.or(both.duplication),
        reorder: own.reorder.or(both.reorder),
        reorder_by: own.reorder_by.or(both.reorder_by),
        jitter: own.jitter.or(both.jitter),
        jitter_shape: own.jitter_shape.or(both.jitter_shape),
        jitter_deviation: own.jitter_deviation.or(both.jitter_deviation),
        flaps: own.flaps.or(both.flaps),
        fault: if own.fault.is_empty() { both.fault } else { own.fault },
        cell: own.cell.or(both.cell),
        core: own.core.or(both.core),
        hop: if own.hop.is_empty() { both.hop } else { own.hop },
        ..LinkTable::default()
    })
}

/// The hops of a direction.
pub(super) fn hops(table: &Spanned<LinkTable>, around: Surroundings) -> Result<Vec<HopModel>, Wrong> {
    let way = table.get_ref();
    let radio = around.radio.with(way.cell.as_ref(), way.core.as_ref())?;
    let around = Surroundings { radio, ..around };
    let mut hops = Vec::new();
    if way.latency.is_some() || way.rate.is_some() {
        let latency = way.latency.map_or(Nanos::ZERO, |Text(latency)| latency);
        let (rate, queue) = (way.rate.map(|Text(rate)| rate), way.queue.map(|Text(Bytes(queue))| queue));
        hops.push(HopModel::Wire { latency, rate, queue });
    }
    for hop in &way.hop {
        let model = hop::model(hop, around)?;
        hop::append(&mut hops, model);
    }
    if hops.is_empty() {
        return Err(Wrong::at(table, "link", "expected latency, rate or [[link.hop]]"));
    }
    if hops.len() > HOPS_MAX {
        return Err(Wrong::at(table, "hop", format!("expected {HOPS_MAX} hops at most, not {}", hops.len())));
    }
    let behaviour = behaviour(way)?;
    let schedule = schedule(way, behaviour)?;
    let flaps = way.flaps.as_ref().map(flaps).transpose()?;
    if behaviour != Behaviour::default() || !schedule.is_empty() || flaps.is_some() {
        hops.push(HopModel::Faults { behaviour, schedule, flaps });
    }
    Ok(hops)
}

fn flaps(table: &Spanned<FlapsTable>) -> Result<Flaps, Wrong> {
    let FlapsTable { up: Text(up), down: Text(down) } = *table.get_ref();
    if up.min(down) < FLAP_MIN {
        let why = format!("expected up and down of {FLAP_MIN} at least, not {}", up.min(down));
        return Err(Wrong::at(table, "flaps", why));
    }
    Ok(Flaps { up, down })
}

fn behaviour(way: &LinkTable) -> Result<Behaviour, Wrong> {
    let chance = |chance: Option<Text<Chance>>| chance.map_or(Chance::NEVER, |Text(chance)| chance);
    let shape = match &way.jitter_shape {
        None => false,
        Some(shape) => one_of(shape.get_ref(), &[("uniform", false), ("exponential", true)])
            .map_err(|why| Wrong::at(shape, "jitter_shape", why))?,
    };
    let mean = way.jitter.as_ref().map(|jitter| jitter.get_ref().0);
    let jitter = match (mean, way.jitter_deviation) {
        (None, _) => Jitter::None,
        (Some(mean), Some(Text(deviation))) => Jitter::Normal { mean, deviation },
        (Some(mean), None) if shape => Jitter::Exponential(mean),
        (Some(longest), None) => Jitter::Uniform(longest),
    };
    Ok(Behaviour {
        loss: chance(way.loss),
        corruption: chance(way.corruption),
        duplication: chance(way.duplication),
        reorder: chance(way.reorder),
        reorder_by: way.reorder_by.map_or(Nanos::ZERO, |Text(by)| by),
        jitter,
        ..Behaviour::default()
    })
}

/// The times at which the behaviour changes, and the new behaviours.
fn schedule(way: &LinkTable, usual: Behaviour) -> Result<Vec<(Instant, Behaviour)>, Wrong> {
    let (mut changes, mut before) = (Vec::new(), Nanos::ZERO);
    for fault in &way.fault {
        let table = fault.get_ref();
        let (Text(from), Text(to)) = (table.from, table.to);
        if from < before || to <= from {
            let why = format!("{from} to {to} is no time, or not behind the fault before it");
            return Err(Wrong::at(fault, "fault", why));
        }
        before = to;
        let changed = Behaviour {
            down: table.down,
            loss: table.loss.map_or(usual.loss, |Text(loss)| loss),
            corruption: table.corruption.map_or(usual.corruption, |Text(corruption)| corruption),
            delay: table.delay.map_or(usual.delay, |Text(delay)| delay),
            rate: table.rate.map_or(usual.rate, |Text(rate)| Some(rate)),
            ..usual
        };
        changes.push((Instant::ZERO + from, changed));
        changes.push((Instant::ZERO + to, usual));
    }
    Ok(changes)
}
