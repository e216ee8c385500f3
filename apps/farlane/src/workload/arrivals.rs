//! When the commands of a load with a rate are due.

use engine::{Instant, Nanos};

/// When the commands of a load with a rate are due to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrivals {
    pub(super) start: Instant,
    pub(super) rate: u32,
    /// Commands that have begun.
    pub(super) begun: u64,
}

impl Arrivals {
    /// When the next command is due to begin.
    pub(super) fn next(&self) -> Instant {
        let nanos = u128::from(self.begun) * 1_000_000_000 / u128::from(self.rate);
        self.start + Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Commands that were due to begin before `end` and have not.
    pub(super) fn late(&self, end: Instant) -> u64 {
        let due = u128::from((end - self.start).get()) * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_arrive_evenly() {
        let start = Instant::ZERO + Nanos::from_secs(5);
        let mut arrivals = Arrivals { start, rate: 4, begun: 0 };
        assert_eq!(arrivals.next(), start);
        arrivals.begun = 6;
        assert_eq!(arrivals.next(), start + Nanos::from_millis(1500));
        assert_eq!(arrivals.late(start + Nanos::from_secs(2)), 2);
        assert_eq!(arrivals.late(start), 0);
    }
}
