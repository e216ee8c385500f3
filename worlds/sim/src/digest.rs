//! A running fingerprint of everything that happened.

/// 64 bits over a sequence of words and bytes. Equal runs have equal digests; not for secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Digest {
    /// Adds one word.
    pub const fn word(&mut self, word: u64) {
        // The finaliser of SplitMix64: each bit of the word reaches every bit of the digest.
        let mut mixed = (self.0 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 29;
        self.0 = mixed.wrapping_mul(0x94d0_49bb_1331_11eb).rotate_left(31);
    }

    /// Adds bytes, and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(u64::from_le_bytes(word.try_into().expect("a chunk of 8")));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.word(u64::from_le_bytes(last));
    }

    /// The fingerprint so far.
    pub const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_length_and_content_all_count() {
        let digest = |parts: &[&[u8]]| {
            let mut digest = Digest::default();
            parts.iter().for_each(|part| digest.bytes(part));
            digest.value()
        };
        assert_eq!(digest(&[b"one", b"two"]), digest(&[b"one", b"two"]));
        assert_ne!(digest(&[b"one", b"two"]), digest(&[b"two", b"one"]));
        assert_ne!(digest(&[b"onetwo"]), digest(&[b"one", b"two"]));
        assert_ne!(digest(&[b"a\0"]), digest(&[b"a"]));
    }
}
