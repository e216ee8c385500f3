//! The connections that a tunnel's downstream end has accepted.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use engine::Buffer;
use tunnel::downstream;

use crate::stream::{ConnectionId, Outbox, StreamEvent};
use crate::{Context, NodeId};

/// The network of the nodes' addresses: 10.0.0.0/8.
const NETWORK: u32 = 10 << 24;

/// An accepted connection.
#[derive(Debug)]
struct Accepted {
    connection: ConnectionId,
    outbox: Outbox,
    /// The engine has closed it; the world's connection is closed when everything is sent.
    ended: bool,
}

/// The world's connections, by the numbers that the engine uses for them.
#[derive(Debug, Default)]
pub struct AcceptedConnections {
    connections: BTreeMap<u32, Accepted>,
    accepted: u32,
}

impl AcceptedConnections {
    /// The address of a node.
    ///
    /// # Panics
    /// When the world has more nodes than there are addresses.
    pub fn address(node: NodeId) -> IpAddr {
        let number = u32::try_from(node.index()).expect("a world has few nodes");
        Ipv4Addr::from_bits(NETWORK + number).into()
    }

    /// The engine's input for `event`, if any.
    pub fn on_event(&mut self, connection: ConnectionId, event: StreamEvent) -> Option<downstream::Input> {
        if let StreamEvent::Accepted { peer, .. } = event {
            self.accepted += 1;
            let one = Accepted { connection, outbox: Outbox::default(), ended: false };
            self.connections.insert(self.accepted, one);
            let address = Self::address(peer);
            return Some(downstream::Input::Accepted(downstream::ConnectionId(self.accepted), address));
        }
        let (&number, one) = self.connections.iter().find(|(_, one)| one.connection == connection)?;
        let (name, ended) = (downstream::ConnectionId(number), one.ended);
        match event {
            StreamEvent::Data(bytes) if !ended => Some(downstream::Input::Received(name, bytes)),
            StreamEvent::Closed(_) => {
                self.connections.remove(&number);
                (!ended).then_some(downstream::Input::Disconnected(name))
            }
            _ => None,
        }
    }

    /// Queues bytes that the engine sends.
    pub fn push(&mut self, name: downstream::ConnectionId, bytes: Buffer) {
        if let Some(one) = self.connections.get_mut(&name.0) {
            one.outbox.push(bytes);
        }
    }

    /// Closes a connection on behalf of the engine, after everything queued is sent.
    pub fn close(&mut self, name: downstream::ConnectionId) {
        if let Some(one) = self.connections.get_mut(&name.0) {
            one.ended = true;
            one.outbox.close();
        }
    }

    /// Sends as much as the connections take.
    pub fn flush<P>(&mut self, context: &mut Context<'_, P>) {
        self.connections.retain(|_, one| !one.outbox.flush(context, one.connection));
    }

    /// Forgets all connections. Their numbers are not used again.
    pub fn clear(&mut self) {
        self.connections.clear();
    }

    /// Number of connections.
    pub fn count(&self) -> usize {
        self.connections.len()
    }
}
