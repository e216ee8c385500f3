//! The fabrics that subsystems are offered and used over. No other place of this crate names one.
//!
//! [`controller`] is the controller's end of a connection, as [`target`](crate::target) uses it.
//! [`host`] is the host's end, as [`initiator`](crate::initiator) uses it. A connection is one
//! queue. It brings commands or completions in order, moves the data that belong to them, and says
//! how much memory it holds for its peer. Another fabric joins NVMe/TCP and NVMe/RDMA here.
//!
//! NVMe/TCP and iWARP move bytes: a connection has an outbox, and receives. A [`Pair`] is a queue
//! pair that a device of the world moves: RoCE over datagrams, or a card. The connection has no
//! outbox, and the world says when there is news of it (`Stirred`).

pub mod controller;
pub mod host;
mod queue_pairs;

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use engine::Outbox;
use nvme_fabrics::wire::{RdmaProvider, TransportAddress};

pub use queue_pairs::QueuePairs;

/// A queue pair that a device of the world moves. Connections do not depend on its kind.
pub trait Pair: rdma::Endpoint + fmt::Debug {
    /// Whether there are events or completions that were not taken.
    fn has_news(&self) -> bool;
}

impl Pair for roce::RoceEndpoint {
    fn has_news(&self) -> bool {
        Self::has_news(self)
    }
}

/// The carrier of the connections of a port or a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fabric {
    /// NVMe/TCP.
    #[default]
    Tcp,
    /// NVMe/RDMA, by iWARP over TCP connections.
    Iwarp,
    /// NVMe/RDMA, by RoCEv2 over UDP datagrams.
    Roce,
    /// NVMe/RDMA, by a device of the system that libibverbs drives.
    Verbs,
}

impl Fabric {
    /// How a discovery log names the port at `address`.
    pub fn address(self, address: SocketAddr) -> TransportAddress {
        match self {
            Self::Tcp => address.into(),
            Self::Iwarp => TransportAddress::rdma(address, RdmaProvider::Iwarp),
            Self::Roce => TransportAddress::rdma(address, RdmaProvider::RoceV2),
            // A port may lead to several devices, each of its own kind.
            Self::Verbs => TransportAddress::rdma(address, RdmaProvider::NotSpecified),
        }
    }
}

impl fmt::Display for Fabric {
    /// As messages name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "NVMe/TCP",
            Self::Iwarp => "NVMe/RDMA by iWARP",
            Self::Roce => "NVMe/RDMA by RoCEv2",
            Self::Verbs => "NVMe/RDMA by verbs",
        })
    }
}

/// The parameters that both ends of a connection have agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// Of a connection of NVMe/TCP.
    Tcp(nvme_tcp::host::Parameters),
    /// Of a connection of NVMe/RDMA.
    Rdma(nvme_rdma::host::Parameters),
}

impl Parameters {
    /// The parameters of a connection of NVMe/TCP; `None` if it is none.
    pub const fn tcp(self) -> Option<nvme_tcp::host::Parameters> {
        match self {
            Self::Tcp(agreed) => Some(agreed),
            Self::Rdma(_) => None,
        }
    }

    /// How many commands the controller takes at a time; `None` if the connection does not say.
    pub const fn commands_max(self) -> Option<u16> {
        match self {
            Self::Tcp(_) => None,
            Self::Rdma(agreed) => Some(agreed.controller_receives),
        }
    }
}

impl fmt::Display for Parameters {
    /// In words for a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(agreed) => agreed.fmt(f),
            Self::Rdma(agreed) if agreed.remote_invalidate => f.write_str("RDMA"),
            Self::Rdma(_) => f.write_str("RDMA without remote invalidation"),
        }
    }
}

/// The first `count` bytes of `outbox`, in one piece; fewer if it has fewer.
pub(crate) fn first_bytes(outbox: &Outbox, count: usize) -> Vec<u8> {
    outbox.slices().flatten().take(count).copied().collect()
}
