//! Bytes that wait for room in a connection.

use std::collections::VecDeque;

use engine::Buffer;
use sim::Context;
use sim::stream::ConnectionId;

/// Bytes that an engine has sent and its connection has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Buffer>,
    /// The connection is to be closed once everything is sent.
    closing: bool,
}

impl Outbox {
    pub(crate) fn push(&mut self, bytes: Buffer) {
        self.waiting.push_back(bytes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Closes the connection once everything that waits is sent.
    pub(crate) const fn close(&mut self) {
        self.closing = true;
    }

    /// Sends as much as the connection takes; returns whether it was closed.
    pub(crate) fn flush<P>(&mut self, context: &mut Context<'_, P>, connection: ConnectionId) -> bool {
        while let Some(first) = self.waiting.front_mut() {
            let taken = context.send_buffer(connection, first);
            if taken < first.len() {
                *first = first.slice(taken..first.len());
                return false;
            }
            self.waiting.pop_front();
        }
        if self.closing {
            context.close(connection);
        }
        self.closing
    }
}
