//! QUIC as a link. One bidirectional stream of a QUIC connection serves as a connection of
//! [`carrier::tcp`](crate::carrier::tcp) does, but it is encrypted, and the peer is recognized by
//! its key's fingerprint.
//!
//! `quinn-proto` implements the protocol as a state machine without input and output. An
//! `endpoint` joins it to a UDP socket and to the reactor. A far end has one endpoint for all
//! its connections, in a [`Listener`]; a near end has one endpoint for each connection, made by
//! a [`Dialer`].
//!
//! There is no 0-RTT: an attacker could replay early data, and ringing a doorbell twice is not the
//! same as ringing it once.

mod config;
mod dial;
mod endpoint;
mod listen;
mod loss;
mod slot;
pub(super) mod socket;
mod stream;
#[cfg(test)]
mod tests;

pub use config::{Congestion, Options};
pub use dial::{Dialer, Dialled};
pub use listen::Listener;
pub use stream::Stream;

/// The protocol that both ends must speak (ALPN): the tunnel's frames on the connection's
/// one stream.
pub const PROTOCOL: &[u8] = b"farlane/2";
