//! CRCs by the processor's own instructions.

use crc_fast::{CrcAlgorithm, Digest};

/// Up to this many bytes, one instruction for each eight bytes takes less time than setting up
/// vectors: 2 ns for the header of a PDU or of a frame, where vectors take 7 ns.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 128;

/// The CRC32C of `bytes` appended to bytes whose CRC32C is `before`; see [`engine::Crc32c`].
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { of_short(before, bytes) };
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("a CRC of 32 bits")
}

/// Computes the same as [`crc32c`], eight bytes at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn of_short(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks();
    let crc =
        words.iter().fold(u64::from(!before), |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    let crc = u32::try_from(crc).expect("the instruction leaves the upper half 0");
    !rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
}

/// The CRC-32 of `bytes` appended to bytes whose CRC-32 is `before`; see [`engine::Crc32`].
pub fn crc32(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, u64::from(!before));
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("a CRC of 32 bits")
}

#[cfg(test)]
mod tests {
    use super::{crc32, crc32c};

    #[test]
    fn they_are_the_engines_functions_at_every_length_and_place() {
        let bytes: Vec<u8> =
            (0..5_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for length in (0..600).chain([1_023, 1_024, 4_096, 4_999]) {
            let (before, behind) = bytes[length % 7..length].split_at((length - length % 7) / 3);
            let before = crc32c(0, before);
            assert_eq!(crc32c(before, behind), engine::crc32c(before, behind), "{length}");
            assert_eq!(crc32c(0, &bytes[..length]), engine::crc32c(0, &bytes[..length]), "{length}");
            assert_eq!(crc32(before, behind), engine::crc32(before, behind), "{length}");
        }
    }
}
