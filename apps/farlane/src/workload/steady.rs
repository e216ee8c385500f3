//! Watches whether the figures of a job are steady: fio's `steadystate`.

use std::collections::VecDeque;

use engine::{Instant, Nanos};

use super::report::Sums;
use crate::args::{Criterion, Figure};

/// Whether figures that follow each other are steady by `criterion`.
fn are_steady(criterion: &Criterion, figures: &VecDeque<f64>) -> bool {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let found = match criterion.is_slope {
        true => {
            let middle = (count - 1.0) / 2.0;
            let (mut over, mut under) = (0.0, 0.0);
            for (at, figure) in figures.iter().enumerate() {
                let at = at as f64 - middle;
                (over, under) = (over + at * (figure - mean), under + at * at);
            }
            (over / under).abs()
        }
        false => figures.iter().map(|figure| (figure - mean).abs()).fold(0.0, f64::max),
    };
    (if criterion.is_percent { found * 100.0 / mean } else { found }) < criterion.limit
}

/// When a job ends because its figures are steady.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steady {
    pub(crate) criterion: Criterion,
    /// For how long the figures are to be steady.
    pub(crate) window: Nanos,
    /// How long after its beginning the job is watched.
    pub(crate) ramp: Nanos,
    /// How long each figure is measured.
    pub(crate) interval: Nanos,
}

/// Watches a job.
#[derive(Debug)]
pub(super) struct Watch {
    steady: Steady,
    /// When the next figure is due; none before the job begins.
    pub(super) next: Option<Instant>,
    figures: VecDeque<f64>,
    /// Operations, bytes and the sum of latencies until the last figure, and when that was.
    last: Option<(Instant, [f64; 3])>,
}

impl Watch {
    pub(super) const fn new(steady: Steady) -> Self {
        Self { steady, next: None, figures: VecDeque::new(), last: None }
    }

    /// Begins to watch a job that begins at `now`.
    pub(super) fn start(&mut self, now: Instant) {
        self.next.get_or_insert(now + self.steady.ramp);
    }

    /// Takes the figures of a job until `now`. Returns whether it is steady.
    pub(super) fn take<'a>(&mut self, now: Instant, sums: impl Iterator<Item = &'a Sums>) -> bool {
        self.next = Some(now + self.steady.interval);
        let mut until = [0.0; 3];
        for sum in sums {
            let count = sum.operations as f64;
            for (total, more) in until.iter_mut().zip([count, sum.bytes as f64, sum.latency.mean() * count]) {
                *total += more;
            }
        }
        let Some((before, from)) = self.last.replace((now, until)) else { return false };
        let seconds = (now - before).get() as f64 / 1e9;
        let [operations, bytes, latency] = [0, 1, 2].map(|at| until[at] - from[at]);
        self.figures.push_back(match self.steady.criterion.figure {
            Figure::Iops => operations / seconds,
            Figure::Bandwidth => bytes / seconds,
            Figure::Latency => latency / operations.max(1.0),
        });
        let wanted = (self.steady.window.get() / self.steady.interval.get().max(1)).max(2);
        while self.figures.len() as u64 > wanted {
            self.figures.pop_front();
        }
        self.figures.len() as u64 == wanted && are_steady(&self.steady.criterion, &self.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_hold_or_not() {
        for (criterion, figures, expected) in [
            ("iops:10%", &[100.0, 105.0, 95.0][..], true),
            ("iops:5%", &[100.0, 106.0, 94.0], false),
            ("iops:7", &[100.0, 106.0, 94.0], true),
            ("bw_slope:1%", &[100.0, 120.0, 100.0, 80.0, 100.0], false),
            ("bw_slope:1%", &[100.0, 120.0, 80.0, 120.0, 100.0], true),
            ("lat_slope:9", &[10.0, 20.0, 30.0], false),
        ] {
            let figures = figures.iter().copied().collect();
            let parsed = criterion.parse().unwrap();
            assert_eq!(are_steady(&parsed, &figures), expected, "{criterion} {figures:?}");
        }
    }

    #[test]
    fn a_job_is_steady_after_its_window() {
        let criterion = "iops:1%".parse().unwrap();
        let second = Nanos::from_secs(1);
        let steady = Steady { criterion, window: second * 3, ramp: second, interval: second };
        let (mut watch, mut sum) = (Watch::new(steady), Sums::default());
        watch.start(Instant::ZERO);
        // Until the fourth second, each second has more than the one before.
        let found = [100, 200, 400, 800, 800, 800, 800].map(|operations| {
            let now = watch.next.unwrap();
            sum.operations += operations;
            watch.take(now, std::iter::once(&sum))
        });
        assert_eq!(found, [false, false, false, false, false, true, true]);
    }
}
