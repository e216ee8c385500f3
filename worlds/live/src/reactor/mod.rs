//! A loop for one thread that spins while there is work and sleeps when there is none.
//!
//! While work keeps coming, the loop turns its [`Driver`] again and again. The driver looks at its
//! busy sockets directly, without asking the kernel which of them are ready. It looks at its rare
//! sources (a listener, idle links) only when the kernel has news of them, which the loop asks for
//! every 100 µs. Sources that are many have names: the kernel says which of them have news, and no
//! turn looks at the others. When nothing has happened for the spin budget, the thread sleeps until
//! a registered descriptor has news, a deadline is due, or another thread wakes it.

mod bell;
pub mod blocking;
mod jobs;
mod processor;
mod pump;
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

use crate::sys::clock::Clock;
use crate::sys::service;

pub use bell::Bell;
pub use jobs::{JobSender, Jobs, WithJobs, jobs};
pub use processor::{PinError, pin, processors, spin_default};
pub(crate) use pump::{Pump, Shell};
pub use several::Several;
pub(crate) use stop::is_ignored;
pub use stop::{HangUp, SecondSignal, Stop, Terminal};

/// How often an idle spinning loop asks the kernel for news of the descriptors that are not looked
/// at in each turn.
const NEWS_EVERY: Nanos = Nanos::from_micros(100);
/// How often a loop that found something to do in its last turn asks the kernel for news.
const NEWS_EVERY_BUSY: Nanos = Nanos::from_millis(1);
/// How often a spinning loop offers the processor to other threads: where processors are scarce,
/// the peer that the loop spins for needs one. Longer than a round trip between two processors.
const YIELD_EVERY: Nanos = Nanos::from_micros(10);
/// How many glances a spinning loop makes between two turns. Events that only a turn can find then
/// wait for no longer than a few microseconds.
pub(crate) const GLANCES: u32 = 64;
/// Number of news taken from the kernel in one call; more come with the next call.
pub const NEWS_MAX: usize = 64;
/// The kernel's timeouts are in milliseconds. The loop spins for a sooner deadline, if it may spin.
const SLEEP_MIN: Nanos = Nanos::from_millis(1);
/// The longest sleep, in case a clock or a counter misbehaves.
const SLEEP_MAX: Nanos = Nanos::from_secs(60);
/// How long an orderly close may take before the loop ends without waiting for it.
pub const CLOSE_MAX: Nanos = Nanos::from_secs(3);

const EACH_TURN: Token = Token(0);
const ON_NEWS: Token = Token(1);
const WAKER: Token = Token(2);
/// The token of the source called 0; others follow.
const NAMED: usize = 3;

/// The result of a driver's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Something was done: the driver is turned again at once.
    Busy,
    /// Every source that was looked at had nothing left to give.
    Idle,
    /// The driver has ended.
    Done,
}

/// The result of a driver's glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// No work arrives by way of shared memory now, so only a turn finds work.
    Blind,
    /// The glance found nothing to do.
    Nothing,
    /// The glance found something, and the driver did it.
    Done,
}

/// Moves bytes between engines and the world. No method of a driver blocks.
pub trait Driver {
    /// Registers the sources that the driver has from the beginning. The loop calls this once,
    /// before the first turn. A driver that is given to a running loop's driver later is started by
    /// that driver.
    ///
    /// # Errors
    /// When the kernel can't report news of a source.
    fn start(&mut self, sources: &Sources) -> io::Result<()>;

    /// Does all that can be done now. Sources of [`Attention::EachTurn`] must be looked at in each
    /// turn, sources of [`Attention::OnNews`] when `context.news` is set, and those of
    /// [`Attention::Named`] that `context.named` names. [`Turn::Idle`] promises that each source
    /// looked at was emptied, because the kernel reports news only once. A named source is named
    /// once, so it must be emptied, or looked at in further turns, regardless of the turn's result.
    ///
    /// # Errors
    /// When the world fails in a way that ends the driver.
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn>;

    /// Looks at memory that other processes share with this one, and does all of the work that they
    /// request, and nothing else. A spinning loop glances many times between two turns, so a glance
    /// that finds nothing should cost next to nothing. The time in `context` is that of the last
    /// turn, because reading the clock would take longer than the glance.
    fn glance(&mut self, context: &Context<'_>) -> Glance {
        let _ = context;
        Glance::Blind
    }

    /// When a turn is needed even if nothing has happened.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Begins an orderly close. The driver answers [`Turn::Done`] when the close is complete.
    fn on_stop(&mut self, now: Instant);
}

/// How often a driver looks at a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// The source is looked at in each turn: busy sources where each microsecond counts.
    EachTurn,
    /// The source is looked at when the kernel has news of it or others: listeners.
    OnNews,
    /// The source is looked at when the kernel has news of it, by this name: idle links, which may
    /// be thousands.
    Named(u32),
}

impl Attention {
    const fn token(self) -> Token {
        match self {
            Self::EachTurn => EACH_TURN,
            Self::OnNews => ON_NEWS,
            Self::Named(name) => Token(NAMED + name as usize),
        }
    }
}

/// The context of a driver's turn.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time at the start of the turn.
    pub now: Instant,
    /// Whether a source of [`Attention::OnNews`] may have news.
    pub news: bool,
    /// The sources of [`Attention::Named`] of which the kernel has news: at most [`NEWS_MAX`].
    pub named: &'a [u32],
    /// Whether the loop may spin for a deadline that is less than a millisecond away.
    pub spins: bool,
    /// The loop's clock.
    pub clock: Clock,
    sources: &'a Sources,
}

impl Context<'_> {
    /// The descriptors whose news end the loop's sleep.
    pub const fn sources(&self) -> &Sources {
        self.sources
    }
}

/// The descriptors whose news end a loop's sleep.
#[derive(Debug)]
pub struct Sources(mio::Registry);

impl Sources {
    /// Adds `descriptor`, which ends a sleep when it becomes readable or writable. Closing the
    /// descriptor removes it.
    ///
    /// # Errors
    /// When the descriptor was added before, or its kind cannot be waited for.
    pub fn add(&self, descriptor: RawFd, attention: Attention) -> io::Result<()> {
        self.0.register(
            &mut SourceFd(&descriptor),
            attention.token(),
            Interest::READABLE | Interest::WRITABLE,
        )
    }

    /// Adds `descriptor`, which ends a sleep when it becomes readable, and never because it is
    /// writable: a source that only ever gives.
    ///
    /// # Errors
    /// When the descriptor was added before, or its kind cannot be waited for (`PermissionDenied`).
    pub fn add_input(&self, descriptor: RawFd, attention: Attention) -> io::Result<()> {
        self.0.register(&mut SourceFd(&descriptor), attention.token(), Interest::READABLE)
    }

    /// Changes how often `descriptor` is looked at.
    ///
    /// # Errors
    /// When `descriptor` was not added.
    pub fn change(&self, descriptor: RawFd, attention: Attention) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.0.reregister(&mut SourceFd(&descriptor), attention.token(), interest)
    }

    /// Removes `descriptor`, before it is closed. A descriptor that was not added is no error.
    pub fn remove(&self, descriptor: RawFd) {
        let _ = self.0.deregister(&mut SourceFd(&descriptor));
    }
}

/// Why [`Reactor::run_until`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The condition that the caller waits for is met.
    Met,
    /// The deadline came before the condition was met.
    TimedOut,
    /// The driver has ended, by itself or after a stop request.
    Done,
    /// The driver was asked to stop and did not end within [`CLOSE_MAX`].
    Abandoned,
}

/// A loop that turns one [`Driver`]: it spins while there is work and sleeps when there is none.
#[derive(Debug)]
pub struct Reactor {
    poll: Poll,
    events: Events,
    sources: Sources,
    clock: Clock,
    spin: Nanos,
    stop: Stop,
    /// Whether the driver was started.
    is_started: bool,
    /// When the driver was asked to stop.
    stopping: Option<Instant>,
    /// When something was last done; `asked_at` is when the kernel was last asked for news.
    busy_at: Instant,
    asked_at: Instant,
    /// When the processor was last offered to other threads.
    yielded_at: Instant,
    /// Whether there may be news since the driver last looked at all of its sources.
    news: bool,
    /// Sources with news that the driver does not know yet.
    named: Vec<u32>,
    /// Whether the kernel may have more news than it could report in one call.
    has_more: bool,
    /// Whether this loop does the main work of the process, and reports to the service manager.
    is_service: bool,
    /// How long the driver may take to end after a stop request; without a limit, as long as it
    /// takes.
    close_max: Option<Nanos>,
    /// The time of the next report to the service manager that this loop is alive.
    beat_at: Option<Instant>,
}

impl Reactor {
    /// A loop that spins for `spin` after it last had something to do. [`spin_default`] is a
    /// good budget.
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
            is_started: false,
            stopping: None,
            busy_at: now,
            asked_at: now,
            yielded_at: now,
            news: true,
            named: Vec::with_capacity(NEWS_MAX),
            has_more: false,
            is_service: false,
            close_max: Some(CLOSE_MAX),
            beat_at: None,
        })
    }

    /// The descriptors that end a sleep.
    pub const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The loop's clock.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// A handle by which other threads and signals stop this loop.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Whether the loop spins before it sleeps.
    pub(crate) fn spins(&self) -> bool {
        self.spin > Nanos::ZERO
    }

    /// Lets the driver take as long as it takes to end.
    pub const fn wait_for_close(&mut self) {
        self.close_max = None;
    }

    /// Reports this loop's end to the service manager, and while it turns, that it is alive: the
    /// manager ends and restarts a process whose loop hangs.
    pub fn serve(&mut self) {
        self.is_service = true;
        self.beat_at = service::beat_every().map(|_| self.clock.now());
    }

    /// Makes the loop ready for another driver, after one that has failed.
    pub fn begin_again(&mut self) {
        (self.is_started, self.news, self.has_more) = (false, true, false);
        self.named.clear();
    }

    /// Runs `driver` until it has ended.
    ///
    /// # Errors
    /// When the driver fails, or the system cannot wait.
    pub fn run<D: Driver>(&mut self, driver: &mut D) -> io::Result<Outcome> {
        self.run_until(driver, None, |_| false)
    }

    /// Runs `driver` until `met` returns true or `deadline` has come. The loop asks `met` after
    /// each turn, and turns the driver at least once.
    ///
    /// # Errors
    /// When the driver fails, or the system cannot wait.
    pub fn run_until<D: Driver>(
        &mut self,
        driver: &mut D,
        deadline: Option<Instant>,
        mut met: impl FnMut(&mut D) -> bool,
    ) -> io::Result<Outcome> {
        self.start(driver)?;
        let mut now = self.clock.now();
        // The application may have given the driver something to do.
        self.busy_at = now;
        let mut idle = false;
        loop {
            if let Some(outcome) = self.heed_stop(driver, now) {
                return Ok(outcome);
            }
            // The driver is turned first: work that is already there comes before the question
            // for more.
            let overdue = if idle { NEWS_EVERY } else { NEWS_EVERY_BUSY };
            if self.has_more || now - self.asked_at >= overdue {
                self.ask(now, Duration::ZERO)?;
            }
            let turn = driver.turn(&self.context(now))?;
            self.named.clear();
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

    /// Turns `driver` once, without waiting. A loop around this one sleeps on [`Reactor::poll_fd`].
    ///
    /// # Errors
    /// When the driver fails, or the system cannot report news.
    pub fn step<D: Driver>(&mut self, driver: &mut D) -> io::Result<Turn> {
        self.start(driver)?;
        let now = self.clock.now();
        self.ask(now, Duration::ZERO)?;
        let turn = driver.turn(&self.context(now))?;
        self.named.clear();
        self.news &= turn != Turn::Idle;
        Ok(turn)
    }

    fn start<D: Driver>(&mut self, driver: &mut D) -> io::Result<()> {
        if !core::mem::replace(&mut self.is_started, true) {
            driver.start(&self.sources)?;
        }
        Ok(())
    }

    fn context(&self, now: Instant) -> Context<'_> {
        let Self { news, named, clock, sources, .. } = self;
        Context { now, news: *news, named, spins: self.spin.get() > 0, clock: *clock, sources }
    }

    /// The descriptor that becomes readable when there is news for a driver turned
    /// by [`Reactor::step`].
    pub fn poll_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Spins on or sleeps after an idle turn. News that came since the sources were emptied is
    /// still with the kernel, and ends a sleep at once.
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
        let close_by = self.stopping.zip(self.close_max).map(|(since, most)| since + most);
        let wake = [driver.poll_timeout(), deadline, close_by, self.beat_at].into_iter().flatten().min();
        let length = wake.map_or(SLEEP_MAX, |at| at - self.clock.now()).min(SLEEP_MAX);
        if length < SLEEP_MIN && self.spin > Nanos::ZERO {
            return Ok(self.spin_on(driver, now));
        }
        // After the sleep, the loop spins again only if the turn finds something.
        self.ask(now, length.into())?;
        Ok(Glance::Nothing)
    }

    /// Glances until a glance finds something, or a turn is due.
    fn spin_on<D: Driver>(&mut self, driver: &mut D, now: Instant) -> Glance {
        if now - self.busy_at.max(self.yielded_at) >= YIELD_EVERY {
            self.yielded_at = now;
            std::thread::yield_now();
        }
        let context = self.context(now);
        for _ in 0..GLANCES {
            match driver.glance(&context) {
                Glance::Nothing => std::hint::spin_loop(),
                Glance::Done => return Glance::Done,
                Glance::Blind => break,
            }
        }
        std::hint::spin_loop();
        Glance::Nothing
    }

    /// Asks the kernel for news, and waits for at most `length`.
    fn ask(&mut self, now: Instant, length: Duration) -> io::Result<()> {
        self.asked_at = now;
        if self.beat_at.is_some_and(|at| at <= now) {
            service::beat();
            self.beat_at = service::beat_every().map(|every| now + every);
        }
        let result = self.poll.poll(&mut self.events, Some(length));
        if !length.is_zero() {
            // The kernel's answer is as old as the end of the sleep.
            self.asked_at = self.clock.now();
        }
        match result {
            Ok(()) => {}
            // A signal interrupted the call; its handler may have left a note for the driver.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.news = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let mut count = 0;
        for event in &self.events {
            count += 1;
            match event.token() {
                // Sources that are looked at in each turn are no news.
                EACH_TURN => {}
                Token(token) if token >= NAMED => self.named.extend(u32::try_from(token - NAMED)),
                _ => self.news = true,
            }
        }
        self.has_more = count == NEWS_MAX;
        Ok(())
    }

    fn heed_stop<D: Driver>(&mut self, driver: &mut D, now: Instant) -> Option<Outcome> {
        match self.stopping {
            None if self.stop.is_asked_for() => {
                self.stopping = Some(now);
                if self.is_service {
                    service::stopping();
                }
                driver.on_stop(now);
                None
            }
            Some(since) if self.close_max.is_some_and(|most| now - since >= most) => Some(Outcome::Abandoned),
            _ => None,
        }
    }
}
