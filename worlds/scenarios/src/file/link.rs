//! What is between two ends: the `[link]` of a file.

use std::path::Path as FilePath;

use engine::{Instant, Nanos, Rng};
use link::ethernet::medium::{Cable, Medium, PortLatency};
use link::ethernet::{Forwarding, Handover, Port, PortSettings};
use link::faults::{Behaviour, Faults, Flaps, Jitter};
use link::network::{Config, Network};
use link::nr5g::{Cell, Core, CoreSettings, Direction, Downlink, Uplink};
use link::tcp::{CongestionControl, Parameters};
use link::{AnyHop, Chance, Class, Path, Rate, Wire};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::Wrong;
use super::text::{Bytes, Millimetres, Text, one_of};
use super::tsn::{self, OthersTable, TsnTable};

/// Payload of the shortest and the longest frames: RFC 791's least, and a jumbo frame's.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=9216;
/// Bytes of a buffer of TCP.
const BUFFER_RANGE: std::ops::RangeInclusive<u32> = 4 << 10..=256 << 20;
/// Hops of a direction.
const HOPS_MAX: usize = 64;

/// A link as a file describes it.
#[derive(Clone, Debug)]
pub struct Link {
    config: Config,
    /// Near to far, and back.
    directions: [Vec<HopModel>; 2],
}

/// A hop before its random numbers are known.
#[derive(Clone, Debug)]
enum HopModel {
    Wire { latency: Nanos, rate: Option<Rate>, queue: Option<u64> },
    Port(Box<PortSettings>),
    Radio(Direction),
    Core,
    Faults { behaviour: Behaviour, schedule: Vec<(Instant, Behaviour)>, flaps: Option<Flaps> },
}

/// What a hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HopKind {
    Wire,
    Ethernet,
    Radio(Direction),
    Core,
}

impl HopModel {
    const fn rate(&self) -> Option<Rate> {
        match self {
            Self::Wire { rate, .. } => *rate,
            Self::Port(settings) => Some(settings.rate),
            Self::Faults { .. } | Self::Radio(_) | Self::Core => None,
        }
    }

    fn build(&self, rng: &Rng) -> AnyHop {
        match self {
            Self::Wire { latency, rate, queue } => {
                let wire = Wire::new(*latency, *rate);
                AnyHop::from(queue.map_or(wire.clone(), |queue| wire.with_queue(queue)))
            }
            Self::Port(settings) => AnyHop::from(Port::new((**settings).clone(), rng)),
            Self::Radio(Direction::Up) => AnyHop::from(Uplink::new(Cell::CAMPUS, rng.fork("cell"))),
            Self::Radio(Direction::Down) => AnyHop::from(Downlink::new(Cell::CAMPUS, rng.fork("cell"))),
            Self::Core => AnyHop::from(Core::new(CoreSettings::CAMPUS, rng.fork("core"))),
            Self::Faults { behaviour, schedule, flaps } => {
                let faults = Faults::new(*behaviour, rng.fork("faults")).with_schedule(schedule.clone());
                AnyHop::from(flaps.map_or(faults.clone(), |flaps| faults.with_flaps(flaps)))
            }
        }
    }
}

impl Link {
    /// The link of the file at `path`.
    ///
    /// # Errors
    /// When it can't be read, or says what can't be, with the line and the key.
    pub fn read(path: &FilePath) -> Result<Self, String> {
        Self::parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?)
    }

    /// The link that `text` describes, a file of its own or a scenario.
    ///
    /// # Errors
    /// What can't be, with its line, its key and what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: FileTable = toml::from_str(text).map_err(|error| error.to_string())?;
        Self::from_table(&file.link).map_err(|wrong| wrong.explain(text))
    }

    /// The same from a table of a larger file.
    ///
    /// # Errors
    /// What can't be, and where.
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
        let tcp = stack(both)?;
        let mut directions = [Vec::new(), Vec::new()];
        let mut line = [None, None];
        for (index, own) in [&both.there, &both.back].into_iter().enumerate() {
            let way = match own {
                None => Spanned::new(table.span(), both.clone()),
                Some(own) => Spanned::new(own.span(), over((**own.get_ref()).clone(), both, own)?),
            };
            directions[index] = hops(&way, mtu)?;
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

    /// What it is like besides its paths.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The same with another stack at each side.
    #[must_use]
    pub const fn with_tcp(mut self, tcp: [Parameters; 2]) -> Self {
        self.config.tcp = tcp;
        self
    }

    /// Its paths, near to far and back; everything random in them follows from `rng`.
    pub fn paths(&self, rng: &Rng) -> [Path; 2] {
        let path = |index: usize, name: &str| {
            let rng = rng.fork(name);
            let hops = self.directions[index].iter().enumerate();
            Path::new(hops.map(|(place, hop)| hop.build(&rng.fork(&format!("hop {place}")))))
        };
        [path(0, "there"), path(1, "back")]
    }

    /// A network of it.
    pub fn network(&self, rng: &Rng) -> Network {
        Network::new(self.config, self.paths(rng))
    }
}

/// What a file may say. A scenario's link is a link: what else a scenario has is passed over.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    link: Spanned<LinkTable>,
    #[serde(default, rename = "seed")]
    _seed: IgnoredAny,
    #[serde(default, rename = "ssd")]
    _ssd: IgnoredAny,
    #[serde(default, rename = "switch")]
    _switch: IgnoredAny,
    #[serde(default, rename = "pcie")]
    _pcie: IgnoredAny,
    #[serde(default, rename = "task")]
    _task: IgnoredAny,
}

/// `[link]`, and what is different in one direction.
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
    flaps: Option<FlapsTable>,
    fault: Vec<Spanned<FaultTable>>,
    hop: Vec<Spanned<HopTable>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlapsTable {
    up: Text<Nanos>,
    down: Text<Nanos>,
}

/// `[[link.fault]]`: what is different from one time to another.
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

/// `[link.stack]`: what is different from the stack that `tcp` names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StackTable {
    rto_floor: Option<Text<Nanos>>,
    backlog: Option<Text<Nanos>>,
    nagle: Option<bool>,
    acknowledge_after: Option<Text<Nanos>>,
    acknowledge_segments: Option<u32>,
    selective_acknowledgement: Option<bool>,
    tail_loss_probe: Option<bool>,
    congestion: Option<Spanned<String>>,
    initial_window: Option<u32>,
    restart_after_idle: Option<bool>,
    send_buffer: Option<Spanned<Text<Bytes>>>,
    receive_buffer: Option<Spanned<Text<Bytes>>>,
}

/// `[[link.hop]]`: one of the hops of a direction, the first entered first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HopTable {
    kind: Spanned<String>,
    latency: Option<Text<Nanos>>,
    rate: Option<Text<Rate>>,
    queue: Option<Text<Bytes>>,
    cable: Option<Text<Millimetres>>,
    medium: Option<Spanned<String>>,
    processing: Option<Text<Nanos>>,
    /// Frames that each queue holds.
    queue_frames: Option<u32>,
    /// Whether the node sends a frame on when its header is there.
    #[serde(default)]
    cut_through: bool,
    tsn: Option<Spanned<TsnTable>>,
    #[serde(default)]
    others: Vec<Spanned<OthersTable>>,
}

/// What one direction says, and what holds both ways where it says nothing.
fn over(own: LinkTable, both: &LinkTable, place: &Spanned<Box<LinkTable>>) -> Result<LinkTable, Wrong> {
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
        hop: if own.hop.is_empty() { both.hop } else { own.hop },
        ..LinkTable::default()
    })
}

/// The hops of a direction.
fn hops(table: &Spanned<LinkTable>, mtu: u32) -> Result<Vec<HopModel>, Wrong> {
    let way = table.get_ref();
    let mut hops = Vec::new();
    if way.latency.is_some() || way.rate.is_some() {
        let latency = way.latency.map_or(Nanos::ZERO, |Text(latency)| latency);
        let (rate, queue) = (way.rate.map(|Text(rate)| rate), way.queue.map(|Text(Bytes(queue))| queue));
        hops.push(HopModel::Wire { latency, rate, queue });
    }
    for hop in &way.hop {
        let model = hop_model(hop, mtu)?;
        // What a cut-through switch needs to begin is all that its neighbour waits for.
        if let (Some(HopModel::Port(before)), HopModel::Port(port)) = (hops.last_mut(), &model)
            && port.forwarding == Forwarding::CutThrough
        {
            before.handover = Handover::Header;
        }
        hops.push(model);
    }
    if hops.is_empty() {
        return Err(Wrong::at(table, "link", "expected latency, rate or [[link.hop]]"));
    }
    if hops.len() > HOPS_MAX {
        return Err(Wrong::at(table, "hop", format!("expected {HOPS_MAX} hops at most, not {}", hops.len())));
    }
    let behaviour = behaviour(way)?;
    let schedule = schedule(way, behaviour)?;
    let flaps = way.flaps.as_ref().map(|table| Flaps { up: table.up.0, down: table.down.0 });
    if behaviour != Behaviour::default() || !schedule.is_empty() || flaps.is_some() {
        hops.push(HopModel::Faults { behaviour, schedule, flaps });
    }
    Ok(hops)
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

/// When the behaviour changes, and to what.
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

fn hop_model(hop: &Spanned<HopTable>, mtu: u32) -> Result<HopModel, Wrong> {
    let table = hop.get_ref();
    let kinds = [
        ("wire", HopKind::Wire),
        ("ethernet", HopKind::Ethernet),
        ("5g-up", HopKind::Radio(Direction::Up)),
        ("5g-down", HopKind::Radio(Direction::Down)),
        ("5g-core", HopKind::Core),
    ];
    let kind = one_of(table.kind.get_ref(), &kinds).map_err(|why| Wrong::at(&table.kind, "kind", why))?;
    match kind {
        HopKind::Radio(direction) => return radio(hop, HopModel::Radio(direction)),
        HopKind::Core => return radio(hop, HopModel::Core),
        HopKind::Wire | HopKind::Ethernet => {}
    }
    let ethernet = kind == HopKind::Ethernet;
    let latency = table.latency.map_or(Nanos::ZERO, |Text(latency)| latency);
    let rate = table.rate.map(|Text(rate)| rate);
    if !ethernet {
        let foreign = [
            ("cable", table.cable.is_some()),
            ("medium", table.medium.is_some()),
            ("processing", table.processing.is_some()),
            ("queue_frames", table.queue_frames.is_some()),
            ("cut_through", table.cut_through),
            ("tsn", table.tsn.is_some()),
            ("others", !table.others.is_empty()),
        ];
        if let Some((key, _)) = foreign.into_iter().find(|(_, given)| *given) {
            return Err(Wrong::at(hop, key, "a wire has none; expected kind = \"ethernet\""));
        }
        return Ok(HopModel::Wire { latency, rate, queue: table.queue.map(|Text(Bytes(queue))| queue) });
    }
    let rate =
        rate.ok_or_else(|| Wrong::at(hop, "rate", "expected the rate of the port, such as 1Gbit/s"))?;
    let media = [
        ("twisted-pair", Medium::TwistedPair),
        ("twinax", Medium::Twinax),
        ("optical", Medium::Optical),
        ("coax", Medium::Coax),
    ];
    let medium = match &table.medium {
        None => Medium::TwistedPair,
        Some(medium) => one_of(medium.get_ref(), &media).map_err(|why| Wrong::at(medium, "medium", why))?,
    };
    let millimetres = table.cable.map_or(0, |Text(Millimetres(length))| length);
    let processing = latency + table.processing.map_or(Nanos::ZERO, |Text(time)| time);
    let mut settings = PortSettings {
        mtu,
        processing,
        queue_frames: table.queue_frames.unwrap_or(PortSettings::QUEUE_FRAMES),
        forwarding: if table.cut_through { Forwarding::CutThrough } else { Forwarding::StoreAndForward },
        latency: PortLatency::of_rate(rate),
        cable: Cable { medium, millimetres },
        background: tsn::others(&table.others)?,
        ..PortSettings::new(rate)
    };
    if let Some(table) = &table.tsn {
        tsn::apply(&mut settings, table)?;
    }
    Ok(HopModel::Port(Box::new(settings)))
}

/// One direction of the air interface of a campus network, or its core.
fn radio(hop: &Spanned<HopTable>, model: HopModel) -> Result<HopModel, Wrong> {
    let table = hop.get_ref();
    let foreign = [
        ("latency", table.latency.is_some()),
        ("rate", table.rate.is_some()),
        ("queue", table.queue.is_some()),
        ("cable", table.cable.is_some()),
        ("medium", table.medium.is_some()),
        ("processing", table.processing.is_some()),
    ];
    match foreign.into_iter().find(|(_, given)| *given) {
        Some((key, _)) => {
            Err(Wrong::at(hop, key, "the cell has its own; expected it in a hop of its own, such as a wire"))
        }
        None => Ok(model),
    }
}

/// The stack that `tcp` names, with what `[link.stack]` changes.
fn stack(both: &LinkTable) -> Result<Parameters, Wrong> {
    let stacks = [("linux", Parameters::LINUX), ("npap", Parameters::NPAP)];
    let mut tcp = match &both.tcp {
        None => Parameters::LINUX,
        Some(name) => one_of(name.get_ref(), &stacks).map_err(|why| Wrong::at(name, "tcp", why))?,
    };
    let Some(place) = &both.stack else { return Ok(tcp) };
    let table = place.get_ref();
    let set = |value: &mut bool, new: Option<bool>| *value = new.unwrap_or(*value);
    set(&mut tcp.nagle, table.nagle);
    set(&mut tcp.selective_acknowledgement, table.selective_acknowledgement);
    set(&mut tcp.restart_after_idle, table.restart_after_idle);
    tcp.recent_acknowledgement &= tcp.selective_acknowledgement;
    tcp.tail_loss_probe = match table.tail_loss_probe {
        Some(false) => None,
        Some(true) => tcp.tail_loss_probe.or(Parameters::LINUX.tail_loss_probe),
        None => tcp.tail_loss_probe,
    }
    .filter(|_| tcp.selective_acknowledgement);
    if let Some(Text(floor)) = table.rto_floor {
        tcp.retransmission.floor = floor;
    }
    tcp.backlog = table.backlog.map_or(tcp.backlog, |Text(backlog)| backlog);
    if let Some(Text(delay)) = table.acknowledge_after {
        tcp.acknowledgement.delay = delay;
    }
    tcp.acknowledgement.segments = table.acknowledge_segments.unwrap_or(tcp.acknowledgement.segments).max(1);
    tcp.initial_window = table.initial_window.unwrap_or(tcp.initial_window).max(1);
    if let Some(name) = &table.congestion {
        let controls = [("cubic", CongestionControl::Cubic), ("newreno", CongestionControl::NewReno)];
        tcp.congestion =
            one_of(name.get_ref(), &controls).map_err(|why| Wrong::at(name, "congestion", why))?;
    }
    for (key, value, buffer) in [
        ("send_buffer", &table.send_buffer, &mut tcp.send_buffer),
        ("receive_buffer", &table.receive_buffer, &mut tcp.receive_buffer),
    ] {
        let Some(size) = value else { continue };
        let Text(Bytes(bytes)) = size.get_ref();
        *buffer = u32::try_from(*bytes)
            .ok()
            .filter(|bytes| BUFFER_RANGE.contains(bytes))
            .ok_or_else(|| Wrong::at(size, key, format!("expected 4KiB to 256MiB, not {bytes} bytes")))?;
    }
    Ok(tcp)
}
