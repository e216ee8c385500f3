//! RDMA devices of this machine: librdmacm makes connections, libibverbs moves their data.
//!
//! Both libraries are loaded when they are first wanted (`library`), so the program runs where
//! there are none. A `Channel` has the listeners and the connections of one thread, each a `CmId`,
//! and reports their events. Once it is known which device a connection is on, a `Pair` joins it to
//! a queue pair with memory of its own (`memory`).
//!
//! Devices write that memory whenever their peers like. So no reference to it is ever made, and
//! bytes copied out of it may be anything: their user checks them like all bytes from a peer.

mod abi;
mod channel;
mod library;
mod memory;
mod pair;

pub(crate) use channel::{Channel, CmId, Happened, Happening, Reads};
pub(crate) use memory::{Block, Use};
pub(crate) use pair::{Bytes, Completion, Depths, Ended, Pair, Work};

use std::io;

/// Whether the libraries are there.
///
/// # Errors
/// Why not, and the packages to install.
pub fn present() -> io::Result<()> {
    library::library().map(|_| ())
}

/// The error of a call that returns -1 and sets `errno`, or that returns the error itself.
fn checked(result: std::ffi::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        error if error > 0 => Err(io::Error::from_raw_os_error(error)),
        _ => Err(io::Error::last_os_error()),
    }
}
