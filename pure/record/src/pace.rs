//! When replayed chunks are due.

use engine::{Instant, Nanos};

/// Parts of a speed: a speed of 1,000 is the recorded pace.
const SPEED_PARTS: u128 = 1_000;

/// An absolute schedule: each chunk is due as long after the start as it was recorded after the
/// first chunk, divided by the speed. A late chunk delays no later one, so nothing drifts.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start: Instant,
    first: u64,
    /// Thousandths of the recorded pace; `None` is as fast as possible.
    speed: Option<u32>,
}

impl Pace {
    /// A schedule that starts at `start` with a chunk that was recorded at `first`, in nanoseconds
    /// since 1970. `speed` is in thousandths of the recorded pace; `None` is flat out.
    pub const fn new(start: Instant, first: u64, speed: Option<u32>) -> Self {
        Self { start, first, speed }
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
