//! Connecting to a far end over QUIC.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;

use engine::Instant;

use super::config::{self, Options};
use super::endpoint::{Endpoint, Shared, SharedSlot};
use super::stream::Stream;
use crate::carrier::dialer::{self, ATTEMPT_MAX, Made, Way};
use crate::carrier::identity::{Identity, Pin};

/// The most looks at the socket in one call.
const LOOKS_MAX: usize = 64;

/// How streams are made by the near end `identity` to the far end whose key `pin` names.
#[derive(Debug)]
pub struct Quic {
    identity: Arc<Identity>,
    pin: Pin,
    options: Options,
}

/// Connects over QUIC to one of several addresses, in turn, with growing pauses.
pub type Dialer = dialer::Dialer<Quic>;
/// The latest outcome of dialling over QUIC.
pub type Dialled = dialer::Dialled<Stream>;

impl Dialer {
    /// Dials `addresses` in turn, from `now` on, as `identity`, for the far end that `pin` names.
    ///
    /// # Panics
    /// When `addresses` is empty.
    pub fn new(
        addresses: Vec<SocketAddr>,
        identity: Arc<Identity>,
        pin: Pin,
        options: Options,
        now: Instant,
    ) -> Self {
        Self::over(Quic { identity, pin, options }, addresses, now)
    }
}

/// A stream that is being made.
pub struct Attempt {
    endpoint: Shared,
    slot: SharedSlot,
    descriptor: RawFd,
}

impl Way for Quic {
    type Attempt = Attempt;
    type Connection = Stream;

    fn begin(&self, address: SocketAddr, now: Instant) -> io::Result<(Attempt, RawFd)> {
        let (client, verifier) = config::client(&self.identity, self.pin, self.options)?;
        let mut endpoint = Endpoint::client(address, self.options.precedence, now)?;
        let (descriptor, slot) = (endpoint.as_raw_fd(), endpoint.connect(client, verifier)?);
        let endpoint = Rc::new(RefCell::new(endpoint));
        Ok((Attempt { endpoint, slot, descriptor }, descriptor))
    }

    fn go_on(&self, attempt: Attempt, _: Instant) -> io::Result<Made<Self>> {
        if !attempt.is_established()? {
            return Ok(Made::Attempt(attempt));
        }
        let Attempt { endpoint, slot, descriptor } = attempt;
        Ok(Made::Connection(Stream::new(endpoint, slot, Some(descriptor))))
    }

    fn look_at(attempt: &Attempt) -> Option<Instant> {
        attempt.endpoint.borrow().poll_timeout()
    }

    fn why_late() -> io::Error {
        let text = format!(
            "no answer within {ATTEMPT_MAX}; is a far end there (farlane export --quic), and does UDP pass?"
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

impl Attempt {
    /// Advances the attempt; returns whether there is a stream.
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
