//! Time as engines know it: nanoseconds of a monotonic clock.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nanos(u64);

impl Nanos {
    /// A length of zero.
    pub const ZERO: Self = Self(0);
    /// The longest length, about 584 years.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates a length of `nanoseconds`.
    pub const fn new(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }
    /// Creates a length of `microseconds`; saturates at [`Nanos::MAX`].
    pub const fn from_micros(microseconds: u64) -> Self {
        Self(microseconds.saturating_mul(1_000))
    }
    /// Creates a length of `milliseconds`; saturates at [`Nanos::MAX`].
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000_000))
    }
    /// Creates a length of `seconds`; saturates at [`Nanos::MAX`].
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }
    /// The length in nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The difference, or zero if `other` is longer.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Nanos {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Nanos {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl From<core::time::Duration> for Nanos {
    /// Converts a duration. A duration that is too long becomes [`Nanos::MAX`].
    fn from(duration: core::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for core::time::Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl fmt::Display for Nanos {
    /// Uses the unit that a person would choose, with at most three decimals: `950 ns`,
    /// `12.345 µs`, `3 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} ns", self.0),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let (whole, thousandths) = (self.0 / unit, self.0 % unit * 1_000 / unit);
        match thousandths {
            0 => write!(f, "{whole} {name}"),
            _ => write!(f, "{whole}.{thousandths:03} {name}"),
        }
    }
}

/// A point in time: nanoseconds since the start of a monotonic clock of the world (a boot, or the
/// beginning of a simulation). Instants of different clocks must not be mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanoseconds` after the clock's start.
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }
    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// The earlier of two deadlines, of which each may be missing.
    #[inline]
    pub const fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(first), Some(second)) => Some(if second.0 < first.0 { second } else { first }),
            (Some(only), None) | (None, Some(only)) => Some(only),
            (None, None) => None,
        }
    }
}

impl Add<Nanos> for Instant {
    type Output = Self;
    fn add(self, length: Nanos) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

impl Sub<Instant> for Instant {
    type Output = Nanos;
    /// The time from `earlier` to `self`, or zero if `earlier` is in fact later.
    fn sub(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn displays_in_the_unit_a_person_would_choose() {
        assert_eq!(Nanos::new(950).to_string(), "950 ns");
        assert_eq!(Nanos::new(12_345).to_string(), "12.345 µs");
        assert_eq!(Nanos::from_secs(3).to_string(), "3 s");
        assert_eq!(Nanos::new(1_007_000).to_string(), "1.007 ms");
    }

    #[test]
    fn a_missing_deadline_is_never_the_earlier_one() {
        let [first, second] = [1, 2].map(|at| Some(Instant::from_nanos(at)));
        assert_eq!(Instant::earlier(first, second), first);
        assert_eq!(Instant::earlier(second, first), first);
        assert_eq!(Instant::earlier(None, second), second);
        assert_eq!(Instant::earlier(first, None), first);
        assert_eq!(Instant::earlier(None, None), None);
    }

    #[test]
    fn differences_never_wrap() {
        assert_eq!(Instant::ZERO - Instant::from_nanos(5), Nanos::ZERO);
        assert_eq!(Instant::from_nanos(u64::MAX) + Nanos::new(1), Instant::from_nanos(u64::MAX));
    }
}
