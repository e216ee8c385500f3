//! A host's connection to the target.

use assemblies::fabric::Fabric;
use engine::Instant;
use nvme_fabrics::tls::Identity;
use nvme_fabrics::wire::PortId;

use crate::drivers::fabrics::Socket;

pub(super) struct Link {
    /// The socket; `None` of a queue pair, whose datagrams its device moves.
    pub(super) socket: Option<Socket>,
    /// The port through which the connection came.
    pub(super) port: PortId,
    /// The fabric of the connection.
    pub(super) fabric: Fabric,
    /// The identity that the host has proved by TLS.
    pub(super) proved: Option<Identity>,
    /// When the connection last brought something.
    pub(super) heard: Instant,
    /// Whether the host has proved its identity, or need not.
    pub(super) is_admitted: bool,
    /// Whether the connection is looked at in each turn.
    pub(super) is_lively: bool,
    /// Whether a lane has the connection.
    pub(super) is_guest: bool,
    /// The engine has ended the connection: bytes that still come are dropped.
    pub(super) is_ended: bool,
}

impl Link {
    pub(super) const fn new(socket: Option<Socket>, port: PortId, fabric: Fabric, now: Instant) -> Self {
        Self {
            socket,
            port,
            fabric,
            proved: None,
            heard: now,
            is_admitted: false,
            is_lively: false,
            is_guest: false,
            is_ended: false,
        }
    }
}
