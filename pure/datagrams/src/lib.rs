//! A byte stream each way, over datagrams that get lost, duplicated, truncated and out of order.
//!
//! An [`Endpoint`] has the connections over one socket or interface; a [`Connection`] is one end of
//! one of them. The README has the format, the timers and the answer to each fault.
//! [`redundancy`] is for frames that are sent over several paths at once.
//!
//! # The run loop
//!
//! The world passes received datagrams to [`Endpoint::handle_datagram`], calls
//! [`Endpoint::handle_timeout`] at the time of [`Endpoint::poll_timeout`], and after each of these
//! sends the datagrams of [`Endpoint::poll_transmit`].
//!
//! ```
//! use engine::{Buffer, Entropy, Instant, Rng};
//! use farlane_datagrams::Endpoint;
//!
//! let (now, mut datagram) = (Instant::ZERO, Vec::new());
//! let endpoint = |seed, port| Endpoint::new(Entropy::Seeded(Rng::from_seed(seed)), 1472, port);
//! let (mut near, mut far) = (endpoint(1, None), endpoint(2, Some(0)));
//! let id = near.connect(now, "far", 0);
//! near.get(id).expect("it was just made").send(Buffer::copy_from_slice(b"hello"));
//! let accepted = loop {
//!     while near.poll_transmit(now, &mut datagram).is_some() {
//!         far.handle_datagram(now, "near", &datagram);
//!         datagram.clear();
//!     }
//!     while far.poll_transmit(now, &mut datagram).is_some() {
//!         near.handle_datagram(now, "far", &datagram);
//!         datagram.clear();
//!     }
//!     if let Some((id, "near")) = far.accept() {
//!         break id;
//!     }
//! };
//! while near.poll_transmit(now, &mut datagram).is_some() {
//!     far.handle_datagram(now, "near", &datagram);
//!     datagram.clear();
//! }
//! let far = far.get(accepted).expect("it was accepted");
//! assert_eq!(far.receive().as_deref(), Some(&b"hello"[..]));
//! ```
//!
//! # Trust
//! Any host may send any bytes at any time. It cannot affect a connection without knowing its name,
//! of which 48 bits or more are random, and its peer's address. A host that can read the network
//! has both: the protocol does not encrypt. A host without proof of its address costs no memory
//! beyond a few places, and gets no more bytes than it has sent.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod challenge;
mod congestion;
mod connection;
mod endpoint;
pub mod fuzz;
mod incoming;
mod mtu;
mod outgoing;
mod packet;
mod recovery;
pub mod redundancy;
#[cfg(test)]
mod tests;

pub use connection::{Connection, Counters, Ended, SILENCE_MAX};
pub use endpoint::{Endpoint, Id, Network};
pub use packet::{MEETING_BYTES, Malformed, PACKET_KINDS, PORT_MAX, is_hello, names_of};
