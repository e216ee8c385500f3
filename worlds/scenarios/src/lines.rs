//! The connections that a tunnel's downstream end has accepted.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use engine::Buffer;
use sim::Context;
use sim::stream::{ConnectionId, StreamEvent};
use tunnel::downstream;

use crate::outbox::Outbox;

/// The network of the nodes' addresses: 10.0.0.0/8.
const NETWORK: u32 = 10 << 24;

/// An accepted connection.
#[derive(Debug)]
struct Line {
    connection: ConnectionId,
    outbox: Outbox,
    /// The engine has closed the line; its connection is closed when everything is sent.
    ended: bool,
}

/// The world's connections, by the numbers that the engine knows them by.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: BTreeMap<u32, Line>,
    accepted: u32,
}

impl Lines {
    /// The engine's input for `event`, if any.
    pub(crate) fn heed(&mut self, connection: ConnectionId, event: StreamEvent) -> Option<downstream::Input> {
        if let StreamEvent::Accepted { peer, .. } = event {
            self.accepted += 1;
            let line = Line { connection, outbox: Outbox::default(), ended: false };
            self.lines.insert(self.accepted, line);
            let number = u32::try_from(peer.index()).expect("a world has few nodes");
            let address = Ipv4Addr::from_bits(NETWORK + number).into();
            return Some(downstream::Input::Accepted(downstream::ConnectionId(self.accepted), address));
        }
        let (&number, line) = self.lines.iter().find(|(_, line)| line.connection == connection)?;
        let (name, ended) = (downstream::ConnectionId(number), line.ended);
        match event {
            StreamEvent::Data(bytes) if !ended => Some(downstream::Input::Received(name, bytes)),
            StreamEvent::Closed(_) => {
                self.lines.remove(&number);
                (!ended).then_some(downstream::Input::Disconnected(name))
            }
            _ => None,
        }
    }

    /// Queues bytes that the engine sends.
    pub(crate) fn push(&mut self, name: downstream::ConnectionId, bytes: Buffer) {
        if let Some(line) = self.lines.get_mut(&name.0) {
            line.outbox.push(bytes);
        }
    }

    /// Closes a line on behalf of the engine, after everything queued is sent.
    pub(crate) fn close(&mut self, name: downstream::ConnectionId) {
        if let Some(line) = self.lines.get_mut(&name.0) {
            line.ended = true;
            line.outbox.close();
        }
    }

    /// Sends as much as the connections take.
    pub(crate) fn flush<P>(&mut self, context: &mut Context<'_, P>) {
        self.lines.retain(|_, line| !line.outbox.flush(context, line.connection));
    }

    /// Forgets all lines. Their numbers are not used again.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }
}
