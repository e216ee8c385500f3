//! Formats besides queue entries: the private data of a connection's request and of its answers,
//! and the data pointers of commands.

mod data_pointer;
mod private_data;
mod rejection;
#[cfg(test)]
mod tests;

pub use data_pointer::DataPointer;
pub use private_data::{Acceptance, PrivateDataError, Request};
pub use rejection::Rejection;

/// Record Format (RECFMT) of all private data of this specification.
const RECORD_FORMAT: u16 = 0;

/// The 16-bit word of `bytes` that begins at `offset`.
fn word(bytes: &[u8; Request::LENGTH], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}
