//! NVMe/TCP (NVM Express TCP Transport Specification 1.0).
//!
//! A TCP connection is one queue: [`controller::Connection`] is its controller's end and [`host::Connection`] its
//! host's. The bytes are in [`wire`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod controller;
mod data_pointer;
mod emit;
#[doc(hidden)]
pub mod fuzz;
pub mod host;
mod inbound;
mod outbox;
mod reader;
#[cfg(test)]
mod tests;
pub mod wire;

use alloc::rc::Rc;
use core::cell::RefCell;

use engine::Pool;

pub use data_pointer::DataPointer;
pub use outbox::Outbox;

/// Blocks that several connections take from.
pub type SharedPool = Rc<RefCell<Pool>>;

/// The in-capsule data that every controller takes on its admin queue, bytes.
pub const ADMIN_CAPSULE_DATA_MAX: u32 = 8192;
/// The most commands outstanding on a connection.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// R2Ts of one command outstanding at once, for either end.
pub const R2TS_PER_COMMAND_MAX: usize = 4;
/// The most bytes that one command moves: what a block of a pool holds.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

const _: () = assert!(TRANSFER_BYTES_MAX as usize <= Pool::LENGTH_MAX);
