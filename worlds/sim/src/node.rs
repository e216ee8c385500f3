//! The nodes of a world, and the world as a node sees it.

use engine::{Buffer, Instant, Rng};
use network_models::Network;
use network_models::trail::Trail;
use nvme::media;

use crate::direct::PortId;
use crate::stream::{ConnectionId, Lane, StreamEvent};
use crate::world::Core;

/// Identifies a node by the order in which nodes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// Number of the node, from 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An event that the world reports to a node.
#[derive(Debug)]
pub enum Event<P> {
    /// A packet has arrived over a direct link.
    Packet {
        /// The port of the node that the packet has arrived at.
        port: PortId,
        /// The packet that has arrived.
        packet: P,
    },
    /// Something has happened to a connection.
    Stream {
        /// The connection that the event is about.
        connection: ConnectionId,
        /// The event of the connection.
        event: StreamEvent,
    },
    /// A medium has answered a request.
    Media(media::Completion),
}

/// A part of the world: one or several engines, and their wiring.
///
/// An enum with a variant for each kind of node keeps the dispatch static.
pub trait Node {
    /// The type of packets on direct links.
    type Packet;

    /// Handles one event. The node may request actions of the world from `context`, here or in
    /// [`Node::settle`].
    fn handle(&mut self, context: &mut Context<'_, Self::Packet>, event: Event<Self::Packet>);

    /// Performs the due actions, passes outputs to `context`, and returns when it must be called
    /// again. Called after every event, at every wake, and when the node starts.
    fn settle(&mut self, context: &mut Context<'_, Self::Packet>) -> Option<Instant>;

    /// Restarts after a kill, with only the contents of its media.
    fn restart(&mut self, now: Instant, rng: Rng);

    /// A fingerprint of a packet, for the world's digest.
    fn fingerprint(packet: &Self::Packet) -> u64;
}

/// The actions of a node on the world.
#[derive(Debug)]
pub struct Context<'a, P> {
    pub(crate) core: &'a mut Core<P>,
    pub(crate) node: NodeId,
}

impl<P> Context<'_, P> {
    /// The current virtual time.
    pub const fn now(&self) -> Instant {
        self.core.now
    }

    /// The node that the context belongs to.
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

    /// Sends a packet that leaves at `at`, behind the packets that were sent before. For a node
    /// that models its end of the link.
    ///
    /// # Panics
    /// When the node has no such port.
    pub fn send_packet_at(&mut self, port: PortId, packet: P, at: Instant) {
        self.core.send_packet_at(self.node, port, packet, at);
    }

    /// Dials `peer`; [`StreamEvent::Opened`] or [`StreamEvent::Closed`] follows.
    ///
    /// # Panics
    /// When no link joins the two nodes.
    pub fn dial(&mut self, peer: NodeId) -> ConnectionId {
        self.dial_lane(peer, Lane::default())
    }

    /// Dials `peer` by the link `lane`, one of several between the two nodes;
    /// [`StreamEvent::Opened`] or [`StreamEvent::Closed`] follows.
    ///
    /// # Panics
    /// When no link of this number joins the two nodes.
    pub fn dial_lane(&mut self, peer: NodeId, lane: Lane) -> ConnectionId {
        self.core.dial(self.node, peer, lane)
    }

    /// Passes `bytes` to a connection, and returns how many of them it accepted. If some are left,
    /// [`StreamEvent::Writable`] follows when there is room again. A closed connection accepts
    /// none.
    pub fn send(&mut self, connection: ConnectionId, bytes: &[u8]) -> usize {
        self.core.send(self.node, connection, bytes)
    }

    /// Gives the bytes of `data` to a connection, like [`Context::send`]; a modelled network does
    /// not copy them.
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

    /// The modelled network that a connection runs over, if any.
    pub fn network(&self, connection: ConnectionId) -> Option<&Network> {
        self.core.network_of(self.node, connection)
    }

    /// Starts or stops following the frames of the modelled network that a connection runs over,
    /// for [`Context::trail`]. This has no effect on the simulation.
    pub fn watch(&mut self, connection: ConnectionId, on: bool) {
        self.core.watch_model(self.node, connection, on);
    }

    /// The trail of the frame that brought this event's data, if the network is watched. It is
    /// returned once.
    pub fn trail(&mut self) -> Option<Trail> {
        self.core.trail.take().map(|trail| *trail)
    }

    /// Closes this side of a connection. The peer receives everything that was sent, then
    /// [`StreamEvent::Closed`].
    pub fn close(&mut self, connection: ConnectionId) {
        self.core.close(self.node, connection);
    }

    /// Submits a request to one of the node's media.
    ///
    /// # Panics
    /// When the node has no such medium.
    pub fn media(&mut self, request: media::Request) {
        self.core.submit(self.node, request);
    }
}
