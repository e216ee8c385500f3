//! Connecting to a far end over TCP.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use engine::{Instant, Nanos};
use socket2::Socket;

use super::{Connection, Options, connect};
use crate::carrier::dialer::{self, Made, Way};

/// How often an attempt is looked at when no event wakes the loop.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);

/// Dials TCP connections with the given options.
#[derive(Debug)]
pub struct Tcp(Options);

/// Connects over TCP to one of several addresses, in turn, with growing pauses.
pub type Dialer = dialer::Dialer<Tcp>;
/// What a [`Dialer`] has come to.
pub type Dialled = dialer::Dialled<Connection>;

impl Dialer {
    /// Dials `addresses` in turn, beginning at `now`. Each connection asks the kernel for
    /// `options`.
    ///
    /// # Panics
    /// When `addresses` is empty.
    pub fn new(addresses: Vec<SocketAddr>, options: Options, now: Instant) -> Self {
        Self::over(Tcp(options), addresses, now)
    }
}

/// A connection attempt that is under way.
#[derive(Debug)]
pub struct Attempt {
    socket: Socket,
    address: SocketAddr,
    look: Instant,
}

impl Way for Tcp {
    type Attempt = Attempt;
    type Connection = Connection;

    fn begin(&self, address: SocketAddr, now: Instant) -> io::Result<(Attempt, RawFd)> {
        let socket = connect::begin(address, |socket| Ok(self.0.apply(socket)?))?;
        let descriptor = socket.as_raw_fd();
        Ok((Attempt { socket, address, look: now + LOOK_EVERY }, descriptor))
    }

    fn go_on(&self, attempt: Attempt, now: Instant) -> io::Result<Made<Self>> {
        if !connect::outcome(&attempt.socket)? {
            return Ok(Made::Attempt(Attempt { look: now + LOOK_EVERY, ..attempt }));
        }
        let mut connection = Connection::new(TcpStream::from(attempt.socket), attempt.address)?;
        connection.coalesce(self.0.coalesce);
        Ok(Made::Connection(connection))
    }

    fn look_at(attempt: &Attempt) -> Option<Instant> {
        Some(attempt.look)
    }

    fn why_late() -> io::Error {
        io::ErrorKind::TimedOut.into()
    }
}
