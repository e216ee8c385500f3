//! What lives in the world, and what the world looks like from inside.

use engine::{Buffer, Instant, Rng};
use link::Network;
use link::trail::Trail;
use nvme::media;

use crate::direct::PortId;
use crate::stream::{ConnectionId, Lane, StreamEvent};
use crate::world::Core;

/// Names a node: the order in which it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// Which one it is, the first being 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the world tells a node.
#[derive(Debug)]
pub enum Event<P> {
    /// A packet came over a direct link.
    Packet {
        /// The node's port.
        port: PortId,
        /// The packet.
        packet: P,
    },
    /// Something happened to a connection.
    Stream {
        /// The connection.
        connection: ConnectionId,
        /// What happened.
        event: StreamEvent,
    },
    /// A medium answers.
    Media(media::Completion),
}

/// A part of the world: one engine or several, with the wiring between them.
///
/// An enum with a variant for each kind of node keeps the dispatch static.
pub trait Node {
    /// What direct links carry.
    type Packet;

    /// Takes one event. What it wants of the world, it asks of `context`, here or in [`Node::settle`].
    fn handle(&mut self, context: &mut Context<'_, Self::Packet>, event: Event<Self::Packet>);

    /// Does what is due, hands its outputs to `context` and says when it wants to be called again.
    /// Called after every event, at every wake, and when the node starts.
    fn settle(&mut self, context: &mut Context<'_, Self::Packet>) -> Option<Instant>;

    /// Comes back after a kill, with nothing but what its medium holds.
    fn restart(&mut self, now: Instant, rng: Rng);

    /// A fingerprint of a packet for the trace's digest.
    fn fingerprint(packet: &Self::Packet) -> u64;
}

/// What a node may do to the world.
#[derive(Debug)]
pub struct Context<'a, P> {
    pub(crate) core: &'a mut Core<P>,
    pub(crate) node: NodeId,
}

impl<P> Context<'_, P> {
    /// The time.
    pub const fn now(&self) -> Instant {
        self.core.now
    }

    /// Who is asking.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Sends a packet over a direct link.
    ///
    /// # Panics
    /// When the node has no such port.
    pub fn send_packet(&mut self, port: PortId, packet: P) {
        self.core.send_packet(self.node, port, packet);
    }

    /// As [`Context::send_packet`], of a packet that leaves at `at`, behind those that were sent before: for a node that
    /// models its end of the link.
    ///
    /// # Panics
    /// When the node has no such port.
    pub fn send_packet_at(&mut self, port: PortId, packet: P, at: Instant) {
        self.core.send_packet_at(self.node, port, packet, at);
    }

    /// Asks for a connection to `peer`; [`StreamEvent::Opened`] or [`StreamEvent::Closed`] follows.
    ///
    /// # Panics
    /// When the world has no link between the two.
    pub fn dial(&mut self, peer: NodeId) -> ConnectionId {
        self.dial_lane(peer, Lane::default())
    }

    /// As [`Context::dial`], by one of several links.
    ///
    /// # Panics
    /// When the world has no such link between the two.
    pub fn dial_lane(&mut self, peer: NodeId, lane: Lane) -> ConnectionId {
        self.core.dial(self.node, peer, lane)
    }

    /// Gives `bytes` to a connection and says how many of them it took. Where it is not all,
    /// [`StreamEvent::Writable`] follows when there is room again. A connection that is gone takes none.
    pub fn send(&mut self, connection: ConnectionId, bytes: &[u8]) -> usize {
        self.core.send(self.node, connection, bytes)
    }

    /// As [`Context::send`] of all that `data` holds; over a modelled network it is not copied.
    pub fn send_buffer(&mut self, connection: ConnectionId, data: &Buffer) -> usize {
        if connection.of_model().is_some() {
            self.core.send_buffer_modelled(self.node, connection, data)
        } else {
            self.core.send(self.node, connection, data)
        }
    }

    /// How many bytes [`Context::send`] would take now.
    pub fn room(&mut self, connection: ConnectionId) -> usize {
        self.core.room(self.node, connection)
    }

    /// The modelled network that a connection is over, if it is over one.
    pub fn network(&self, connection: ConnectionId) -> Option<&Network> {
        self.core.network_of(self.node, connection)
    }

    /// Follows the frames of the modelled network that a connection is over, or no longer: [`Context::trail`]. It changes
    /// nothing of what happens.
    pub fn watch(&mut self, connection: ConnectionId, on: bool) {
        self.core.watch_model(self.node, connection, on);
    }

    /// What the frame did that brought the data of this event, where somebody watches; once.
    pub fn trail(&mut self) -> Option<Trail> {
        self.core.trail.take().map(|trail| *trail)
    }

    /// Closes this side of a connection; the peer gets what was sent, then [`StreamEvent::Closed`].
    pub fn close(&mut self, connection: ConnectionId) {
        self.core.close(self.node, connection);
    }

    /// Gives a request to one of the node's media.
    ///
    /// # Panics
    /// When the node has no such medium.
    pub fn media(&mut self, request: media::Request) {
        self.core.submit(self.node, request);
    }
}
