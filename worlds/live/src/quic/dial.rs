//! Connecting to a far end.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;

use engine::{Instant, Nanos};

use super::config::{self, Options};
use super::endpoint::{Endpoint, Shared, SharedSlot};
use super::pin::Pin;
use super::stream::Stream;

/// The first pause after a refusal: a restarted far end is found again within a completion timeout.
const PAUSE_FIRST: Nanos = Nanos::from_millis(1);
/// The longest pause.
const PAUSE_MAX: Nanos = Nanos::from_millis(500);
/// How long one attempt may take.
const ATTEMPT_MAX: Nanos = Nanos::from_secs(5);
/// Looks at the socket in one go.
const LOOKS_MAX: usize = 64;

/// What has become of dialling.
#[derive(Debug)]
pub enum Dialled {
    /// Nothing yet.
    Waiting,
    /// An attempt has begun; its socket has news when it goes on.
    Began(RawFd),
    /// An attempt failed; the next follows after a pause.
    Failed(SocketAddr, io::Error),
    /// Connected, with whoever has the right certificate; the dialler rests until [`Dialer::restart`].
    Connected(Stream),
}

struct Attempt {
    endpoint: Shared,
    slot: SharedSlot,
    address: SocketAddr,
    descriptor: RawFd,
    until: Instant,
}

enum State {
    Pausing { until: Instant },
    Connecting(Attempt),
    Resting,
}

/// Connects to one of several addresses, in turn, with growing pauses.
pub struct Dialer {
    addresses: Vec<SocketAddr>,
    pin: Pin,
    options: Options,
    next: usize,
    pause: Nanos,
    state: State,
}

impl Dialer {
    /// Dials `addresses` in turn, from `now` on, for the far end that `pin` names.
    ///
    /// # Panics
    /// When there are none.
    pub fn new(addresses: Vec<SocketAddr>, pin: Pin, options: Options, now: Instant) -> Self {
        assert!(!addresses.is_empty(), "a dialler needs an address");
        let state = State::Pausing { until: now };
        Self { addresses, pin, options, next: 0, pause: PAUSE_FIRST, state }
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
            State::Connecting(attempt) => {
                attempt.endpoint.borrow().poll_timeout().into_iter().chain([attempt.until]).min()
            }
            State::Resting => None,
        }
    }

    /// Goes on with dialling, without waiting.
    pub fn poll(&mut self, now: Instant) -> Dialled {
        match std::mem::replace(&mut self.state, State::Resting) {
            State::Resting => Dialled::Waiting,
            State::Pausing { until } if until > now => {
                self.state = State::Pausing { until };
                Dialled::Waiting
            }
            State::Pausing { .. } => {
                let address = self.addresses[self.next % self.addresses.len()];
                self.next += 1;
                match Attempt::begin(address, self.pin, self.options, now) {
                    Ok(attempt) => {
                        let descriptor = attempt.descriptor;
                        self.state = State::Connecting(attempt);
                        Dialled::Began(descriptor)
                    }
                    Err(error) => self.on_failure(now, address, error),
                }
            }
            State::Connecting(attempt) => match attempt.is_established() {
                Ok(true) => {
                    let Attempt { endpoint, slot, descriptor, .. } = attempt;
                    Dialled::Connected(Stream::new(endpoint, slot, Some(descriptor)))
                }
                Ok(false) if attempt.until <= now => {
                    let text = format!(
                        "nothing came back within {ATTEMPT_MAX}; is a far end there (farlane export --quic), and does UDP pass?"
                    );
                    self.on_failure(now, attempt.address, io::Error::new(io::ErrorKind::TimedOut, text))
                }
                Ok(false) => {
                    self.state = State::Connecting(attempt);
                    Dialled::Waiting
                }
                Err(error) => self.on_failure(now, attempt.address, error),
            },
        }
    }

    fn on_failure(&mut self, now: Instant, address: SocketAddr, error: io::Error) -> Dialled {
        self.state = State::Pausing { until: now + self.pause };
        // A pause belongs to a whole round of the addresses.
        if self.next.is_multiple_of(self.addresses.len()) {
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        Dialled::Failed(address, error)
    }
}

impl Attempt {
    fn begin(address: SocketAddr, pin: Pin, options: Options, now: Instant) -> io::Result<Self> {
        let (client, verifier) = config::client(pin, options)?;
        let mut endpoint = Endpoint::client(address, now)?;
        let (descriptor, slot) = (endpoint.as_raw_fd(), endpoint.connect(client, verifier)?);
        let endpoint = Rc::new(RefCell::new(endpoint));
        Ok(Self { endpoint, slot, address, descriptor, until: now + ATTEMPT_MAX })
    }

    /// Goes on; whether there is a stream.
    fn is_established(&self) -> io::Result<bool> {
        let mut endpoint = self.endpoint.borrow_mut();
        let mut looks = 0;
        while endpoint.pump()? {
            looks += 1;
            if looks == LOOKS_MAX {
                endpoint.look_again();
                break;
            }
        }
        drop(endpoint);
        let slot = self.slot.borrow();
        match &slot.lost {
            Some(loss) => Err(loss.explain(slot.verifier.as_deref())),
            None => Ok(slot.stream.is_some()),
        }
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("addresses", &self.addresses)
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}
