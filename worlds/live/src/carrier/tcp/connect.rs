//! Connecting a socket without waiting for it.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

/// Begins to connect to `address`; `prepare` sets options of the socket before that.
///
/// # Errors
/// When there is no socket, an option is refused, or the attempt has failed at once.
pub(crate) fn begin(
    address: SocketAddr,
    prepare: impl FnOnce(&Socket) -> io::Result<()>,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    prepare(&socket)?;
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

/// Whether the attempt has succeeded; `false` while it is undecided.
///
/// # Errors
/// When the attempt has failed.
pub(crate) fn outcome(socket: &Socket) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        // A port of the range that the system gives to diallers may have no listener. If our socket
        // is given just this port, TCP connects the socket to itself.
        Ok(peer) if socket.local_addr()? == peer => Err(io::ErrorKind::ConnectionRefused.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}
