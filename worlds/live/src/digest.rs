//! CRC32C by the vector instructions of the processor.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C of `bytes` behind those whose CRC32C is `before`; see [`engine::Crc32c`].
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("a CRC of 32 bits")
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn it_is_the_engines_function_at_every_length_and_place() {
        let bytes: Vec<u8> =
            (0..5_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for length in (0..600).chain([1_023, 1_024, 4_096, 4_999]) {
            let (before, behind) = bytes[length % 7..length].split_at((length - length % 7) / 3);
            let before = crc32c(0, before);
            assert_eq!(crc32c(before, behind), engine::crc32c(before, behind), "{length}");
            assert_eq!(crc32c(0, &bytes[..length]), engine::crc32c(0, &bytes[..length]), "{length}");
        }
    }
}
