//! When replayed chunks are due.

use engine::{Instant, Nanos};

/// Parts of a speed: a speed of 1,000 is the recorded pace.
const SPEED_PARTS: u128 = 1_000;

/// Recorded times that are further apart than this are those of two clocks: 30 days.
pub const CLOCKS_APART: Nanos = Nanos::from_secs(30 * 86_400);

/// An absolute schedule: each chunk is due as long after the start as it was recorded after the
/// first chunk, divided by the speed. A late chunk delays no later one, so nothing drifts.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start: Instant,
    first: u64,
    /// The latest recorded time so far.
    latest: u64,
    /// Thousandths of the recorded pace; `None` is as fast as possible.
    speed: Option<u32>,
}

impl Pace {
    /// A schedule that starts at `start` with a chunk that was recorded at `first`, in nanoseconds
    /// since 1970. `speed` is in thousandths of the recorded pace; `None` is flat out.
    pub const fn new(start: Instant, first: u64, speed: Option<u32>) -> Self {
        Self { start, first, latest: first, speed }
    }

    /// Takes in that the chunk recorded at `time` is next. An adapter's clock may differ by years
    /// from that of its host, and a recording may have times of both. If `time` is later than all
    /// before by more than [`CLOCKS_APART`], it is due when the last of them was, and the schedule
    /// goes on from there. Returns whether that is so.
    pub fn follow(&mut self, time: u64) -> bool {
        let is_apart = time.saturating_sub(self.latest) > CLOCKS_APART.get();
        if is_apart {
            (self.start, self.first) = (self.due(self.latest), time);
        }
        self.latest = self.latest.max(time);
        is_apart
    }

    /// When a chunk that was recorded at `time` is due. A chunk from before the first, because a
    /// clock was set back, is due at once.
    pub fn due(&self, time: u64) -> Instant {
        let Some(speed) = self.speed else { return self.start };
        let since = u128::from(time.saturating_sub(self.first));
        let scaled = since * SPEED_PARTS / u128::from(speed.max(1));
        self.start + Nanos::new(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_by_years_is_not_waited_for() {
        const YEARS: u64 = 1_700_000_000_000_000_000;
        let mut pace = Pace::new(Instant::ZERO, 1_000, Some(1_000));
        let mut due = |time| (pace.follow(time), pace.due(time).as_nanos());
        assert_eq!(due(1_000), (false, 0));
        assert_eq!(due(1_500), (false, 500));
        // The other clock, and from then on both in turn.
        assert_eq!(due(YEARS), (true, 500));
        assert_eq!(due(1_700), (false, 500));
        assert_eq!(due(YEARS + 400), (false, 900));
        // Days of silence are.
        let silence = CLOCKS_APART.get();
        assert_eq!(due(YEARS + 400 + silence), (false, 900 + silence));
        let mut fast = Pace::new(Instant::ZERO, 0, None);
        assert_eq!((fast.follow(YEARS), fast.due(YEARS)), (true, Instant::ZERO));
    }
}
