//! How evenly the surroundings of a circuit give and take.

use engine::Rng;

/// The pace of a circuit's surroundings: in which cycles a stream pauses, and how wide pieces of
/// bytes are.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    rng: Option<Rng>,
    /// Each stream pauses in one of this many cycles; 0 is never.
    one_in: u64,
}

impl Pace {
    /// Surroundings that always give and take, in full beats.
    pub const fn none() -> Self {
        Self { rng: None, one_in: 0 }
    }

    /// Surroundings that pause at random, seldom or often, and cut bytes into random pieces.
    pub fn random(mut rng: Rng) -> Self {
        let one_in = 2 + rng.below(6);
        Self { rng: Some(rng), one_in }
    }

    /// Whether a stream pauses in this cycle.
    pub(super) fn pauses(&mut self) -> bool {
        let Self { rng, one_in } = self;
        rng.as_mut().is_some_and(|rng| rng.one_in(*one_in))
    }

    /// How many of at most `most` bytes the next piece has.
    pub(super) fn width(&mut self, most: usize) -> usize {
        let Some(rng) = &mut self.rng else { return most };
        if rng.one_in(3) {
            1 + usize::try_from(rng.below(most as u64)).expect("at most a beat")
        } else {
            most
        }
    }
}
