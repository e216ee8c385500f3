//! A driver with its loop, as an application uses it: wait for events, step, close.

use std::fmt;
use std::io;
use std::os::fd::RawFd;

use engine::{Instant, Nanos};

use super::{Driver, GLANCES, Glance, Outcome, Reactor, Stop, Turn};

/// How many waits in a row may end without a turn of the driver. Events that only a turn can find
/// then wait for some microseconds.
const GLIMPSES_MAX: u32 = 16;

/// Why a wait has ended without an event.
#[derive(Debug)]
pub enum WaitError {
    /// The wait was stopped from outside.
    Interrupted,
    /// The system refuses an operation.
    Io(io::Error),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WaitError {}

impl From<io::Error> for WaitError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A driver that has events for an application.
pub trait Application: Driver {
    /// The type of the events.
    type Event;

    /// Takes the next event, if any.
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// Whether a wait for events should end.
    fn has_events(&self) -> bool;
    /// Does the work that must not be late, because the application is about to wait.
    fn before_wait(&mut self) {}
    /// Looks for events as [`Driver::glance`] does, before the first turn of a wait.
    fn glimpse(&mut self) -> Glance {
        Glance::Blind
    }
}

/// A driver with its loop, whose events an application waits for. When dropped, it leaves the other
/// end in order.
#[derive(Debug)]
pub struct Blocking<D: Application> {
    reactor: Reactor,
    pub(crate) driver: D,
    /// Waits since the last one with a turn of the driver.
    glimpses: u32,
    /// The driver's sessions were ended.
    ended: bool,
}

impl<D: Application> Blocking<D> {
    pub(crate) const fn new(reactor: Reactor, driver: D) -> Self {
        Self { reactor, driver, glimpses: 0, ended: false }
    }

    /// The time of the loop's clock.
    pub fn now(&self) -> Instant {
        self.reactor.clock().now()
    }
    /// A handle that ends a wait from outside.
    pub fn stop(&self) -> Stop {
        self.reactor.stop()
    }

    /// The next event, waiting for it until `deadline`; `None` when the deadline came first.
    ///
    /// # Errors
    /// When the loop fails or is stopped.
    pub fn next_event(&mut self, deadline: Option<Instant>) -> Result<Option<D::Event>, WaitError> {
        if let Some(event) = self.driver.poll_event() {
            return Ok(Some(event));
        }
        self.driver.before_wait();
        if self.glimpse() {
            return Ok(self.driver.poll_event());
        }
        match self.reactor.run_until(&mut self.driver, deadline, |driver| driver.has_events())? {
            Outcome::Met => Ok(self.driver.poll_event()),
            Outcome::TimedOut => Ok(None),
            Outcome::Done | Outcome::Abandoned => Err(WaitError::Interrupted),
        }
    }

    /// Looks for an event where it comes soonest, as long as a turn would find nothing else that is
    /// urgent. Returns whether there is one.
    fn glimpse(&mut self) -> bool {
        if self.glimpses < GLIMPSES_MAX && self.reactor.spins() {
            self.glimpses += 1;
            for _ in 0..GLANCES {
                match self.driver.glimpse() {
                    Glance::Done => return true,
                    Glance::Nothing => std::hint::spin_loop(),
                    Glance::Blind => break,
                }
            }
        }
        self.glimpses = 0;
        false
    }

    /// Does all present work, without waiting. A loop around this one sleeps on
    /// [`Blocking::poll_fd`] and for [`Blocking::wake_in`].
    ///
    /// # Errors
    /// When the loop fails.
    pub fn step(&mut self) -> io::Result<Turn> {
        self.driver.before_wait();
        self.reactor.step(&mut self.driver)
    }

    /// The descriptor that becomes readable when there is something to do.
    pub fn poll_fd(&self) -> RawFd {
        self.reactor.poll_fd()
    }

    /// How long at most until there is something to do, even without news.
    pub fn wake_in(&self) -> Option<Nanos> {
        self.driver.poll_timeout().map(|at| at - self.now())
    }

    /// Takes the next event that has come already, if any.
    pub fn poll_event(&mut self) -> Option<D::Event> {
        self.driver.poll_event()
    }

    /// Leaves the other end in order.
    ///
    /// # Errors
    /// When the loop fails before that.
    pub fn close(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.ended = true;
        self.reactor.stop().ask();
        self.reactor.run(&mut self.driver).map(|_| ())
    }
}

impl<D: Application> Drop for Blocking<D> {
    /// Leaves in order, also when the owner gives up because of an error: otherwise the far end
    /// would hold the device for it.
    fn drop(&mut self) {
        if !self.ended && !std::thread::panicking() {
            // The owner's own error may already be on its way, so this one is dropped.
            let _ = self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::{Context, Sources};
    use crate::sys::clock::Clock;

    /// A driver to which an event comes at each look.
    #[derive(Default)]
    struct Eager {
        turns: u32,
        events: u32,
        is_stopping: bool,
    }

    impl Driver for Eager {
        fn start(&mut self, _sources: &Sources) -> io::Result<()> {
            Ok(())
        }

        fn turn(&mut self, _context: &Context<'_>) -> io::Result<Turn> {
            self.turns += 1;
            self.events += 1;
            Ok(if self.is_stopping { Turn::Done } else { Turn::Busy })
        }
        fn poll_timeout(&self) -> Option<Instant> {
            None
        }
        fn on_stop(&mut self, _now: Instant) {
            self.is_stopping = true;
        }
    }

    impl Application for Eager {
        type Event = ();

        fn poll_event(&mut self) -> Option<()> {
            self.events = self.events.checked_sub(1)?;
            Some(())
        }
        fn has_events(&self) -> bool {
            self.events > 0
        }
        fn glimpse(&mut self) -> Glance {
            self.events += 1;
            Glance::Done
        }
    }

    /// The turns that `waits` waits take in a loop that spins for `spin`.
    fn turns(waits: u32, spin: Nanos) -> u32 {
        let reactor = Reactor::new(Clock::start(), spin).unwrap();
        let mut blocking = Blocking::new(reactor, Eager::default());
        for _ in 0..waits {
            blocking.next_event(None).unwrap().unwrap();
        }
        blocking.driver.turns
    }

    #[test]
    fn events_that_come_at_a_glance_leave_room_for_turns() {
        assert_eq!(turns(10 * (GLIMPSES_MAX + 1), Nanos::from_secs(1)), 10);
        assert_eq!(turns(10, Nanos::ZERO), 10, "a loop that does not spin looks at everything");
    }
}
