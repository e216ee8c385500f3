//! perftest's programs (`ib_send_lat`, `ib_write_bw` and their kin) as the other end, started with
//! `-R`.
//!
//! There are two connections to the same port, both without private data. Over the first, the two
//! ends exchange words of fixed lengths, one after the other, the client first. Its fifth word asks
//! the server to take the second connection, on which the test runs. Which test that is, nobody
//! says: both ends are given it.
//!
//! | test | the server | an end knows what the other has done by |
//! |---|---|---|
//! | send, latency | sends back | messages |
//! | send, bandwidth | over iWARP, writes how many messages have come | its own completions |
//! | write, latency | writes first; each write answers one | the last byte of its own memory |
//! | write, bandwidth; read | does nothing | its own completions |
//!
//! The last byte of a write is the low byte of its number.
//!
//! At the end, the server ends the second connection and the client then the first.
//!
//! # Trust
//!
//! Each word of the peer has its place and its length; another ends both connections. What the
//! peer's words name is memory of the peer's own.

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

/// Whether a server says how many messages it has received: over iWARP, where a message that finds
/// no receive request ends the connection. Immediate data tell wire protocols apart.
const fn counts_receives(limits: &Limits) -> bool {
    !limits.immediate
}
