//! Waiting between attempts, longer each time.

use std::time::{Duration, Instant};

/// The first wait.
const FIRST: Duration = Duration::from_millis(200);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(10);

/// When the next attempt is due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    wait: Option<Duration>,
    due: Option<Instant>,
}

impl Backoff {
    /// An attempt has failed: the next one comes later. Returns the wait.
    pub(crate) fn fail(&mut self, now: Instant) -> Duration {
        let wait = self.wait.map_or(FIRST, |wait| LONGEST.min(2 * wait));
        (self.wait, self.due) = (Some(wait), Some(now + wait));
        wait
    }

    /// An attempt has succeeded, or another thing is to be attempted.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The time before the next attempt, since the last one has failed.
    pub(crate) fn wait(&self) -> Duration {
        self.wait.unwrap_or_default()
    }

    /// Whether an attempt has failed.
    pub(crate) const fn has_failed(&self) -> bool {
        self.wait.is_some()
    }

    /// Whether an attempt may be made.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        assert!(backoff.is_due(now));
        let waits: Vec<_> = (0..9).map(|_| backoff.fail(now).as_millis()).collect();
        assert_eq!(waits, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
        assert!(!backoff.is_due(now) && backoff.is_due(now + LONGEST));
        backoff.reset();
        assert!(backoff.is_due(now));
    }
}
