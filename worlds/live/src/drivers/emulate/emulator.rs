//! The turn of an emulator, the same between connections and between interfaces.

use std::fmt;
use std::io;

use engine::{Engine, Instant, Nanos, Pool};
use network_models::Counts;
use network_models::network::{Network, Side};
use network_models::passage::Passage;

use super::Direction;
use super::model::Model;
use super::pace::Pace;
use crate::reactor::{Context, Driver, Sources, Turn};

/// A network with counts of its frames.
pub trait Counted {
    /// Counts of the frames that were sent from `side`.
    fn counts(&self, side: Side) -> Counts;

    /// Bytes of these frames.
    fn bytes(&self, side: Side) -> u64;
}

impl Counted for Network {
    fn counts(&self, side: Side) -> Counts {
        self.counts(side)
    }

    fn bytes(&self, side: Side) -> u64 {
        self.bytes(side)
    }
}

impl Counted for Passage {
    fn counts(&self, side: Side) -> Counts {
        self.counts(side)
    }

    fn bytes(&self, side: Side) -> u64 {
        self.bytes(side)
    }
}

/// The sockets or interfaces that a modelled network joins.
pub trait Ends<E: Engine> {
    /// Registers the sources that are there from the beginning.
    ///
    /// # Errors
    /// When the kernel can't report news of a source.
    fn start(&mut self, sources: &Sources) -> io::Result<()>;

    /// Gives the network everything that has come, and hands on everything that is due. Returns
    /// whether there was anything.
    ///
    /// # Errors
    /// When an end fails in a way that ends the emulator.
    fn exchange(&mut self, middle: &mut Middle<E>, context: &Context<'_>) -> io::Result<bool>;

    /// Reports that it is time to look at the counters.
    fn tick(&mut self);

    /// When a turn is needed for the ends alone.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The network between the ends, with its timekeeping.
pub struct Middle<E: Engine> {
    pub(super) model: Model<E>,
    pub(super) pool: Pool,
    pub(super) pace: Pace,
    /// Bytes that have arrived at each side.
    pub(super) delivered: [u64; 2],
}

impl<E: Engine> fmt::Debug for Middle<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Middle").field("delivered", &self.delivered).finish_non_exhaustive()
    }
}

impl<E: Engine + Counted> Middle<E> {
    /// The counters of the direction there, and of that back.
    pub(super) fn directions(&self) -> [Direction; 2] {
        let network = self.model.network();
        Side::BOTH.map(|side| {
            let bytes = self.delivered[side.other().index()];
            Direction::of(network.counts(side), network.bytes(side), bytes)
        })
    }
}

/// The driver that joins two ends through a modelled network.
#[derive(Debug)]
pub struct Emulator<E: Engine, X> {
    pub(super) middle: Middle<E>,
    pub(super) ends: X,
}

impl<E: Engine, X> Emulator<E, X> {
    /// Joins `ends` through `network`, whose time begins `now`.
    pub(super) fn between(now: Instant, network: E, ends: X) -> Self {
        let (model, pace) = (Model::new(network, now), Pace::new(now));
        Self { middle: Middle { model, pool: Pool::default(), pace, delivered: [0; 2] }, ends }
    }

    /// Reports a tick at this interval, from `now` on.
    pub fn tick_every(&mut self, now: Instant, time: Nanos) {
        self.middle.pace.tick_every(now, time);
    }
}

impl<E: Engine, X: Ends<E>> Driver for Emulator<E, X> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.middle.pace.begin(sources)?;
        self.ends.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let Self { middle, ends } = self;
        if middle.pace.is_stopping() {
            return Ok(Turn::Done);
        }
        let busy = ends.exchange(middle, context)?;
        if !busy {
            middle.pace.rehearse(middle.model.due(), context, &mut middle.pool);
        }
        if middle.pace.ticks(context.now) {
            ends.tick();
        }
        middle.pace.wait(middle.model.due(), context)?;
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Instant::earlier(self.ends.poll_timeout(), self.middle.pace.poll_timeout())
    }

    fn on_stop(&mut self, _: Instant) {
        self.middle.pace.stop();
    }
}
