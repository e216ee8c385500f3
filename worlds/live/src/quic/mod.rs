//! QUIC as a link: one bidirectional stream of a connection is what a connection of [`crate::tcp`] is, encrypted and with the
//! peer known by the fingerprint of its certificate.
//!
//! The protocol is that of `quinn-proto`, a state machine without input and output; an [`endpoint`] joins it to a UDP socket
//! and to the reactor. A far end has one endpoint with all its connections, a [`Listener`]; a near end has one for each
//! connection, a [`Dialer`]'s.
//!
//! There is no 0-RTT: what is sent so can be sent again by whoever saw it, and a doorbell that is rung twice is not the same
//! as one that is rung once.

mod config;
mod dial;
mod endpoint;
mod identity;
mod listen;
mod loss;
mod pin;
mod slot;
mod socket;
mod stream;
#[cfg(test)]
mod tests;

pub use config::{Congestion, Options};
pub use dial::{Dialer, Dialled};
pub use identity::{Fingerprint, FingerprintError, Identity};
pub use listen::Listener;
pub use pin::Pin;
pub use stream::Stream;

/// What both ends must speak (ALPN): the tunnel's frames on the one stream of the connection.
pub const PROTOCOL: &[u8] = b"farlane/1";
