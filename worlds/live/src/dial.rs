//! Connecting to a far end, again and again until it is there.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use engine::{Instant, Nanos};

/// The first pause after a refusal: a restarted far end is found again within a completion timeout.
const PAUSE_FIRST: Nanos = Nanos::from_millis(1);
/// The longest pause.
const PAUSE_MAX: Nanos = Nanos::from_millis(500);
/// How long one attempt may take.
pub(crate) const ATTEMPT_MAX: Nanos = Nanos::from_secs(5);

/// What connections are made of.
pub trait Way {
    /// One that is being made.
    type Attempt;
    /// One that was made.
    type Connection;

    /// Begins an attempt; its descriptor has news when it goes on.
    ///
    /// # Errors
    /// When there is nothing to wait for.
    fn begin(&self, address: SocketAddr, now: Instant) -> io::Result<(Self::Attempt, RawFd)>;

    /// Goes on with an attempt: the connection, or the attempt as it is now.
    ///
    /// # Errors
    /// When it has come to nothing.
    fn go_on(&self, attempt: Self::Attempt, now: Instant) -> io::Result<Made<Self>>;

    /// When an attempt wants to be looked at without news.
    fn look_at(attempt: &Self::Attempt) -> Option<Instant>;

    /// Why nothing may have come of an attempt for as long as one may take.
    fn why_late() -> io::Error;
}

/// How far an attempt has come.
pub enum Made<W: Way + ?Sized> {
    /// To its end.
    Connection(W::Connection),
    /// Not there yet.
    Attempt(W::Attempt),
}

/// What has become of dialling.
#[derive(Debug)]
pub enum Dialled<C> {
    /// Nothing yet.
    Waiting,
    /// An attempt has begun; its descriptor has news when it goes on.
    Began(RawFd),
    /// An attempt failed; the next follows after a pause.
    Failed(SocketAddr, io::Error),
    /// Connected; the dialler rests until [`Dialer::restart`].
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
    /// When there are none.
    pub fn over(way: W, addresses: Vec<SocketAddr>, now: Instant) -> Self {
        assert!(!addresses.is_empty(), "a dialler needs an address");
        Self { addresses, way, next: 0, pause: PAUSE_FIRST, state: State::Pausing { until: now } }
    }

    /// Dials again, the connection being lost.
    pub fn restart(&mut self, now: Instant) {
        self.pause = PAUSE_FIRST;
        self.state = State::Pausing { until: now };
    }

    /// When [`Dialer::poll`] wants to be called, if ever.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Pausing { until } => Some(*until),
            State::Connecting { attempt, until, .. } => W::look_at(attempt).into_iter().chain([*until]).min(),
            State::Resting => None,
        }
    }

    /// Goes on with dialling, without waiting.
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
        // A pause belongs to a whole round of the addresses.
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
