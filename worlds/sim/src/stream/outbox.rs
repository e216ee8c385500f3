//! Bytes that wait for room in a connection.

use std::collections::VecDeque;

use super::ConnectionId;
use crate::Context;
use engine::Buffer;

/// Bytes that an engine has sent and its connection has not accepted yet.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<Buffer>,
    /// Close the connection once everything is sent.
    closing: bool,
}

impl Outbox {
    /// Appends `bytes` to those that wait.
    pub fn push(&mut self, bytes: Buffer) {
        self.waiting.push_back(bytes);
    }

    /// Whether the connection has accepted everything.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Closes the connection once everything that waits is sent.
    pub const fn close(&mut self) {
        self.closing = true;
    }

    /// Sends as much as the connection accepts; returns whether it was closed.
    pub fn flush<P>(&mut self, context: &mut Context<'_, P>, connection: ConnectionId) -> bool {
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
