//! Connecting to a far end, again and again until it is there.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use engine::{Instant, Nanos};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Connection, Options};

/// The first pause after a refusal: a restarted far end is found again within a completion timeout.
const PAUSE_FIRST: Nanos = Nanos::from_millis(1);
/// The longest pause.
const PAUSE_MAX: Nanos = Nanos::from_millis(500);
/// How long one attempt may take.
const ATTEMPT_MAX: Nanos = Nanos::from_secs(5);
/// How often an attempt is looked at when nothing wakes us.
const LOOK_EVERY: Nanos = Nanos::from_millis(1);

/// What has become of dialling.
#[derive(Debug)]
pub enum Dialled {
    /// Nothing yet.
    Waiting,
    /// An attempt has begun; its socket becomes writable when it ends.
    Began(RawFd),
    /// An attempt failed; the next follows after a pause.
    Failed(SocketAddr, io::Error),
    /// Connected; the dialler rests until [`Dialer::restart`].
    Connected(Connection),
}

#[derive(Debug)]
enum State {
    Pausing { until: Instant },
    Connecting { socket: Socket, address: SocketAddr, until: Instant, look: Instant },
    Resting,
}

/// Connects to one of several addresses, in turn, with growing pauses.
#[derive(Debug)]
pub struct Dialer {
    addresses: Vec<SocketAddr>,
    options: Options,
    next: usize,
    pause: Nanos,
    state: State,
}

impl Dialer {
    /// Dials `addresses` in turn, from `now` on.
    ///
    /// # Panics
    /// When there are none.
    pub fn new(addresses: Vec<SocketAddr>, now: Instant) -> Self {
        assert!(!addresses.is_empty(), "a dialler needs an address");
        let (options, state) = (Options::default(), State::Pausing { until: now });
        Self { addresses, options, next: 0, pause: PAUSE_FIRST, state }
    }

    /// Asks `options` of the kernel for its connections.
    #[must_use]
    pub fn with(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Dials again, the connection being lost.
    pub fn restart(&mut self, now: Instant) {
        self.pause = PAUSE_FIRST;
        self.state = State::Pausing { until: now };
    }

    /// When [`Dialer::poll`] wants to be called, if ever.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Pausing { until } => Some(until),
            State::Connecting { look, .. } => Some(look),
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
                match begin(address, &self.options) {
                    Ok(socket) => {
                        let descriptor = socket.as_raw_fd();
                        let (until, look) = (now + ATTEMPT_MAX, now + LOOK_EVERY);
                        self.state = State::Connecting { socket, address, until, look };
                        Dialled::Began(descriptor)
                    }
                    Err(error) => self.on_failure(now, address, error),
                }
            }
            State::Connecting { socket, address, until, .. } => match outcome(&socket) {
                Err(error) => self.on_failure(now, address, error),
                Ok(true) => match Connection::new(TcpStream::from(socket), address) {
                    Ok(mut connection) => {
                        connection.coalesce(self.options.coalesce);
                        Dialled::Connected(connection)
                    }
                    Err(error) => self.on_failure(now, address, error),
                },
                Ok(false) if until <= now => self.on_failure(now, address, io::ErrorKind::TimedOut.into()),
                Ok(false) => {
                    let look = now + LOOK_EVERY;
                    self.state = State::Connecting { socket, address, until, look };
                    Dialled::Waiting
                }
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

fn begin(address: SocketAddr, options: &Options) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    options.apply(&socket)?;
    match socket.connect(&address.into()) {
        Err(error)
            if error.kind() != io::ErrorKind::WouldBlock
                && error.raw_os_error() != Some(libc::EINPROGRESS) =>
        {
            Err(error)
        }
        _ => Ok(socket),
    }
}

/// Whether the attempt has succeeded yet.
fn outcome(socket: &Socket) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        // Nobody listens on a port that the system gives out to diallers, and ours was given just that one:
        // TCP then connects a socket to itself.
        Ok(peer) if socket.local_addr()? == peer => Err(io::ErrorKind::ConnectionRefused.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}
