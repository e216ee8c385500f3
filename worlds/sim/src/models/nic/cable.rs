//! How long a signal is in a cable.

use engine::Nanos;

/// The kind of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cable {
    /// Coaxial cable.
    Coax,
    /// Twisted-pair cable.
    TwistedPair,
    /// Optical fibre.
    Optical,
    /// Direct-attach copper (twinax).
    Twinax,
}

impl Cable {
    /// Delay of the cable in ps a metre (published-figures, niq.wire_ns_per_m).
    pub const fn picos_per_metre(self) -> u64 {
        match self {
            Self::Coax => 5_130,
            Self::TwistedPair => 5_650,
            Self::Optical => 5_050,
            Self::Twinax => 5_100,
        }
    }

    /// The propagation time of a signal through `metres` of the cable.
    pub const fn delay(self, metres: u64) -> Nanos {
        Nanos::new((self.picos_per_metre() * metres + 500) / 1_000)
    }
}
