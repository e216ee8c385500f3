//! CRC32C as fast as the machine has it: campaigns reckon little else as often.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C of `bytes` behind those whose CRC32C is `before`; see [`engine::Crc32c`].
pub(crate) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("a CRC of 32 bits")
}
