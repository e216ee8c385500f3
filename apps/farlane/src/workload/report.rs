//! The result of a load.

use distribution::Distribution;
use engine::Nanos;

use crate::error::Error;

/// What operations of one kind did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) latency: Distribution,
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

/// The result of a load.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) latency: Distribution,
    /// Operations that ended well. Each was a command, or several where it was longer than the
    /// controller's largest transfer.
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    /// The reads, then the writes.
    pub(crate) kinds: [Sums; 2],
    pub(crate) elapsed: Nanos,
    pub(crate) errors: u64,
    /// Status of the first command that failed, as text for people.
    pub(crate) first_error: Option<String>,
    /// Commands that were due and had not begun for lack of room when the load ended.
    pub(crate) late: u64,
    /// Reads whose data was compared with what had been written.
    pub(crate) compared: u64,
    /// Compared reads whose data was not what had been written, each named by byte and namespace.
    pub(crate) corrupt: Vec<String>,
    /// Why not everything that was written could be read back; none when it could.
    pub(crate) unverified: Option<Error>,
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
