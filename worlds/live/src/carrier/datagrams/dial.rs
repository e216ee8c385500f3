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
use super::plain::{Plain, failure};
use super::port::{Port, Shared};
use super::stream::Stream;
use super::wire::Wire;
use crate::carrier::dialer::{self, ATTEMPT_MAX, Made, Way};
use crate::carrier::route::Trust;
use crate::carrier::tls::Tls;

/// The most looks at the socket in one call.
const LOOKS_MAX: usize = 64;

/// How streams are made: over UDP, or at an interface.
#[derive(Debug)]
pub struct Datagrams {
    place: Option<Ethernet>,
    options: Options,
    /// The keys of both ends, if the connections are encrypted.
    trust: Option<Trust>,
}

/// Connects to one of several addresses, in turn, with growing pauses.
pub type Dialer = dialer::Dialer<Datagrams>;
/// The latest outcome of dialling.
pub type Dialled = dialer::Dialled<Stream>;

impl Dialer {
    /// Dials `addresses` in turn, from `now` on: over UDP, or the stations that have these
    /// addresses at the interface `place`. With `trust`, a connection is established once TLS has
    /// proved the keys of both ends.
    ///
    /// # Panics
    /// When `addresses` is empty.
    pub fn new(
        (place, options): (Option<Ethernet>, Options),
        addresses: Vec<SocketAddr>,
        trust: Option<Trust>,
        now: Instant,
    ) -> Self {
        Self::over(Datagrams { place, options, trust }, addresses, now)
    }
}

/// A stream that is being made.
pub struct Attempt(Progress);

/// How far an attempt has come.
enum Progress {
    /// The far end is asked for a connection of this name.
    Asking { port: Shared, id: Id, address: SocketAddr },
    /// TLS proves the identities of both ends.
    Proving(Box<Stream>),
}

impl Way for Datagrams {
    type Attempt = Attempt;
    type Connection = Stream;

    fn begin(&self, address: SocketAddr, now: Instant) -> io::Result<(Attempt, RawFd)> {
        let (wire, address) = match &self.place {
            None => (Wire::udp(address, true, &self.options)?, address),
            Some(place) => {
                let mut wire = Wire::at(place.clone(), &self.options)?;
                let at = wire.reached(address);
                wire.claim(Some(at))?;
                (wire, at)
            }
        };
        let mut port = Port::new(wire, false, now);
        let id = port.dial(address);
        let descriptor = port.wire().as_raw_fd();
        let port = Rc::new(RefCell::new(port));
        Ok((Attempt(Progress::Asking { port, id, address }), descriptor))
    }

    fn go_on(&self, attempt: Attempt, _: Instant) -> io::Result<Made<Self>> {
        let wait = |progress| Ok(Made::Attempt(Attempt(progress)));
        let mut stream = match attempt.0 {
            Progress::Proving(stream) => stream,
            Progress::Asking { port, id, address } => {
                let Some(descriptor) = answered(&port, id)? else {
                    return wait(Progress::Asking { port, id, address });
                };
                let stream = Stream::new(Plain::new(port, id, address, Some(descriptor)));
                Box::new(match &self.trust {
                    Some(trust) => stream.with_tls(Tls::client(trust)?),
                    None => stream,
                })
            }
        };
        if !stream.is_proved()? {
            return wait(Progress::Proving(stream));
        }
        Ok(Made::Connection(*stream))
    }

    fn look_at(attempt: &Attempt) -> Option<Instant> {
        match &attempt.0 {
            Progress::Asking { port, .. } => port.borrow().poll_timeout(),
            Progress::Proving(stream) => stream.poll_timeout(),
        }
    }

    fn why_late() -> io::Error {
        let text = format!(
            "no answer within {ATTEMPT_MAX}; is a far end there (farlane export --udp or --eth), and do datagrams pass?"
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

/// The descriptor of the port, once the far end has answered.
fn answered(port: &Shared, id: Id) -> io::Result<Option<RawFd>> {
    let mut port = port.borrow_mut();
    let mut looks = 0;
    while port.pump()? {
        looks += 1;
        if looks == LOOKS_MAX {
            port.look_again();
            break;
        }
    }
    let connection = port.connection(id);
    match connection.ended() {
        Some(ended) => Err(failure(ended)),
        None => Ok(connection.is_established().then(|| port.wire().as_raw_fd())),
    }
}
