//! CRC32C, by which the protocols here find out whether bytes were changed on their way.

/// Goes on computing a CRC32C: takes that of the bytes before (0 for none) and more bytes. The world may have a faster
/// one than [`crc32c`].
pub type Crc32c = fn(u32, &[u8]) -> u32;

/// Castagnoli's polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = table();

#[allow(clippy::cast_possible_truncation, reason = "an index below 256; From is not const")]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut word = index as u32;
        let mut bit = 0;
        while bit < 8 {
            word = if word & 1 != 0 { word >> 1 ^ POLYNOMIAL } else { word >> 1 };
            bit += 1;
        }
        table[index] = word;
        index += 1;
    }
    table
}

/// CRC32C of `bytes` behind those whose CRC32C is `before`; a byte at a time, for worlds that have nothing better.
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        crc >> 8 ^ TABLE[usize::from(low ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_function() {
        // RFC 3720, B.4, and the check value of CRC-32C.
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &[0xff; 32]), 0x62a8_ab43);
        let ascending: [u8; 32] = core::array::from_fn(|index| u8::try_from(index).unwrap());
        assert_eq!(crc32c(0, &ascending), 0x46dd_794e);
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xe306_9283);
    }
}
