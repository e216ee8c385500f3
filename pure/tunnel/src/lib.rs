//! Long-range PCIe: transaction-layer packets over a reliable byte stream, with credits and replay.
//!
//! A distributed switch has two halves: [`Upstream`] near the host and [`Downstream`] at the
//! device. A [`session::Session`] in each half keeps the link between them. Module [`frame`]
//! encodes the bytes, and `protocol.md` specifies them.
//!
//! Start at [`Session`] for one link that carries packets as they are. Start at [`Upstream`] for a
//! host with several devices, and at [`Downstream`] for a device that accepts connections. Module
//! [`paths`] sends one stream over several connections. All of these are [engines](engine::Engine),
//! which own no socket. The work that an [`Interposer`](pcie::switch::Interposer) sends ahead of
//! the device's reads, the device's end keeps and answers.
//!
//! # The run loop
//! The world passes on what arrives: [`Input::Connected`](session::Input::Connected), then
//! [`Input::Received`](session::Input::Received) with the bytes of each read of the socket. When a
//! connection ends, [`Input::Disconnected`](session::Input::Disconnected) says so, and the session
//! goes on over the next connection. The world calls [`fire`](engine::fire), which handles the
//! deadlines that have come, and takes every output. It dials on
//! [`Output::Connect`](session::Output::Connect), appends the bytes of
//! [`Output::Transmit`](session::Output::Transmit) to the stream, and hands the packet of
//! [`Output::Tlp`](session::Output::Tlp) to the root complex or to the device. [`Session::send`]
//! takes packets to send. Finally, the world sleeps until bytes come, or until the time that
//! [`next_wake`](engine::next_wake) returns. [`Upstream`] and [`Downstream`] are driven in the same
//! way, with a number for each connection.
//!
//! Here a host reads four bytes of a device. The two ends are joined in memory.
//!
//! ```
//! use engine::{Buffer, Engine, Instant, Rng, fire, next_wake};
//! use farlane_tunnel::session::{Config, Input, Output, Session};
//! use pcie::wire::{Bdf, Packet, Tag};
//!
//! // Seeds are for tests. A live world passes `Entropy::System`, which is unpredictable.
//! let mut host = Session::upstream(Config::default(), Rng::from_seed(1));
//! let mut device = Session::downstream(Config::default(), Rng::from_seed(2));
//! let (root, function) = (Bdf::new(0, 0, 0), Bdf::new(1, 0, 0));
//! let mut now = Instant::ZERO;
//! let completion = 'run: loop {
//!     let mut idle = true;
//!     fire(&mut host, now);
//!     while let Some(output) = host.poll_output() {
//!         idle = false;
//!         match output {
//!             Output::Connect => {
//!                 host.handle_input(now, Input::Connected);
//!                 device.handle_input(now, Input::Connected);
//!             }
//!             Output::Transmit(bytes) => device.handle_input(now, Input::Received(bytes)),
//!             Output::LinkUp { .. } => {
//!                 host.send(now, Packet::memory_read(root, Tag::new(5), 0xc000_0000, 4));
//!             }
//!             Output::Tlp { packet, .. } => break 'run packet,
//!             other => panic!("no link: {other:?}"),
//!         }
//!     }
//!     fire(&mut device, now);
//!     while let Some(output) = device.poll_output() {
//!         idle = false;
//!         match output {
//!             Output::Transmit(bytes) => host.handle_input(now, Input::Received(bytes)),
//!             Output::Tlp { packet: read, .. } => {
//!                 let data = Buffer::copy_from_slice(&[1, 2, 3, 4]);
//!                 device.send(now, Packet::completion_with_data(function, &read.header, 0, data));
//!             }
//!             _ => {}
//!         }
//!     }
//!     if idle {
//!         let wakes = [next_wake(&host, now), next_wake(&device, now)];
//!         now = wakes.into_iter().flatten().min().expect("a session has deadlines");
//!     }
//! };
//! assert_eq!(completion.header.tag(), Tag::new(5));
//! assert_eq!(*completion.payload, [1, 2, 3, 4]);
//! ```
//!
//! # Limits and trust
//! A receiver treats all bytes as hostile: no bytes make an engine panic, and no field makes it
//! allocate more than a frame, whose body has at most [`frame::BODY_MAX`] bytes. A peer that breaks
//! a rule is refused, or its link goes down. [`HandshakeError`](session::HandshakeError) or
//! [`DownReason`](session::DownReason) names the fault. The protocol itself has no authentication
//! and no encryption: a party that can read the stream can take over the session. A carrier such as
//! TLS or QUIC provides both. It passes [`Downstream`] the key that a host has proved, and the
//! device's end admits hosts by an [`Access`] list.
//!
//! [`Config::window`](session::Config::window) limits the bytes that a peer may have in flight to
//! this end. A sender waits for an acknowledgement after [`session::REPLAY_FRAMES_MAX`] frames or
//! [`session::REPLAY_BYTES_MAX`] bytes. The link goes down when more than
//! [`session::QUEUE_PACKETS_MAX`] packets or [`session::QUEUE_BYTES_MAX`] bytes wait to be sent. At
//! the device's end, at most [`downstream::WAITING_MAX`] connections wait for their Hello, at most
//! [`downstream::WAITING_PER_ADDRESS_MAX`] of them from one address. The device's end keeps at most
//! [`Config::ahead`](session::Config::ahead) bytes of host memory, in at most
//! [`downstream::PIECES_MAX`] pieces. A link has at most [`STRANDS_MAX`] strands. A stream has at
//! most [`paths::PATHS_MAX`] paths, and keeps at most [`paths::KEPT_BYTES_MAX`] bytes for them.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod access;
pub mod config_cache;
pub mod credits;
pub mod downstream;
mod event;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod paths;
pub mod session;
mod strands;
mod stream;
#[cfg(test)]
mod test_bench;
#[cfg(test)]
mod tests;
pub mod upstream;

pub use access::{Access, Fingerprint, FingerprintError};
pub use downstream::Downstream;
pub use event::Event;
pub use session::Session;
pub use strands::STRANDS_MAX;
pub use upstream::Upstream;
