//! The user of a function of another process, live: a socket, shared memory and doorbells, in one
//! loop.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use assemblies::vfio_user_client::{Event, Input, Output, User};
use engine::{Engine, Instant, Nanos, Pool};
use rustix::event::{EventfdFlags, eventfd};

use crate::reactor::blocking::Application;
use crate::reactor::{Attention, Context, Driver, Glance, Pump, Shell, Sources, Turn};
use crate::sys::clock::Clock;
use crate::sys::doorbells::Doorbells;
use crate::sys::shared::SharedMemory;
use crate::sys::unix::{Connection, Received};

/// Number of pieces taken from the connection in a turn.
const PIECES_PER_TURN: usize = 16;
/// After this long without activity, a doorbell's store is followed by a message: the server may
/// sleep, and a store does not wake it.
const QUIET: Nanos = Nanos::from_millis(1);
/// How often completions are looked for where no signal reports them. Shorter than any sleep of the
/// loop.
const LOOK: Nanos = Nanos::from_micros(500);

/// Whether the server signals completions, so that this process may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signals {
    /// Completions are not signalled.
    Off,
    /// The server was asked to signal completions (`true`), or to stop signalling (`false`).
    Requested(bool),
    /// Completions are signalled.
    On,
    /// The server cannot signal completions.
    Unsupported,
}

/// The engine of a function that another process offers.
type Engines = User<OwnedFd, SharedMemory>;

/// The surroundings of the engine: the server's socket, the doorbells, and how completions are
/// noticed.
struct UserShell {
    connection: Option<Connection>,
    /// The engine has ended the connection, which is closed once everything is sent.
    closing: bool,
    doorbells: Option<Doorbells>,
    /// The descriptor by which the server signals completions.
    signal: OwnedFd,
    signals: Signals,
    spin: Nanos,
    /// Number of commands of the application that have not completed.
    under_way: usize,
    /// When a doorbell was last rung or a command last completed.
    active_at: Instant,
    events: VecDeque<Event>,
}

/// Drives a user of another process's function: its socket, shared memory and doorbells.
pub struct UserDriver {
    user: Pump<Engines>,
    shell: UserShell,
    /// When the last command was submitted.
    submitted_at: Instant,
    /// When to look for completions next, without a signal.
    look_at: Option<Instant>,
    pool: Pool,
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
            user: Pump::new(user),
            shell: UserShell {
                connection: Some(connection),
                closing: false,
                doorbells: None,
                signal,
                signals: Signals::Off,
                spin,
                under_way: 0,
                active_at: now,
                events: VecDeque::new(),
            },
            submitted_at: now,
            look_at: None,
            pool: Pool::default(),
            touched: true,
            stopping: false,
        };
        driver.user.engine_mut().handle_input(now, Input::Connected);
        Ok(driver)
    }

    /// The engine of the user.
    pub const fn user(&self) -> &User<OwnedFd, SharedMemory> {
        self.user.engine()
    }
    /// The engine of the user, for submitting commands. The next turn counts as busy.
    pub const fn user_mut(&mut self) -> &mut User<OwnedFd, SharedMemory> {
        self.touched = true;
        self.user.engine_mut()
    }
    /// Notes that the application has submitted a command at `now`.
    pub(crate) const fn on_submitted(&mut self, now: Instant) {
        self.submitted_at = now;
        self.shell.under_way += 1;
    }

    /// Handles the server's messages; returns whether there were any.
    fn receive(&mut self, clock: Clock, sources: &Sources) -> bool {
        for piece in 0..PIECES_PER_TURN {
            let Some(connection) = &mut self.shell.connection else { return piece > 0 };
            match connection.receive(&mut self.pool) {
                Ok(Received::Nothing) => return piece > 0,
                Ok(Received::Data(..)) if self.shell.closing => continue,
                Ok(Received::Data(bytes, descriptors)) => {
                    let input = Input::Received { bytes: &bytes, descriptors };
                    self.user.engine_mut().handle_input(clock.now(), input);
                }
                Ok(Received::Closed) | Err(_) => self.disconnect(clock.now(), sources),
            }
            self.user.exchange(clock.now(), &mut self.shell);
        }
        true
    }

    fn disconnect(&mut self, now: Instant, sources: &Sources) {
        self.shell.disconnect(sources);
        self.user.engine_mut().handle_input(now, Input::Disconnected);
    }

    /// Whether a command may complete without a message.
    fn awaits_completion(&self) -> bool {
        self.shell.under_way > 0 || self.user().driver().is_some_and(|driver| !driver.is_ready())
    }

    /// After a turn without work, makes sure that a completion ends the sleep. Returns whether this
    /// caused work.
    fn prepare_sleep(&mut self, now: Instant) -> io::Result<bool> {
        self.look_at = None;
        if !self.awaits_completion() || self.shell.signals == Signals::On {
            return Ok(false);
        }
        self.look_at = Some(now + LOOK);
        if self.shell.signals != Signals::Off || now - self.shell.active_at < self.shell.spin {
            return Ok(false);
        }
        let vectors = self.user().vectors();
        if vectors == 0 {
            self.shell.signals = Signals::Unsupported;
            return Ok(false);
        }
        let signals = (0..vectors).map(|_| self.shell.signal.try_clone());
        let signals: Vec<OwnedFd> = signals.collect::<Result<_, _>>()?;
        self.shell.signals = Signals::Requested(true);
        self.user.engine_mut().listen(now, signals);
        Ok(true)
    }

    /// Sends waiting messages, and closes a connection that is to end.
    fn flush(&mut self, now: Instant, sources: &Sources) -> bool {
        let UserShell { connection, closing, .. } = &mut self.shell;
        let Some(connection) = connection else { return false };
        if connection.unsent() == 0 && !*closing {
            return false;
        }
        let sent = connection.flush();
        if *closing && (sent.is_err() || connection.unsent() == 0) {
            self.disconnect(now, sources);
            self.user.exchange(now, &mut self.shell);
            return true;
        }
        sent.is_ok_and(|sent| sent > 0)
    }

    /// Takes the server's signals, which have ended the sleep.
    fn clear_signal(&self) {
        let mut count = [0; 8];
        // A read that finds nothing is harmless.
        let _ = rustix::io::read(&self.shell.signal, &mut count);
    }

    /// Looks for completions in memory.
    fn look(&mut self, now: Instant) -> Glance {
        // Where doorbells are messages, a completion is worth no more than a message: a turn looks
        // for both.
        if self.shell.doorbells.is_none() || self.shell.under_way == 0 {
            return Glance::Blind;
        }
        let Some(first) = self.user.engine_to_poll().poll_io_completed(now) else { return Glance::Nothing };
        // Deadlines have changed.
        let user = self.user.engine_mut();
        let mut next = Some(first);
        while let Some(completed) = next {
            self.shell.on_event(now, Event::Completed(completed), user);
            next = user.poll_io_completed(now);
        }
        Glance::Done
    }
}

impl UserShell {
    fn disconnect(&mut self, sources: &Sources) {
        if let Some(connection) = self.connection.take() {
            sources.remove(connection.as_raw_fd());
        }
        self.doorbells = None;
    }

    fn ring(&mut self, now: Instant, offset: u64, value: u32, user: &mut Engines) {
        if let Some(doorbells) = &self.doorbells {
            doorbells.ring(offset, value);
            if now - self.active_at >= QUIET {
                user.nudge(now);
            }
        }
        self.active_at = now;
    }

    fn on_event(&mut self, now: Instant, event: Event, user: &mut Engines) {
        match &event {
            Event::Completed(_) => {
                self.under_way = self.under_way.saturating_sub(1);
                self.active_at = now;
                if self.signals == Signals::On && self.spin > Nanos::ZERO {
                    // Signals are expensive, and a spinning loop does not need them.
                    self.signals = Signals::Requested(false);
                    user.listen(now, Vec::new());
                }
            }
            Event::Listening(true) => {
                let is_wanted = self.signals == Signals::Requested(true);
                self.signals = if is_wanted { Signals::On } else { Signals::Off };
                return;
            }
            Event::Listening(false) => {
                self.signals = Signals::Unsupported;
                return;
            }
            _ => {}
        }
        self.events.push_back(event);
    }
}

impl Shell<Engines> for UserShell {
    fn pass(&mut self, now: Instant, output: Output<OwnedFd>, user: &mut Engines) {
        match output {
            Output::Doorbell { offset, value } => self.ring(now, offset, value, user),
            Output::Event(event) => self.on_event(now, event, user),
            Output::Transmit { bytes, descriptors } => {
                if let Some(connection) = &mut self.connection
                    && connection.send(bytes, descriptors).is_err()
                {
                    // The server no longer reads; the next receive finds the end of the connection.
                    connection.abort();
                }
            }
            Output::Close => self.closing = true,
            Output::MapDoorbells { descriptor, offset, length } => {
                // Where the doorbells cannot be mapped, messages ring them.
                self.doorbells = Doorbells::map(&descriptor, offset, length).ok();
                user.doorbells_mapped(self.doorbells.is_some());
            }
        }
    }
}

impl Driver for UserDriver {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        sources.add(self.shell.signal.as_raw_fd(), Attention::OnNews)?;
        let connection = self.shell.connection.as_ref();
        connection.map_or(Ok(()), |connection| sources.add(connection.as_raw_fd(), Attention::OnNews))
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let (now, sources) = (context.now, context.sources());
        let mut busy = core::mem::take(&mut self.touched);
        if context.news {
            self.clear_signal();
        }
        if context.news || self.user().awaits_answer() {
            busy |= self.receive(context.clock, sources);
        }
        // The engine was given later times during the turn, and its time never goes back.
        let now = if busy { context.clock.now() } else { now };
        self.user.engine_to_poll().poll_completions(now);
        busy |= self.user.exchange(now, &mut self.shell);
        if !busy {
            busy |= self.prepare_sleep(now)?;
        }
        if self.user.wants_settling(now, busy) {
            busy |= self.user.settle(now, &mut self.shell);
        }
        busy |= self.flush(now, sources);
        if self.stopping && self.shell.connection.is_none() {
            return Ok(Turn::Done);
        }
        Ok(if busy { Turn::Busy } else { Turn::Idle })
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        self.look(context.now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.user.poll_timeout().into_iter().chain(self.look_at).min()
    }

    fn on_stop(&mut self, now: Instant) {
        self.stopping = true;
        self.user.engine_mut().close(now);
        self.user.exchange(now, &mut self.shell);
    }
}

impl Application for UserDriver {
    type Event = Event;

    fn poll_event(&mut self) -> Option<Event> {
        self.shell.events.pop_front()
    }
    fn has_events(&self) -> bool {
        !self.shell.events.is_empty()
    }
    /// Rings the doorbells before everything else.
    fn before_wait(&mut self) {
        if self.shell.doorbells.is_none() {
            return;
        }
        let user = self.user.engine_mut();
        while let Some((offset, value)) = user.poll_doorbell() {
            self.shell.ring(self.submitted_at, offset, value, user);
        }
    }
    fn glimpse(&mut self) -> Glance {
        self.look(self.submitted_at)
    }
}

impl fmt::Debug for UserDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserDriver").field("user", self.user()).finish_non_exhaustive()
    }
}
