//! The fabrics that subsystems are offered and used over: the one place of this crate that names
//! one.
//!
//! [`controller`] is the controller's end of a connection, as [`target`](crate::target) uses it.
//! [`host`] is the host's end, as [`initiator`](crate::initiator) uses it. A connection is one
//! queue. It brings commands or completions in order, moves the data that belong to them, and says
//! how much memory it holds for its peer. Another fabric joins NVMe/TCP here.

pub mod controller;
pub mod host;

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use nvme_fabrics::wire::{RdmaProvider, TransportAddress};

/// What carries the connections of a port or a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fabric {
    /// NVMe/TCP.
    #[default]
    Tcp,
    /// NVMe/RDMA, by iWARP over TCP connections.
    Iwarp,
}

impl Fabric {
    /// How a discovery log names the port at `address`.
    pub fn address(self, address: SocketAddr) -> TransportAddress {
        match self {
            Self::Tcp => address.into(),
            Self::Iwarp => TransportAddress::rdma(address, RdmaProvider::Iwarp),
        }
    }
}

impl fmt::Display for Fabric {
    /// As messages name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "NVMe/TCP",
            Self::Iwarp => "NVMe/RDMA by iWARP",
        })
    }
}

/// The first `count` bytes of `outbox`, in one piece; fewer if it has fewer.
pub(crate) fn first_bytes(outbox: &host::Outbox, count: usize) -> Vec<u8> {
    outbox.slices().flatten().take(count).copied().collect()
}
