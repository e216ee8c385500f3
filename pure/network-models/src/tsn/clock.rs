//! The error of a node's synchronised clock (IEEE 802.1AS).

use engine::Nanos;

/// Divisor of parts per 10^9.
const BILLION: i128 = 1_000_000_000;

/// The error of a node's clock: a constant offset, a drift that each synchronisation ends, and a
/// remainder that each synchronisation leaves.
///
/// 802.1AS B.3 asks for 1 µs, peak to peak, over seven hops at most. An oscillator within 100 ppm,
/// synchronised each 125 ms (gPTP's usual interval), would drift by 12.5 µs in between if its node
/// did not correct the rate. Both values only show the scale: no model uses them by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockError {
    /// Constant lead of the clock, in nanoseconds.
    pub offset: i64,
    /// Nanoseconds that the clock gains in a second between two synchronisations.
    pub drift: i64,
    /// Time between two synchronisations.
    pub interval: Nanos,
    /// Maximum error, early or late, that remains after a synchronisation; each one leaves another.
    pub wander: Nanos,
    /// Seed of the remaining errors, which makes those of two nodes differ.
    pub seed: u64,
}

impl ClockError {
    /// A clock without error.
    pub const NONE: Self = Self { offset: 0, drift: 0, interval: Nanos::ZERO, wander: Nanos::ZERO, seed: 0 };

    /// Nanoseconds that the clock is ahead at `time`, in nanoseconds of the true clock.
    pub fn at(&self, time: i64) -> i64 {
        if *self == Self::NONE {
            return 0;
        }
        let interval = i64::try_from(self.interval.get()).unwrap_or(i64::MAX).max(1);
        let (synchronisation, since) = (time.div_euclid(interval), time.rem_euclid(interval));
        let drifted = i128::from(self.drift) * i128::from(since) / BILLION;
        self.offset
            .saturating_add(i64::try_from(drifted).unwrap_or(i64::MAX))
            .saturating_add(self.left_by(synchronisation))
    }

    /// Maximum error of the clock, in either direction.
    pub fn bound(&self) -> Nanos {
        let drifted =
            u128::from(self.drift.unsigned_abs()) * u128::from(self.interval.get()) / BILLION.unsigned_abs();
        Nanos::new(self.offset.unsigned_abs())
            + Nanos::new(u64::try_from(drifted).unwrap_or(u64::MAX))
            + self.wander
    }

    /// The error that remains after synchronisation `number`. It is a hash of `number`, so that any
    /// of these errors can be asked for at any time.
    fn left_by(&self, number: i64) -> i64 {
        if self.wander == Nanos::ZERO {
            return 0;
        }
        let mut rng = engine::Rng::from_seed(self.seed ^ number.cast_unsigned().rotate_left(32));
        let wander = self.wander.get().min(u64::from(u32::MAX));
        let left = rng.below(2 * wander + 1);
        i64::try_from(left).unwrap_or(i64::MAX) - i64::try_from(wander).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn drift_starts_anew_with_each_synchronisation() {
        let clock =
            ClockError { drift: 100_000, interval: Nanos::from_millis(125), offset: 50, ..ClockError::NONE };
        assert_eq!(clock.at(0), 50);
        assert_eq!(clock.at(100_000_000), 50 + 10_000);
        assert_eq!(clock.at(125_000_000), 50);
        assert_eq!(clock.bound(), Nanos::new(12_550));
        assert_eq!(ClockError::NONE.at(7), 0);
    }

    proptest! {
        #[test]
        fn no_error_is_larger_than_its_bound(
            offset in -2_000_i64..2_000, drift in -200_000_i64..200_000, wander in 0_u64..1_000, time: i64, seed: u64,
        ) {
            let interval = Nanos::from_millis(125);
            let clock = ClockError { offset, drift, interval, wander: Nanos::new(wander), seed };
            prop_assert!(clock.at(time).unsigned_abs() <= clock.bound().get());
        }
    }
}
