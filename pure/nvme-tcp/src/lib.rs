//! NVMe/TCP (NVM Express TCP Transport Specification 1.0).
//!
//! A TCP connection carries one queue. [`controller::Connection`] is the controller's end of a
//! connection, and [`host::Connection`] is the host's end. [`wire`] has the bytes.

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

/// A pool of blocks that several connections share.
pub type SharedPool = Rc<RefCell<Pool>>;

/// In-capsule data in bytes that every controller takes on its Admin Queue.
pub const ADMIN_CAPSULE_DATA_MAX: u32 = 8192;
/// Maximum number of commands outstanding on a connection.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// Maximum number of R2Ts of one command outstanding at a time, for either end.
pub const R2TS_PER_COMMAND_MAX: usize = 4;
/// Maximum number of bytes that one command moves; a block of a pool holds as many.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

const _: () = assert!(TRANSFER_BYTES_MAX as usize <= Pool::LENGTH_MAX);
