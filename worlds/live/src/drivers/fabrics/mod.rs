//! NVMe over Fabrics in the live world: sockets and media around the engines.

pub mod initiator;
mod socket;
pub mod target;
mod tls;

pub use tls::fuzz;

pub use socket::{Moving, Received, Socket};

pub use crate::sys::digest::crc32c;
