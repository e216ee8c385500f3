//! A timer of the kernel that wakes as precisely as waking allows, where a loop's own sleeps are
//! precise to a millisecond.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use engine::{Instant, Nanos};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::reactor::{Attention, Sources};

/// A timer of the kernel that ends the sleeps of a loop.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: OwnedFd,
    /// The time at which the timer wakes.
    at: Option<Instant>,
}

impl Alarm {
    /// Makes a timer that ends the sleeps of these sources.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn new(sources: &Sources) -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        sources.add(timer.as_raw_fd(), Attention::EachTurn)?;
        Ok(Self { timer, at: None })
    }

    /// Wakes at `at`, and no longer at the time set before.
    ///
    /// # Errors
    /// When the system refuses the time.
    pub(super) fn set(&mut self, now: Instant, at: Instant) -> io::Result<()> {
        if self.at == Some(at) {
            return Ok(());
        }
        self.at = Some(at);
        // Zero would mean never.
        let wait = (at - now).max(Nanos::new(1)).get();
        let [tv_sec, tv_nsec] = [wait / 1_000_000_000, wait % 1_000_000_000]
            .map(|part| i64::try_from(part).expect("2^64 ns are less than 2^63 s"));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec, tv_nsec } };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}
