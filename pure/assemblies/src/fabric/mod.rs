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

/// Does the same with whichever connection it is.
macro_rules! each {
    ($connection:expr, $end:ident => $act:expr) => {
        match $connection {
            Connection::Tcp($end) => $act,
            Connection::Iwarp($end) => $act,
            Connection::Pair($end) => $act,
        }
    };
}

/// Does the same with whichever end moves the bytes of a connection, if it has bytes to move.
macro_rules! mover {
    ($connection:expr, $end:ident => $act:expr, else $none:expr) => {
        match $connection {
            Connection::Tcp($end) => $act,
            Connection::Iwarp(connection) => {
                let $end = connection.endpoint_mut();
                $act
            }
            Connection::Pair(_) => $none,
        }
    };
}

/// The methods that a connection has at both ends: its bytes, its news, and its commands.
macro_rules! methods_of_both_ends {
    () => {
        /// Whether the queue pair has brought something that [`Connection::poll_output`] has not
        /// looked at.
        pub fn has_news(&self) -> bool {
            matches!(self, Self::Pair(end) if end.endpoint().has_news())
        }

        /// The first `count` bytes of the outbox were sent. Outputs may follow.
        ///
        /// # Panics
        /// When the outbox has fewer than `count` bytes.
        #[inline]
        pub fn sent(&mut self, count: usize) {
            mover!(self, end => end.sent(count), else ());
        }

        /// Where the next bytes from the other end belong, if they are data that are being
        /// assembled. Report the bytes received there by [`Connection::landed`].
        #[inline]
        pub fn landing(&mut self) -> Option<&mut [u8]> {
            mover!(self, end => end.landing(), else None)
        }

        /// The first `count` bytes of [`Connection::landing`] were received.
        ///
        /// # Panics
        /// When [`Connection::landing`] has fewer than `count` bytes.
        pub fn landed(&mut self, count: usize) {
            mover!(self, end => end.landed(count), else ());
        }

        /// Bytes from the other end, in order.
        #[inline]
        pub fn received(&mut self, now: Instant, bytes: Buffer) {
            match self {
                Self::Tcp(end) => end.handle_input(now, tcp::Input::Received(bytes)),
                Self::Iwarp(end) => end.handle_input(now, iwarp::Input::Received(bytes)),
                Self::Pair(_) => {}
            }
        }
    };
}

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

/// Why a connection is over. `Tcp` is the reason of that end of a connection of NVMe/TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed<Tcp> {
    /// A connection of NVMe/TCP.
    Tcp(Tcp),
    /// A connection of NVMe/RDMA.
    Rdma(nvme_rdma::host::Closed),
}

impl<Tcp: fmt::Display> fmt::Display for Closed<Tcp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(why) => why.fmt(f),
            Self::Rdma(why) => why.fmt(f),
        }
    }
}

impl<Tcp: core::error::Error> core::error::Error for Closed<Tcp> {}

/// The first `count` bytes of `outbox`, in one piece; fewer if it has fewer.
pub(crate) fn first_bytes(outbox: &Outbox, count: usize) -> Vec<u8> {
    outbox.slices().flatten().take(count).copied().collect()
}
