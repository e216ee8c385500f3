//! The end-to-end CRC (ECRC) in a TLP's digest.

use super::layout::{DIGEST, POISONED, TYPE_BIT_0};
use super::{Head, Tlp};

/// The polynomial 04C1_1DB7h with its bits reversed, because bits are sent lowest first.
const POLYNOMIAL: u32 = 0x04c1_1db7_u32.reverse_bits();
/// Number of bytes that the tables take at a time.
const SLICE: usize = 8;
/// `TABLES[n][b]` is what byte `b` adds to the remainder when `n` bytes follow it.
const TABLES: [[u32; 256]; SLICE] = tables();

const fn tables() -> [[u32; 256]; SLICE] {
    let mut tables = [[0; 256]; SLICE];
    let mut byte = 0_u32;
    while byte < 256 {
        let mut remainder = byte;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 0 { remainder >> 1 } else { (remainder >> 1) ^ POLYNOMIAL };
            bit += 1;
        }
        tables[0][byte as usize] = remainder;
        byte += 1;
    }
    let mut slice = 1;
    while slice < SLICE {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[slice - 1][byte];
            tables[slice][byte] = (before >> 8) ^ tables[0][low_byte(before)];
            byte += 1;
        }
        slice += 1;
    }
    tables
}

const fn low_byte(word: u32) -> usize {
    word.to_le_bytes()[0] as usize
}

/// Continues the remainder `crc` over `bytes`.
pub(super) fn update(mut crc: u32, bytes: &[u8]) -> u32 {
    let (slices, rest) = bytes.as_chunks::<SLICE>();
    for slice in slices {
        let [a, b, c, d, e, f, g, h] = *slice;
        let [a, b, c, d] = (crc ^ u32::from_le_bytes([a, b, c, d])).to_le_bytes();
        crc = TABLES[7][usize::from(a)]
            ^ TABLES[6][usize::from(b)]
            ^ TABLES[5][usize::from(c)]
            ^ TABLES[4][usize::from(d)]
            ^ TABLES[3][usize::from(e)]
            ^ TABLES[2][usize::from(f)]
            ^ TABLES[1][usize::from(g)]
            ^ TABLES[0][usize::from(h)];
    }
    rest.iter().fold(crc, |crc, &byte| (crc >> 8) ^ TABLES[0][low_byte(crc ^ u32::from(byte))])
}

impl<P: AsRef<[u8]>> Tlp<P> {
    /// The ECRC of this TLP, whatever its digest is now. It covers the end-to-end prefixes, the
    /// header and the payload. In the header, TD and the variant bits, EP and bit 0 of Type, count
    /// as 1.
    pub fn ecrc(&self) -> u32 {
        let mut words = self.header.words(true);
        words[0] |= DIGEST.all() | POISONED.all() | TYPE_BIT_0.all();
        let mut head = [0; Head::LENGTH_MAX];
        let words = self.prefixes.end_to_end().iter().chain(&words[..self.header.encoded_len() / 4]);
        let mut length = 0;
        for (bytes, word) in head.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
            length += 4;
        }
        let crc = update(u32::MAX, &head[..length]);
        let crc = update(crc, self.payload.as_ref());
        // The specification maps bit 31 of the result to bit 24 of the digest, and bit 24 to bit
        // 31. For the reflected `crc` this is the lowest byte first.
        (!crc).swap_bytes()
    }

    /// Whether the digest is this TLP's ECRC; `None` without a digest.
    pub fn ecrc_matches(&self) -> Option<bool> {
        self.digest.map(|digest| digest == self.ecrc())
    }

    /// This TLP with its ECRC as the digest.
    #[must_use]
    pub fn with_ecrc(mut self) -> Self {
        self.digest = Some(self.ecrc());
        self
    }
}
