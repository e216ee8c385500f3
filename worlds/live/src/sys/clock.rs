//! The clock of the live world.

use engine::{Instant, Nanos};

/// The machine's monotonic clock (CLOCK_MONOTONIC, read without a system call), counted from its
/// own start. All engines of a process share one clock, so that their instants can be compared.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: u64,
}

/// The time that a new clock shows. It is not zero, so that "long ago" differs from "never".
const START: Instant = Instant::from_nanos(1_000_000_000);

impl Clock {
    /// Creates a clock that starts now.
    pub fn start() -> Self {
        Self { origin: monotonic() }
    }

    /// The clock of a process that goes on where another one ends: `origin` is that of the other's.
    pub const fn of(origin: u64) -> Self {
        Self { origin }
    }

    /// By which a successor has the same clock: nanoseconds of CLOCK_MONOTONIC.
    pub const fn origin(&self) -> u64 {
        self.origin
    }

    /// The current time, which never goes back.
    #[inline]
    pub fn now(&self) -> Instant {
        START + Nanos::new(monotonic().saturating_sub(self.origin))
    }
}

/// The monotonic clock, in nanoseconds. It is read several times for each command, and half of the
/// time that the standard library's clock takes is spent on dividing and checking.
#[inline]
fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The time of the network in nanoseconds (CLOCK_TAI), by which gates open and close. The program
/// that synchronises this machine's clock (`phc2sys`) sets it.
pub(crate) fn network() -> Nanos {
    Nanos::new(read(libc::CLOCK_TAI))
}

/// How far the time of the network is ahead of that of the calendar (CLOCK_REALTIME), in
/// nanoseconds: whole seconds, or nothing where no program has set it.
pub fn network_ahead() -> Nanos {
    const SECOND: u64 = 1_000_000_000;
    let (calendar, network) = (read(libc::CLOCK_REALTIME), read(libc::CLOCK_TAI));
    Nanos::new((network.saturating_sub(calendar) + SECOND / 2) / SECOND * SECOND)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes one `timespec`.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert!(result == 0, "every Linux has this clock");
    // Neither value is negative, and 2^64 ns are 584 years.
    time.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.unsigned_abs())
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
