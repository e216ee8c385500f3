//! A path that fails in silence, while the others bring everything (latent error detection, IEEE
//! 802.1CB-2017, 7.4.4).

use alloc::vec;
use alloc::vec::Vec;

use engine::{Instant, Nanos};

/// How often the paths are compared (frerSeqRcvyLatentErrorPeriod).
pub const TEST_EVERY: Nanos = Nanos::from_secs(2);
/// How often the comparison restarts (frerSeqRcvyLatentResetPeriod), so that old faults do not
/// count for ever.
pub const BEGIN_EVERY: Nanos = Nanos::from_secs(30);
/// A path may miss this many frames between two restarts, however few have passed: some are in
/// transit, and any may get lost.
const MISSING_MAX: u64 = 2;
/// A path may also miss one of this many frames. The standard's difference
/// (frerSeqRcvyLatentErrorDifference) is a fixed number, which would suit either an idle stream or
/// a fast one.
const SHARE: u64 = 4;

/// A path has failed in silence, or works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The index of the path.
    pub path: usize,
    /// Whether it fails now.
    pub is_failing: bool,
    /// How many frames it did not bring, of how many that have passed since the comparison began.
    pub missing: u64,
    /// How many frames have passed since then.
    pub passed: u64,
}

/// The frames received over a path.
#[derive(Clone, Debug, Default)]
struct Path {
    /// Its count at the latest test, and when the comparison restarted.
    came: u64,
    base: u64,
    is_failing: bool,
    /// The state that was reported last to the user.
    reported: bool,
    missing: u64,
    /// Tests that found it failing.
    errors: u64,
}

/// Compares the frames received over each path with those that passed.
#[derive(Clone, Debug)]
pub(super) struct Latent {
    paths: Vec<Path>,
    base: u64,
    passed: u64,
    test_at: Option<Instant>,
    begin_at: Option<Instant>,
    errors: u64,
}

impl Latent {
    pub(super) fn new(paths: usize) -> Self {
        let paths = vec![Path::default(); paths];
        Self { paths, base: 0, passed: 0, test_at: None, begin_at: None, errors: 0 }
    }

    /// Whether it is time for [`Latent::test`].
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.test_at.is_none_or(|at| at <= now)
    }

    /// Compares the paths, whose frame counts are in `brought`, with the number of frames that
    /// `passed`.
    pub(super) fn test(&mut self, now: Instant, passed: u64, brought: impl Iterator<Item = u64>) {
        let is_first = self.test_at.replace(now + TEST_EVERY).is_none();
        if is_first {
            // A path that is slower than others lags by the same number of frames from now on.
            return;
        }
        self.paths.iter_mut().zip(brought).for_each(|(path, brought)| path.came = brought);
        let Some(begin_at) = self.begin_at else { return self.begin(now, passed) };
        self.passed = passed - self.base;
        let most = MISSING_MAX.max(self.passed / SHARE);
        for path in &mut self.paths {
            let came = path.came - path.base;
            path.missing = self.passed.saturating_sub(came);
            // A dead path does not work again because little has passed since the beginning.
            path.is_failing = path.missing > most || path.is_failing && came <= MISSING_MAX;
            path.errors += u64::from(path.is_failing);
        }
        self.errors += u64::from(self.paths.iter().any(|path| path.is_failing));
        if begin_at <= now {
            self.begin(now, passed);
        }
    }

    fn begin(&mut self, now: Instant, passed: u64) {
        self.paths.iter_mut().for_each(|path| path.base = path.came);
        (self.base, self.begin_at) = (passed, Some(now + BEGIN_EVERY));
    }

    /// The next path that has failed or works again since the last call.
    pub(super) fn poll_change(&mut self) -> Option<Change> {
        let passed = self.passed;
        self.paths.iter_mut().enumerate().find_map(|(index, path)| {
            let is_new = path.is_failing != path.reported;
            path.reported = path.is_failing;
            let Path { is_failing, missing, .. } = *path;
            is_new.then_some(Change { path: index, is_failing, missing, passed })
        })
    }

    /// How many tests have found a path failing.
    pub(super) const fn errors(&self) -> u64 {
        self.errors
    }

    /// Whether each path fails, and how many tests have found that.
    pub(super) fn paths(&self) -> impl Iterator<Item = (bool, u64)> {
        self.paths.iter().map(|path| (path.is_failing, path.errors))
    }
}
