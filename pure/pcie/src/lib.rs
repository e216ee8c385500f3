//! PCI Express (PCI Express Base Specification 4.0), as pure engines.
//!
//! The bytes are in [`wire`]. A [`requester`] sends requests and waits for their completions; a
//! [`completer`] answers requests. An [`endpoint`] is a function with a configuration space and
//! BARs. A [`switch`] routes packets between ports, and the [`root_complex`] at the top enumerates
//! the hierarchy.
//!
//! # The run loop
//! An engine does no input or output and reads no clock. The world passes each packet that arrives
//! to [`handle_input`](engine::Engine::handle_input) and takes every output from
//! [`poll_output`](engine::Engine::poll_output): packets to send, and requests and events for the
//! device or the driver behind the engine. It calls
//! [`handle_timeout`](engine::Engine::handle_timeout) at the time that
//! [`poll_timeout`](engine::Engine::poll_timeout) returns.
//!
//! Here a requester maps the BAR of a function and reads a register of it. The example moves the
//! packets directly; between two machines, [`wire::Tlp`] has their bytes.
//!
//! ```
//! use engine::{Buffer, Engine, Instant};
//! use farlane_pcie::config::{Bar, ClassCode, Identity, Link};
//! use farlane_pcie::endpoint::{self, Endpoint, EndpointConfig};
//! use farlane_pcie::requester::{self, Answer, ConfigRegister, Requester, Settings};
//! use farlane_pcie::wire::{Bdf, ConfigType};
//!
//! let mut bars = [None; 6];
//! bars[0] = Some(Bar::memory32(4096));
//! let mut device = Endpoint::new(&EndpointConfig {
//!     identity: Identity {
//!         vendor: 0xfa1a,
//!         device: 1,
//!         revision: 0,
//!         class: ClassCode(0x08_8000),
//!         subsystem_vendor: 0xfa1a,
//!         subsystem: 1,
//!     },
//!     link: Link::default(),
//!     serial_number: 1,
//!     bars,
//!     msix: None,
//! });
//! let mut host = Requester::new(Settings::default());
//!
//! let (now, function) = (Instant::ZERO, Bdf::new(1, 0, 0));
//! // The first BAR decodes at c000_0000h, and the command register enables memory accesses.
//! let register = |offset| ConfigRegister { routing: ConfigType::Type0, target: function, offset };
//! host.config(now, 0, register(0x10), Some((0b1111, 0xc000_0000)))?;
//! host.config(now, 1, register(0x04), Some((0b0011, 0x0002)))?;
//! let mut read = None;
//! let mut asked = 0;
//! while read.is_none() {
//!     while let Some(output) = host.poll_output() {
//!         match output {
//!             requester::Output::Packet(packet) => device.handle_input(now, packet),
//!             requester::Output::Answer(Answer::Register { cookie: 1, result: Ok(_) }) => {
//!                 host.read(now, 2, 0xc000_0010, 4)?;
//!             }
//!             requester::Output::Answer(Answer::ReadData { cookie: 2, data, .. }) => {
//!                 read = Some(data);
//!             }
//!             _ => {}
//!         }
//!     }
//!     while let Some(output) = device.poll_output() {
//!         match output {
//!             endpoint::Output::Packet(packet) => host.receive(now, &packet),
//!             endpoint::Output::BarRead { token, offset, .. } => {
//!                 asked = offset;
//!                 device.bar_read_done(token, Some(Buffer::copy_from_slice(b"\x2a\0\0\0")));
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!((asked, read.as_deref()), (0x10, Some(&b"\x2a\0\0\0"[..])));
//! # Ok::<(), requester::Busy>(())
//! ```
//!
//! # Limits and trust
//! A peer may send any bytes. Unparsable packets are refused with an error value that gives the
//! reason. Well-formed but invalid packets are answered as the specification requires: Unsupported
//! Request, Completer Abort, or an Unexpected Completion that is dropped and counted. Everything
//! that grows has a limit: [`requester::REQUESTS_MAX`] outstanding requests,
//! [`endpoint::BAR_READS_MAX`] reads that wait for a device.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod completer;
pub mod config;
pub mod device;
pub mod endpoint;
#[doc(hidden)]
pub mod fuzz;
pub mod lspci;
pub mod memory;
pub mod ordering;
pub mod requester;
pub mod root_complex;
pub mod switch;
pub mod wire;
