//! NVMe over Fabrics in the live world: sockets and media around the engines.

pub mod initiator;
mod socket;
pub mod target;

pub use socket::{Received, Socket};

pub use crate::sys::digest::crc32c;
