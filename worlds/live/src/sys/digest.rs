//! CRCs by the processor's own instructions.

use crc_fast::{CrcAlgorithm, Digest};

/// Up to this many bytes, one instruction for each eight bytes takes less time than setting up
/// vectors: 2 ns for the header of a PDU or of a frame, where vectors take 7 ns.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 128;

/// From this many bytes on, four vectors of 64 bytes are folded at a time: 4 KiB take 70 ns where
/// the library takes 94, of which 26 are its preparation of each call.
#[cfg(target_arch = "x86_64")]
const LONG: usize = 4 * VECTOR;
#[cfg(target_arch = "x86_64")]
const VECTOR: usize = 64;

/// By which 16 bytes are multiplied that go on by 256, 64, 48, 32 and 16 bytes: x to the power of
/// the distance in bits, plus 31 for the lower half and minus 33 for the upper one, modulo the
/// polynomial of CRC32C, with the lowest power in the highest bit.
#[cfg(target_arch = "x86_64")]
const BY: [[i64; 2]; 5] = [
    [0xdcb1_7aa4, 0xb9e0_2b86],
    [0x740e_ef02, 0x9e4a_ddf8],
    [0x1c29_1d04, 0xddc0_152b],
    [0x3da6_d0cb, 0xba4f_c28e],
    [0xf20c_0dfe, 0x493c_7d27],
];

/// The CRC32C of `bytes` appended to bytes whose CRC32C is `before`; see [`engine::Crc32c`].
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { of_short(before, bytes) };
    }
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= LONG
        && std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
        && std::arch::is_x86_feature_detected!("sse4.2")
    {
        // SAFETY: the processor has the instructions.
        return unsafe { of_long(before, bytes) };
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

/// Computes the same as [`crc32c`] for at least [`LONG`] bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn of_long(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{
        __m512i, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_xor_si128,
        _mm512_castsi512_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
        _mm512_set_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };
    /// The table of `_mm512_ternarylogic_epi64` for exclusive or.
    const XOR: i32 = 0x96;
    let by = |[low, high]: [i64; 2]| _mm512_set_epi64(high, low, high, low, high, low, high, low);
    let fold = |vector: __m512i, by: __m512i, onto: __m512i| {
        let low = _mm512_clmulepi64_epi128(vector, by, 0);
        let high = _mm512_clmulepi64_epi128(vector, by, 0x11);
        _mm512_ternarylogic_epi64(low, high, onto, XOR)
    };
    // SAFETY: the place has the bytes of a vector, and any address will do.
    let load = |place: &[u8; VECTOR]| unsafe { _mm512_loadu_si512(place.as_ptr().cast()) };

    let (vectors, rest) = bytes.as_chunks::<VECTOR>();
    let (blocks, last) = vectors.as_chunks::<4>();
    let Some((first, blocks)) = blocks.split_first() else { return of_short(before, bytes) };
    let [mut a, mut b, mut c, mut d] = first.each_ref().map(load);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((!before).cast_signed())));
    for block in blocks {
        let [e, f, g, h] = block.each_ref().map(load);
        let by = by(BY[0]);
        (a, b, c, d) = (fold(a, by, e), fold(b, by, f), fold(c, by, g), fold(d, by, h));
    }
    let mut vector = [b, c, d].into_iter().fold(a, |vector, onto| fold(vector, by(BY[1]), onto));
    for place in last {
        vector = fold(vector, by(BY[1]), load(place));
    }
    // The first three quarters of the vector go on to its last one.
    let [_, _, [k, l], [m, n], [o, p]] = BY;
    let by = _mm512_set_epi64(0, 0, p, o, n, m, l, k);
    let folded = fold(vector, by, _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0, 0));
    let [one, other, third, fourth] = [
        _mm512_castsi512_si128(folded),
        _mm512_extracti32x4_epi32(folded, 1),
        _mm512_extracti32x4_epi32(folded, 2),
        _mm512_extracti32x4_epi32(vector, 3),
    ];
    let left = _mm_xor_si128(_mm_xor_si128(one, other), _mm_xor_si128(third, fourth));
    let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(left).cast_unsigned());
    let crc = _mm_crc32_u64(crc, _mm_extract_epi64(left, 1).cast_unsigned());
    of_short(!u32::try_from(crc).expect("the instruction leaves the upper half 0"), rest)
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
        for length in (0..600).chain([1_023, 1_024, 3_900, 4_096, 4_999]) {
            let (before, behind) = bytes[length % 7..length].split_at((length - length % 7) / 3);
            let before = crc32c(0, before);
            assert_eq!(crc32c(before, behind), engine::crc32c(before, behind), "{length}");
            assert_eq!(crc32c(0, &bytes[..length]), engine::crc32c(0, &bytes[..length]), "{length}");
            assert_eq!(crc32(before, behind), engine::crc32(before, behind), "{length}");
        }
    }
}
