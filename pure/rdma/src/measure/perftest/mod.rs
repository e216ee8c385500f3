//! perftest's programs (`ib_send_lat`, `ib_write_bw` and their kin) as the other end, started with
//! `-R`.
//!
//! There are two connections to the same port, both without private data. Over the first, the two
//! ends exchange words of fixed lengths, alternately, the client first. Its fifth word asks the
//! server to accept the second connection, on which the test runs. No word names the test: both
//! ends have it in their options.
//!
//! | test | action of the server | sign of the other end's progress |
//! |---|---|---|
//! | send, latency | sends back | messages |
//! | send, bandwidth | over iWARP, writes the count of received messages | its own completions |
//! | write, latency | writes first; each write answers one | the last byte of its own memory |
//! | write, bandwidth; read | does nothing | its own completions |
//!
//! The last byte of a write is the low byte of its number.
//!
//! At the end, the server ends the second connection and the client then the first.
//!
//! # Trust
//!
//! Each word of the peer has its place and its length; any other word ends both connections. The
//! peer's words name only memory of the peer.

mod client;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use client::Perftest;
pub use server::Desk;
pub(super) use server::{Control, Data};
pub use wire::Version;

use crate::Limits;

/// Whether a server reports how many messages it has received: over iWARP, where a message without
/// a receive request ends the connection. Support for immediate data distinguishes the protocols.
const fn counts_receives(limits: &Limits) -> bool {
    !limits.immediate
}
