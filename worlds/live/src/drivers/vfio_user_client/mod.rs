//! The user of a function of another process, live: a socket, shared memory and doorbells, in one
//! loop.

mod attachment;

pub use attachment::{Attachment, Options};

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use engine::{Engine, Instant, Nanos, Pool, fire, next_wake};
use machine::vfio_user_client::{Event, Input, Output, User};
use rustix::event::{EventfdFlags, eventfd};

use crate::drivers::attached::Application;
use crate::reactor::{Attention, Context, Driver, Glance, Sources, Turn};
use crate::sys::clock::Clock;
use crate::sys::doorbells::Doorbells;
use crate::sys::shared::SharedMemory;
use crate::sys::unix::{Connection, Received};

/// Number of pieces taken from the connection in a turn.
const PIECES_PER_TURN: usize = 16;
/// After this long without activity, a doorbell's store is followed by a message: the server may
/// sleep, and a store does not wake it.
const QUIET: Nanos = Nanos::from_millis(1);
/// How often completions are looked for where no signal tells of them. Shorter than any sleep of
/// the loop.
const LOOK: Nanos = Nanos::from_micros(500);

/// Whether the server signals completions, so that this process may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ears {
    /// Completions are not signalled.
    Deaf,
    /// The server was asked to signal completions (`true`), or to stop signalling (`false`).
    Answering(bool),
    /// Completions are signalled.
    Listening,
    /// The server cannot signal completions.
    Unable,
}

/// Drives a user of another process's function: its socket, shared memory and doorbells.
pub struct UserDriver {
    user: User<OwnedFd, SharedMemory>,
    connection: Option<Connection>,
    registered: bool,
    closing: bool,
    doorbells: Option<Doorbells>,
    /// The descriptor by which the server signals completions.
    signal: OwnedFd,
    ears: Ears,
    spin: Nanos,
    /// When the last command was submitted.
    submitted_at: Instant,
    /// Number of commands of the application that have not completed.
    under_way: usize,
    /// When a doorbell was last rung or a command last completed.
    active_at: Instant,
    /// When to look for completions next, without a signal.
    look_at: Option<Instant>,
    events: VecDeque<Event>,
    pool: Pool,
    wake: Option<Instant>,
    unsettled: bool,
    touched: bool,
    stopping: bool,
}

impl UserDriver {
    /// A user at the end of `connection`, in a loop that spins for `spin`.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new(
        user: User<OwnedFd, SharedMemory>,
        connection: Connection,
        spin: Nanos,
        now: Instant,
    ) -> io::Result<Self> {
        let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut driver = Self {
            user,
            connection: Some(connection),
            registered: false,
            closing: false,
            doorbells: None,
            signal,
            ears: Ears::Deaf,
            spin,
            submitted_at: now,
            under_way: 0,
            active_at: now,
            look_at: None,
            events: VecDeque::new(),
            pool: Pool::default(),
            wake: None,
            unsettled: true,
            touched: true,
            stopping: false,
        };
        driver.user.handle_input(now, Input::Connected);
        Ok(driver)
    }

    /// The engine of the user.
    pub const fn user(&self) -> &User<OwnedFd, SharedMemory> {
        &self.user
    }
    /// The engine of the user, for submitting commands. The next turn counts as busy.
    pub const fn user_mut(&mut self) -> &mut User<OwnedFd, SharedMemory> {
        self.touched = true;
        &mut self.user
    }
    /// Notes that the application has submitted a command at `now`.
    const fn on_submitted(&mut self, now: Instant) {
        self.submitted_at = now;
        self.under_way += 1;
    }

    fn register(&mut self, sources: &Sources) -> io::Result<()> {
        if !self.registered {
            self.registered = true;
            sources.add(self.signal.as_raw_fd(), Attention::OnNews)?;
            if let Some(connection) = &self.connection {
                sources.add(connection.as_raw_fd(), Attention::OnNews)?;
            }
        }
        Ok(())
    }

    /// Handles what the server has sent; returns whether there was anything.
    fn receive(&mut self, clock: Clock, sources: &Sources) -> bool {
        for piece in 0..PIECES_PER_TURN {
            let Some(connection) = &mut self.connection else { return piece > 0 };
            match connection.receive(&mut self.pool) {
                Ok(Received::Nothing) => return piece > 0,
                Ok(Received::Data(..)) if self.closing => continue,
                Ok(Received::Data(bytes, descriptors)) => {
                    self.user.handle_input(clock.now(), Input::Received { bytes: &bytes, descriptors });
                }
                Ok(Received::Closed) | Err(_) => self.disconnect(clock.now(), sources),
            }
            self.exchange(clock.now());
        }
        true
    }

    fn disconnect(&mut self, now: Instant, sources: &Sources) {
        if let Some(connection) = self.connection.take() {
            sources.remove(connection.as_raw_fd());
        }
        self.doorbells = None;
        self.user.handle_input(now, Input::Disconnected);
    }

    /// Passes outputs to the world until the engine is quiet. Returns whether there were any.
    fn exchange(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while let Some(output) = self.user.poll_output() {
            busy = true;
            self.unsettled = true;
            match output {
                Output::Doorbell { offset, value } => self.ring(now, offset, value),
                Output::Event(event) => self.on_event(now, event),
                Output::Transmit { bytes, descriptors } => {
                    if let Some(connection) = &mut self.connection
                        && connection.send(bytes, descriptors).is_err()
                    {
                        // The server no longer reads; the next receive finds the end of the
                        // connection.
                        connection.abort();
                    }
                }
                Output::Close => self.closing = true,
                Output::MapDoorbells { descriptor, offset, length } => {
                    // Where the doorbells cannot be mapped, messages ring them.
                    self.doorbells = Doorbells::map(&descriptor, offset, length).ok();
                    self.user.doorbells_mapped(self.doorbells.is_some());
                }
            }
        }
        busy
    }

    fn ring(&mut self, now: Instant, offset: u64, value: u32) {
        if let Some(doorbells) = &self.doorbells {
            doorbells.ring(offset, value);
            if now - self.active_at >= QUIET {
                self.user.nudge(now);
            }
        }
        self.active_at = now;
    }

    fn on_event(&mut self, now: Instant, event: Event) {
        match &event {
            Event::Completed(_) => {
                self.under_way = self.under_way.saturating_sub(1);
                self.active_at = now;
                if self.ears == Ears::Listening && self.spin > Nanos::ZERO {
                    // Signals are expensive, and a spinning loop does not need them.
                    self.ears = Ears::Answering(false);
                    self.user.listen(now, Vec::new());
                }
            }
            Event::Listening(true) => {
                self.ears = if self.ears == Ears::Answering(true) { Ears::Listening } else { Ears::Deaf };
                return;
            }
            Event::Listening(false) => {
                self.ears = Ears::Unable;
                return;
            }
            _ => {}
        }
        self.events.push_back(event);
    }

    /// Whether a command may complete without a message.
    fn awaits_completion(&self) -> bool {
        self.under_way > 0 || self.user.driver().is_some_and(|driver| !driver.is_ready())
    }

    /// After a turn without work, makes sure that a completion ends the sleep. Returns whether this
    /// caused work.
    fn prepare_sleep(&mut self, now: Instant) -> io::Result<bool> {
        self.look_at = None;
        if !self.awaits_completion() || self.ears == Ears::Listening {
            return Ok(false);
        }
        self.look_at = Some(now + LOOK);
        if self.ears != Ears::Deaf || now - self.active_at < self.spin {
            return Ok(false);
        }
        if self.user.vectors() == 0 {
            self.ears = Ears::Unable;
            return Ok(false);
        }
        let signals = (0..self.user.vectors()).map(|_| self.signal.try_clone());
        let signals: Vec<OwnedFd> = signals.collect::<Result<_, _>>()?;
        self.ears = Ears::Answering(true);
        self.user.listen(now, signals);
        Ok(true)
    }

    /// Fires the deadlines that are due, and computes the next deadline.
    fn settle(&mut self, now: Instant) -> bool {
        let mut busy = false;
        while self.wake.is_some_and(|at| at <= now) || self.unsettled {
            busy |= fire(&mut self.user, now);
            busy |= self.exchange(now);
            self.wake = next_wake(&self.user, now);
            self.unsettled = false;
        }
        busy
    }

    /// Sends what waits, and closes a connection that is to end.
    fn flush(&mut self, now: Instant, sources: &Sources) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if connection.unsent() == 0 && !self.closing {
            return false;
        }
        let sent = connection.flush();
        if self.closing && (sent.is_err() || connection.unsent() == 0) {
            self.disconnect(now, sources);
            self.exchange(now);
            return true;
        }
        sent.is_ok_and(|sent| sent > 0)
    }

    fn hear(&self) {
        let mut count = [0; 8];
        // A read that finds nothing is harmless.
        let _ = rustix::io::read(&self.signal, &mut count);
    }
}

impl Driver for UserDriver {
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let (now, sources) = (context.now, context.sources());
        self.register(sources)?;
        let mut busy = core::mem::take(&mut self.touched);
        if context.news {
            self.hear();
        }
        if context.news || self.user.awaits_answer() {
            busy |= self.receive(context.clock, sources);
        }
        // The engine was given later times during the turn, and its time never goes back.
        let now = if busy { context.clock.now() } else { now };
        self.user.poll_completions(now);
        busy |= self.exchange(now);
        if !busy {
            busy |= self.prepare_sleep(now)?;
        }
        if !busy || self.wake.is_some_and(|at| at <= now) {
            busy |= self.settle(now);
        }
        busy |= self.flush(now, sources);
        if self.stopping && self.connection.is_none() {
            return Ok(Turn::Done);
        }
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, now: Instant) -> Glance {
        // Where doorbells are messages, a completion is worth no more than a message: a turn looks
        // for both.
        if self.doorbells.is_none() || self.under_way == 0 {
            return Glance::Blind;
        }
        if !self.user.poll_io_completions(now) {
            return Glance::Nothing;
        }
        self.exchange(now);
        Glance::Done
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wake.into_iter().chain(self.look_at).min()
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.user.close(now);
        self.exchange(now);
    }
}

impl Application for UserDriver {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    fn has_events(&self) -> bool {
        !self.events.is_empty()
    }
    /// Rings the doorbells before everything else.
    fn before_wait(&mut self) {
        if self.doorbells.is_none() {
            return;
        }
        while let Some((offset, value)) = self.user.poll_doorbell() {
            self.ring(self.submitted_at, offset, value);
        }
    }
}

impl fmt::Debug for UserDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserDriver").field("user", &self.user).finish_non_exhaustive()
    }
}
