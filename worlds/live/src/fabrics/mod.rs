//! NVMe over Fabrics, live: sockets and media around the engines.

pub mod initiator;
mod socket;
pub mod target;

pub use socket::{Received, Socket};

/// CRC32C as this machine computes it best.
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}
