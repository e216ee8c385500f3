//! A loop for one thread: spins while there is work, sleeps when there is none.
//!
//! While work keeps coming, a [`Driver`] is turned again and again and looks at its busy sockets directly,
//! without asking the kernel which of them are ready; its rare ones (a listener, links at rest) it looks at
//! only when the kernel has news of them, which the loop asks for every 100 µs. When nothing has happened for
//! the spin budget, the thread sleeps until a registered descriptor has news, a deadline is due, or
//! somebody wakes it.

mod processor;
mod several;
mod stop;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use engine::{Instant, Nanos};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::clock::Clock;

pub use processor::{PinError, pin, processors, spin_default};
pub use several::Several;
pub use stop::{HangUp, Stop};

/// How often a spinning loop asks the kernel for news of the descriptors that are not looked at in each turn.
const NEWS_EVERY: Nanos = Nanos::from_micros(100);
/// The same for a loop that found something to do in its last turn.
const NEWS_EVERY_BUSY: Nanos = Nanos::from_millis(1);
/// How long a spin goes on before it offers the processor to whoever else wants it, and again: where processors
/// are scarce, that is the peer we spin for. Longer than a round trip between two processors.
const YIELD_EVERY: Nanos = Nanos::from_micros(10);
/// How often a driver may glance between two turns of a loop that spins: what only a turn finds waits for no longer than a
/// few microseconds.
const GLANCES: u32 = 64;
/// News taken from the kernel at once; more come with the next call.
const NEWS_MAX: usize = 64;
/// The kernel's timeouts are milliseconds: a deadline sooner than that is spun for, if spinning is allowed.
const SLEEP_MIN: Nanos = Nanos::from_millis(1);
/// The longest sleep, should a clock or a counter misbehave.
const SLEEP_MAX: Nanos = Nanos::from_secs(60);
/// How long an orderly close may take before the loop ends without it.
pub const CLOSE_MAX: Nanos = Nanos::from_secs(3);

const EACH_TURN: Token = Token(0);
const ON_NEWS: Token = Token(1);
const WAKER: Token = Token(2);

/// What a turn has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Something was done: turn again at once.
    Busy,
    /// Every source that was looked at had nothing, down to its last byte.
    Idle,
    /// The driver has ended.
    Done,
}

/// What a glance has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// Nothing comes that way now; what there is, a turn finds.
    Blind,
    /// There was nothing.
    Nothing,
    /// Something was done.
    Done,
}

/// Moves bytes between engines and the world, never waiting.
pub trait Driver {
    /// Does what can be done now. The sources of [`Attention::EachTurn`] are to be looked at always, those of
    /// [`Attention::OnNews`] when `context.news` is set. [`Turn::Idle`] promises that each source looked at was
    /// emptied until it had nothing more to give: the kernel tells of news once.
    ///
    /// # Errors
    /// When the world fails in a way that ends the driver.
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn>;

    /// Looks at what other processes store in memory shared with this one, and does what that asks for: all of it, and
    /// nothing else. Made many times between two turns of a loop that spins, so a look that finds nothing should cost
    /// next to nothing; `now` is the time of the turn before, for reading the clock would take longer than the look.
    fn glance(&mut self, now: Instant) -> Glance {
        let _ = now;
        Glance::Blind
    }

    /// When a turn is wanted even though nothing has happened.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The loop is to end: begin an orderly close, and answer [`Turn::Done`] when it is complete.
    fn on_stop(&mut self, now: Instant);
}

/// How often a driver looks at a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// In each turn: what is busy, where each microsecond counts.
    EachTurn,
    /// When the kernel has news: listeners, links at rest.
    OnNews,
}

impl Attention {
    const fn token(self) -> Token {
        match self {
            Self::EachTurn => EACH_TURN,
            Self::OnNews => ON_NEWS,
        }
    }
}

/// What a driver has in a turn.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Instant,
    /// Whether a source of [`Attention::OnNews`] may have some.
    pub news: bool,
    /// Whether the loop is awake when a deadline comes that is less than a millisecond away: it may spin until then.
    pub spins: bool,
    /// What tells the time.
    pub clock: Clock,
    sources: &'a Sources,
}

impl Context<'_> {
    /// The descriptors that end a sleep.
    pub const fn sources(&self) -> &Sources {
        self.sources
    }
}

/// The descriptors that end a sleep.
#[derive(Debug)]
pub struct Sources(mio::Registry);

impl Sources {
    /// Adds `descriptor`, which ends a sleep when it becomes readable or writable. It leaves when it is closed.
    ///
    /// # Errors
    /// When it is there already, or can't be waited for.
    pub fn add(&self, descriptor: RawFd, attention: Attention) -> io::Result<()> {
        self.0.register(
            &mut SourceFd(&descriptor),
            attention.token(),
            Interest::READABLE | Interest::WRITABLE,
        )
    }

    /// Changes how often `descriptor` is looked at.
    ///
    /// # Errors
    /// When it is not there.
    pub fn change(&self, descriptor: RawFd, attention: Attention) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.0.reregister(&mut SourceFd(&descriptor), attention.token(), interest)
    }

    /// Takes `descriptor` away again, before it is closed; one that is not there is no error.
    pub fn remove(&self, descriptor: RawFd) {
        let _ = self.0.deregister(&mut SourceFd(&descriptor));
    }
}

/// Why [`Reactor::run_until`] has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What was waited for is so.
    Met,
    /// The deadline came first.
    TimedOut,
    /// The driver has ended, by itself or because it was told to stop.
    Done,
    /// Told to stop, the driver did not end in time.
    Abandoned,
}

/// The loop; see the module.
#[derive(Debug)]
pub struct Reactor {
    poll: Poll,
    events: Events,
    sources: Sources,
    clock: Clock,
    spin: Nanos,
    stop: Stop,
    /// When the driver was told to stop.
    stopping: Option<Instant>,
    /// When something was last done, and when the kernel was last asked for news.
    busy_at: Instant,
    asked_at: Instant,
    /// When the processor was last offered to others.
    yielded_at: Instant,
    /// There may be news since the driver last looked at all of its sources.
    news: bool,
}

impl Reactor {
    /// A loop that spins for `spin` after it last had something to do; see [`spin_default`].
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(clock: Clock, spin: Nanos) -> io::Result<Self> {
        let poll = Poll::new()?;
        let sources = Sources(poll.registry().try_clone()?);
        let stop = Stop::new(Arc::new(mio::Waker::new(poll.registry(), WAKER)?));
        let now = clock.now();
        Ok(Self {
            poll,
            events: Events::with_capacity(NEWS_MAX),
            sources,
            clock,
            spin,
            stop,
            stopping: None,
            busy_at: now,
            asked_at: now,
            yielded_at: now,
            news: true,
        })
    }

    /// The descriptors that end a sleep.
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The clock of this loop.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// What other threads and signals stop this loop with.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Runs `driver` until it has ended.
    ///
    /// # Errors
    /// When the driver fails, or the system can't wait.
    pub fn run<D: Driver>(&mut self, driver: &mut D) -> io::Result<Outcome> {
        self.run_until(driver, None, |_| false)
    }

    /// Runs `driver` until `met`, asked after each turn, or until `deadline`. The driver is turned at least once.
    ///
    /// # Errors
    /// When the driver fails, or the system can't wait.
    pub fn run_until<D: Driver>(
        &mut self,
        driver: &mut D,
        deadline: Option<Instant>,
        mut met: impl FnMut(&mut D) -> bool,
    ) -> io::Result<Outcome> {
        let mut now = self.clock.now();
        // The application may have given the driver something to do.
        self.busy_at = now;
        let mut idle = false;
        loop {
            if let Some(outcome) = self.heed_stop(driver, now) {
                return Ok(outcome);
            }
            // Work that is there comes before the question whether there is more.
            let overdue = if idle { NEWS_EVERY } else { NEWS_EVERY_BUSY };
            if now - self.asked_at >= overdue {
                self.ask(now, Duration::ZERO)?;
            }
            let turn = driver.turn(&self.context(now))?;
            match turn {
                Turn::Done => return Ok(Outcome::Done),
                Turn::Busy => self.busy_at = now,
                Turn::Idle => {}
            }
            idle = turn == Turn::Idle;
            if met(driver) {
                return Ok(Outcome::Met);
            }
            if deadline.is_some_and(|at| at <= now) {
                return Ok(Outcome::TimedOut);
            }
            if turn == Turn::Idle && self.rest(driver, now, deadline)? == Glance::Done {
                self.busy_at = now;
                if met(driver) {
                    return Ok(Outcome::Met);
                }
            }
            now = self.clock.now();
        }
    }

    /// Turns `driver` once, without waiting: a loop around this one sleeps on [`Reactor::poll_fd`].
    ///
    /// # Errors
    /// When the driver fails, or the system can't tell of news.
    pub fn step<D: Driver>(&mut self, driver: &mut D) -> io::Result<Turn> {
        let now = self.clock.now();
        self.ask(now, Duration::ZERO)?;
        let turn = driver.turn(&self.context(now))?;
        self.news &= turn != Turn::Idle;
        Ok(turn)
    }

    const fn context(&self, now: Instant) -> Context<'_> {
        let spins = self.spin.get() > 0;
        Context { now, news: self.news, spins, clock: self.clock, sources: &self.sources }
    }

    /// Becomes readable when there is news for a driver that is turned by [`Reactor::step`].
    pub fn poll_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// After an idle turn: spin on, or sleep. News that came since the sources were emptied is still with the
    /// kernel, and ends a sleep at once.
    fn rest<D: Driver>(
        &mut self,
        driver: &mut D,
        now: Instant,
        deadline: Option<Instant>,
    ) -> io::Result<Glance> {
        self.news = false;
        if now - self.busy_at < self.spin {
            return Ok(self.spin_on(driver, now));
        }
        let close_by = self.stopping.map(|since| since + CLOSE_MAX);
        let wake = [driver.poll_timeout(), deadline, close_by].into_iter().flatten().min();
        let length = wake.map_or(SLEEP_MAX, |at| at - self.clock.now()).min(SLEEP_MAX);
        if length < SLEEP_MIN && self.spin > Nanos::ZERO {
            return Ok(self.spin_on(driver, now));
        }
        // Spins again only if the turn after the sleep finds something.
        self.ask(now, length.into())?;
        Ok(Glance::Nothing)
    }

    /// Looks at what needs no turn, until it has found something or a turn is due.
    fn spin_on<D: Driver>(&mut self, driver: &mut D, now: Instant) -> Glance {
        if now - self.busy_at.max(self.yielded_at) >= YIELD_EVERY {
            self.yielded_at = now;
            std::thread::yield_now();
        }
        for _ in 0..GLANCES {
            match driver.glance(now) {
                Glance::Nothing => std::hint::spin_loop(),
                Glance::Done => return Glance::Done,
                Glance::Blind => break,
            }
        }
        std::hint::spin_loop();
        Glance::Nothing
    }

    /// Asks the kernel for news, for at most `length`.
    fn ask(&mut self, now: Instant, length: Duration) -> io::Result<()> {
        self.asked_at = now;
        match self.poll.poll(&mut self.events, Some(length)) {
            // What is looked at in each turn is no news.
            Ok(()) => self.news |= self.events.iter().any(|event| event.token() != EACH_TURN),
            // A signal; its handler may have left a note.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.news = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn heed_stop<D: Driver>(&mut self, driver: &mut D, now: Instant) -> Option<Outcome> {
        match self.stopping {
            None if self.stop.is_asked_for() => {
                self.stopping = Some(now);
                driver.on_stop(now);
                None
            }
            Some(since) if now - since >= CLOSE_MAX => Some(Outcome::Abandoned),
            _ => None,
        }
    }
}
