//! A ceiling on a host's rate, as a token bucket.

use engine::{Instant, Nanos};
use serde::{Deserialize, Serialize};

/// How much of a ceiling a host that was idle may use at once, as a time of it.
const BURST: Nanos = Nanos::from_millis(20);

/// A limit on the commands and bytes of a host in a second. A missing figure means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// I/O commands a second; not 0.
    pub operations: Option<u64>,
    /// Bytes of data a second, read and written together; not 0.
    pub bytes: Option<u64>,
}

impl Rate {
    /// Whether there is no limit.
    pub const fn is_free(&self) -> bool {
        self.operations.is_none() && self.bytes.is_none()
    }
}

/// Keeps a host within its [`Rate`].
///
/// Work that has begun is charged even if that exceeds the ceiling; the next work then waits until
/// it is paid for. So the average is exact, and a command may be larger than a burst.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ceiling {
    operations: Option<Pace>,
    bytes: Option<Pace>,
}

/// The schedule of one figure: when everything that was charged is paid for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Pace {
    a_second: u64,
    paid: Instant,
}

impl Pace {
    fn new(a_second: Option<u64>) -> Option<Self> {
        a_second.map(|a_second| Self { a_second: a_second.max(1), paid: Instant::ZERO })
    }

    fn charge(&mut self, now: Instant, amount: u64) {
        let oldest = Instant::from_nanos(now.as_nanos().saturating_sub(BURST.get()));
        let cost = u128::from(amount) * 1_000_000_000 / u128::from(self.a_second);
        let cost = Nanos::new(u64::try_from(cost).unwrap_or(u64::MAX / 4).min(u64::MAX / 4));
        self.paid = self.paid.max(oldest) + cost;
    }
}

impl Ceiling {
    /// A host that has sent no command yet.
    pub fn new(rate: Rate) -> Self {
        Self { operations: Pace::new(rate.operations), bytes: Pace::new(rate.bytes) }
    }

    /// Whether there is no limit.
    pub const fn is_free(&self) -> bool {
        self.operations.is_none() && self.bytes.is_none()
    }

    /// When the host may begin its next command; `None` if it may at `now`.
    #[inline]
    pub fn opens(&self, now: Instant) -> Option<Instant> {
        if self.operations.is_none() && self.bytes.is_none() {
            return None;
        }
        let paid = [self.operations, self.bytes].into_iter().flatten().map(|pace| pace.paid).max();
        paid.filter(|at| *at > now)
    }

    /// Whether the host's bytes count.
    #[inline]
    pub const fn has_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    /// The host begins `operations` commands.
    #[inline]
    pub fn charge_operations(&mut self, now: Instant, operations: u64) {
        if let Some(pace) = &mut self.operations {
            pace.charge(now, operations);
        }
    }

    /// The host moves `bytes` bytes of data.
    #[inline]
    pub fn charge_bytes(&mut self, now: Instant, bytes: u64) {
        if let Some(pace) = &mut self.bytes {
            pace.charge(now, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The number of commands of `bytes` bytes that begin within `length`, if as many as allowed
    /// begin.
    fn begun(rate: Rate, bytes: u64, length: Nanos) -> u64 {
        let (mut ceiling, mut now, mut count) = (Ceiling::new(rate), Instant::from_nanos(1 << 40), 0);
        let end = now + length;
        while now < end {
            match ceiling.opens(now) {
                Some(at) => now = at,
                None => {
                    ceiling.charge_operations(now, 1);
                    ceiling.charge_bytes(now, bytes);
                    count += 1;
                }
            }
        }
        count
    }

    proptest! {
        #[test]
        fn the_average_is_the_ceiling(operations in 1_u64..2_000, kilobytes in 1_u64..2_000, size in 1_u64..64) {
            let rate = Rate { operations: Some(operations), bytes: Some(kilobytes << 10) };
            let count = begun(rate, size << 10, Nanos::from_secs(10));
            let most = (operations * 10).min(kilobytes * 10 / size);
            // A burst and the command in progress are added; rounding takes less than one away.
            prop_assert!(count <= most + most / 500 + 2, "{count} of {most}");
            prop_assert!(count + 1 >= most, "{count} of {most}");
        }
    }

    #[test]
    fn without_a_figure_there_is_no_ceiling() {
        let mut ceiling = Ceiling::new(Rate::default());
        ceiling.charge_operations(Instant::ZERO, u64::MAX);
        ceiling.charge_bytes(Instant::ZERO, u64::MAX);
        assert_eq!(ceiling.opens(Instant::ZERO), None);
        // The longest wait is finite, too.
        let mut ceiling = Ceiling::new(Rate { operations: None, bytes: Some(1) });
        ceiling.charge_bytes(Instant::ZERO, u64::MAX);
        ceiling.charge_bytes(Instant::ZERO, u64::MAX);
        assert!(ceiling.opens(Instant::ZERO).is_some());
    }
}
