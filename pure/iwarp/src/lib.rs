//! iWARP: RDMA over a byte stream such as a TCP connection (RFC 5044, 6581, 5041, 5040).
//!
//! A [`Connection`] is one end: its user sees it as an [`rdma::Endpoint`]. It needs no card and no
//! privilege. [`wire`] has the formats.
//!
//! # The run loop
//!
//! An end is an [`Engine`](engine::Engine). The world passes received bytes as [`Input::Received`],
//! and the end of the stream as [`Input::Closed`]. It calls `handle_timeout` at the deadline of
//! `poll_timeout`, sends the contents of [`Connection::outbox`], and reports by
//! [`Connection::sent`] how many bytes have gone. After each of these, the user polls events and
//! completions. After [`Output::Close`], the world sends the rest of the outbox and closes the
//! stream.
//!
//! In this example, one end lends memory and announces it in a message; the other reads the memory.
//!
//! ```
//! use engine::{Buffer, Engine, Entropy, Instant, Rng};
//! use farlane_iwarp::{Config, Connection, Input};
//! use rdma::{Done, Endpoint, Event, Exposure, Inline, Operation, ProtectionDomain, QueuePairId};
//! use rdma::{ReceiveRequest, SendRequest, SharedDomain, SharedPool};
//!
//! let now = Instant::ZERO;
//! let config = |number| {
//!     let pool = SharedPool::default();
//!     let entropy = Entropy::Seeded(Rng::from_seed(number));
//!     let domain = ProtectionDomain::new(16, pool.clone(), entropy);
//!     Config::new(SharedDomain::new(domain.into()), pool, QueuePairId(1))
//! };
//! let mut near = Connection::connect(now, config(1), b"who I am");
//! let mut far = Connection::accept(now, config(2));
//! near.post_receive(ReceiveRequest { id: 1, length_max: 64 })?;
//! let mut lent = None;
//! let data = loop {
//!     // The far end's user.
//!     match far.poll_event() {
//!         Some(Event::Requested { private_data }) => {
//!             assert_eq!(private_data, b"who I am");
//!             far.accept(b"");
//!         }
//!         Some(Event::Established { .. }) => {
//!             let remote = far.register(Exposure::Read(Buffer::copy_from_slice(b"a block")))?;
//!             lent = Some(remote);
//!             let (inline, data) = (Inline::new(b"it is ready"), Buffer::EMPTY);
//!             let operation = Operation::Send { inline, data, invalidate: None, immediate: None };
//!             far.post_send(SendRequest { id: 7, operation, signalled: false })?;
//!         }
//!         _ => {}
//!     }
//!     // The near end's user.
//!     match near.poll_completion().map(|completion| completion.result).transpose()? {
//!         Some(Done::Received { data, .. }) => {
//!             assert_eq!(data[..], *b"it is ready");
//!             // NVMe over RDMA sends key and address in such a message.
//!             let remote = lent.expect("memory was lent");
//!             let operation = Operation::Read { remote };
//!             near.post_send(SendRequest { id: 2, operation, signalled: true })?;
//!         }
//!         Some(Done::Read(data)) => break data,
//!         _ => {}
//!     }
//!     // The wire.
//!     carry(&mut near, &mut far, now);
//!     carry(&mut far, &mut near, now);
//! };
//! assert_eq!(data[..], *b"a block");
//!
//! fn carry(from: &mut Connection, to: &mut Connection, now: Instant) {
//!     let bytes: Vec<u8> = from.outbox().slices().flatten().copied().collect();
//!     from.sent(bytes.len());
//!     to.handle_input(now, Input::Received(bytes.into()));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits and trust
//!
//! No byte of a peer makes an end panic. A fault of the peer ends the connection with a Terminate
//! message that names the fault, and [`Event::Disconnected`](rdma::Event::Disconnected) reports it
//! to the user. The [`ProtectionDomain`](rdma::ProtectionDomain) checks each access to memory.
//!
//! - At most one FPDU of the peer waits for its end: 64 KiB. Data are placed once the FPDU is
//!   complete and its CRC is right.
//! - A message, write or read has at most [`MESSAGE_BYTES_MAX`] bytes, and a message at most as
//!   many as its receive request allows.
//! - The peer has at most [`Config::reads_answered_max`] reads outstanding. Twice as many responses
//!   and one may wait in the outbox.
//! - A peer that does not begin the connection within [`Config::setup_timeout`] loses it.
//!
//! The crate has no encryption and no authentication. A CRC detects errors, not attacks.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod connection;
#[doc(hidden)]
pub mod fuzz;
mod inbound;
#[cfg(test)]
mod tests;
pub mod wire;

use engine::Pool;

pub use config::{Config, SEGMENT_BYTES_MAX};
pub use connection::{Connection, Input, Output};
pub use wire::Revision;

/// The longest message, write or read, in bytes: a block of a pool.
#[allow(clippy::cast_possible_truncation, reason = "2 MiB")]
pub const MESSAGE_BYTES_MAX: u32 = Pool::LENGTH_MAX as u32;
/// The longest private data of a user in bytes: the rest of a frame besides its enhanced part.
/// Linux's `siw` accepts 252.
pub const PRIVATE_DATA_MAX: usize = wire::PRIVATE_DATA_LENGTH_MAX - wire::Enhanced::LENGTH;
