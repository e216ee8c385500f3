//! Digests of streams, by which a certificate names the stored bytes.

use alloc::boxed::Box;

use sha2::{Digest as _, Sha256};

/// Which digest a certificate has of its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// SHA-256 (FIPS 180-4).
    #[default]
    Sha256,
    /// BLAKE3 with 32 bytes of output. A processor with vectors computes it several times as fast.
    Blake3,
    /// None: every digest is zero. The CRC32C of each chunk remains.
    None,
}

impl Algorithm {
    /// The byte that stands for it in a certificate.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Self::Sha256 => 0,
            Self::None => 1,
            Self::Blake3 => 2,
        }
    }

    /// The algorithm that a byte of a certificate stands for; `None` if no certificate has such a
    /// byte.
    pub(crate) const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Sha256,
            1 => Self::None,
            2 => Self::Blake3,
            _ => return None,
        })
    }

    /// The digest of these bytes alone.
    pub(crate) fn digest(self, bytes: &[u8]) -> [u8; 32] {
        let mut hasher = Hasher::new(self);
        hasher.update(bytes);
        hasher.finalize()
    }

    /// The digest of several streams: of their own digests one behind the other, in the order of
    /// their numbers. A single stream's is its own.
    pub fn digest_of_all(self, streams: &[[u8; 32]]) -> [u8; 32] {
        match streams {
            [only] => *only,
            several => {
                let mut all = Hasher::new(self);
                several.iter().for_each(|digest| all.update(digest));
                all.finalize()
            }
        }
    }
}

/// Takes in bytes piece by piece, and gives their digest.
#[derive(Clone, Debug)]
pub struct Hasher(State);

#[derive(Clone, Debug)]
enum State {
    Sha256(Sha256),
    /// Apart, since its state is long.
    Blake3(Box<blake3::Hasher>),
    None,
}

impl Hasher {
    /// Nothing yet.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Blake3 => State::Blake3(Box::default()),
            Algorithm::None => State::None,
        })
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => state.update(bytes),
            State::Blake3(state) => {
                state.update(bytes);
            }
            State::None => {}
        }
    }

    /// The digest of the bytes taken in so far; zero of [`Algorithm::None`].
    pub fn finalize(&self) -> [u8; 32] {
        match &self.0 {
            State::Sha256(state) => state.clone().finalize().into(),
            State::Blake3(state) => state.finalize().into(),
            State::None => [0; 32],
        }
    }
}

/// Makes the digest of a stream's account from its chunks, in the stream's order.
#[derive(Clone, Debug)]
pub struct StreamDigest {
    algorithm: Algorithm,
    all: Hasher,
    is_ring: bool,
}

impl StreamDigest {
    /// Nothing yet. In a ring, chunks are digested by themselves: those that are overwritten can't
    /// be taken out of a digest of bytes.
    pub fn new(algorithm: Algorithm, is_ring: bool) -> Self {
        Self { algorithm, all: Hasher::new(algorithm), is_ring }
    }

    /// Takes in the bytes of the next chunk.
    pub fn update(&mut self, chunk: &[u8]) {
        match self.is_ring {
            true => self.all.update(&self.algorithm.digest(chunk)),
            false => self.all.update(chunk),
        }
    }

    /// The digest.
    pub fn finalize(&self) -> [u8; 32] {
        self.all.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-4's example of SHA-256, and the vector of three bytes (0, 1, 2) from the BLAKE3
    /// team's `test_vectors.json`.
    #[test]
    fn digests_are_those_that_others_publish() {
        let sha256 = Algorithm::Sha256.digest(b"abc");
        assert_eq!(sha256[..8], [0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea]);
        let blake3 = Algorithm::Blake3.digest(&[0, 1, 2]);
        assert_eq!(blake3[..8], [0xe1, 0xbe, 0x4d, 0x7a, 0x8a, 0xb5, 0x56, 0x0a]);
        assert_eq!(Algorithm::None.digest(b"abc"), [0; 32]);
    }

    #[test]
    fn pieces_and_the_whole_have_one_digest() {
        let bytes: [u8; 5_000] = core::array::from_fn(|at| at.to_le_bytes()[0]);
        for algorithm in [Algorithm::Sha256, Algorithm::Blake3, Algorithm::None] {
            let mut pieces = Hasher::new(algorithm);
            bytes.chunks(77).for_each(|piece| pieces.update(piece));
            assert_eq!(pieces.finalize(), algorithm.digest(&bytes), "{algorithm:?}");
            assert_eq!(Algorithm::of(algorithm.byte()), Some(algorithm));
        }
        assert_eq!(Algorithm::of(3), None);
    }
}
