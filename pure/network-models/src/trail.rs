//! The time that frames take: the time of each step, and the parts of the time in a hop.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use engine::{Instant, Nanos};

use crate::tsn::replication::REDUNDANCY_TAG;
use crate::{AnyHop, Path, lossless};

/// The use of a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Waiting for others: in queues, at gates, for grants and slots, and for lost data to be sent
    /// again.
    Waiting,
    /// Steps that take as long on an idle machine.
    Processing,
    /// Sending the bits of a frame one after the other.
    Serialisation,
    /// Passing from one end to the other: MACs, PHYs and cable.
    Propagation,
}

impl Part {
    /// The name that is printed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "queueing",
            Self::Processing => "processing",
            Self::Serialisation => "serialisation",
            Self::Propagation => "propagation",
        }
    }
}

/// The times of a frame that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    /// Length in bytes from the destination address to the frame check sequence.
    pub length: u32,
    /// When the sender's stack made the segment.
    pub made: Instant,
    /// When the frame left the stack and entered the first hop.
    pub sent: Instant,
    /// The places ([`Path::places`]) that the frame passed, and when it left each. Of the ways of a
    /// replication, it passed the one whose copy arrived first.
    pub hops: Vec<(usize, Instant)>,
    /// When the receiver's stack was done with the frame.
    pub arrived: Instant,
}

impl Trail {
    /// The frame has left a hop. Only the first of several copies counts, because it is the one
    /// that arrives.
    pub fn crossed(&mut self, crossing: Crossing) {
        if self.hops.last().is_none_or(|(hop, _)| *hop < crossing.hop) {
            self.hops.push((crossing.hop, crossing.at));
        }
    }
}

/// A frame that left a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The frame's number.
    pub frame: u64,
    /// The number of the hop's place in its path ([`Path::places`]).
    pub hop: usize,
    /// When the frame left it.
    pub at: Instant,
}

/// The records of a network while it is watched.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    under_way: BTreeMap<u64, Trail>,
    /// The trail of the frame that is being handed over.
    pub(crate) current: Option<Trail>,
    /// The trail of the frame that brought each piece of data that was handed over.
    pub(crate) handed: VecDeque<Option<Trail>>,
}

impl Watched {
    /// Maximum number of frames that are followed. Beyond this the oldest are forgotten, since they
    /// were lost.
    const UNDER_WAY_MAX: usize = 1 << 14;

    pub(crate) fn made(&mut self, frame: u64, length: u32, now: Instant) {
        if self.under_way.len() >= Self::UNDER_WAY_MAX {
            self.under_way.pop_first();
        }
        let trail = Trail { length, made: now, sent: now, hops: Vec::new(), arrived: now };
        self.under_way.insert(frame, trail);
    }

    pub(crate) fn sent(&mut self, frame: u64, now: Instant) {
        if let Some(trail) = self.under_way.get_mut(&frame) {
            trail.sent = now;
        }
    }

    pub(crate) fn crossed(&mut self, crossing: Crossing) {
        if let Some(trail) = self.under_way.get_mut(&crossing.frame) {
            trail.crossed(crossing);
        }
    }

    pub(crate) fn arrived(&mut self, frame: u64, now: Instant) {
        self.current = self.under_way.remove(&frame).map(|trail| Trail { arrived: now, ..trail });
    }
}

impl AnyHop {
    /// Name of the hop in a drawing.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Wire(wire) => match wire.rate() {
                Some(rate) => format!("wire, {rate}").into(),
                None => "wire".into(),
            },
            Self::Port(port) => {
                let settings = port.settings();
                let tsn = settings.gates.is_some()
                    || settings.preemption.is_some()
                    || !settings.stages.is_empty()
                    || settings.idle_slopes.iter().any(Option::is_some);
                let name = if tsn { "TSN" } else { "Ethernet" };
                format!("{name}, {}", settings.rate).into()
            }
            Self::Lossless(links) => {
                let first = links.links().next();
                let name = if first.is_some_and(|link| link.is_ethernet) { "Ethernet" } else { "InfiniBand" };
                let rate = links.links().map(|link| link.rate).min();
                rate.map_or_else(|| name.into(), |rate| format!("{name}, {rate}").into())
            }
            Self::Faults(_) => "faults".into(),
            Self::Replicated(_) => "replication".into(),
            Self::Stage(_) => "machine".into(),
            Self::Uplink(_) => "5G uplink".into(),
            Self::Downlink(_) => "5G downlink".into(),
            Self::Core(_) => "5G core".into(),
            Self::Station(station) => format!("Wi-Fi, {}", station.settings().rate).into(),
            Self::Path(_) => "path".into(),
        }
    }

    /// The parts of the time `took` of a frame of `length` bytes, in the order in which they pass.
    /// Waiting is the time beyond that of the frame on an idle hop. The parts add up to `took`.
    pub fn parts(&self, length: u32, took: Nanos) -> [(Part, Nanos); 4] {
        let zero = Nanos::ZERO;
        let (processing, serialisation, propagation) = match self {
            Self::Wire(wire) => {
                let bytes = u64::from(length) + u64::from(crate::frame::PREAMBLE);
                (zero, wire.rate().map_or(zero, |rate| rate.time_of(bytes)), wire.latency())
            }
            Self::Port(port) => {
                let settings = port.settings();
                let bytes = u64::from(length) + u64::from(crate::frame::PREAMBLE);
                (settings.processing, settings.rate.time_of(bytes), settings.passage(length))
            }
            Self::Lossless(links) => {
                let sum = |time: fn(&lossless::Settings) -> Nanos| {
                    links.links().fold(zero, |sum, link| sum + time(link))
                };
                let rate = links.links().map(|link| link.rate).min();
                let serialisation = rate.map_or(zero, |rate| rate.time_of(u64::from(length)));
                (sum(|link| link.processing), serialisation, sum(|link| link.propagation))
            }
            Self::Stage(stage) => (stage.settings().of(length), zero, zero),
            Self::Uplink(link) => {
                let cell = link.cell();
                (cell.symbols(cell.n2) + cell.station, cell.transmission(), zero)
            }
            Self::Downlink(link) => {
                let cell = link.cell();
                (cell.station + cell.symbols(cell.n1), cell.transmission(), zero)
            }
            Self::Core(core) => (core.settings().delay, zero, zero),
            Self::Station(station) => (zero, station.settings().air_time(length), zero),
            Self::Faults(_) | Self::Replicated(_) | Self::Path(_) => (zero, zero, zero),
        };
        // Parts overlap in a cut-through switch. Later parts are counted first, and earlier ones
        // get the rest.
        let propagation = propagation.min(took);
        let rest = took.saturating_sub(propagation);
        let serialisation = serialisation.min(rest);
        let rest = rest.saturating_sub(serialisation);
        let processing = processing.min(rest);
        let waiting = rest.saturating_sub(processing);
        [
            (Part::Processing, processing),
            (Part::Waiting, waiting),
            (Part::Serialisation, serialisation),
            (Part::Propagation, propagation),
        ]
    }
}

/// One of the ways of a replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The place of the replication in the path.
    pub replication: usize,
    /// The way's number, from 1.
    pub number: usize,
}

/// A hop in its place in a path.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// The hop.
    pub hop: &'a AnyHop,
    /// The way that the hop belongs to, if it is within a replication.
    pub way: Option<Way>,
    /// How many bytes longer frames are there than outside.
    longer: u32,
}

/// The name of a hop in a drawing, and the way that the hop belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name, which begins with the way.
    pub name: String,
    /// The way that the hop belongs to, if it is within a replication.
    pub way: Option<Way>,
}

impl Path {
    /// All hops of the path in the order in which frames pass them. The hops within a hop (the ways
    /// of a replication, or a path in the path) come before the hop itself.
    pub fn places(&self) -> Vec<Placed<'_>> {
        let mut places = Vec::with_capacity(self.places_count());
        self.add_places(None, 0, &mut places);
        places
    }

    fn add_places<'a>(&'a self, way: Option<Way>, longer: u32, places: &mut Vec<Placed<'a>>) {
        for hop in self.hops() {
            if let AnyHop::Path(path) = hop {
                path.add_places(way, longer, places);
            }
            if let AnyHop::Replicated(replicated) = hop {
                let replication = places.len() + hop.inner_places();
                let ways = replicated.ways().iter().zip(1..);
                ways.for_each(|(path, number)| {
                    path.add_places(Some(Way { replication, number }), longer + REDUNDANCY_TAG, places);
                });
            }
            places.push(Placed { hop, way, longer });
        }
    }

    /// The names of all hops ([`Path::places`]).
    pub fn names(&self) -> Vec<Named> {
        let name = |Placed { hop, way, .. }| match way {
            Some(way) => Named { name: format!("way {}: {}", way.number, hop.name()), way: Some(way) },
            None => Named { name: hop.name().into_owned(), way: None },
        };
        self.places().into_iter().map(name).collect()
    }
}

/// The steps of a frame hop by hop: the number of the hop's place in `path` ([`Path::places`]), the
/// part, and the time when the part ended. They add up to the whole way.
pub fn steps<'a>(trail: &'a Trail, path: &'a Path) -> impl Iterator<Item = (usize, Part, Instant)> + 'a {
    let places = path.places();
    let mut at = trail.sent;
    let passed =
        trail.hops.iter().filter_map(move |(place, left)| Some((*place, *places.get(*place)?, *left)));
    passed.flat_map(move |(place, Placed { hop, longer, .. }, left)| {
        let mut when = at;
        let parts = hop.parts(trail.length + longer, left - at);
        at = left;
        parts.into_iter().map(move |(part, time)| {
            when = when + time;
            (place, part, when)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{Port, PortSettings};
    use crate::tsn::replication::Replicated;
    use crate::{Class, Frame, Hop, Rate, Wire};
    use engine::{Buffer, Rng};

    #[test]
    fn the_parts_of_a_hop_add_up_and_the_rest_is_waiting() {
        let port = AnyHop::from(Port::new(
            PortSettings { processing: Nanos::new(700), ..PortSettings::new(Rate::from_gigabits(1)) },
            &Rng::from_seed(1),
        ));
        // 64 B and 8 B of preamble at 1 Gbit/s take 576 ns.
        let [processing, waiting, serialisation, propagation] = port.parts(64, Nanos::new(2_000));
        assert_eq!(processing, (Part::Processing, Nanos::new(700)));
        assert_eq!(waiting, (Part::Waiting, Nanos::new(724)));
        assert_eq!(serialisation, (Part::Serialisation, Nanos::new(576)));
        assert_eq!(propagation, (Part::Propagation, Nanos::ZERO));
        assert_eq!(port.name(), "Ethernet, 1 Gbit/s");
        // Even for a time shorter than expected, the parts never exceed the time taken.
        let sum = port.parts(64, Nanos::new(100)).into_iter().fold(Nanos::ZERO, |sum, (_, time)| sum + time);
        assert_eq!(sum, Nanos::new(100));
    }

    #[test]
    fn a_watched_path_reports_when_each_hop_was_left() {
        let wire = |latency| Wire::new(Nanos::new(latency), None);
        let mut path: Path = [wire(10), wire(20), wire(30)].into_iter().collect();
        path.watch(true);
        path.enter(Instant::ZERO, Frame::new(7, 64, Class::BEST_EFFORT, Buffer::EMPTY));
        assert!(path.poll(Instant::from_nanos(100)).is_some());
        let left: Vec<_> = path.crossings().map(|crossing| (crossing.hop, crossing.at.as_nanos())).collect();
        assert_eq!(left, [(0, 10), (1, 30), (2, 60)]);
    }

    #[test]
    fn the_trail_of_a_replicated_frame_leads_over_the_way_that_won() {
        let wire = |latency| AnyHop::from(Wire::new(Nanos::new(latency), None));
        let slow = Path::new([wire(40), wire(50)]);
        let quick = Path::new([wire(20), Path::new([wire(5)]).into()]);
        let mut path = Path::new([wire(10), Replicated::new([slow, quick]).into(), wire(30)]);
        let names: Vec<_> = path.names().into_iter().map(|named| named.name).collect();
        let ways = ["way 1: wire", "way 1: wire", "way 2: wire", "way 2: wire", "way 2: path"];
        assert_eq!(names, [&["wire"], &ways[..], &["replication", "wire"]].concat());
        assert_eq!(path.places()[4].way, Some(Way { replication: 6, number: 2 }));
        path.watch(true);
        path.enter(Instant::ZERO, Frame::new(7, 64, Class::BEST_EFFORT, Buffer::EMPTY));
        let mut trail = Trail {
            length: 64,
            made: Instant::ZERO,
            sent: Instant::ZERO,
            hops: Vec::new(),
            arrived: Instant::ZERO,
        };
        assert!(path.poll(Instant::from_nanos(1_000)).is_some());
        path.crossings().for_each(|crossing| {
            assert_eq!(crossing.frame, 7);
            trail.crossed(crossing);
        });
        let left: Vec<_> = trail.hops.iter().map(|(hop, at)| (*hop, at.as_nanos())).collect();
        assert_eq!(left, [(0, 10), (3, 30), (4, 35), (5, 35), (6, 35), (7, 65)]);
        // The slower copy leaves no trace.
        assert!(path.poll(Instant::from_nanos(1_000)).is_none());
        assert_eq!(path.crossings().count(), 0);
        let propagation = steps(&trail, &path).filter(|(_, part, _)| *part == Part::Propagation);
        let propagation: Vec<_> = propagation.map(|(hop, _, at)| (hop, at.as_nanos())).collect();
        assert_eq!(propagation, left);
    }
}
