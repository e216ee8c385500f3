//! CRC32C, with which protocols detect bytes that were changed on the way.

/// A function that continues a CRC32C: it takes the CRC32C of the bytes before (0 for none) and
/// more bytes. A world may have a faster one than [`crc32c`].
pub type Crc32c = fn(u32, &[u8]) -> u32;

/// Castagnoli's polynomial with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// How many bytes are processed at a time.
const STRIDE: usize = 16;

/// For each byte value, its effect on the CRC when followed by as many zero bytes as the table's
/// index.
static TABLES: [[u32; 256]; STRIDE] = tables();

#[allow(clippy::cast_possible_truncation, reason = "an index below 256; From is not const")]
const fn tables() -> [[u32; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut index = 0;
    while index < 256 {
        let mut word = index as u32;
        let mut bit = 0;
        while bit < 8 {
            word = if word & 1 != 0 { word >> 1 ^ POLYNOMIAL } else { word >> 1 };
            bit += 1;
        }
        tables[0][index] = word;
        index += 1;
    }
    let mut zeros = 1;
    while zeros < STRIDE {
        let mut index = 0;
        while index < 256 {
            let word = tables[zeros - 1][index];
            tables[zeros][index] = word >> 8 ^ tables[0][(word & 0xff) as usize];
            index += 1;
        }
        zeros += 1;
    }
    tables
}

/// Computes the CRC32C of `bytes` that follow bytes with the CRC32C `before`, for worlds without a
/// faster function. It processes 16 bytes at a time, as described by Kounavis and Berry ("A
/// systematic approach to building high performance software-based CRC generators", 2005).
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<STRIDE>();
    let crc = blocks.iter().fold(!before, |crc, block| {
        let mut block = *block;
        for (byte, crc) in block.iter_mut().zip(crc.to_le_bytes()) {
            *byte ^= crc;
        }
        let lookups = TABLES.iter().rev().zip(block).map(|(table, byte)| table[usize::from(byte)]);
        lookups.fold(0, |sum, word| sum ^ word)
    });
    !rest.iter().fold(crc, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        crc >> 8 ^ TABLES[0][usize::from(low ^ byte)]
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
    }

    #[test]
    fn where_bytes_are_parted_does_not_matter() {
        let bytes: [u8; 100] = core::array::from_fn(|index| u8::try_from(index * 37 % 256).unwrap());
        for at in 0..=bytes.len() {
            let (before, behind) = bytes.split_at(at);
            assert_eq!(crc32c(crc32c(0, before), behind), crc32c(0, &bytes), "{at}");
            let each = before.iter().fold(0, |crc, byte| crc32c(crc, &[*byte]));
            assert_eq!(crc32c(0, before), each, "{at}");
        }
    }
}
