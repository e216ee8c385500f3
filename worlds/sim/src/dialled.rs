//! The connections that a tunnel's upstream end has dialled.

use engine::Buffer;
use tunnel::upstream::ConnectionIndex;

use crate::stream::{ConnectionId, Outbox, StreamEvent};
use crate::{Context, NodeId};

/// A dialled connection.
#[derive(Debug)]
struct Dialled {
    connection: ConnectionId,
    is_open: bool,
    outbox: Outbox,
}

/// An event of a dialled connection, for the engine that dialled it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialledEvent {
    /// The connection is open.
    Connected,
    /// A piece of the byte stream has arrived.
    Received(Buffer),
    /// The connection has ended, or could not be established.
    Disconnected,
}

/// The world's connections, by the indices that the engine uses for them.
#[derive(Debug)]
pub struct DialledConnections(Vec<Option<Dialled>>);

impl DialledConnections {
    /// No connection yet, of `count` that the engine may dial.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| None).collect())
    }

    /// The index of the connection and its event; `None` if the connection is not one of these, or
    /// the engine need not handle the event.
    pub fn on_event(
        &mut self,
        connection: ConnectionId,
        event: StreamEvent,
    ) -> Option<(ConnectionIndex, DialledEvent)> {
        let is_it = |one: &Option<Dialled>| one.as_ref().is_some_and(|one| one.connection == connection);
        let place = self.0.iter().position(is_it)?;
        let event = match event {
            StreamEvent::Opened => {
                self.0[place].as_mut().expect("the connection was found").is_open = true;
                DialledEvent::Connected
            }
            StreamEvent::Data(bytes) => DialledEvent::Received(bytes),
            StreamEvent::Closed(_) => {
                self.0[place] = None;
                DialledEvent::Disconnected
            }
            StreamEvent::Writable | StreamEvent::Accepted { .. } => return None,
        };
        Some((ConnectionIndex(u8::try_from(place).expect("few connections")), event))
    }

    /// Dials `peer`. An earlier connection with this index is closed first.
    pub fn dial<P>(&mut self, context: &mut Context<'_, P>, index: ConnectionIndex, peer: NodeId) {
        self.close(context, index);
        let connection = context.dial(peer);
        self.0[usize::from(index.0)] =
            Some(Dialled { connection, is_open: false, outbox: Outbox::default() });
    }

    /// Queues bytes that the engine sends.
    pub fn push(&mut self, index: ConnectionIndex, bytes: Buffer) {
        if let Some(one) = &mut self.0[usize::from(index.0)] {
            one.outbox.push(bytes);
        }
    }

    /// Closes a connection. Bytes that the connection does not take at once are lost.
    pub fn close<P>(&mut self, context: &mut Context<'_, P>, index: ConnectionIndex) {
        if let Some(mut one) = self.0[usize::from(index.0)].take() {
            if one.is_open {
                one.outbox.flush(context, one.connection);
            }
            context.close(one.connection);
        }
    }

    /// Sends as much as the open connections take.
    pub fn flush<P>(&mut self, context: &mut Context<'_, P>) {
        for one in self.0.iter_mut().flatten().filter(|one| one.is_open) {
            one.outbox.flush(context, one.connection);
        }
    }

    /// The world's names of the connections that exist.
    pub fn names(&self) -> impl Iterator<Item = ConnectionId> {
        self.0.iter().flatten().map(|one| one.connection)
    }

    /// Forgets all connections.
    pub fn clear(&mut self) {
        self.0.fill_with(|| None);
    }
}
