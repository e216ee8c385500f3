//! NVMe over RDMA (NVM Express RDMA Transport Specification 1.0).
//!
//! A queue pair carries one queue. Start at [`host::Connection`], the host's end of a connection,
//! or at [`controller::Connection`], the controller's end. Both use an [`rdma::Endpoint`], for any
//! wire or card behind it. [`wire`] has the formats. The crate carries commands; a controller
//! executes them with a [`Subsystem`](nvme::subsystem::Subsystem). The crate `farlane-nvme-fabrics`
//! has Connect and the other commands of NVMe over Fabrics.
//!
//! # The run loop
//!
//! The world moves the endpoint's bytes, or lets a card do it: it reaches the endpoint by
//! `endpoint_mut`. Where the endpoint is an [`Engine`](engine::Engine), the connection is one, too,
//! and passes inputs on. After each event of the endpoint, the world takes outputs by `poll` until
//! there are none. A controller's world moves bytes only while [`wants_input`] is true. After
//! `Output::Closed`, the world moves the endpoint's last bytes, and drops the connection.
//!
//! [`wants_input`]: nvme_fabrics::transport::ControllerEnd::wants_input
//!
//! In this example a host reads a block. The world executes the command. The two endpoints are
//! joined without a wire.
//!
//! ```
//! use engine::{Buffer, Instant};
//! use farlane_nvme_rdma::{SharedPool, controller, host};
//! use nvme::host::{Data, command};
//! use nvme::wire::{CompletionQueueEntry, IoOpcode, NamespaceId};
//! use nvme_fabrics::transport::{ControllerEnd, HostEnd};
//! use rdma::{LocalConfig, LocalEndpoint};
//!
//! let (now, pool) = (Instant::ZERO, SharedPool::default());
//! let asked = host::Config::new();
//! let [near, far] = LocalEndpoint::pair(&LocalConfig::default(), &pool, &asked.private_data());
//! let mut host = host::Connection::new(now, asked, near);
//! let mut controller = controller::Connection::new(now, controller::Config::new(pool), far);
//! let completed = 'run: loop {
//!     while let Some(output) = host.poll() {
//!         match output {
//!             host::Output::Initialized(_) => {
//!                 let read = command::on_blocks(IoOpcode::Read, NamespaceId(1), 0, 1);
//!                 host.submit(7, read, Data::Read(512))?;
//!             }
//!             host::Output::Completed(completed) => break 'run completed,
//!             host::Output::Closed(why) => return Err(why.into()),
//!         }
//!     }
//!     while let Some(output) = controller.poll() {
//!         if let controller::Output::Command { slot, .. } = output {
//!             let block = Buffer::copy_from_slice(&[0x5a; 512]);
//!             controller.push(slot, 0, 512, block).expect("the host has room for a block");
//!             controller.complete(slot, CompletionQueueEntry::default());
//!         }
//!     }
//! };
//! assert!(completed.entry.status().is_success());
//! assert_eq!(completed.data[..], [0x5a; 512]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits and trust
//!
//! No message of a peer makes an end panic. A peer that violates the protocol loses its connection,
//! and `Output::Closed` reports the reason to the owner. A host's memory is lent for one command
//! and one queue pair; the loan ends before the data are returned to the owner, or when the
//! connection is over. A controller may write fewer bytes than a read requested: check the length
//! of [`Completed::data`](host::Completed::data). The crate has no encryption and no
//! authentication.
//!
//! - A connection has at most [`QUEUE_SIZE_MAX`] commands; a controller's end accepts one at a time
//!   until [`set_queue`](controller::ControllerEnd::set_queue).
//! - A command moves at most [`TRANSFER_BYTES_MAX`] bytes.
//!   [`pull_bytes_max`](controller::Config::pull_bytes_max) and
//!   [`reads_max`](controller::Config::reads_max) limit the outstanding reads.
//! - [`backlog_bytes_max`](controller::Config::backlog_bytes_max) limits the bytes that a host
//!   leaves unread or is due, and [`SENDS_WAITING_MAX`] the requests that wait for a place in the
//!   send queue. Beyond either, a controller's end accepts no command. Messages that arrive
//!   nevertheless are kept; there are at most as many as the host's queue has commands.
//! - A connection that is not established within `initialise_timeout` is over.
#![cfg_attr(doc, doc = include_str!("../README.md"))]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod connection;
pub mod controller;
#[doc(hidden)]
pub mod fuzz;
pub mod host;
mod sender;
#[cfg(test)]
mod tests;
pub mod wire;

use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};

pub use nvme_fabrics::transport::QUEUE_SIZE_MAX;
pub use rdma::SharedPool;

/// In-capsule data in bytes that every controller's end accepts, also on its Admin Queue. Hosts of
/// this crate send none there, because other controllers accept none.
pub const ADMIN_CAPSULE_DATA_MAX: u32 = 8192;
/// Maximum number of bytes that one command moves; a block of a pool holds as many.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// SGL Support (SGLS) that Identify Controller and discovery entries report over RDMA: SGLs, keyed
/// data blocks, SGLs longer than the data, in-capsule data at an offset.
pub const SGL_SUPPORT: u32 = 1 << 0 | 1 << 2 | 1 << 18 | 1 << 20;
/// Maximum SGL Data Block Descriptors (MSDBD) that Identify Controller reports over RDMA.
pub const DATA_BLOCKS_MAX: u8 = 1;
/// Maximum number of requests that wait for a place in a controller's send queue. Beyond it, the
/// controller accepts no command.
pub const SENDS_WAITING_MAX: usize = 1024;

/// Length of a command capsule without data, in bytes.
const COMMAND_BYTES: u32 = 64;
/// Length of a response capsule in bytes.
const RESPONSE_BYTES: u32 = 16;

const _: () = assert!(TRANSFER_BYTES_MAX as usize <= engine::Pool::LENGTH_MAX);
const _: () = assert!(COMMAND_BYTES as usize == SubmissionQueueEntry::LENGTH);
const _: () = assert!(RESPONSE_BYTES as usize == CompletionQueueEntry::LENGTH);
