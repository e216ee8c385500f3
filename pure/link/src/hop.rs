//! What every model of one direction of one hop implements.

use alloc::boxed::Box;

use engine::Instant;

use crate::ethernet::Port;
use crate::nr5g::{Core, Downlink, Uplink};
use crate::stage::Stage;
use crate::tsn::replication::Replicated;
use crate::{Faults, Frame, Path, Wire};

/// What became of the frames of a hop. Copies count like frames: `entered + copied` is `left + lost` and what
/// is still inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that entered.
    pub entered: u64,
    /// Frames that came out.
    pub left: u64,
    /// Frames that were lost: full queues, faults, failed check sequences, copies that were eliminated.
    pub lost: u64,
    /// Frames that came into being: duplicates, replicas.
    pub copied: u64,
}

/// One direction of something that frames pass.
///
/// # Time
/// Times never go backwards. [`Hop::next`] is when something happens inside, and [`Hop::poll`] at that very time
/// makes it happen; a frame that comes out came out then. So whoever is late (a driver in real time) polls
/// with what `next` says until that lies ahead. A frame that enters late is no reason to poll before: a
/// hop catches up with itself.
pub trait Hop {
    /// A frame's last bit arrives at `now` (its header, where [`Frame::tail`] is more than zero).
    fn enter(&mut self, now: Instant, frame: Frame);

    /// The next frame whose last bit has left by `now`. To be called again until there is none: then [`Hop::next`] is
    /// later than `now`.
    fn poll(&mut self, now: Instant) -> Option<Frame>;

    /// When to poll next; nothing happens before unless a frame enters.
    fn next(&self) -> Option<Instant>;

    /// What became of the frames so far.
    fn counts(&self) -> Counts;
}

/// Any of the hops, so that a path of them needs no pointers to functions.
#[derive(Clone, Debug)]
pub enum AnyHop {
    /// Latency and a rate.
    Wire(Wire),
    /// An Ethernet port and its link.
    Port(Box<Port>),
    /// What goes wrong.
    Faults(Faults),
    /// Several ways at once.
    Replicated(Replicated),
    /// A step of a machine.
    Stage(Stage),
    /// A radio link up.
    Uplink(Box<Uplink>),
    /// A radio link down.
    Downlink(Box<Downlink>),
    /// A core network.
    Core(Core),
    /// Hops in series.
    Path(Path),
}

/// Calls the hop that it is.
macro_rules! any {
    ($hop:expr, $inner:ident => $call:expr) => {
        match $hop {
            AnyHop::Wire($inner) => $call,
            AnyHop::Port($inner) => $call,
            AnyHop::Faults($inner) => $call,
            AnyHop::Replicated($inner) => $call,
            AnyHop::Stage($inner) => $call,
            AnyHop::Uplink($inner) => $call,
            AnyHop::Downlink($inner) => $call,
            AnyHop::Core($inner) => $call,
            AnyHop::Path($inner) => $call,
        }
    };
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

impl From<Wire> for AnyHop {
    fn from(hop: Wire) -> Self {
        Self::Wire(hop)
    }
}

impl From<Port> for AnyHop {
    fn from(hop: Port) -> Self {
        Self::Port(Box::new(hop))
    }
}

impl From<Faults> for AnyHop {
    fn from(hop: Faults) -> Self {
        Self::Faults(hop)
    }
}

impl From<Replicated> for AnyHop {
    fn from(hop: Replicated) -> Self {
        Self::Replicated(hop)
    }
}

impl From<Stage> for AnyHop {
    fn from(hop: Stage) -> Self {
        Self::Stage(hop)
    }
}

impl From<Uplink> for AnyHop {
    fn from(hop: Uplink) -> Self {
        Self::Uplink(Box::new(hop))
    }
}

impl From<Core> for AnyHop {
    fn from(hop: Core) -> Self {
        Self::Core(hop)
    }
}

impl From<Downlink> for AnyHop {
    fn from(hop: Downlink) -> Self {
        Self::Downlink(Box::new(hop))
    }
}

impl From<Path> for AnyHop {
    fn from(hop: Path) -> Self {
        Self::Path(hop)
    }
}
