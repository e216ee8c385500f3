//! The data that a load writes.

use engine::Rng;

/// Bytes of which a part is zeros, where contents can be compressed.
const MIXED: usize = 512;

/// The data that a load writes, unless it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Noise, the same in each write of a place in memory.
    Noise,
    /// Noise, made anew for each write.
    FreshNoise,
    /// Noise, made anew for each write, with this percentage of zeros.
    Mixed(u8),
    /// These bytes again and again: at least one.
    Pattern(Vec<u8>),
}

impl Contents {
    /// Whether each write has contents of its own.
    pub(super) const fn is_fresh(&self) -> bool {
        matches!(self, Self::FreshNoise | Self::Mixed(_))
    }

    /// Fills `bytes`.
    pub(super) fn fill(&self, bytes: &mut [u8], rng: &mut Rng) {
        match self {
            Self::Noise | Self::FreshNoise => rng.fill(bytes),
            Self::Mixed(zeros) => {
                for part in bytes.chunks_mut(MIXED) {
                    let noise = part.len() * usize::from(100 - zeros.min(&100)) / 100;
                    let (noise, zeros) = part.split_at_mut(noise);
                    rng.fill(noise);
                    zeros.fill(0);
                }
            }
            Self::Pattern(pattern) => {
                for part in bytes.chunks_mut(pattern.len().max(1)) {
                    part.copy_from_slice(&pattern[..part.len()]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_as_asked() {
        let (mut rng, mut bytes) = (Rng::from_seed(1), [9; 1024]);
        Contents::Pattern(vec![1, 2, 3]).fill(&mut bytes, &mut rng);
        assert_eq!((&bytes[..4], bytes[1023]), (&[1, 2, 3, 1][..], 1));
        Contents::Mixed(75).fill(&mut bytes, &mut rng);
        let zeros = bytes.iter().filter(|byte| **byte == 0).count();
        assert!((768..790).contains(&zeros), "{zeros}");
        let before = bytes;
        Contents::FreshNoise.fill(&mut bytes, &mut rng);
        assert_ne!(before, bytes);
    }
}
