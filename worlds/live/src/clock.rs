//! The live clock.

use std::time;

use engine::{Instant, Nanos};

/// The machine's monotonic clock (CLOCK_MONOTONIC, read without a system call), counted from its own
/// start. All engines of a process share one, so that their instants can be compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: time::Instant,
}

/// What a new clock shows: not zero, so that "long ago" can be told from "never".
const START: Instant = Instant::from_nanos(1_000_000_000);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { origin: time::Instant::now() }
    }

    /// The time. Never goes back.
    pub fn now(&self) -> Instant {
        START + Nanos::from(self.origin.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_never_goes_back() {
        let clock = Clock::start();
        let mut before = clock.now();
        let start = before;
        while clock.now() - start < Nanos::from_millis(2) {
            let now = clock.now();
            assert!(now >= before);
            before = now;
        }
    }
}
