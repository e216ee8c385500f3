//! The times that recordings have: the real time at which the program asked first, and the time
//! passed since. Setting the clock meanwhile changes none of them, so that a replay keeps its pace
//! and times keep their order.

use std::sync::OnceLock;

use record::format::{Time, TimeSource};
use rustix::time::{ClockId, clock_gettime};

/// A kernel's stamp that seems older than this was made before the clock was set.
const STAMP_AGE_MAX: u64 = 10_000_000_000;

/// Two clocks that were read at once, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Since 1970; people and programs set it.
    real: u64,
    /// Since the machine was started, sleep included; it can't be set.
    steady: u64,
}

impl Reading {
    fn now() -> Self {
        let nanos = |clock| {
            let time = clock_gettime(clock);
            let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
            seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
        };
        Self { real: nanos(ClockId::Realtime), steady: nanos(ClockId::Boottime) }
    }

    /// The time of a recording at `now`, if this is its first reading.
    const fn time(self, now: Self) -> u64 {
        self.real.saturating_add(now.steady.saturating_sub(self.steady))
    }

    /// The time of a recording at which the kernel has put its real time `stamp` on a packet.
    const fn stamped(self, stamp: u64, now: Self) -> u64 {
        let age = match now.real.checked_sub(stamp) {
            Some(age) if age <= STAMP_AGE_MAX => age,
            // The clock was set since.
            _ => 0,
        };
        self.time(now).saturating_sub(age)
    }
}

fn first() -> Reading {
    static FIRST: OnceLock<Reading> = OnceLock::new();
    *FIRST.get_or_init(Reading::now)
}

/// The time now, by the host's clock.
pub fn real_time() -> Time {
    let first = first();
    Time { nanos: first.time(Reading::now()), source: TimeSource::Host }
}

/// The time at which the kernel has put its real time `stamp`, in nanoseconds since 1970, on a
/// packet that came a moment ago.
pub(super) fn stamped(stamp: u64) -> Time {
    let first = first();
    Time { nanos: first.stamped(stamp, Reading::now()), source: TimeSource::Kernel }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: Reading = Reading { real: 1_700_000_000 * SECOND, steady: 500 * SECOND };

    /// Milliseconds after the start, with a real-time clock that is wrong by `step` seconds.
    fn at(milliseconds: u64, step: i64) -> Reading {
        let passed = milliseconds * 1_000_000;
        let real = (START.real + passed).saturating_add_signed(step * 1_000_000_000);
        Reading { real, steady: START.steady + passed }
    }

    #[test]
    fn who_sets_the_clock_changes_no_time() {
        for step in [0, 3_600, -3_600, i64::from(i32::MAX), -1_700_000_000] {
            for passed in [0, 1, 250, 90_000] {
                let expected = START.real + passed * 1_000_000;
                assert_eq!(START.time(at(passed, step)), expected, "{step} s, {passed} ms");
            }
        }
    }

    #[test]
    fn stamps_keep_their_age_and_never_lie_far_off() {
        for step in [0, 3_600, -3_600] {
            // Stamped and read by the same clock.
            let stamp = at(1_000, step).real;
            assert_eq!(START.stamped(stamp, at(1_003, step)), START.real + SECOND, "{step} s");
        }
        // The clock was set between both.
        for (before, after) in [(0, 3_600), (3_600, 0), (0, -5), (-50, 0)] {
            let stamp = at(1_000, before).real;
            assert_eq!(START.stamped(stamp, at(1_003, after)), START.real + 1_003_000_000);
        }
    }

    #[test]
    fn times_never_go_back() {
        let times: Vec<_> = (0..1_000).map(|_| real_time().nanos).collect();
        assert!(times.is_sorted());
    }
}
