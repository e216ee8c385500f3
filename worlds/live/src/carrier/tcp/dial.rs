//! Connecting to a far end over TCP.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use engine::{Instant, Nanos};
use socket2::Socket;

use super::{Connection, Options, connect};
use crate::carrier::dialer::{self, Made, Way};
use crate::carrier::route::{Route, Trust};
use crate::carrier::tls::Tls;

/// How often an attempt is looked at when no event wakes the loop.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);

/// Dials TCP connections.
#[derive(Debug)]
pub struct Tcp {
    options: Options,
    /// The keys of both ends, if the connections are encrypted.
    trust: Option<Trust>,
}

/// Connects over TCP to one of several addresses, in turn, with growing pauses.
pub type Dialer = dialer::Dialer<Tcp>;
/// The state of a [`Dialer`].
pub type Dialled = dialer::Dialled<Connection>;

impl Dialer {
    /// Dials `addresses` in turn, beginning at `now`. Each connection asks the kernel
    /// for `options`.
    ///
    /// # Panics
    /// When `addresses` is empty.
    pub fn new(addresses: Vec<SocketAddr>, options: Options, now: Instant) -> Self {
        Self::over(Tcp { options, trust: None }, addresses, now)
    }

    /// Dials `addresses` in turn, beginning at `now`, with the options and keys of `route`. With
    /// keys, a connection is established once TLS has proved the far end's.
    ///
    /// # Panics
    /// When `addresses` is empty.
    pub fn along(route: &Route, addresses: &[SocketAddr], now: Instant) -> Self {
        let way = Tcp { options: route.tcp.clone(), trust: route.trust.clone() };
        Self::over(way, addresses.to_vec(), now)
    }
}

/// A connection attempt that is under way.
#[derive(Debug)]
pub struct Attempt {
    progress: Progress,
    address: SocketAddr,
    look: Instant,
}

/// How far an attempt has come.
#[derive(Debug)]
enum Progress {
    /// The kernel connects the socket.
    Connecting(Socket),
    /// TLS proves the identities of both ends.
    Proving(Box<Connection>),
}

impl Way for Tcp {
    type Attempt = Attempt;
    type Connection = Connection;

    fn begin(&self, address: SocketAddr, now: Instant) -> io::Result<(Attempt, RawFd)> {
        let socket = connect::begin(address, |socket| Ok(self.options.apply(socket)?))?;
        let descriptor = socket.as_raw_fd();
        let progress = Progress::Connecting(socket);
        Ok((Attempt { progress, address, look: now + LOOK_EVERY }, descriptor))
    }

    fn go_on(&self, attempt: Attempt, now: Instant) -> io::Result<Made<Self>> {
        let Attempt { progress, address, .. } = attempt;
        let wait = |progress| Made::Attempt(Attempt { progress, address, look: now + LOOK_EVERY });
        let mut connection = match progress {
            Progress::Connecting(socket) if !connect::outcome(&socket)? => {
                return Ok(wait(Progress::Connecting(socket)));
            }
            Progress::Connecting(socket) => {
                let connection = Connection::new(TcpStream::from(socket), address)?;
                Box::new(match &self.trust {
                    Some(trust) => connection.with_tls(Tls::client(trust)?),
                    None => connection,
                })
            }
            Progress::Proving(connection) => connection,
        };
        if !connection.is_proved()? {
            return Ok(wait(Progress::Proving(connection)));
        }
        connection.coalesce(self.options.coalesce);
        Ok(Made::Connection(*connection))
    }

    fn look_at(attempt: &Attempt) -> Option<Instant> {
        Some(attempt.look)
    }

    fn why_late() -> io::Error {
        io::ErrorKind::TimedOut.into()
    }
}
