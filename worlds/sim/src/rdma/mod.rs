//! RDMA in virtual time: two cards, joined by modelled links, under [`rdma::Endpoint`]s.
//!
//! [`Fabric::new`] creates both endpoints of one connection. The owner of the world calls
//! [`Fabric::advance`] with the time, lets the engines above poll their endpoints, and continues at
//! [`Fabric::next`]. The queue pairs and protection domains of the crate `rdma` perform the effects
//! of a request on memory, keys and queues; this module decides when.
//!
//! Packets of each direction are numbered, acknowledged and, where a link loses some, sent again
//! from the first missing one (go-back-N). The answer to a read is part of its sender's packets.
//! Establishing a connection takes no time.

mod bus;
mod card;
mod half;
mod packet;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use engine::{Buffer, Instant, Nanos, Rng};
use network_models::network::Side;
use network_models::streams::{Measured, Order};
use network_models::trail::{Named, Part};
use network_models::{Hop, Path, Rate};
use rdma::{
    Endpoint, Event, Exposure, Key, Limits, Operation, PostError, ReceiveRequest, RegisterError, Remote,
    SendRequest, SharedPool, State, WorkCompletion, WorkError,
};

use crate::marks::{Cause, Mark, Marks, Spot};
use crate::models::hca::{Card, Driver};
use crate::{Digest, Later};
use half::Half;
use packet::Happening;

/// The parts of a pair of endpoints.
#[derive(Clone, Debug)]
pub struct Config {
    /// The card of each side.
    pub cards: [Card; 2],
    /// The software of each side.
    pub drivers: [Driver; 2],
    /// The rate of each card's own line, if it has one.
    pub line: [Option<Rate>; 2],
    /// The capabilities of both endpoints.
    pub limits: Limits,
    /// Most regions of memory that an endpoint lends at a time.
    pub regions_max: usize,
    /// The seed of the keys.
    pub seed: u64,
}

impl Config {
    /// Limits of a card that is large enough for every queue of NVMe over RDMA.
    pub const LIMITS: Limits = Limits {
        send_requests: 4096,
        receive_requests: 2048,
        message_bytes: 1 << 30,
        invalidate: true,
        immediate: true,
    };
}

/// Counts of the packets between the cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets with requests, data and answers, each time that one was sent.
    pub packets: u64,
    /// Packets among them that were sent again.
    pub repeated: u64,
    /// Number of times at which an acknowledgement was overdue.
    pub timeouts: u64,
    /// Messages for which the peer had no receive request.
    pub not_ready: u64,
}

/// Both cards, their links, and the packets in transit.
#[derive(Debug)]
struct Link {
    now: Instant,
    halves: [Half; 2],
    agenda: Later<Happening>,
    marks: Marks,
    digest: Digest,
    events: u64,
    statistics: Statistics,
    pool: SharedPool,
}

impl Link {
    /// The half of `side`, and the other.
    const fn both(&mut self, side: Side) -> (&mut Half, &mut Half) {
        let [near, far] = &mut self.halves;
        match side {
            Side::Near => (near, far),
            Side::Far => (far, near),
        }
    }

    const fn half(&mut self, side: Side) -> &mut Half {
        &mut self.halves[side.index()]
    }

    /// When something happens next that is no matter of the software.
    fn next(&self) -> Option<Instant> {
        let halves = self.halves.iter().filter_map(Half::next).min();
        [self.agenda.next(), halves].into_iter().flatten().min()
    }

    /// Performs all events up to `now`, each at its own time.
    fn advance(&mut self, now: Instant) {
        while let Some(at) = self.next().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            while let Some(happening) = self.agenda.take(self.now) {
                self.count(&happening);
                self.happen(happening);
            }
            for side in Side::BOTH {
                self.carry(side);
            }
        }
        self.now = self.now.max(now);
    }

    fn count(&mut self, happening: &Happening) {
        self.events += 1;
        self.digest.word(self.now.as_nanos());
        self.digest.word(happening.number());
    }

    /// Takes frames from the path of `side`, and passes it those that are ready.
    fn carry(&mut self, side: Side) {
        let now = self.now;
        while let Some(frame) = self.half(side).path.poll(now) {
            let at = now + self.half(side.other()).card.logic.1;
            self.events += 1;
            self.arrive(side, at, &frame);
        }
        self.retry(side);
        self.pump(side);
    }
}

/// A handle to both cards and their links, for the owner of the world.
#[derive(Clone, Debug)]
pub struct Fabric {
    link: Rc<RefCell<Link>>,
}

impl Fabric {
    /// Two cards over `paths`, in both directions. The near one requests the connection, with
    /// `private_data`.
    ///
    /// # Panics
    /// When the settings name more regions than a protection domain has.
    pub fn new(
        config: &Config,
        paths: [Path; 2],
        pool: &SharedPool,
        private_data: &[u8],
    ) -> (Self, [ModelledEndpoint; 2]) {
        let rng = Rng::from_seed(config.seed);
        let [there, back] = paths;
        let half =
            |side: Side, path| Half::new(config, side, path, pool, rng.fork(["near", "far"][side.index()]));
        let mut halves = [half(Side::Near, there), half(Side::Far, back)];
        halves[1].events.push_back(Event::Requested { private_data: private_data.to_vec() });
        let link = Link {
            now: Instant::ZERO,
            halves,
            agenda: Later::default(),
            marks: Marks::default(),
            digest: Digest::default(),
            events: 0,
            statistics: Statistics::default(),
            pool: Rc::clone(pool),
        };
        let link = Rc::new(RefCell::new(link));
        let limits = config.limits;
        let ends = Side::BOTH.map(|side| ModelledEndpoint { link: Rc::clone(&link), side, limits });
        (Self { link }, ends)
    }

    /// Does everything that happens up to `now`. Then both endpoints may have news.
    pub fn advance(&self, now: Instant) {
        self.link.borrow_mut().advance(now);
    }

    /// Gives the streams that share the cards' links an order.
    pub fn order_streams(&self, now: Instant, order: Order) {
        self.advance(now);
        self.link.borrow_mut().halves.iter_mut().for_each(|half| half.path.order_streams(order));
    }

    /// Shows the measurements of the streams from `side`.
    pub fn measured(&self, side: Side, look: impl FnMut(&Measured)) {
        self.link.borrow().halves[side.index()].path.measured().for_each(look);
    }

    /// When to advance next, if ever.
    pub fn next(&self) -> Option<Instant> {
        let link = self.link.borrow();
        let software = link.halves.iter().filter_map(Half::reaps_at).min();
        [link.next(), software].into_iter().flatten().min()
    }

    /// Adds work for the software of `side` that takes `time`, and returns when it is done.
    pub fn work(&self, side: Side, time: Nanos, what: &'static str) -> Instant {
        let link = &mut *self.link.borrow_mut();
        let half = &mut link.halves[side.index()];
        let at = half.processor.work(link.now, time);
        half.cause = link.marks.mark(half.cause, at, Spot::Software(side), Part::Processing, what);
        at
    }

    /// When the software of `side` notices an arrival at `now`.
    pub fn notice(&self, side: Side, now: Instant) -> Instant {
        self.link.borrow_mut().half(side).processor.notice(now)
    }

    /// The cause of the present actions of the software of `side`.
    pub fn cause(&self, side: Side) -> Cause {
        self.link.borrow().halves[side.index()].cause
    }

    /// Sets the cause of the actions of the software of `side` from now on.
    pub fn set_cause(&self, side: Side, cause: Cause) {
        self.link.borrow_mut().half(side).cause = cause;
    }

    /// Marks an event of the world; see [`Marks::mark`].
    pub fn mark(&self, after: Cause, at: Instant, spot: Spot, part: Part, what: &'static str) -> Cause {
        self.link.borrow_mut().marks.mark(after, at, spot, part, what)
    }

    /// Begins or ends to follow events. This has no effect on the simulation.
    pub fn follow(&self, on: bool) {
        let link = &mut *self.link.borrow_mut();
        link.marks.switch(on);
        for half in &mut link.halves {
            half.cause = None;
            half.path.watch(on);
        }
    }

    /// The events that have led to `last`.
    pub fn chain(&self, last: Cause) -> Vec<Mark> {
        self.link.borrow().marks.chain(last)
    }

    /// The names of the hops of the packets of `side`.
    pub fn hops(&self, side: Side) -> Vec<Named> {
        self.link.borrow().halves[side.index()].path.names()
    }

    /// The counts so far.
    pub fn statistics(&self) -> Statistics {
        self.link.borrow().statistics
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.link.borrow().events
    }

    /// A fingerprint of all events so far.
    pub fn digest(&self) -> u64 {
        self.link.borrow().digest.value()
    }
}

/// One end of a connection between modelled cards.
#[derive(Debug)]
pub struct ModelledEndpoint {
    link: Rc<RefCell<Link>>,
    side: Side,
    limits: Limits,
}

impl Endpoint for ModelledEndpoint {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.link.borrow_mut().half(self.side).events.pop_front()
    }

    fn accept(&mut self, private_data: &[u8]) {
        let link = &mut *self.link.borrow_mut();
        let (own, peer) = link.both(self.side);
        for half in [&mut *own, &mut *peer] {
            for state in [State::ReadyToReceive, State::ReadyToSend] {
                if half.pair.modify(state).is_err() {
                    return;
                }
            }
        }
        own.events.push_back(Event::Established { private_data: Vec::new() });
        peer.events.push_back(Event::Established { private_data: private_data.to_vec() });
    }

    fn reject(&mut self, private_data: &[u8]) {
        let link = &mut *self.link.borrow_mut();
        let (own, peer) = link.both(self.side);
        own.pair.fail(WorkError::Flushed);
        peer.pair.fail(WorkError::Flushed);
        peer.events.push_back(Event::Rejected { private_data: private_data.to_vec() });
    }

    fn disconnect(&mut self) {
        let link = &mut *self.link.borrow_mut();
        for side in Side::BOTH {
            link.fail(side, WorkError::Flushed, rdma::Disconnected::InOrder);
        }
    }

    fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        let length = match &request.operation {
            Operation::Send { inline, data, .. } => inline.len() + data.len(),
            Operation::Write { data, .. } => data.len(),
            Operation::Read { remote } => remote.length as usize,
        };
        if length > self.limits.message_bytes as usize {
            return Err(PostError::Unsupported);
        }
        self.link.borrow_mut().post(self.side, request)
    }

    fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.link.borrow_mut().half(self.side).pair.post_receive(request)
    }

    fn poll_completion(&mut self) -> Option<WorkCompletion> {
        self.link.borrow_mut().reap(self.side)
    }

    fn register(&mut self, exposure: Exposure) -> Result<Remote, RegisterError> {
        let link = &mut *self.link.borrow_mut();
        let half = &mut link.halves[self.side.index()];
        // Data in the response need no memory that the peer may write.
        let needed = !half.card.data_in_response || matches!(exposure, Exposure::Read(_));
        let remote = half.domain.register(half.pair.id(), exposure)?;
        if needed {
            let at = half.processor.work(link.now, half.processor.driver().register);
            let spot = Spot::Software(self.side);
            half.cause = link.marks.mark(half.cause, at, spot, Part::Processing, "registration");
        }
        Ok(remote)
    }

    fn peek(&mut self, key: Key, offset: u32, into: &mut [u8]) -> bool {
        let link = &mut *self.link.borrow_mut();
        let half = link.half(self.side);
        half.domain.peek(half.pair.id(), key, offset, into)
    }

    fn deregister(&mut self, key: Key) -> Option<Buffer> {
        let link = &mut *self.link.borrow_mut();
        let half = link.half(self.side);
        half.domain.deregister(half.pair.id(), key)
    }
}

/// Completions and the events that they wait for.
#[derive(Debug, Default)]
struct Ready {
    entries: VecDeque<(Instant, WorkCompletion, u32, Cause)>,
}

impl Ready {
    /// Adds a completion that the software notices at `at`, with bytes that it must copy.
    fn push(&mut self, at: Instant, completion: WorkCompletion, copied: u32, cause: Cause) {
        self.entries.push_back((at, completion, copied, cause));
    }

    /// When the first one is noticed.
    fn at(&self) -> Option<Instant> {
        self.entries.front().map(|(at, ..)| *at)
    }
}
