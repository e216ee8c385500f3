//! Connecting to a far end by datagrams.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use datagrams::Id;
use engine::Instant;

use super::ethernet::Ethernet;
use super::options::Options;
use super::port::{Port, Shared};
use super::stream::{Stream, failure};
use super::wire::Wire;
use crate::carrier::dialer::{self, ATTEMPT_MAX, Made, Way};

/// The most looks at the socket in one call.
const LOOKS_MAX: usize = 64;

/// How streams are made: over UDP, or at an interface.
#[derive(Debug)]
pub struct Datagrams {
    place: Option<Ethernet>,
    options: Options,
}

/// Connects to one of several addresses, in turn, with growing pauses.
pub type Dialer = dialer::Dialer<Datagrams>;
/// The latest outcome of dialling.
pub type Dialled = dialer::Dialled<Stream>;

impl Dialer {
    /// Dials `addresses` in turn, from `now` on: over UDP, or the stations that have these
    /// addresses at the interface `place`.
    ///
    /// # Panics
    /// When `addresses` is empty.
    pub fn new(place: Option<Ethernet>, addresses: Vec<SocketAddr>, options: Options, now: Instant) -> Self {
        Self::over(Datagrams { place, options }, addresses, now)
    }
}

/// A stream that is being made.
pub struct Attempt {
    port: Shared,
    id: Id,
    address: SocketAddr,
}

impl Way for Datagrams {
    type Attempt = Attempt;
    type Connection = Stream;

    fn begin(&self, address: SocketAddr, now: Instant) -> io::Result<(Attempt, RawFd)> {
        let (wire, address) = match &self.place {
            None => (Wire::udp(address, true, &self.options)?, address),
            Some(place) => {
                let wire = Wire::at(place.clone(), &self.options)?;
                let at = wire.reached(address);
                (wire, at)
            }
        };
        let mut port = Port::new(wire, false, now);
        let id = port.dial(address);
        let descriptor = port.wire().as_raw_fd();
        Ok((Attempt { port: Rc::new(RefCell::new(port)), id, address }, descriptor))
    }

    fn go_on(&self, attempt: Attempt, _: Instant) -> io::Result<Made<Self>> {
        let mut port = attempt.port.borrow_mut();
        let mut looks = 0;
        while port.pump()? {
            looks += 1;
            if looks == LOOKS_MAX {
                port.look_again();
                break;
            }
        }
        let connection = port.connection(attempt.id);
        if let Some(ended) = connection.ended() {
            return Err(failure(ended));
        }
        let is_established = connection.is_established();
        let descriptor = port.wire().as_raw_fd();
        drop(port);
        if !is_established {
            return Ok(Made::Attempt(attempt));
        }
        let Attempt { port, id, address } = attempt;
        Ok(Made::Connection(Stream::new(port, id, address, Some(descriptor))))
    }

    fn look_at(attempt: &Attempt) -> Option<Instant> {
        attempt.port.borrow().poll_timeout()
    }

    fn why_late() -> io::Error {
        let text = format!(
            "nothing came back within {ATTEMPT_MAX}; is a far end there (farlane export --udp or --eth), and do datagrams pass?"
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}
