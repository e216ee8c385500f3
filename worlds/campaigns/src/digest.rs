//! CRC32C as fast as the machine computes it, since campaigns compute little else as often.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C of `bytes` appended to bytes whose CRC32C is `before`; [`engine::Crc32c`] is its type.
pub(crate) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("a CRC of 32 bits")
}
