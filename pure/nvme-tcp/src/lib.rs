//! NVMe/TCP (NVM Express TCP Transport Specification 1.0).
//!
//! A TCP connection carries one queue. Start at [`host::Connection`], the host's end of a
//! connection, or at [`controller::Connection`], the controller's end. [`wire`] has the formats.
//! The crate carries commands; a controller executes them with a
//! [`Subsystem`](nvme::subsystem::Subsystem). The crate `farlane-nvme-fabrics` has Connect and the
//! other commands of NVMe over Fabrics.
//!
//! # The run loop
//!
//! An end is an [`Engine`](engine::Engine). The world passes received bytes as `Input::Received`.
//! It calls `handle_timeout` at the deadline of `poll_timeout`. It takes outputs until
//! `poll_output` returns `None`. It sends the contents of `outbox`, and reports the number of sent
//! bytes by `sent`. Then it sleeps until bytes arrive, the socket can send, or the next deadline
//! passes. A controller's world receives only while [`wants_input`] is true, and takes outputs
//! after [`sent`](controller::Connection::sent), too. After `Output::Closed`, the world sends the
//! rest of the outbox and closes the socket.
//!
//! [`wants_input`]: nvme_fabrics::transport::ControllerEnd::wants_input
//!
//! In this example a host reads a block. The world is the wire, and it executes the command.
//!
//! ```
//! use engine::{Buffer, Engine, Instant, fire};
//! use farlane_nvme_tcp::{SharedPool, controller, host};
//! use nvme::host::{Data, command};
//! use nvme::wire::{CompletionQueueEntry, IoOpcode, NamespaceId};
//! use nvme_fabrics::transport::{ControllerEnd, HostEnd};
//!
//! let mut now = Instant::ZERO;
//! let pool = SharedPool::default();
//! let mut host = host::Connection::new(now, host::Config::new(pool.clone()));
//! let mut controller = controller::Connection::new(now, controller::Config::new(pool));
//! let completed = 'run: loop {
//!     fire(&mut host, now);
//!     while let Some(output) = host.poll_output() {
//!         match output {
//!             host::Output::Initialized(_) => {
//!                 let read = command::on_blocks(IoOpcode::Read, NamespaceId(1), 0, 1);
//!                 host.submit(7, read, Data::Read(512))?;
//!             }
//!             host::Output::Completed(completed) => break 'run completed,
//!             host::Output::Closed(why) => return Err(why.into()),
//!         }
//!     }
//!     fire(&mut controller, now);
//!     while let Some(output) = controller.poll_output() {
//!         if let controller::Output::Command { slot, .. } = output {
//!             let block = Buffer::copy_from_slice(&[0x5a; 512]);
//!             controller.push(slot, 0, 512, block).expect("the host has room for a block");
//!             controller.complete(slot, CompletionQueueEntry::default());
//!         }
//!     }
//!     let to_controller: Vec<u8> = host.outbox().slices().flatten().copied().collect();
//!     let to_host: Vec<u8> = controller.outbox().slices().flatten().copied().collect();
//!     if to_controller.is_empty() && to_host.is_empty() {
//!         // Nothing is on its way. A live world sleeps; here the time jumps to the next deadline.
//!         let deadlines = [host.poll_timeout(), controller.poll_timeout()];
//!         now = deadlines.into_iter().flatten().min().expect("an end waits for a time");
//!     }
//!     if controller.wants_input() {
//!         host.sent(to_controller.len());
//!         controller.handle_input(now, controller::Input::Received(to_controller.into()));
//!     }
//!     controller.sent(to_host.len());
//!     host.handle_input(now, host::Input::Received(to_host.into()));
//! };
//! assert!(completed.entry.status().is_success());
//! assert_eq!(completed.data[..], [0x5a; 512]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits and trust
//!
//! No byte of a peer makes an end panic. A peer that violates the protocol gets a Terminate
//! Connection Request, and `Output::Closed` reports the reason to the owner. A wrong header digest
//! ends the connection; a wrong data digest fails only its command. A host has digests only if its
//! [`Config`](host::Config) requests them. The crate has no encryption and no authentication. A
//! controller may send fewer bytes than a read requested: check the length of
//! [`Completed::data`](host::Completed::data).
//!
//! - A connection has at most [`QUEUE_SIZE_MAX`] commands; a controller's end accepts one at a time
//!   until [`set_queue`](controller::ControllerEnd::set_queue).
//! - A command moves at most [`TRANSFER_BYTES_MAX`] bytes, with at most [`R2TS_PER_COMMAND_MAX`]
//!   R2Ts at a time. [`pull_bytes_max`](controller::Config::pull_bytes_max) limits the bytes that a
//!   controller's end requests over all commands.
//! - [`backlog_bytes_max`](controller::Config::backlog_bytes_max) limits the bytes that a host
//!   leaves unread or is due. Beyond it, a controller's end accepts no command, and `wants_input`
//!   is false while received bytes wait. Bytes that are passed nevertheless are kept.
//! - A peer that does not begin the connection within `initialise_timeout` loses it.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod assembly;
mod connection;
pub mod controller;
mod data_pointer;
mod emit;
#[doc(hidden)]
pub mod fuzz;
pub mod host;
mod inbound;
mod reader;
#[cfg(test)]
mod tests;
pub mod wire;

use engine::Pool;

pub use data_pointer::DataPointer;
pub use engine::{Outbox, SharedPool};
pub use nvme_fabrics::transport::QUEUE_SIZE_MAX;

/// In-capsule data in bytes that every controller accepts on its Admin Queue.
pub const ADMIN_CAPSULE_DATA_MAX: u32 = 8192;
/// Maximum number of R2Ts of one command outstanding at a time, for either end.
pub const R2TS_PER_COMMAND_MAX: usize = 4;
/// Maximum number of bytes that one command moves; a block of a pool holds as many.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

const _: () = assert!(TRANSFER_BYTES_MAX as usize <= Pool::LENGTH_MAX);
