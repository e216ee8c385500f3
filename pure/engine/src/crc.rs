//! 32-bit CRCs, by which protocols detect corrupted bytes.

/// A function that continues a CRC32C: it takes the CRC32C of the bytes before (0 for none) and
/// more bytes. A world may have a faster one than [`crc32c`].
pub type Crc32c = fn(u32, &[u8]) -> u32;

/// A function that continues a CRC-32: it takes the CRC-32 of the bytes before (0 for none) and
/// more bytes. A world may have a faster one than [`crc32`].
pub type Crc32 = fn(u32, &[u8]) -> u32;

/// Castagnoli's polynomial with its bits reversed.
const CASTAGNOLI: u32 = 0x82f6_3b78;

/// Ethernet's polynomial with its bits reversed.
pub const CRC32_POLYNOMIAL: u32 = 0xedb8_8320;

/// Number of bytes that one step processes.
const STRIDE: usize = 16;

/// For each byte value, its effect on the CRC when followed by as many zero bytes as the table's
/// index.
type Tables = [[u32; 256]; STRIDE];

static CRC32C: Tables = tables(CASTAGNOLI);
static CRC32: Tables = tables(CRC32_POLYNOMIAL);

#[allow(clippy::cast_possible_truncation, reason = "an index below 256; From is not const")]
const fn tables(polynomial: u32) -> Tables {
    let mut tables = [[0; 256]; STRIDE];
    let mut index = 0;
    while index < 256 {
        let mut word = index as u32;
        let mut bit = 0;
        while bit < 8 {
            word = if word & 1 != 0 { word >> 1 ^ polynomial } else { word >> 1 };
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
/// faster function. NVMe/TCP, iWARP, the tunnel and recordings use this CRC.
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    continued(&CRC32C, before, bytes)
}

/// Computes the CRC-32 of `bytes` that follow bytes with the CRC-32 `before`, for worlds without a
/// faster function. Ethernet, zlib, PCIe and RoCEv2 use this CRC.
pub fn crc32(before: u32, bytes: &[u8]) -> u32 {
    continued(&CRC32, before, bytes)
}

/// Processes 16 bytes at a time, as described by Kounavis and Berry ("A systematic approach to
/// building high performance software-based CRC generators", 2005).
fn continued(tables: &Tables, before: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<STRIDE>();
    let crc = blocks.iter().fold(!before, |crc, block| {
        let mut block = *block;
        for (byte, crc) in block.iter_mut().zip(crc.to_le_bytes()) {
            *byte ^= crc;
        }
        let lookups = tables.iter().rev().zip(block).map(|(table, byte)| table[usize::from(byte)]);
        lookups.fold(0, |sum, word| sum ^ word)
    });
    !rest.iter().fold(crc, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        crc >> 8 ^ tables[0][usize::from(low ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_published_functions() {
        // RFC 3720, B.4, and the check value of CRC-32C.
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(0, &[0xff; 32]), 0x62a8_ab43);
        let ascending: [u8; 32] = core::array::from_fn(|index| u8::try_from(index).unwrap());
        assert_eq!(crc32c(0, &ascending), 0x46dd_794e);
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        // The check value of CRC-32/ISO-HDLC, and an LCRC from the tests of warp-pipe: sequence
        // number 0 and a header of zeros.
        assert_eq!(crc32(0, b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(0, &[0; 14]), 0xd1bb_79c7);
    }

    #[test]
    fn where_bytes_are_parted_does_not_matter() {
        let bytes: [u8; 100] = core::array::from_fn(|index| u8::try_from(index * 37 % 256).unwrap());
        for crc in [crc32c, crc32] {
            for at in 0..=bytes.len() {
                let (before, behind) = bytes.split_at(at);
                assert_eq!(crc(crc(0, before), behind), crc(0, &bytes), "{at}");
                let each = before.iter().fold(0, |sum, byte| crc(sum, &[*byte]));
                assert_eq!(crc(0, before), each, "{at}");
            }
        }
    }
}
