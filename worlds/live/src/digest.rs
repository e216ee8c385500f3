//! CRC32C by the processor's own instruction.

/// CRC32C of `bytes` behind those whose CRC32C is `before`; see [`engine::Crc32c`].
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}
