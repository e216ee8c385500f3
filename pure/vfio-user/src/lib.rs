//! vfio-user: a PCI function that one process offers and another one uses, over a stream with
//! descriptors.
//!
//! Start at [`Server`] (the function's side), at [`Client`] (the user's side) or at [`wire`] (the
//! formats). Both sides are [engines](engine::Engine), which own no socket. They are generic over
//! `D`, a descriptor of the world: `OwnedFd` at a UNIX socket, any type in a test. A descriptor
//! belongs to its holder, and dropping it closes it. The engines support versions 0.0 and 0.1 of
//! the protocol.
//!
//! # The run loop
//! The world passes its inputs: first [`Input::Connected`], then [`Input::Received`] with the bytes
//! and descriptors of each read of the socket, and [`Input::Disconnected`] at the end. Then the
//! world calls [`fire`](engine::fire), which handles the due deadlines, and takes every output. A
//! `Transmit` is one message, and its descriptors go with its first byte. An output with a
//! [`Token`] is a request of the other end. The world answers requests in any order. For example,
//! [`Server::read_done`] answers [`RegionRead`](server::Output::RegionRead). That answer must not
//! wait for a [`Server::dma_read`] or [`Server::dma_write`]: some clients serve neither while they
//! wait for a region. Finally, the world sleeps until bytes arrive, or until the time that
//! [`next_wake`](engine::next_wake) returns.
//!
//! Here a client reads a register of a function. The two ends are joined in memory.
//!
//! ```
//! use engine::{Engine, Instant, fire, next_wake};
//! use farlane_vfio_user::{Client, Input, RegionIndex, Server, client, server};
//!
//! let registers = [7; 4096];
//! let mut config = server::Config::default();
//! config.regions[0] = server::RegionConfig::new(registers.len() as u64);
//! let mut server = Server::<u32>::new(config);
//! let mut client = Client::<u32>::new(client::Config::default());
//! let mut now = Instant::ZERO;
//! server.handle_input(now, Input::Connected);
//! client.handle_input(now, Input::Connected);
//! let value = 'run: loop {
//!     let mut idle = true;
//!     fire(&mut client, now);
//!     while let Some(output) = client.poll_output() {
//!         idle = false;
//!         match output {
//!             client::Output::Transmit { bytes, descriptors } => {
//!                 server.handle_input(now, Input::Received { bytes: &bytes, descriptors });
//!             }
//!             client::Output::Negotiated(_) => {
//!                 client.read(now, RegionIndex::BAR0, 0x1c, 4);
//!             }
//!             client::Output::Answered { result, .. } => break 'run result,
//!             other => panic!("no answer: {other:?}"),
//!         }
//!     }
//!     fire(&mut server, now);
//!     while let Some(output) = server.poll_output() {
//!         idle = false;
//!         match output {
//!             server::Output::Transmit { bytes, .. } => {
//!                 let input = Input::Received { bytes: &bytes, descriptors: vec![] };
//!                 client.handle_input(now, input);
//!             }
//!             server::Output::RegionRead { token, offset, length, .. } => {
//!                 server.read_done(token, Ok(&registers[offset as usize..][..length as usize]));
//!             }
//!             // A whole function also answers writes, resets and changes of the client's memory.
//!             _ => {}
//!         }
//!     }
//!     if idle {
//!         let wakes = [next_wake(&client, now), next_wake(&server, now)];
//!         now = wakes.into_iter().flatten().min().expect("the client awaits an answer");
//!     }
//! };
//! assert_eq!(value, Ok(client::Answer::Data(engine::Buffer::copy_from_slice(&[7; 4]))));
//! ```
//!
//! # Limits and trust
//! A peer may send any bytes: no message makes an engine panic. An invalid header or version ends
//! the connection with a `Close` that has the reason. Other invalid requests are refused with an
//! [`Errno`], and an invalid answer fails its request. The server passes on only accesses within a
//! region, and checks its own accesses against the memory that the client has shared. The client
//! does not check addresses: its world must check those of [`DmaRead`](client::Output::DmaRead) and
//! [`DmaWrite`](client::Output::DmaWrite). When a client disconnects, the server's outputs take
//! back the client's memory and interrupts.
//!
//! A message has at most [`DATA_MAX`] bytes of data, [`DESCRIPTORS_MAX`] descriptors and
//! [`WRITES_MAX`] writes, and [`MESSAGE_MAX`] bytes in all. At most [`REQUESTS_MAX`] requests wait
//! for an answer. A server has at most [`DMA_MAX`] accesses to its client's memory open, in at most
//! [`DMA_WINDOW`] messages at a time. A client shares at most [`MAPS_MAX`] pieces of memory, and a
//! region has at most [`AREAS_MAX`] mappable areas. One read of a socket causes limited output, but
//! many reads can cause any amount. While a peer does not read, do not read from it either.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod client;
mod connection;
mod errno;
#[doc(hidden)]
pub mod fuzz;
mod index;
mod input;
mod interrupt;
mod limits;
mod message;
mod peer;
mod pending;
pub mod server;
mod stream;
#[cfg(test)]
mod test_bench;
#[cfg(test)]
mod tests;
mod version;
pub mod wire;

pub use client::Client;
pub use errno::Errno;
pub use index::{Area, INTERRUPTS, InterruptIndex, REGIONS, RegionIndex};
pub use input::Input;
pub use interrupt::{InterruptAction, InterruptData};
pub use limits::{
    AREAS_MAX, DATA_MAX, DESCRIPTORS_MAX, DMA_MAX, DMA_WINDOW, MAPS_MAX, MESSAGE_MAX, REQUESTS_MAX,
    WRITES_MAX,
};
pub use pending::Token;
pub use server::Server;
pub use version::Negotiated;
