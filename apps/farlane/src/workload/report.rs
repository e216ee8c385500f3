//! The result of a load.

use distribution::Distribution;
use engine::{Instant, Nanos};

use crate::error::Error;

/// The figures of operations of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) latency: Distribution,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

impl Sums {
    fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        self.operations += other.operations;
        self.bytes += other.bytes;
    }
}

/// The figures of operations: reads, writes, trims and Flushes.
pub(crate) type Kinds = [Sums; 4];

/// The result of a load.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// All but Flushes.
    pub(crate) latency: Distribution,
    /// Operations that ended well, without Flushes. Each was a command, or several where it was
    /// longer than the controller's largest transfer.
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    pub(crate) kinds: Kinds,
    /// When the job began; none if it has not.
    pub(crate) began: Option<Instant>,
    pub(crate) elapsed: Nanos,
    pub(crate) errors: u64,
    /// Status of the first command that failed, as text for people.
    pub(crate) first_error: Option<String>,
    /// Commands that were due and had not begun for lack of room when the load ended.
    pub(crate) late: u64,
    /// Reads whose data was compared with the written data.
    pub(crate) compared: u64,
    /// Compared reads whose data differed from the written data, each named by byte and namespace.
    pub(crate) corrupt: Vec<String>,
    /// Why not everything that was written could be read back; none when it could.
    pub(crate) unverified: Option<Error>,
    /// Whether the job's figures became steady; none unless that was asked for.
    pub(crate) is_steady: Option<bool>,
    /// Whether the user ended the load early. The figures are those until then, without the
    /// commands that were under way.
    pub(crate) interrupted: bool,
}

impl Report {
    /// Commands per second.
    pub(crate) fn iops(&self) -> f64 {
        rate(self.commands, self.elapsed)
    }
    /// Mebibytes per second.
    pub(crate) fn mib_s(&self) -> f64 {
        rate(self.bytes, self.elapsed) / f64::from(1 << 20)
    }

    /// Adds the result of a job that did the same at the same time.
    pub(super) fn merge(&mut self, other: Self) {
        for (ours, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            ours.merge(theirs);
        }
        self.began = Instant::earlier(self.began, other.began);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.late += other.late;
        self.compared += other.compared;
        self.corrupt.extend(other.corrupt);
        self.unverified = self.unverified.take().or(other.unverified);
        self.is_steady = self.is_steady.or(other.is_steady);
        self.interrupted |= other.interrupted;
    }

    /// Sums up the figures of all kinds of operation.
    pub(super) fn sum_up(&mut self) {
        (self.latency, self.commands, self.bytes) = total(&self.kinds);
    }
}

/// The latency, number and bytes of reads, writes and trims together.
pub(crate) fn total(kinds: &Kinds) -> (Distribution, u64, u64) {
    let mut all = Sums::default();
    kinds[..3].iter().for_each(|kind| all.merge(kind));
    (all.latency, all.operations, all.bytes)
}

/// The rate per second of `count` in `elapsed`.
#[expect(clippy::cast_precision_loss, reason = "a rate for people: 53 bits are plenty")]
pub(crate) fn rate(count: u64, elapsed: Nanos) -> f64 {
    count as f64 * 1e9 / elapsed.get().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_second() {
        assert!((rate(500, Nanos::from_millis(500)) - 1_000.0).abs() < 1e-9);
    }
}
