//! Connections whose bytes are left unread for a while.

use engine::Instant;
use pcie::switch::Interposer;

use super::{ConnectionIndex, Upstream};

impl<I: Interposer> Upstream<I> {
    /// Defers the bytes of a connection, because the host has no room for them. The
    /// session does not take this for a silence of the far end. Returns false without an open
    /// session: a handshake is to be read.
    pub fn hold_back(&mut self, now: Instant, connection: ConnectionIndex) -> bool {
        let (port, strand) = self.strand_of(connection);
        self.ports[usize::from(port.0)].hold_back(now, strand)
    }
}
