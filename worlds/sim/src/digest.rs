//! A running fingerprint of everything that has happened.

/// A fingerprint of 64 bits over a sequence of words and bytes. Equal runs have equal digests. It
/// is not for secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

/// Adds sixteen bytes to a lane. The halves of a product of 128 bits are combined, so that each bit
/// of the result depends on each bit of the input.
#[allow(clippy::cast_possible_truncation, reason = "the halves of a product")]
const fn fold(lane: u64, pair: u128) -> u64 {
    let (low, high) = (pair as u64, (pair >> 64) as u64);
    let product = (low ^ 0xbf58_476d_1ce4_e5b9) as u128 * (high ^ lane ^ 0x94d0_49bb_1331_11eb) as u128;
    lane.rotate_left(23) ^ product as u64 ^ (product >> 64) as u64
}

impl Default for Digest {
    fn default() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }
}

impl Digest {
    /// Adds one word to the fingerprint.
    pub const fn word(&mut self, word: u64) {
        // The finaliser of SplitMix64: each bit of the word affects every bit of the digest.
        let mut mixed = (self.0 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 29;
        self.0 = mixed.wrapping_mul(0x94d0_49bb_1331_11eb).rotate_left(31);
    }

    /// Adds bytes and their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        // Four lanes side by side: no lane has to wait for another one.
        let (blocks, rest) = bytes.as_chunks::<64>();
        if !blocks.is_empty() {
            let mut lanes = [0, 1, 2, 3];
            for block in blocks {
                let (pairs, _) = block.as_chunks::<16>();
                for (lane, pair) in lanes.iter_mut().zip(pairs) {
                    *lane = fold(*lane, u128::from_le_bytes(*pair));
                }
            }
            lanes.iter().for_each(|lane| self.word(*lane));
        }
        let (words, rest) = rest.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    /// The fingerprint of everything added so far.
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
        let long: [u8; 100] = std::array::from_fn(|at| u8::try_from(at).expect("below 100"));
        for at in 0..100 {
            let (mut changed, mut swapped) = (long, long);
            changed[at] ^= 1;
            swapped.swap(at, (at + 8) % 100);
            assert_ne!(digest(&[&long]), digest(&[&changed]), "{at}");
            assert_ne!(digest(&[&long]), digest(&[&swapped]), "{at}");
        }
    }
}
