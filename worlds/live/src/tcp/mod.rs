//! TCP as a link: sockets that never wait, joined to pooled buffers.
//!
//! The kernel sizes the buffers of a socket by itself, to what the path needs; asking for a size would
//! end that, and cap it at `net.core.rmem_max`, which is often far smaller.

mod block;
mod connection;
mod dial;
mod link;
mod options;
mod outbox;
mod stamp;
mod system;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};

use crate::descriptors::{Door, HEADROOM};
pub(crate) use block::BlockLength;
pub use connection::{Connection, Received};
pub use dial::{Dialer, Dialled};
pub(crate) use link::{Dial, Link};
pub(crate) use options::keep_short;
pub use options::{Options, SILENCE_MAX, Unavailable};
pub(crate) use outbox::Outbox;
pub use outbox::{OUTBOX_BYTES_MAX, OutboxFull};
pub(crate) use system::Direct;

/// How often a loop that spins, and has nothing else to wait for, looks at its connections in one turn: a turn with one look
/// takes almost twice as long as the look, and half of what it takes longer is waited for by whatever comes.
pub(crate) const LOOKS: u32 = 8;
/// Connections that may wait to be accepted, as far as the system allows: of hosts that all come back at once each further one
/// would ask again after a second only.
const BACKLOG: i32 = 1024;
/// Connections that a listener takes in one turn. Whoever connects as fast as it can would otherwise keep those waiting that
/// are there, and have memory used for thousands that have left again.
pub(crate) const ACCEPTS_PER_TURN: usize = 64;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Where connections arrive.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    options: Options,
    door: Door,
}

impl Listener {
    /// Listens on `address`; port 0 lets the system choose one, see [`Listener::address`].
    ///
    /// # Errors
    /// When the address is not ours or is taken.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        // A restarted far end takes its port again at once.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from(socket);
        let address = socket.local_addr()?;
        Ok(Self { socket, address, options: Options::default(), door: Door::new(HEADROOM) })
    }

    /// Has all connections that come from now on ask `options` of the kernel.
    #[must_use]
    pub fn with(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// When the process has no descriptors or memory left for it: whoever waits has been turned away. A connection that
    /// failed by itself is passed over.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        self.door.admit(|| self.take())
    }

    fn take(&self) -> io::Result<Option<Connection>> {
        for _ in 0..BACKLOG {
            match self.socket.accept() {
                Ok((socket, peer)) => match self.prepare(socket, peer) {
                    Ok(connection) => return Ok(Some(connection)),
                    // It was closed again while it waited.
                    Err(_) => continue,
                },
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::ConnectionReset => continue,
                    _ => return Err(error),
                },
            }
        }
        Ok(None)
    }

    fn prepare(&self, socket: TcpStream, peer: SocketAddr) -> io::Result<Connection> {
        self.options.apply(&socket)?;
        let mut connection = Connection::new(socket, peer)?;
        connection.coalesce(self.options.coalesce);
        Ok(connection)
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The addresses of `host:port`; asks the system's resolver, and waits for it.
///
/// # Errors
/// When the name has none, naming it.
pub fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}; give host:port"));
    let addresses: Vec<_> = name.to_socket_addrs().map_err(explain)?.take(ADDRESSES_MAX).collect();
    if addresses.is_empty() {
        return Err(explain(io::ErrorKind::NotFound.into()));
    }
    Ok(addresses)
}
