//! Reliable byte streams between nodes, like TCP's: ordered, with bounded data in flight, and lost
//! at any byte.

mod outbox;

pub use outbox::Outbox;

use std::collections::VecDeque;

use engine::{Buffer, Instant, Nanos, Pool, Rng};
use network_models::Rate;
use network_models::faults::{Behaviour, Jitter};

use crate::NodeId;
use crate::schedule::{Key, Slot, Source};
use crate::world::Core;

/// Identifies a connection equally at both ends; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
    /// The modelled network that the connection runs over, if any.
    model: Option<u32>,
}

impl ConnectionId {
    pub(crate) fn modelled(model: usize, index: usize, generation: u32) -> Self {
        let narrow = |number| u32::try_from(number).expect("few models and connections");
        Self { index: narrow(index), generation, model: Some(narrow(model)) }
    }

    /// The model, the index in its table, and the generation.
    pub(crate) fn of_model(self) -> Option<(usize, usize, u32)> {
        self.model.map(|model| (model as usize, self.index as usize, self.generation))
    }
}

/// One of several links between two nodes, like the ports of a box. Most nodes have a single link,
/// which is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane(pub u8);

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// A peer has dialled this node, and the connection is open.
    Accepted {
        /// The node that dialled.
        peer: NodeId,
        /// The link by which the node dialled.
        lane: Lane,
    },
    /// The peer has accepted the dial.
    Opened,
    /// Bytes of the stream have arrived, in order.
    Data(Buffer),
    /// There is room again, after a send that accepted only part of its bytes.
    Writable,
    /// The connection is closed, and no event follows.
    Closed(Closed),
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The peer is down, so the dial was refused.
    Refused,
    /// The peer did not answer.
    TimedOut,
    /// The peer has closed the connection, after everything it sent has arrived.
    ByPeer,
    /// The connection was lost, with the bytes in flight.
    Lost,
}

/// The properties of a link between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkProfile {
    /// One-way time of the first byte.
    pub latency: Nanos,
    /// The largest random time added to each segment; segments stay in order.
    pub jitter: Nanos,
    /// Rate in bytes a second; 0 means that bytes take no time.
    pub rate: u64,
    /// The largest number of unacknowledged bytes in one direction.
    pub in_flight_max: usize,
    /// The largest segment in bytes; the lengths of segments are random.
    pub segment_max: usize,
    /// The largest time until an end notices that its connection was lost. Each end notices at a
    /// random time of its own.
    pub notice_max: Nanos,
}

impl Default for LinkProfile {
    /// The profile of a quick local network.
    fn default() -> Self {
        Self {
            latency: Nanos::from_micros(10),
            jitter: Nanos::ZERO,
            rate: 1_250_000_000,
            in_flight_max: 256 << 10,
            segment_max: 64 << 10,
            notice_max: Nanos::from_millis(1),
        }
    }
}

impl LinkProfile {
    /// The profile's additions to a modelled network: latency, jitter and rate. TCP's behaviour
    /// stays that of the model.
    fn as_behaviour(&self) -> Behaviour {
        let jitter = if self.jitter == Nanos::ZERO { Jitter::None } else { Jitter::Uniform(self.jitter) };
        let rate = (self.rate > 0).then(|| Rate::new(self.rate.saturating_mul(8)));
        Behaviour { delay: self.latency, jitter, rate, ..Behaviour::default() }
    }
}

/// How long a dial to a held link takes to fail.
pub const DIAL_TIMEOUT: Nanos = Nanos::from_secs(1);

#[derive(Debug)]
pub(crate) struct Link {
    nodes: [NodeId; 2],
    lane: Lane,
    profile: LinkProfile,
    /// The first profile, which the link gets again when the world is healed.
    healthy: LinkProfile,
    rng: Rng,
    /// Nothing arrives before this time, and a dial made before it times out.
    held_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The node may send, and its bytes arrive.
    Open,
    /// The node's bytes are lost, but the node does not know it yet.
    Cut,
    /// The node knows that the connection is closed.
    Closed,
}

#[derive(Debug)]
enum Arrival {
    Accepted,
    Opened,
    Data(Buffer),
    Closed(Closed),
}

#[derive(Debug)]
struct End {
    node: NodeId,
    state: State,
    /// The arrivals on their way to this end, ordered by time.
    arrivals: VecDeque<(Key, Arrival)>,
    arrival_slot: Slot,
    /// When bytes of this end are acknowledged, and how many.
    acknowledgements: VecDeque<(Key, usize)>,
    writable_slot: Slot,
    in_flight: usize,
    blocked: bool,
    /// Until when bytes of this end occupy the line.
    busy_until: Instant,
}

#[derive(Debug)]
pub(crate) struct Connection {
    generation: u32,
    link: usize,
    ends: [End; 2],
}

/// The largest number of connections. A world that needs more forgets to close its connections.
const CONNECTIONS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Streams {
    links: Vec<Link>,
    connections: Vec<Connection>,
    free: Vec<usize>,
    pool: Pool,
}

impl<P> Core<P> {
    pub(crate) fn add_link(&mut self, one: NodeId, other: NodeId, lane: Lane, profile: LinkProfile) {
        assert!(!self.is_linked(one, other, lane), "two links join {one:?} and {other:?} as {lane:?}");
        assert!(profile.in_flight_max > 0 && profile.segment_max > 0, "a link without capacity");
        let mut rng = self.rng.fork(&format!("link {}-{}", one.0, other.0));
        if lane > Lane::default() {
            rng = rng.fork(&format!("lane {}", lane.0));
        }
        self.streams.links.push(Link {
            nodes: [one, other],
            lane,
            profile,
            healthy: profile,
            rng,
            held_until: Instant::ZERO,
        });
    }

    /// Whether a link of this number joins the two nodes, modelled or not.
    pub(crate) fn is_linked(&self, one: NodeId, other: NodeId, lane: Lane) -> bool {
        self.link_between(one, other, lane).is_some() || self.model_between(one, other, lane).is_some()
    }

    fn link_between(&self, one: NodeId, other: NodeId, lane: Lane) -> Option<usize> {
        let joins = |link: &Link| link.nodes == [one, other] || link.nodes == [other, one];
        self.streams.links.iter().position(|link| joins(link) && link.lane == lane)
    }

    fn link_index(&self, one: NodeId, other: NodeId, lane: Lane) -> usize {
        self.link_between(one, other, lane)
            .unwrap_or_else(|| panic!("no link joins {one:?} and {other:?} as {lane:?}"))
    }

    pub(crate) fn set_profile(&mut self, one: NodeId, other: NodeId, lane: Lane, profile: LinkProfile) {
        if let Some(model) = self.model_between(one, other, lane) {
            return self.impair_model(model, profile.as_behaviour());
        }
        let link = self.link_index(one, other, lane);
        self.streams.links[link].profile = profile;
    }

    /// Delays everything that would arrive over the link before `until`.
    pub(crate) fn hold_link(&mut self, one: NodeId, other: NodeId, lane: Lane, until: Instant) {
        if let Some(model) = self.model_between(one, other, lane) {
            return self.hold_model(model, until);
        }
        let index = self.link_index(one, other, lane);
        let link = &mut self.streams.links[index];
        link.held_until = link.held_until.max(until);
    }

    pub(crate) fn heal_links(&mut self) {
        let now = self.now;
        for link in &mut self.streams.links {
            link.profile = link.healthy;
            link.held_until = link.held_until.min(now);
        }
        for model in 0..self.models.len() {
            self.impair_model(model, Behaviour::default());
        }
    }

    pub(crate) fn dial(&mut self, node: NodeId, peer: NodeId, lane: Lane) -> ConnectionId {
        if let Some(model) = self.model_between(node, peer, lane) {
            return self.dial_model(node, model);
        }
        let link = self.link_index(node, peer, lane);
        let Link { profile, held_until, .. } = self.streams.links[link];
        let index = self.open([node, peer], link);
        let id = ConnectionId {
            index: u32::try_from(index).expect("few connections"),
            generation: self.streams.connections[index].generation,
            model: None,
        };
        let there = self.now + profile.latency;
        let back = there + profile.latency;
        if held_until > self.now {
            self.fail_dial(index, self.now + DIAL_TIMEOUT, Closed::TimedOut);
        } else if self.nodes[peer.index()].alive {
            self.arrive(index, 1, there, Arrival::Accepted);
            self.arrive(index, 0, back, Arrival::Opened);
        } else {
            self.fail_dial(index, back, Closed::Refused);
        }
        id
    }

    /// Fails a dial that has reached no listener, which the dialler learns at `at`.
    fn fail_dial(&mut self, index: usize, at: Instant, why: Closed) {
        let ends = &mut self.streams.connections[index].ends;
        (ends[0].state, ends[1].state) = (State::Cut, State::Closed);
        self.arrive(index, 0, at, Arrival::Closed(why));
    }

    /// An empty connection: a used entry of the table, or a new one.
    fn open(&mut self, nodes: [NodeId; 2], link: usize) -> usize {
        if let Some(index) = self.streams.free.pop() {
            let connection = &mut self.streams.connections[index];
            connection.generation += 1;
            connection.link = link;
            for (end, node) in connection.ends.iter_mut().zip(nodes) {
                (end.node, end.state) = (node, State::Open);
                (end.in_flight, end.blocked, end.busy_until) = (0, false, Instant::ZERO);
            }
            return index;
        }
        let index = self.streams.connections.len();
        assert!(
            index < CONNECTIONS_MAX,
            "{CONNECTIONS_MAX} connections are open: the nodes do not close them"
        );
        let ends = [0, 1].map(|side| End {
            node: nodes[side],
            state: State::Open,
            arrivals: VecDeque::new(),
            arrival_slot: self.schedule.add(Source::Arrival { connection: index, side }),
            acknowledgements: VecDeque::new(),
            writable_slot: self.schedule.add(Source::Writable { connection: index, side }),
            in_flight: 0,
            blocked: false,
            busy_until: Instant::ZERO,
        });
        self.streams.connections.push(Connection { generation: 1, link, ends });
        index
    }

    /// Schedules an arrival at `side` for `at`, or behind the arrivals that are on their way.
    fn arrive(&mut self, connection: usize, side: usize, at: Instant, arrival: Arrival) -> Instant {
        let end = &mut self.streams.connections[connection].ends[side];
        let at = end.arrivals.back().map_or(at, |(last, _)| at.max(last.at));
        let key = self.schedule.key(at);
        if end.arrivals.is_empty() {
            self.schedule.arm(end.arrival_slot, key);
        }
        end.arrivals.push_back((key, arrival));
        at
    }

    /// The index and the side of the connection `id`, unless `node` has closed it.
    fn side_of(&self, node: NodeId, id: ConnectionId) -> Option<(usize, usize)> {
        if id.model.is_some() {
            return None;
        }
        let index = id.index as usize;
        let connection =
            self.streams.connections.get(index).filter(|found| found.generation == id.generation)?;
        let side = connection.ends.iter().position(|end| end.node == node && end.state != State::Closed)?;
        Some((index, side))
    }

    pub(crate) fn room(&mut self, node: NodeId, id: ConnectionId) -> usize {
        if id.model.is_some() {
            return self.model_room(node, id, 0);
        }
        let Some((index, side)) = self.side_of(node, id) else { return 0 };
        let connection = &mut self.streams.connections[index];
        let end = &mut connection.ends[side];
        while let Some((_, bytes)) = end.acknowledgements.front().filter(|(key, _)| key.at <= self.now) {
            end.in_flight -= bytes;
            end.acknowledgements.pop_front();
        }
        self.streams.links[connection.link].profile.in_flight_max.saturating_sub(end.in_flight)
    }

    pub(crate) fn send(&mut self, node: NodeId, id: ConnectionId, bytes: &[u8]) -> usize {
        if id.model.is_some() {
            return self.send_modelled(node, id, bytes);
        }
        let taken = self.room(node, id).min(bytes.len());
        let Some((index, side)) = self.side_of(node, id) else { return 0 };
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let link = &mut self.streams.links[self.streams.connections[index].link];
            let longest = link.profile.segment_max.min(Pool::LENGTH_MAX).min(rest.len());
            // Most segments have the full length; some end anywhere, because a peer must cope with
            // it.
            let length = if link.rng.one_in(4) { 1 + below(&mut link.rng, longest) } else { longest };
            let (segment, after) = rest.split_at(length);
            self.send_segment(index, side, segment);
            rest = after;
        }
        let end = &mut self.streams.connections[index].ends[side];
        if taken < bytes.len() {
            end.blocked = true;
            self.schedule.show(end.writable_slot, end.acknowledgements.front().map(|(key, _)| *key));
        }
        taken
    }

    fn send_segment(&mut self, index: usize, side: usize, segment: &[u8]) {
        let connection = &mut self.streams.connections[index];
        let Link { profile, rng, held_until, .. } = &mut self.streams.links[connection.link];
        let end = &mut connection.ends[side];
        end.in_flight += segment.len();
        if end.state == State::Cut {
            return;
        }
        let sent = self.now.max(end.busy_until) + serialisation(segment.len(), profile.rate);
        end.busy_until = sent;
        let jitter = Nanos::new(rng.below(profile.jitter.get() + 1));
        let (at, latency) = ((sent + jitter).max(*held_until) + profile.latency, profile.latency);
        let data = Arrival::Data(self.streams.pool.copy(segment));
        let at = self.arrive(index, 1 - side, at, data);
        let key = self.schedule.key(at + latency);
        self.streams.connections[index].ends[side].acknowledgements.push_back((key, segment.len()));
    }

    pub(crate) fn close(&mut self, node: NodeId, id: ConnectionId) {
        if id.model.is_some() {
            return self.close_modelled(node, id);
        }
        let Some((index, side)) = self.side_of(node, id) else { return };
        let connection = &self.streams.connections[index];
        let latency = self.streams.links[connection.link].profile.latency;
        let informs_peer = connection.ends[side].state == State::Open;
        self.forget(index, side);
        if informs_peer && self.streams.connections[index].ends[1 - side].state != State::Closed {
            self.streams.connections[index].ends[1 - side].state = State::Cut;
            self.arrive(index, 1 - side, self.now + latency, Arrival::Closed(Closed::ByPeer));
        }
        self.release(index);
    }

    /// Removes the connection from the node at `side`.
    fn forget(&mut self, index: usize, side: usize) {
        let end = &mut self.streams.connections[index].ends[side];
        end.state = State::Closed;
        end.arrivals.clear();
        end.acknowledgements.clear();
        self.schedule.disarm(end.arrival_slot);
        self.schedule.disarm(end.writable_slot);
    }

    /// Frees the connection's entry once neither end has it.
    fn release(&mut self, index: usize) {
        if self.streams.connections[index].ends.iter().all(|end| end.state == State::Closed)
            && !self.streams.free.contains(&index)
        {
            self.streams.free.push(index);
        }
    }

    /// Cuts every connection of a link.
    pub(crate) fn cut_link(&mut self, one: NodeId, other: NodeId, lane: Lane) {
        if let Some(model) = self.model_between(one, other, lane) {
            return self.cut_model(model);
        }
        let link = self.link_index(one, other, lane);
        for index in 0..self.streams.connections.len() {
            if self.streams.connections[index].link == link {
                (0..2).for_each(|side| self.cut_end(index, side));
            }
        }
    }

    /// Handles the kill of a node: its ends are closed, and its peers notice later.
    pub(crate) fn drop_connections(&mut self, node: NodeId) {
        self.drop_modelled(node);
        for index in 0..self.streams.connections.len() {
            for side in 0..2 {
                let end = &self.streams.connections[index].ends[side];
                if end.node == node && end.state != State::Closed {
                    self.cut_end(index, 1 - side);
                    self.forget(index, side);
                    self.release(index);
                }
            }
        }
    }

    /// Drops the bytes on their way to `side` from a random byte on. The node there notices some
    /// time later.
    fn cut_end(&mut self, index: usize, side: usize) {
        let connection = &mut self.streams.connections[index];
        let link = &mut self.streams.links[connection.link];
        let end = &mut connection.ends[side];
        if end.state != State::Open {
            return;
        }
        end.state = State::Cut;
        let notice = self.now + Nanos::new(link.rng.below(link.profile.notice_max.get() + 1));
        let on_the_way = end.arrivals.iter().map(|(_, arrival)| length(arrival)).sum::<usize>();
        let mut kept = below(&mut link.rng, on_the_way + 1);
        let mut known = true;
        let mut lost = false;
        end.arrivals.retain_mut(|(key, arrival)| {
            lost |= key.at > notice;
            if !lost && let Arrival::Data(data) = arrival {
                lost = kept < data.len();
                *data = data.slice(0..kept.min(data.len()));
                kept -= data.len();
                return !data.is_empty();
            }
            known &= !(lost && matches!(arrival, Arrival::Accepted));
            !lost
        });
        if known {
            self.schedule.disarm(end.arrival_slot);
            let first = end.arrivals.front().map(|(key, _)| *key);
            self.schedule.show(end.arrival_slot, first);
            self.arrive(index, side, notice, Arrival::Closed(Closed::Lost));
        } else {
            self.forget(index, side);
            self.release(index);
        }
    }

    /// The node at `side` of a connection.
    pub(crate) fn end_node(&self, index: usize, side: usize) -> NodeId {
        self.streams.connections[index].ends[side].node
    }

    /// Takes the next arrival at `side`.
    pub(crate) fn pop_arrival(&mut self, index: usize, side: usize) -> (ConnectionId, StreamEvent) {
        let connection = &mut self.streams.connections[index];
        let id = ConnectionId {
            index: u32::try_from(index).expect("few connections"),
            generation: connection.generation,
            model: None,
        };
        let (peer, lane) = (connection.ends[1 - side].node, self.streams.links[connection.link].lane);
        let end = &mut connection.ends[side];
        let (_, arrival) = end.arrivals.pop_front().expect("an armed end has an arrival");
        self.schedule.show(end.arrival_slot, end.arrivals.front().map(|(key, _)| *key));
        let event = match arrival {
            Arrival::Accepted => StreamEvent::Accepted { peer, lane },
            Arrival::Opened => StreamEvent::Opened,
            Arrival::Data(data) => StreamEvent::Data(data),
            Arrival::Closed(why) => {
                self.forget(index, side);
                self.release(index);
                StreamEvent::Closed(why)
            }
        };
        (id, event)
    }

    /// Takes the notice that `side` has room again, if it has.
    pub(crate) fn pop_writable(&mut self, index: usize, side: usize) -> Option<ConnectionId> {
        let connection = &self.streams.connections[index];
        let id = ConnectionId {
            index: u32::try_from(index).expect("few connections"),
            generation: connection.generation,
            model: None,
        };
        let room = self.room(connection.ends[side].node, id);
        let end = &mut self.streams.connections[index].ends[side];
        self.schedule.disarm(end.writable_slot);
        if end.blocked && room > 0 {
            end.blocked = false;
            return Some(id);
        }
        None
    }
}

fn serialisation(bytes: usize, rate: u64) -> Nanos {
    let time = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000);
    Nanos::new(time.checked_div(u128::from(rate)).map_or(0, |time| u64::try_from(time).unwrap_or(u64::MAX)))
}

fn length(arrival: &Arrival) -> usize {
    match arrival {
        Arrival::Data(data) => data.len(),
        _ => 0,
    }
}

/// A random length in `0..bound`.
fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).expect("less than a usize")
}
