//! The end-to-end CRC (ECRC) in a TLP's digest.

use engine::crc32;

use super::layout::{DIGEST, POISONED, TYPE_BIT_0};
use super::{Head, Tlp};

impl<P: AsRef<[u8]>> Tlp<P> {
    /// The ECRC of this TLP, regardless of its present digest. It covers the end-to-end prefixes,
    /// the header and the payload. In the header, TD and the variant bits, EP and bit 0 of Type,
    /// count as 1.
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
        let crc = crc32(crc32(0, &head[..length]), self.payload.as_ref());
        // The specification maps bit 31 of the result to bit 24 of the digest, and bit 24 to bit
        // 31. For the reflected `crc` this is the lowest byte first.
        crc.swap_bytes()
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
