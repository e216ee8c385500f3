//! TCP as a link: sockets that never block, joined to pooled buffers.
//!
//! The kernel sizes the buffers of a socket to the needs of the path. Asking for a size would end
//! this, and would cap the size at `net.core.rmem_max`, which is often far smaller.

mod block;
pub(crate) mod connect;
mod connection;
mod dial;
mod options;
mod stamp;
mod system;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::carrier::tls::{Acceptor, Tls};
use crate::sys::address;
use crate::sys::descriptors::{Door, HEADROOM};
use crate::sys::service;
pub(crate) use block::BlockLength;
pub use connection::Connection;
pub use dial::{Dialer, Dialled};
pub(crate) use options::keep_short;
pub use options::{Options, SILENCE_MAX, Unavailable};
pub(crate) use system::Direct;

/// Length of the queue of connections to be accepted, as far as the system allows it. When many
/// hosts come back at once, a host that finds the queue full tries again only after a second.
const BACKLOG: i32 = 1024;
/// Number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    options: Options,
    /// The acceptor for connections with TLS, if there are any.
    acceptor: Option<Acceptor>,
    door: Door,
}

impl Listener {
    /// Listens on `address`. With port 0 the system chooses a port, which [`Listener::address`]
    /// returns. A socket of this address that the service manager holds is used, and a new one is
    /// given to it ([`crate::sys::service`]).
    ///
    /// # Errors
    /// When the address does not belong to this machine or is taken.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        if let Some(socket) = service::passed(address) {
            socket.set_nonblocking(true)?;
            return Self::of(socket);
        }
        let listener = Self::bind_briefly(address)?;
        service::keep(&listener.socket);
        Ok(listener)
    }

    /// Listens like [`Listener::bind`], for a service that ends before the process does. The
    /// service manager has no part in it.
    ///
    /// # Errors
    /// When the address does not belong to this machine or is taken.
    pub(crate) fn bind_briefly(address: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        // Lets a restarted far end take its port again at once.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Self::of(TcpListener::from(socket))
    }

    /// Listens on a socket that another process has left to this one.
    ///
    /// # Errors
    /// When it is no listening TCP socket.
    pub fn inherited(socket: OwnedFd) -> io::Result<Self> {
        let socket = TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        Self::of(socket)
    }

    fn of(socket: TcpListener) -> io::Result<Self> {
        let address = socket.local_addr()?;
        Ok(Self { socket, address, options: Options::default(), acceptor: None, door: Door::new(HEADROOM) })
    }

    /// Has all connections accepted from now on ask the kernel for `options`.
    #[must_use]
    pub fn with(mut self, options: Options) -> Self {
        // The answer to a connection's first segment comes from this socket. A precedence that it
        // can't have is reported when the connection asks for it.
        let _ = options.precedence.apply(&self.socket);
        self.options = options;
        self
    }

    /// Has all connections accepted from now on speak TLS as `acceptor` says, if they begin with
    /// it. A connection that begins otherwise goes on without TLS, and its peer proves no key.
    #[must_use]
    pub fn with_tls(mut self, acceptor: Acceptor) -> Self {
        self.acceptor = Some(acceptor);
        self
    }

    /// The address that the listener is bound to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, if one waits. A connection that has failed by itself is passed over.
    ///
    /// # Errors
    /// When the process has no descriptors or memory left for the connection; the waiting
    /// connection has been turned away.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        self.door.admit(|| self.take())
    }

    fn take(&self) -> io::Result<Option<Connection>> {
        for _ in 0..BACKLOG {
            match self.socket.accept() {
                Ok((socket, peer)) => match self.prepare(socket, peer) {
                    Ok(connection) => return Ok(Some(connection)),
                    // The connection was closed while it waited.
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
        if let Some(acceptor) = &self.acceptor {
            connection = connection.with_tls(Tls::server(acceptor)?);
        }
        connection.coalesce(self.options.coalesce);
        Ok(connection)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Resolves `host:port` to its addresses. Blocks until the system's resolver answers.
///
/// # Errors
/// When the name has no address; the error names it.
pub fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}; give host:port"));
    let mut addresses = address::resolve(name).map_err(explain)?;
    addresses.truncate(ADDRESSES_MAX);
    if addresses.is_empty() {
        return Err(explain(io::ErrorKind::NotFound.into()));
    }
    Ok(addresses)
}
