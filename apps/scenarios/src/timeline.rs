//! Throughput and latency over time.

use engine::{Instant, Nanos};
use hdrhistogram::Histogram;

use crate::file::scenario::Done;
use crate::test_bench::Kind;

/// The most rows of a time line. With more, two become one.
pub const ROWS_MAX: usize = 1_000;
/// The shortest time of a row.
const SHORTEST: Nanos = Nanos::from_micros(100);
/// The latest time of a time line: years.
const LATEST: Nanos = Nanos::new(1 << 58);

/// Commands of one kind that ended within a row.
#[derive(Clone, Debug)]
struct Sums {
    bytes: u64,
    /// Latencies in nanoseconds.
    times: Histogram<u32>,
}

impl Default for Sums {
    fn default() -> Self {
        let times = Histogram::new(2).expect("two significant digits are within the histogram's range");
        Self { bytes: 0, times }
    }
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.times += &other.times;
    }
}

/// Counts of reads or writes within a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of commands that ended.
    pub commands: u64,
    /// Bytes a second.
    pub rate: u64,
    /// The median of the latencies, within a percent; zero without commands.
    pub median: Nanos,
    /// The 99th percentile of the latencies.
    pub p99: Nanos,
    /// The longest latency.
    pub longest: Nanos,
}

/// A row of a time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// When the row begins.
    pub at: Nanos,
    /// Commands that read.
    pub reads: Figures,
    /// Commands that write.
    pub writes: Figures,
}

/// Throughput and latency over time, in rows of equal length.
///
/// The length is doubled when there are more than [`ROWS_MAX`] rows, so that a time line of any
/// length has about as many.
#[derive(Clone, Debug)]
pub struct Timeline {
    interval: Nanos,
    /// Reads and writes of each row.
    rows: Vec<[Sums; 2]>,
    end: Nanos,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { interval: SHORTEST, rows: Vec::new(), end: Nanos::ZERO }
    }
}

impl Timeline {
    /// Adds a command of `bytes` bytes that was complete at `at`, `took` after it was due. A time
    /// later than nine years counts as nine years.
    pub fn add(&mut self, is_read: bool, at: Instant, took: Nanos, bytes: u64) {
        let at = (at - Instant::ZERO).min(LATEST);
        self.end = self.end.max(at);
        while at.get() / self.interval.get() >= ROWS_MAX as u64 {
            self.halve();
        }
        let row = usize::try_from(at.get() / self.interval.get()).unwrap_or(ROWS_MAX - 1);
        if self.rows.len() <= row {
            self.rows.resize_with(row + 1, Default::default);
        }
        let sums = &mut self.rows[row][usize::from(!is_read)];
        sums.bytes += bytes;
        let took = took.min(LATEST).get();
        sums.times.record(took).expect("a histogram that resizes itself takes every value");
    }

    /// Adds the reads and writes of tasks. The time counts from the beginning of the first of them.
    pub(crate) fn add_all(&mut self, tasks: &[Done]) {
        let start = tasks.iter().map(|task| task.outcome.began).min().unwrap_or(Instant::ZERO);
        for Done { kind, outcome, .. } in tasks {
            let is_read = match kind {
                Some(Kind::Read) => true,
                Some(Kind::Write) => false,
                _ => continue,
            };
            for (took, (end, bytes)) in outcome.times.iter().zip(&outcome.ends) {
                self.add(is_read, Instant::ZERO + (*end - start), *took, u64::from(*bytes));
            }
        }
    }

    /// Makes one row of two.
    fn halve(&mut self) {
        self.interval = self.interval + self.interval;
        let rows = std::mem::take(&mut self.rows);
        for (number, [reads, writes]) in rows.into_iter().enumerate() {
            match self.rows.get_mut(number / 2) {
                None => self.rows.push([reads, writes]),
                Some(row) => {
                    row[0].add(&reads);
                    row[1].add(&writes);
                }
            }
        }
    }

    /// The length of a row; the last one may be shorter.
    pub const fn interval(&self) -> Nanos {
        self.interval
    }

    /// The rows, in order of time and without a gap.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().enumerate().map(|(number, [reads, writes])| {
            let at = self.interval * number as u64;
            let length = self.interval.min(self.end.saturating_sub(at));
            Row { at, reads: figures(reads, length), writes: figures(writes, length) }
        })
    }
}

fn figures(sums: &Sums, length: Nanos) -> Figures {
    let rate = u128::from(sums.bytes) * 1_000_000_000 / u128::from(length.get().max(1));
    let q = |quantile| Nanos::new(sums.times.value_at_quantile(quantile));
    Figures {
        commands: sums.times.len(),
        rate: u64::try_from(rate).unwrap_or(u64::MAX),
        median: q(0.5),
        p99: q(0.99),
        longest: Nanos::new(sums.times.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write of a megabyte each millisecond, for `count` milliseconds.
    fn written(count: u64) -> Timeline {
        let mut timeline = Timeline::default();
        for number in 1..=count {
            let at = Instant::ZERO + Nanos::from_millis(number);
            timeline.add(false, at, Nanos::from_micros(number % 100 + 1), 1_000_000);
        }
        timeline
    }

    #[test]
    fn a_time_line_of_any_length_has_about_as_many_rows() {
        for count in [10, 700, 5_000, 100_000] {
            let timeline = written(count);
            let rows: Vec<_> = timeline.rows().collect();
            assert!(
                rows.len() <= ROWS_MAX && rows.len() as u64 >= count.min(500) / 2,
                "{count}: {}",
                rows.len()
            );
            let commands: u64 = rows.iter().map(|row| row.writes.commands).sum();
            assert_eq!(commands, count);
            assert!(rows.iter().all(|row| row.reads == Figures::default()));
            assert!(rows.windows(2).all(|pair| pair[0].at + timeline.interval() == pair[1].at));
        }
    }

    #[test]
    fn rows_have_rates_and_percentiles() {
        let timeline = written(100_000);
        let rows: Vec<_> = timeline.rows().collect();
        let middle = rows[rows.len() / 2].writes;
        // A gigabyte a second, and latencies of 1 to 100 µs, evenly.
        assert!(middle.rate.abs_diff(1_000_000_000) < 10_000_000, "{middle:?}");
        assert!(middle.median.get().abs_diff(50_000) < 2_000, "{middle:?}");
        assert!(middle.p99.get().abs_diff(99_000) < 2_000 && middle.longest >= middle.p99, "{middle:?}");
    }

    #[test]
    fn no_time_is_too_late() {
        let mut timeline = written(3);
        timeline.add(true, Instant::ZERO + Nanos::new(u64::MAX >> 1), Nanos::MAX, 1);
        assert!(timeline.rows().count() <= ROWS_MAX);
    }
}
