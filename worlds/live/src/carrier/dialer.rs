//! Connecting to a far end, repeatedly until it is there.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use engine::{Instant, Nanos};

/// The first pause after a refusal. It is so short that a restarted far end is found within a
/// completion timeout.
const PAUSE_FIRST: Nanos = Nanos::from_millis(1);
/// The longest pause between attempts.
const PAUSE_MAX: Nanos = Nanos::from_millis(500);
/// How long one attempt may take.
pub(crate) const ATTEMPT_MAX: Nanos = Nanos::from_secs(5);

/// A way of making connections.
pub trait Way {
    /// The type of a connection that is being made.
    type Attempt;
    /// The type of an established connection.
    type Connection;

    /// Begins an attempt. The returned descriptor has news when the attempt can go on.
    ///
    /// # Errors
    /// When the attempt can't even begin.
    fn begin(&self, address: SocketAddr, now: Instant) -> io::Result<(Self::Attempt, RawFd)>;

    /// Advances an attempt; returns the connection, or the attempt as it is now.
    ///
    /// # Errors
    /// When the attempt has failed.
    fn go_on(&self, attempt: Self::Attempt, now: Instant) -> io::Result<Made<Self>>;

    /// The time of the next look at an attempt without news, if any.
    fn look_at(attempt: &Self::Attempt) -> Option<Instant>;

    /// The error of an attempt that took the longest time allowed without a result.
    fn why_late() -> io::Error;
}

/// How far an attempt has come.
pub enum Made<W: Way + ?Sized> {
    /// The connection is established.
    Connection(W::Connection),
    /// The attempt has not ended.
    Attempt(W::Attempt),
}

/// The outcome of a look at dialling.
#[derive(Debug)]
pub enum Dialled<C> {
    /// Nothing has happened yet.
    Waiting,
    /// An attempt has begun; its descriptor has news when the attempt can go on.
    Began(RawFd),
    /// An attempt failed; the next follows after a pause.
    Failed(SocketAddr, io::Error),
    /// The connection is established; the dialler rests until [`Dialer::restart`].
    Connected(C),
}

enum State<A> {
    Pausing { until: Instant },
    Connecting { attempt: A, address: SocketAddr, until: Instant },
    Resting,
}

/// Connects to one of several addresses, in turn, with growing pauses.
pub struct Dialer<W: Way> {
    addresses: Vec<SocketAddr>,
    way: W,
    next: usize,
    pause: Nanos,
    state: State<W::Attempt>,
}

impl<W: Way> Dialer<W> {
    /// Dials `addresses` in turn, from `now` on.
    ///
    /// # Panics
    /// When `addresses` is empty.
    pub fn over(way: W, addresses: Vec<SocketAddr>, now: Instant) -> Self {
        assert!(!addresses.is_empty(), "a dialler needs an address");
        Self { addresses, way, next: 0, pause: PAUSE_FIRST, state: State::Pausing { until: now } }
    }

    /// Dials again, from `now` on, after a connection was lost.
    pub fn restart(&mut self, now: Instant) {
        self.pause = PAUSE_FIRST;
        self.state = State::Pausing { until: now };
    }

    /// The time of the next call to [`Dialer::poll`], if any.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Pausing { until } => Some(*until),
            State::Connecting { attempt, until, .. } => W::look_at(attempt).into_iter().chain([*until]).min(),
            State::Resting => None,
        }
    }

    /// Advances dialling, without waiting.
    pub fn poll(&mut self, now: Instant) -> Dialled<W::Connection> {
        match std::mem::replace(&mut self.state, State::Resting) {
            State::Resting => Dialled::Waiting,
            State::Pausing { until } if until > now => {
                self.state = State::Pausing { until };
                Dialled::Waiting
            }
            State::Pausing { .. } => {
                let address = self.addresses[self.next % self.addresses.len()];
                self.next += 1;
                match self.way.begin(address, now) {
                    Ok((attempt, descriptor)) => {
                        self.state = State::Connecting { attempt, address, until: now + ATTEMPT_MAX };
                        Dialled::Began(descriptor)
                    }
                    Err(error) => self.on_failure(now, address, error),
                }
            }
            State::Connecting { attempt, address, until } => match self.way.go_on(attempt, now) {
                Ok(Made::Connection(connection)) => Dialled::Connected(connection),
                Ok(Made::Attempt(_)) if until <= now => self.on_failure(now, address, W::why_late()),
                Ok(Made::Attempt(attempt)) => {
                    self.state = State::Connecting { attempt, address, until };
                    Dialled::Waiting
                }
                Err(error) => self.on_failure(now, address, error),
            },
        }
    }

    fn on_failure(&mut self, now: Instant, address: SocketAddr, error: io::Error) -> Dialled<W::Connection> {
        self.state = State::Pausing { until: now + self.pause };
        // The pause grows once for each round of the addresses.
        if self.next.is_multiple_of(self.addresses.len()) {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        Dialled::Failed(address, error)
    }
}

impl<W: Way> fmt::Debug for Dialer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
