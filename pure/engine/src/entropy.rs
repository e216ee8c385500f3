//! Unpredictable randomness.

use core::fmt;

use crate::Rng;

/// The source of names and secrets that grant access: the system's random source in the live world,
/// a generator in reproducible worlds.
#[derive(Clone)]
pub enum Entropy {
    /// The system's source: a function that fills the given bytes.
    System(fn(&mut [u8])),
    /// A reproducible sequence, for simulations and tests only. Part of the sequence suffices to
    /// predict the rest.
    Seeded(Rng),
    /// The system's source of an engine whose state was handed over, until the new world has given
    /// its own.
    Missing,
}

/// Why an engine may not ask for randomness.
const MISSING: &str = "the world of a restored engine gives it a source of randomness first";

impl Entropy {
    /// Fills `bytes` with random bytes.
    ///
    /// # Panics
    /// When the source is missing.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        match self {
            Self::System(fill) => fill(bytes),
            Self::Seeded(rng) => rng.fill(bytes),
            Self::Missing => panic!("{MISSING}"),
        }
    }

    /// Takes the place of a source that is missing.
    pub fn supply(&mut self, source: &Self) {
        if matches!(self, Self::Missing) {
            *self = source.clone();
        }
    }

    /// The next 64 random bits.
    ///
    /// # Panics
    /// When the source is missing.
    pub fn next_u64(&mut self) -> u64 {
        match self {
            Self::System(fill) => {
                let mut bytes = [0; 8];
                fill(&mut bytes);
                u64::from_le_bytes(bytes)
            }
            Self::Seeded(rng) => rng.next_u64(),
            Self::Missing => panic!("{MISSING}"),
        }
    }

    /// A random number in `0..bound`, uniform to within 2^-64.
    ///
    /// # Panics
    /// When `bound` is 0, or the source is missing.
    pub fn below(&mut self, bound: u64) -> u64 {
        match self {
            Self::System(_) | Self::Missing => {
                let mut rng = Rng::from_seed(self.next_u64());
                rng.below(bound)
            }
            Self::Seeded(rng) => rng.below(bound),
        }
    }

    /// Creates an independent source for the part of the world called `name`, and leaves this
    /// source untouched; see [`Rng::fork`].
    #[must_use]
    pub fn fork(&self, name: &str) -> Self {
        match self {
            Self::System(fill) => Self::System(*fill),
            Self::Seeded(rng) => Self::Seeded(rng.fork(name)),
            Self::Missing => Self::Missing,
        }
    }

    /// Creates an independent source for one of many similar parts. Each call returns a different
    /// one.
    #[must_use]
    pub fn split(&mut self) -> Self {
        match self {
            Self::System(fill) => Self::System(*fill),
            Self::Seeded(rng) => Self::Seeded(Rng::from_seed(rng.next_u64())),
            Self::Missing => Self::Missing,
        }
    }
}

impl From<Rng> for Entropy {
    fn from(rng: Rng) -> Self {
        Self::Seeded(rng)
    }
}

impl From<&Rng> for Entropy {
    fn from(rng: &Rng) -> Self {
        Self::Seeded(rng.clone())
    }
}

impl fmt::Debug for Entropy {
    /// Hides the state, which would reveal future values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System(_) => "Entropy::System",
            Self::Seeded(_) => "Entropy::Seeded",
            Self::Missing => "Entropy::Missing",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seeded_source_yields_the_sequence_of_its_generator() {
        let mut rng = Rng::from_seed(1);
        let mut entropy = Entropy::from(&rng);
        assert_eq!(entropy.fork("a").next_u64(), rng.fork("a").next_u64());
        assert_eq!(entropy.split().next_u64(), Rng::from_seed(rng.next_u64()).next_u64());
        assert_eq!(entropy.below(9), rng.below(9));
    }

    #[test]
    fn bytes_of_the_system_are_passed_on() {
        let mut entropy = Entropy::System(|bytes| bytes.fill(7)).fork("a").split();
        assert_eq!(entropy.next_u64(), 0x0707_0707_0707_0707);
        assert!(entropy.below(3) < 3);
        let mut bytes = [0; 3];
        entropy.fill(&mut bytes);
        assert_eq!(bytes, [7; 3]);
    }
}
