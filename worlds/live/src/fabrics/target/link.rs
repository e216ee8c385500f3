//! A host's connection.

use std::io::{self, IoSlice};
use std::net::TcpStream;

use engine::Instant;
use nvme_fabrics::wire::PortId;
use nvme_tcp::Outbox;

use crate::tcp::Connection;

/// Slices in one system call.
const SLICES_MAX: usize = 128;

pub(super) struct Link {
    pub(super) connection: Connection,
    /// The port through which it came.
    pub(super) port: PortId,
    /// When it last brought something.
    pub(super) heard: Instant,
    /// Whether it is looked at in each turn.
    pub(super) is_lively: bool,
    /// The engine has ended it: what still comes is dropped.
    pub(super) is_ended: bool,
    /// The host was told that nothing more comes.
    pub(super) is_shut: bool,
}

impl Link {
    pub(super) const fn new(connection: Connection, now: Instant) -> Self {
        Self { connection, port: PortId(0), heard: now, is_lively: true, is_ended: false, is_shut: false }
    }

    pub(super) fn from_socket(socket: TcpStream, now: Instant) -> io::Result<Self> {
        Ok(Self::new(Connection::from_socket(socket)?, now))
    }

    /// Sends what the system takes of `outbox` at once; returns the bytes it took.
    pub(super) fn send(&mut self, outbox: &Outbox) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (place, bytes) in slices.iter_mut().zip(outbox.slices()) {
            *place = IoSlice::new(bytes);
            count += 1;
        }
        self.connection.send_slices(&slices[..count])
    }
}
