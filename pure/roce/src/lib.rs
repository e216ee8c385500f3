//! RoCEv2 as an engine: reliable connections of RDMA over UDP datagrams (InfiniBand Architecture
//! Specification, volume 1, chapters 9, 12 and 13; annexes A11 and A17).
//!
//! A [`Device`] stands for one address. A world moves its datagrams and passes the time, as for any
//! [`Engine`](engine::Engine). The user of a connection has a [`RoceEndpoint`], which is an
//! [`rdma::Endpoint`].
//!
//! ```
//! use std::cell::RefCell;
//! use std::net::IpAddr;
//! use std::rc::Rc;
//!
//! use engine::{Buffer, Engine, Entropy, Instant, Rng, settle};
//! use farlane_roce::{Config, Device, Input, Output, Received, RoceEndpoint, SharedDevice};
//! use rdma::{Endpoint, Event, ProtectionDomain, SharedPool};
//!
//! fn device(address: IpAddr, seed: u64) -> SharedDevice {
//!     let (pool, entropy) = (SharedPool::default(), Entropy::Seeded(Rng::from_seed(seed)));
//!     let domain = ProtectionDomain::new(64, Rc::clone(&pool), entropy.fork("keys"));
//!     let domain = Rc::new(RefCell::new(domain));
//!     Rc::new(RefCell::new(Device::new(Config::new(address), domain, pool, entropy)))
//! }
//!
//! let addresses: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
//! let devices = [device(addresses[0], 1), device(addresses[1], 2)];
//! devices[1].borrow_mut().listen(4420);
//! let mut here = RoceEndpoint::connect(&devices[0], addresses[1], 4420, b"hello").unwrap();
//! let mut there = None;
//! let now = Instant::ZERO;
//! for _ in 0..4 {
//!     for (from, to) in [(0, 1), (1, 0)] {
//!         let mut datagrams = Vec::new();
//!         let device = Rc::clone(&devices[from]);
//!         settle(&mut *device.borrow_mut(), now, |Output::Datagram(one)| datagrams.push(one));
//!         for one in datagrams {
//!             let bytes = Buffer::from(one.slices().concat());
//!             let (from, identification) = (one.from, Some(0));
//!             let received =
//!                 Received { from, to: one.to, identification, is_marked: false, bytes };
//!             devices[to].borrow_mut().handle_input(now, Input::Datagram(received));
//!         }
//!     }
//!     if let Some(mut requested) = RoceEndpoint::next_requested(&devices[1]) {
//!         requested.accept(b"welcome");
//!         there = Some(requested);
//!     }
//! }
//! let Some(Event::Established { private_data }) = here.poll_event() else { panic!() };
//! assert!(private_data.starts_with(b"welcome"));
//! let mut there = there.unwrap();
//! let Some(Event::Requested { private_data }) = there.poll_event() else { panic!() };
//! assert!(private_data.starts_with(b"hello"));
//! assert!(matches!(there.poll_event(), Some(Event::Established { .. })));
//! ```
//!
//! # Trust
//!
//! RoCEv2 has no authentication: a machine that can reach the device can send it any packet. The
//! device accepts packets of a connection only from its peer's address, with a queue pair number
//! and packet sequence numbers that are random at first. [`rdma::ProtectionDomain`] checks each
//! access to memory. A peer that violates the protocol ends its connection and no other.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod codes;
mod config;
mod connection;
mod device;
mod endpoint;
#[doc(hidden)]
pub mod fuzz;
mod icrc;
mod limiter;
mod requester;
mod responder;
mod sequence;
mod wire;

#[cfg(test)]
mod tests;

pub use codes::PathMtu;
pub use config::Config;
pub use device::{CONNECTIONS_MAX, Counters, Device, HALF_OPEN_MAX, Input, Output, Received};
pub use endpoint::{RoceEndpoint, SharedDevice, TooManyConnections};
pub use wire::{Datagram, PORT};
