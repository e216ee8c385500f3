//! The circuit that computes digests.

use crate::ffi::Crc32cBeat;

/// The circuit `crc32c_beat`, by which ports compute CRC32C digests, a beat at a time.
#[derive(Debug)]
pub struct DigestCircuit(Crc32cBeat);

impl DigestCircuit {
    /// Creates the circuit.
    #[expect(clippy::new_without_default, reason = "a model of the circuit is no value")]
    pub fn new() -> Self {
        Self(Crc32cBeat::new())
    }

    /// CRC32C of `beats` as one stretch of bytes. Each beat has 1 to 4 double words; the bytes of
    /// each lie in the order of the wire.
    ///
    /// # Panics
    /// When a beat has another number of double words.
    pub fn digest<'a>(&mut self, beats: impl IntoIterator<Item = &'a [[u8; 4]]>) -> u32 {
        let behind = beats.into_iter().fold(u32::MAX, |state, beat| {
            assert!((1..=4).contains(&beat.len()), "a beat of {} double words, expected 1 to 4", beat.len());
            let mut data = [0; 4];
            data.iter_mut().zip(beat).for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
            self.0.next(state, &data, u32::try_from(beat.len()).expect("at most 4"))
        });
        !behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Rng, crc32c};

    #[test]
    fn the_circuit_agrees_with_the_engine_however_beats_are_cut() {
        let (mut circuit, mut rng) = (DigestCircuit::new(), Rng::from_seed(1));
        for _ in 0..2_000 {
            let mut beats: Vec<Vec<[u8; 4]>> = Vec::new();
            for _ in 0..=rng.below(9) {
                let words = (0..=rng.below(4)).map(|_| {
                    let mut bytes = [0; 4];
                    rng.fill(&mut bytes);
                    bytes
                });
                beats.push(words.take(4).collect());
            }
            let bytes: Vec<u8> = beats.iter().flatten().flatten().copied().collect();
            assert_eq!(circuit.digest(beats.iter().map(Vec::as_slice)), crc32c(0, &bytes));
        }
    }

    #[test]
    fn the_circuit_gives_the_vectors_of_the_standard() {
        // RFC 3720, B.4: 32 bytes of zeros, of ones, and rising.
        let vector = |bytes: [u8; 32]| {
            let words: Vec<[u8; 4]> = bytes.as_chunks().0.to_vec();
            DigestCircuit::new().digest(words.chunks(3))
        };
        assert_eq!(vector([0; 32]), 0x8a91_36aa);
        assert_eq!(vector([0xff; 32]), 0x62a8_ab43);
        assert_eq!(vector(std::array::from_fn(|place| u8::try_from(place).unwrap())), 0x46dd_794e);
    }
}
