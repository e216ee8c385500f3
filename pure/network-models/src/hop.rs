//! The interface of all models of one direction of one hop.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Instant;

use crate::ethernet::Port;
use crate::nr5g::{Core, Downlink, Uplink};
use crate::stage::Stage;
use crate::trail::Crossing;
use crate::tsn::replication::Replicated;
use crate::wifi::Station;
use crate::{Faults, Frame, Lossless, Path, Wire};

/// Counts of the frames of a hop. Copies count as frames: `entered + copied` equals `left + lost`
/// plus the frames still inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of frames that entered.
    pub entered: u64,
    /// Number of frames that came out.
    pub left: u64,
    /// Number of frames that were lost: to full queues, faults, failed check sequences, or
    /// elimination of copies.
    pub lost: u64,
    /// Number of frames that were created inside: duplicates and replicas.
    pub copied: u64,
}

/// One direction of something that frames pass.
///
/// # Time
/// Times never go backwards. [`Hop::next`] is the time of the next event inside, and [`Hop::poll`]
/// at exactly this time performs the event. A frame that `poll` returns left at this time. A late
/// caller (such as a driver in real time) therefore polls with the times that `next` returns, until
/// `next` lies in the future. It need not poll before a late frame enters: a hop catches up by
/// itself.
pub trait Hop {
    /// Takes a frame whose last bit arrives at `now`. If [`Frame::tail`] is more than zero, the
    /// header arrives at `now`.
    fn enter(&mut self, now: Instant, frame: Frame);

    /// The next frame whose last bit has left by `now`. Must be called again until it returns
    /// `None`; [`Hop::next`] is then later than `now`.
    fn poll(&mut self, now: Instant) -> Option<Frame>;

    /// When to poll next. Nothing happens earlier unless a frame enters.
    fn next(&self) -> Option<Instant>;

    /// Counters of the frames so far.
    fn counts(&self) -> Counts;
}

/// Any kind of hop, so that a path of hops needs no dynamic dispatch.
#[derive(Clone, Debug)]
pub enum AnyHop {
    /// A link with a latency and a rate.
    Wire(Wire),
    /// An Ethernet port and its link.
    Port(Box<Port>),
    /// Links that lose nothing.
    Lossless(Lossless),
    /// Faults of a link.
    Faults(Faults),
    /// Several paths in parallel.
    Replicated(Replicated),
    /// A processing step of a machine.
    Stage(Stage),
    /// A radio link from a device up to the base station.
    Uplink(Box<Uplink>),
    /// A radio link from the base station down to a device.
    Downlink(Box<Downlink>),
    /// A core network.
    Core(Core),
    /// One direction of a Wi-Fi link.
    Station(Box<Station>),
    /// Several hops in series.
    Path(Path),
}

/// Evaluates the call on the hop inside.
macro_rules! any {
    ($hop:expr, $inner:ident => $call:expr) => {
        match $hop {
            AnyHop::Wire($inner) => $call,
            AnyHop::Port($inner) => $call,
            AnyHop::Lossless($inner) => $call,
            AnyHop::Faults($inner) => $call,
            AnyHop::Replicated($inner) => $call,
            AnyHop::Stage($inner) => $call,
            AnyHop::Uplink($inner) => $call,
            AnyHop::Downlink($inner) => $call,
            AnyHop::Core($inner) => $call,
            AnyHop::Station($inner) => $call,
            AnyHop::Path($inner) => $call,
        }
    };
}

impl AnyHop {
    /// The number of places of the hops within this hop ([`Path::places`]).
    pub(crate) fn inner_places(&self) -> usize {
        match self {
            Self::Replicated(replicated) => replicated.ways().iter().map(Path::places_count).sum(),
            Self::Path(path) => path.places_count(),
            _ => 0,
        }
    }

    /// Starts or stops recording when frames leave the hops within this hop.
    pub(crate) fn watch(&mut self, on: bool) {
        match self {
            Self::Replicated(replicated) => replicated.watch(on),
            Self::Path(path) => path.watch(on),
            _ => {}
        }
    }

    /// Moves the crossings recorded within this hop to `crossings`. The first place within is
    /// number `first`.
    pub(crate) fn take_crossings(&mut self, first: usize, crossings: &mut Vec<Crossing>) {
        let placed = |crossing: Crossing| Crossing { hop: first + crossing.hop, ..crossing };
        match self {
            Self::Replicated(replicated) => crossings.extend(replicated.crossings().map(placed)),
            Self::Path(path) => crossings.extend(path.crossings().map(placed)),
            _ => {}
        }
    }
}

impl Hop for AnyHop {
    fn enter(&mut self, now: Instant, frame: Frame) {
        any!(self, hop => hop.enter(now, frame));
    }
    fn poll(&mut self, now: Instant) -> Option<Frame> {
        any!(self, hop => hop.poll(now))
    }
    fn next(&self) -> Option<Instant> {
        any!(self, hop => hop.next())
    }
    fn counts(&self) -> Counts {
        any!(self, hop => hop.counts())
    }
}

macro_rules! from {
    ($($hop:ident)*) => {
        $(impl From<$hop> for AnyHop {
            fn from(hop: $hop) -> Self {
                // Some hops are boxed.
                Self::$hop(hop.into())
            }
        })*
    };
}

from!(Wire Port Lossless Faults Replicated Stage Uplink Downlink Core Station Path);
