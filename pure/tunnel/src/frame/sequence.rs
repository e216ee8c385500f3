//! Numbers of frames.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The number of a numbered frame. Numbers count from 0 in a new session and wrap at 2^32.
///
/// Numbers are compared by their distance. It is small, because a sender keeps at most
/// [`crate::session::REPLAY_FRAMES_MAX`] frames unacknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sequence(u32);

impl Sequence {
    /// The number of a session's first frame.
    pub const FIRST: Self = Self(0);

    /// Decodes the number from the bits on the wire.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
    /// Encodes the number as the bits on the wire.
    pub const fn bits(self) -> u32 {
        self.0
    }
    /// The number `count` frames later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
    /// How many frames lie between `earlier` and this number.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
    /// Whether the number is one of `from`, …, `to`, both included.
    pub const fn is_within(self, from: Self, to: Self) -> bool {
        self.since(from) <= to.since(from)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_wrap() {
        let before = Sequence::from_bits(u32::MAX);
        let after = before.plus(3);
        assert_eq!(after.bits(), 2);
        assert_eq!(after.since(before), 3);
        assert!(Sequence::FIRST.is_within(before, after));
        assert!(!after.plus(1).is_within(before, after));
        assert!(!before.plus(u32::MAX).is_within(before, after));
    }
}
