//! The hops of a link: `[[link.hop]]`.

use engine::{Instant, Nanos, Rng};
use network_models::ethernet::medium::{Cable, Medium, PortLatency};
use network_models::ethernet::{Forwarding, Handover, Port, PortSettings};
use network_models::faults::{Behaviour, Faults, Flaps};
use network_models::lossless::{self, Lossless};
use network_models::nr5g::{Core, Direction, Downlink, Uplink};
use network_models::stage::{self, Stage};
use network_models::tsn::gates::GateSchedule;
use network_models::tsn::replication::{REDUNDANCY_TAG, Replicated};
use network_models::wifi::{self as models, Station};
use network_models::{AnyHop, Class, Path, Rate, Wire};
use serde::Deserialize;
use toml::Spanned;

use super::Wrong;
use super::link::{LinkTable, Surroundings, hops, is_of_one_direction};
use super::radio::{CellTable, CoreTable, Radio};
use super::text::{Bytes, Millimetres, Text, one_of};
use super::tsn::{self, OthersTable, TsnTable};
use super::wifi::{self, BurstsTable, Media, TimingTable};

/// Allowed sizes of the buffer of a link that loses nothing, in bytes.
const BUFFER_RANGE: std::ops::RangeInclusive<u64> = lossless::Settings::BUFFER_MIN..=1 << 30;

/// The description of a hop, without its random generator.
#[derive(Clone, Debug)]
pub(super) enum HopModel {
    Wire {
        latency: Nanos,
        rate: Option<Rate>,
        queue: Option<u64>,
    },
    Port(Box<PortSettings>),
    Stage(stage::Settings),
    /// Links in series.
    Lossless(Vec<lossless::Settings>),
    Radio(Direction, Box<Radio>),
    Core(Box<Radio>),
    Faults {
        behaviour: Behaviour,
        schedule: Vec<(Instant, Behaviour)>,
        flaps: Option<Flaps>,
    },
    Replicated(Vec<Vec<Self>>),
    Wifi {
        settings: models::Settings,
        channel: String,
    },
}

/// The kinds of hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HopKind {
    Wire,
    Ethernet,
    InfiniBand,
    /// Ethernet with Priority Flow Control.
    Pfc,
    /// A stage, with the times that it has where the file gives none.
    Stage(Option<stage::Settings>),
    Radio(Direction),
    Core,
    Replicated,
    Wifi,
}

/// The kinds of hops by name.
const KINDS: [(&str, HopKind); 13] = [
    ("wire", HopKind::Wire),
    ("ethernet", HopKind::Ethernet),
    ("5g-up", HopKind::Radio(Direction::Up)),
    ("5g-down", HopKind::Radio(Direction::Down)),
    ("5g-core", HopKind::Core),
    ("replicated", HopKind::Replicated),
    ("dma", HopKind::Stage(Some(stage::Settings::DMA))),
    ("routing", HopKind::Stage(Some(stage::Settings::ROUTING_UPSTREAM))),
    ("usb", HopKind::Stage(Some(stage::Settings::USB_UPSTREAM))),
    ("stage", HopKind::Stage(None)),
    ("infiniband", HopKind::InfiniBand),
    ("pfc", HopKind::Pfc),
    ("wifi", HopKind::Wifi),
];

impl HopKind {
    /// The keys that a hop of this kind may have.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Wire => &["latency", "rate", "queue"],
            Self::Ethernet => &[
                "rate",
                "latency",
                "cable",
                "medium",
                "processing",
                "queue_frames",
                "cut_through",
                "tsn",
                "others",
            ],
            Self::InfiniBand => &["speed", "latency", "cable", "medium", "buffer"],
            Self::Pfc => &["rate", "latency", "cable", "medium", "buffer", "cut_through"],
            Self::Stage(_) => &["latency", "longest", "occupancy", "interval"],
            Self::Radio(_) => &["cell"],
            Self::Core => &["core"],
            Self::Replicated => &["way"],
            Self::Wifi => &["rate", "queue_frames", "channel", "attempts", "timing", "bursts"],
        }
    }
}

/// `[[link.hop]]`: one hop of a direction. The first hop is entered first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HopTable {
    kind: Spanned<String>,
    latency: Option<Text<Nanos>>,
    rate: Option<Text<Rate>>,
    queue: Option<Text<Bytes>>,
    cable: Option<Text<Millimetres>>,
    medium: Option<Spanned<String>>,
    processing: Option<Text<Nanos>>,
    /// Number of frames that each queue holds.
    queue_frames: Option<u32>,
    /// The speed of a link of InfiniBand.
    speed: Option<Spanned<String>>,
    /// The receiver's buffer of a link that loses nothing.
    buffer: Option<Spanned<Text<Bytes>>>,
    /// Whether the node forwards a frame as soon as it has the header.
    #[serde(default)]
    cut_through: bool,
    tsn: Option<Spanned<TsnTable>>,
    #[serde(default)]
    others: Vec<Spanned<OthersTable>>,
    /// The time that a frame of 1518 bytes takes; `latency` is then the time of a frame of 68
    /// bytes.
    longest: Option<Spanned<Text<Nanos>>>,
    /// How long a frame keeps the next frame waiting.
    occupancy: Option<Text<Nanos>>,
    /// Frames are taken only at multiples of this time.
    interval: Option<Text<Nanos>>,
    cell: Option<Spanned<CellTable>>,
    core: Option<Spanned<CoreTable>>,
    /// The name of the Wi-Fi channel, which both directions share.
    channel: Option<String>,
    /// How often Wi-Fi sends a frame at most.
    attempts: Option<Spanned<u32>>,
    timing: Option<Spanned<TimingTable>>,
    bursts: Option<Spanned<BurstsTable>>,
    /// The ways of a replicated hop, each with its own hops.
    #[serde(default)]
    way: Vec<Spanned<LinkTable>>,
}

impl HopTable {
    /// The keys that the file gives.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("latency", self.latency.is_some()),
            ("rate", self.rate.is_some()),
            ("queue", self.queue.is_some()),
            ("cable", self.cable.is_some()),
            ("medium", self.medium.is_some()),
            ("processing", self.processing.is_some()),
            ("speed", self.speed.is_some()),
            ("buffer", self.buffer.is_some()),
            ("queue_frames", self.queue_frames.is_some()),
            ("cut_through", self.cut_through),
            ("tsn", self.tsn.is_some()),
            ("others", !self.others.is_empty()),
            ("longest", self.longest.is_some()),
            ("occupancy", self.occupancy.is_some()),
            ("interval", self.interval.is_some()),
            ("cell", self.cell.is_some()),
            ("core", self.core.is_some()),
            ("channel", self.channel.is_some()),
            ("attempts", self.attempts.is_some()),
            ("timing", self.timing.is_some()),
            ("bursts", self.bursts.is_some()),
            ("way", !self.way.is_empty()),
        ]
        .into_iter()
        .filter_map(|(key, given)| given.then_some(key))
    }
}

impl HopModel {
    /// The rate of the line by which frames enter the hop, if any.
    pub(super) fn rate(&self) -> Option<Rate> {
        match self {
            Self::Wire { rate, .. } => *rate,
            Self::Port(settings) => Some(settings.rate),
            Self::Lossless(links) => links.first().map(|link| link.rate),
            Self::Replicated(ways) => ways.first()?.iter().find_map(Self::rate),
            Self::Faults { .. } | Self::Stage(_) | Self::Radio(..) | Self::Core(_) | Self::Wifi { .. } => {
                None
            }
        }
    }

    /// The cycles of gates that are closed for `class` at times.
    pub(super) fn gate_cycles(&self, class: Class) -> Vec<Nanos> {
        match self {
            Self::Port(settings) => {
                let queue = settings.queue_of[class.index()];
                let gates = settings.gates.as_ref();
                gates
                    .filter(|gates| gates.open_time(queue) < gates.cycle())
                    .map(GateSchedule::cycle)
                    .into_iter()
                    .collect()
            }
            Self::Replicated(ways) => ways.iter().flatten().flat_map(|hop| hop.gate_cycles(class)).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the hop is a link of InfiniBand.
    pub(super) fn is_infiniband(&self) -> bool {
        matches!(self, Self::Lossless(links) if links.iter().any(|link| !link.is_ethernet))
    }

    fn build(&self, rng: &Rng, media: &mut Media) -> AnyHop {
        match self {
            Self::Wire { latency, rate, queue } => {
                let wire = Wire::new(*latency, *rate);
                AnyHop::from(queue.map_or(wire.clone(), |queue| wire.with_queue(queue)))
            }
            Self::Port(settings) => AnyHop::from(Port::new((**settings).clone(), rng)),
            Self::Stage(settings) => AnyHop::from(Stage::new(*settings)),
            Self::Lossless(links) => AnyHop::from(Lossless::new(links.iter().copied())),
            Self::Radio(Direction::Up, radio) => AnyHop::from(Uplink::new(radio.cell, rng.fork("cell"))),
            Self::Radio(Direction::Down, radio) => AnyHop::from(Downlink::new(radio.cell, rng.fork("cell"))),
            Self::Core(radio) => AnyHop::from(Core::new(radio.core, rng.fork("core"))),
            Self::Faults { behaviour, schedule, flaps } => {
                let faults = Faults::new(*behaviour, rng.fork("faults")).with_schedule(schedule.clone());
                AnyHop::from(flaps.map_or(faults.clone(), |flaps| faults.with_flaps(flaps)))
            }
            Self::Replicated(ways) => {
                let ways = ways.iter().enumerate();
                let ways = ways.map(|(place, way)| path(way, &rng.fork(&format!("way {place}")), media));
                AnyHop::from(Replicated::new(ways))
            }
            Self::Wifi { settings, channel } => {
                AnyHop::from(Station::new(*settings, media.of(channel), &rng.fork("wifi")))
            }
        }
    }
}

/// The path through `hops`. Wi-Fi hops use `media`, which the paths of a link share.
pub(super) fn path(hops: &[HopModel], rng: &Rng, media: &mut Media) -> Path {
    let hops = hops.iter().enumerate();
    Path::new(hops.map(|(place, hop)| hop.build(&rng.fork(&format!("hop {place}")), media)))
}

/// Appends a hop to `hops`.
pub(super) fn append(hops: &mut Vec<HopModel>, model: HopModel) {
    // A cut-through switch needs only the header, so its predecessor hands frames over that early.
    if let (Some(HopModel::Port(before)), HopModel::Port(port)) = (hops.last_mut(), &model)
        && port.forwarding == Forwarding::CutThrough
    {
        before.handover = Handover::Header;
    }
    // Links that lose nothing keep each other waiting.
    if let (Some(HopModel::Lossless(before)), HopModel::Lossless(links)) = (hops.last_mut(), &model) {
        return before.extend(links);
    }
    hops.push(model);
}

/// The hop that the table `hop` describes.
pub(super) fn model(hop: &Spanned<HopTable>, around: Surroundings) -> Result<HopModel, Wrong> {
    let table = hop.get_ref();
    let kind = one_of(table.kind.get_ref(), &KINDS).map_err(|why| Wrong::at(&table.kind, "kind", why))?;
    if let Some(key) = table.given().find(|key| !kind.keys().contains(key)) {
        let others = KINDS.iter().filter(|(_, other)| other.keys().contains(&key));
        let others: Vec<_> = others.map(|(name, _)| format!("'{name}'")).collect();
        let why = format!(
            "a hop of kind '{}' has none; expected {}, or a hop of kind {}",
            table.kind.get_ref(),
            kind.keys().join(", "),
            others.join(" or ")
        );
        return Err(Wrong::at(hop, key, why));
    }
    let latency = table.latency.map_or(Nanos::ZERO, |Text(latency)| latency);
    match kind {
        HopKind::Wire => {
            let queue = table.queue.map(|Text(Bytes(queue))| queue);
            Ok(HopModel::Wire { latency, rate: table.rate.map(|Text(rate)| rate), queue })
        }
        HopKind::Ethernet => Ok(HopModel::Port(Box::new(port(hop, around.mtu)?))),
        HopKind::InfiniBand | HopKind::Pfc => Ok(HopModel::Lossless(vec![without_loss(hop, kind)?])),
        HopKind::Stage(usual) => Ok(HopModel::Stage(step(hop, usual)?)),
        HopKind::Radio(direction) => {
            Ok(HopModel::Radio(direction, Box::new(around.radio.with(table.cell.as_ref(), None)?)))
        }
        HopKind::Core => Ok(HopModel::Core(Box::new(around.radio.with(None, table.core.as_ref())?))),
        HopKind::Replicated => ways(hop, around),
        HopKind::Wifi => station(hop, around.mtu),
    }
}

/// A hop of several ways, each of which carries a copy of each frame (IEEE 802.1CB).
fn ways(hop: &Spanned<HopTable>, around: Surroundings) -> Result<HopModel, Wrong> {
    let ways = &hop.get_ref().way;
    if around.within {
        return Err(Wrong::at(hop, "kind", "expected no ways within a way"));
    }
    if !(2..=Replicated::WAYS_MAX).contains(&ways.len()) {
        let why = format!("expected 2 to {} of [[link.hop.way]], not {}", Replicated::WAYS_MAX, ways.len());
        return Err(Wrong::at(hop, "way", why));
    }
    // The redundancy tag comes on top of the longest frame.
    let around = Surroundings { mtu: around.mtu + REDUNDANCY_TAG, within: true, ..around };
    let way = |way: &Spanned<LinkTable>| {
        is_of_one_direction(way.get_ref(), way)?;
        hops(way, around)
    };
    Ok(HopModel::Replicated(ways.iter().map(way).collect::<Result<_, Wrong>>()?))
}

/// A station of a Wi-Fi channel.
fn station(hop: &Spanned<HopTable>, mtu: u32) -> Result<HopModel, Wrong> {
    let table = hop.get_ref();
    let keys = wifi::Keys {
        rate: table.rate.map(|Text(rate)| rate),
        queue_frames: table.queue_frames,
        attempts: table.attempts.as_ref(),
        timing: table.timing.as_ref(),
        bursts: table.bursts.as_ref(),
    };
    let channel = table.channel.clone().unwrap_or_default();
    Ok(HopModel::Wifi { settings: wifi::settings(hop, keys, mtu)?, channel })
}

/// A processing step of a machine.
fn step(hop: &Spanned<HopTable>, usual: Option<stage::Settings>) -> Result<stage::Settings, Wrong> {
    let table = hop.get_ref();
    let mut settings = match (usual, table.latency) {
        (Some(usual), None) => usual,
        (_, Some(Text(latency))) => {
            // A stage that handles frames one after another is busy for as long as one frame takes.
            let busy = usual.is_some_and(|usual| usual.occupancy > Nanos::ZERO);
            let occupancy = if busy { latency } else { Nanos::ZERO };
            stage::Settings { latency, occupancy, ..usual.unwrap_or_default() }
        }
        (None, None) => return Err(Wrong::at(hop, "latency", "expected the time of a frame, such as 10us")),
    };
    if let Some(longest) = &table.longest {
        let Text(time) = *longest.get_ref();
        settings.picoseconds_per_byte = stage::Settings::slope(settings.latency, time).ok_or_else(|| {
            let why =
                format!("expected {} to a millisecond more, for 1518 bytes, not {time}", settings.latency);
            Wrong::at(longest, "longest", why)
        })?;
    }
    settings.occupancy = table.occupancy.map_or(settings.occupancy, |Text(time)| time);
    settings.interval = table.interval.map_or(settings.interval, |Text(time)| time);
    Ok(settings)
}

/// The cable of a hop, of the material `usual` if it names none.
fn cable(table: &HopTable, usual: Medium) -> Result<Cable, Wrong> {
    let media = [
        ("twisted-pair", Medium::TwistedPair),
        ("twinax", Medium::Twinax),
        ("optical", Medium::Optical),
        ("coax", Medium::Coax),
    ];
    let medium = match &table.medium {
        None => usual,
        Some(medium) => one_of(medium.get_ref(), &media).map_err(|why| Wrong::at(medium, "medium", why))?,
    };
    Ok(Cable { medium, millimetres: table.cable.map_or(0, |Text(Millimetres(length))| length) })
}

/// A port with a link that loses nothing.
fn without_loss(hop: &Spanned<HopTable>, kind: HopKind) -> Result<lossless::Settings, Wrong> {
    let table = hop.get_ref();
    let is_ethernet = kind == HopKind::Pfc;
    let rate = if is_ethernet {
        let rate = table.rate.map(|Text(rate)| rate);
        rate.ok_or_else(|| Wrong::at(hop, "rate", "expected the rate of the port, such as 100Gbit/s"))?
    } else {
        let expected = "expected the speed of the port: 'fdr', 'edr', 'hdr' or 'ndr'";
        let speed = table.speed.as_ref().ok_or_else(|| Wrong::at(hop, "speed", expected))?;
        lossless::Settings::infiniband(speed.get_ref())
            .ok_or_else(|| Wrong::at(speed, "speed", format!("{expected}, not '{}'", speed.get_ref())))?
    };
    let physical = match is_ethernet {
        true => PortLatency::of_rate(rate).total(),
        false => lossless::Settings::PHYSICAL,
    };
    let buffer = match &table.buffer {
        None => lossless::Settings::BUFFER,
        Some(buffer) => {
            let Text(Bytes(bytes)) = *buffer.get_ref();
            if !BUFFER_RANGE.contains(&bytes) {
                return Err(Wrong::at(buffer, "buffer", format!("expected 10KiB to 1GiB, not {bytes}")));
            }
            bytes
        }
    };
    Ok(lossless::Settings {
        rate,
        processing: table.latency.map_or(Nanos::ZERO, |Text(latency)| latency),
        propagation: cable(table, Medium::Twinax)?.latency() + physical,
        buffer,
        cut_through: !is_ethernet || table.cut_through,
        is_ethernet,
    })
}

/// A port of an Ethernet node, with its link.
fn port(hop: &Spanned<HopTable>, mtu: u32) -> Result<PortSettings, Wrong> {
    let table = hop.get_ref();
    let rate = table.rate.map(|Text(rate)| rate);
    let rate =
        rate.ok_or_else(|| Wrong::at(hop, "rate", "expected the rate of the port, such as 1Gbit/s"))?;
    let time = |time: Option<Text<Nanos>>| time.map_or(Nanos::ZERO, |Text(time)| time);
    let mut settings = PortSettings {
        mtu,
        processing: time(table.latency) + time(table.processing),
        queue_frames: table.queue_frames.unwrap_or(PortSettings::QUEUE_FRAMES),
        forwarding: if table.cut_through { Forwarding::CutThrough } else { Forwarding::StoreAndForward },
        latency: PortLatency::of_rate(rate),
        cable: cable(table, Medium::TwistedPair)?,
        background: tsn::others(&table.others)?,
        ..PortSettings::new(rate)
    };
    if let Some(table) = &table.tsn {
        tsn::apply(&mut settings, table)?;
    }
    Ok(settings)
}
