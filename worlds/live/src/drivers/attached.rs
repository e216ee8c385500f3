//! A driver with its loop, as an application uses it: wait for events, step, close.

use std::fmt;
use std::io;
use std::os::fd::RawFd;

use engine::{Instant, Nanos};

use crate::reactor::{Driver, Outcome, Reactor, Stop, Turn};

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
    /// Does what must not be late, because the application is about to wait.
    fn before_wait(&mut self) {}
}

/// A driver with its loop, whose events an application waits for. When dropped, it leaves the other
/// end in order.
#[derive(Debug)]
pub struct Attached<D: Application> {
    reactor: Reactor,
    pub(crate) driver: D,
    /// The driver's sessions were ended.
    ended: bool,
}

impl<D: Application> Attached<D> {
    pub(crate) const fn new(reactor: Reactor, driver: D) -> Self {
        Self { reactor, driver, ended: false }
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
        match self.reactor.run_until(&mut self.driver, deadline, |driver| driver.has_events())? {
            Outcome::Met => Ok(self.driver.poll_event()),
            Outcome::TimedOut => Ok(None),
            Outcome::Done | Outcome::Abandoned => Err(WaitError::Interrupted),
        }
    }

    /// Does what there is to do, without waiting. A loop around this one sleeps on
    /// [`Attached::poll_fd`] and for [`Attached::wake_in`].
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

impl<D: Application> Drop for Attached<D> {
    /// Leaves in order, also when the owner gives up because of an error: otherwise the far end
    /// would hold the device for it.
    fn drop(&mut self) {
        if !self.ended && !std::thread::panicking() {
            // The owner's own error may already be on its way, so this one is dropped.
            let _ = self.end();
        }
    }
}
