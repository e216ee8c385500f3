//! Carriers of a tunnel's bytes from one end to the other.
//!
//! A [`route`] says how a far end is reached. A carrier is a socket of [`tcp`], a stream of
//! [`quic`], memory that both ends share ([`shm`]), [`datagrams`] of UDP or Ethernet, or
//! `multipath`: one stream over several TCP connections. A near end has a `Link`, which dials the
//! carrier that the route names. [`floor`] measures the machine's own TCP, to compare a tunnel
//! with.

pub mod datagrams;
mod dialer;
pub mod floor;
pub mod identity;
mod link;
mod multipath;
mod outbox;
pub mod quic;
pub mod route;
pub mod shm;
mod stream;
pub mod tcp;
mod tls;

use engine::Buffer;

pub(crate) use link::{Dial, Link};
pub(crate) use multipath::JoinedPaths;
pub(crate) use outbox::Outbox;
pub use outbox::{OUTBOX_BYTES_MAX, OutboxFull};
pub(crate) use stream::Stream;
pub use tls::Acceptor;

/// How often a spinning loop with nothing else to wait for looks at its connections in one turn. A
/// turn with one look takes almost twice as long as the look, and arriving bytes wait on average
/// for half of the excess.
pub(crate) const LOOKS: u32 = 8;
/// Number of connections that a listener accepts in one turn. Without the limit, a client that
/// connects as fast as it can would hold up the established connections, and would use memory for
/// thousands of connections that have already gone.
pub(crate) const ACCEPTS_PER_TURN: usize = 16;

/// The result of receiving from a carrier.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Some bytes of the stream; more may follow at once.
    Data(Buffer),
    /// No bytes have arrived.
    Nothing,
    /// The peer has closed its side, and no more bytes will come.
    Closed,
}
