//! A host's connection to the target.

use engine::Instant;
use nvme_fabrics::wire::PortId;

use crate::drivers::fabrics::Socket;

pub(super) struct Link {
    pub(super) socket: Socket,
    /// The port through which the connection came.
    pub(super) port: PortId,
    /// When the connection last brought something.
    pub(super) heard: Instant,
    /// Whether the connection is looked at in each turn.
    pub(super) is_lively: bool,
    /// The engine has ended the connection: what still comes is dropped.
    pub(super) is_ended: bool,
    /// The host was told that nothing more will be sent.
    pub(super) is_shut: bool,
}

impl Link {
    pub(super) const fn new(socket: Socket, port: PortId, now: Instant) -> Self {
        Self { socket, port, heard: now, is_lively: true, is_ended: false, is_shut: false }
    }
}
