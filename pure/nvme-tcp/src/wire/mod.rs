//! The bytes of NVMe/TCP: protocol data units (PDUs), their digests and padding, and the faults of
//! invalid PDUs.

mod capsule;
mod data;
mod fault;
mod framing;
mod header;
mod initialise;
mod terminate;

#[cfg(test)]
mod tests;

pub use capsule::{COMMAND_CAPSULE_LENGTH, CommandCapsule, RESPONSE_CAPSULE_LENGTH, ResponseCapsule};
pub use engine::{Crc32c, crc32c};

pub use data::{DATA_HEADER_LENGTH, DataHeader};
pub use fault::{FatalErrorStatus, Fault};
pub use framing::{Agreement, Framing, Receiver};
pub use header::{CommonHeader, Flags, HEADER_LENGTH_MAX, PduKind};
pub use initialise::{
    ALIGNMENT_MAX, INITIALISE_LENGTH, InitializeRequest, InitializeResponse, MAXH2CDATA_MIN, Version,
};
pub use terminate::{TERMINATE_LENGTH_MAX, TerminateRequest};

/// Bytes of a header or data digest (HDGST, DDGST), which are CRC32C.
pub const DIGEST_LENGTH: usize = 4;

/// The two bytes at `offset`, little-endian; 0 beyond the end.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u16::from_le_bytes(*raw))
}

/// The four bytes at `offset`, little-endian; 0 beyond the end.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u32::from_le_bytes(*raw))
}
