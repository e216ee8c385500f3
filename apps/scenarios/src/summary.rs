//! A task's figures: how many operations there were, how long they took, and at which rate.

use engine::Nanos;

use crate::file::scenario::Done;

/// The figures of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of operations that were measured.
    pub count: u64,
    /// Number of operations that failed.
    pub failed: u64,
    /// Number of bytes that were transferred.
    pub bytes: u64,
    /// Bits per second, from the beginning of the first operation to the end of the last one.
    pub rate: u64,
    /// The mean latency, rounded down to a nanosecond.
    pub mean: Nanos,
    /// The shortest latency.
    pub shortest: Nanos,
    /// The median latency.
    pub median: Nanos,
    /// The latency that 99 % of the operations do not exceed.
    pub p99: Nanos,
    /// The latency that 99.9 % of the operations do not exceed.
    pub p999: Nanos,
    /// The longest latency.
    pub longest: Nanos,
}

/// A figure's name, which ends in its unit, and its value.
pub type Figure = (&'static str, fn(&Summary) -> u64);

impl Summary {
    /// All figures, as programs get them.
    pub const FIGURES: [Figure; 10] = [
        ("count", |of| of.count),
        ("failed", |of| of.failed),
        ("bytes", |of| of.bytes),
        ("bits_per_second", |of| of.rate),
        ("mean_ns", |of| of.mean.get()),
        ("min_ns", |of| of.shortest.get()),
        ("p50_ns", |of| of.median.get()),
        ("p99_ns", |of| of.p99.get()),
        ("p999_ns", |of| of.p999.get()),
        ("max_ns", |of| of.longest.get()),
    ];

    /// The figures of a task that is done.
    pub fn of(task: &Done) -> Self {
        let outcome = &task.outcome;
        let Waits { mean, shortest, median, p99, p999, longest } = Waits::of(&outcome.times);
        let took = (outcome.ended - outcome.began).get().max(1);
        let bits = u128::from(outcome.bytes) * 8 * 1_000_000_000 / u128::from(took);
        Self {
            count: outcome.times.len() as u64,
            failed: outcome.failed,
            bytes: outcome.bytes,
            rate: u64::try_from(bits).unwrap_or(u64::MAX),
            mean,
            shortest,
            median,
            p99,
            p999,
            longest,
        }
    }
}

/// How long operations or frames took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The mean, rounded down to a nanosecond.
    pub mean: Nanos,
    /// The least.
    pub shortest: Nanos,
    /// The median.
    pub median: Nanos,
    /// The time that 99 % do not exceed.
    pub p99: Nanos,
    /// The time that 99.9 % do not exceed.
    pub p999: Nanos,
    /// The greatest.
    pub longest: Nanos,
}

impl Waits {
    /// The figures of `times`, in any order.
    pub fn of(times: &[Nanos]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let sum = sorted.iter().fold(0_u64, |sum, time| sum + time.get());
        Self {
            mean: Nanos::new(sum / (sorted.len() as u64).max(1)),
            shortest: quantile(&sorted, 0),
            median: quantile(&sorted, 500),
            p99: quantile(&sorted, 990),
            p999: quantile(&sorted, 999),
            longest: quantile(&sorted, 1000),
        }
    }
}

/// The least of the `sorted` times that at least `thousandths` of them do not exceed; zero if
/// there are none.
fn quantile(sorted: &[Nanos], thousandths: usize) -> Nanos {
    let place = (sorted.len() * thousandths).div_ceil(1000).max(1) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_bench::Outcome;
    use engine::Instant;

    fn done(times: &[u64]) -> Done {
        let outcome = Outcome {
            times: times.iter().map(|time| Nanos::new(*time)).collect(),
            bytes: 1000,
            ended: Instant::from_nanos(4_000),
            ..Outcome::default()
        };
        Done { name: "read".into(), kind: None, outcome, seen: Vec::new() }
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let of = Summary::of(&done(&(1..=1000).rev().collect::<Vec<_>>()));
        let times = [of.shortest, of.median, of.p99, of.p999, of.longest, of.mean].map(Nanos::get);
        assert_eq!(times, [1, 500, 990, 999, 1000, 500]);
        assert_eq!((of.count, of.bytes, of.rate), (1000, 1000, 2_000_000_000));
    }

    #[test]
    fn a_task_without_operations_has_figures() {
        let of = Summary::of(&done(&[]));
        assert_eq!((of.count, of.mean, of.longest), (0, Nanos::ZERO, Nanos::ZERO));
    }
}
