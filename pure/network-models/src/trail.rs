//! The time that frames take: when each step was done, and what the time in a hop consists of.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use engine::{Instant, Nanos};

use crate::{AnyHop, lossless};

/// What a span of time is spent on.
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
    /// When the frame left each hop.
    pub hops: Vec<Instant>,
    /// When the receiver's stack was done with the frame.
    pub arrived: Instant,
}

impl Trail {
    /// The frame has left a hop. Only the first of several copies counts, because it is the one
    /// that arrives.
    pub fn crossed(&mut self, crossing: Crossing) {
        if self.hops.len() == crossing.hop {
            self.hops.push(crossing.at);
        }
    }
}

/// A frame that left a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The frame's number.
    pub frame: u64,
    /// The hop's place in its path.
    pub hop: usize,
    /// When the frame left it.
    pub at: Instant,
}

/// What the network records while it is watched.
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

    /// What the time `took` of a frame of `length` bytes consists of, in the order in which the
    /// parts pass. Waiting is the time beyond what the frame would take on an idle hop. The parts
    /// add up to `took`.
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

/// The steps of a frame hop by hop: the index of the hop, the part, and the time when the part
/// ended. They add up to the whole way.
pub fn steps<'a>(
    trail: &'a Trail,
    hops: impl Iterator<Item = &'a AnyHop> + 'a,
) -> impl Iterator<Item = (usize, Part, Instant)> + 'a {
    let mut at = trail.sent;
    hops.zip(&trail.hops).enumerate().flat_map(move |(index, (hop, left))| {
        let mut when = at;
        let parts = hop.parts(trail.length, *left - at);
        at = *left;
        parts.into_iter().map(move |(part, time)| {
            when = when + time;
            (index, part, when)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{Port, PortSettings};
    use crate::{Class, Frame, Hop, Path, Rate, Wire};
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
    fn a_path_that_is_watched_tells_when_each_hop_was_left() {
        let wire = |latency| Wire::new(Nanos::new(latency), None);
        let mut path: Path = [wire(10), wire(20), wire(30)].into_iter().collect();
        path.watch(true);
        path.enter(Instant::ZERO, Frame::new(7, 64, Class::BEST_EFFORT, Buffer::EMPTY));
        assert!(path.poll(Instant::from_nanos(100)).is_some());
        let left: Vec<_> = path.crossings().map(|crossing| (crossing.hop, crossing.at.as_nanos())).collect();
        assert_eq!(left, [(0, 10), (1, 30), (2, 60)]);
    }
}
