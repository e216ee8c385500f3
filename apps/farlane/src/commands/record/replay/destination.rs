//! Where replayed bytes go.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use live::drivers::record::Handle;
use live::sys::files::{self, Kind};

use crate::args::Destination;
use crate::lasting::Lasting;

/// How often the replayer looks for a request to end while it waits for a connection.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The destination of replayed bytes.
pub(super) enum Outlet {
    Bytes(Box<dyn Write>),
    Datagrams { socket: UdpSocket, refused: u64 },
}

impl Outlet {
    /// Opens the destination `to`; waits for a connection where it listens, until `handle` is
    /// stopped.
    pub(super) fn open(to: &Destination, handle: &Handle) -> io::Result<Self> {
        Ok(Self::Bytes(match to {
            Destination::StandardOutput => Box::new(io::stdout()),
            Destination::File(path) => Box::new(Lasting(files::write(path, Kind::Private)?)),
            Destination::Connect(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Destination::Listen(address) => {
                let listener = TcpListener::bind(address)?;
                info!("waiting for a connection at {}", listener.local_addr()?);
                match accept(&listener, handle)? {
                    Some(stream) => {
                        stream.set_nodelay(true)?;
                        Box::new(stream)
                    }
                    // Nothing will be sent.
                    None => Box::new(io::sink()),
                }
            }
            Destination::Datagrams(address) => {
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                return Ok(Self::Datagrams { socket, refused: 0 });
            }
        }))
    }

    /// Sends bytes, or one datagram.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Bytes(to) => to.write_all(bytes),
            Self::Datagrams { socket, refused } => loop {
                match socket.send(bytes) {
                    Ok(_) => return Ok(()),
                    // The answer to an earlier datagram: the address has no receiver.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => *refused += 1,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            },
        }
    }

    /// How many datagrams the other end is known to have refused.
    pub(super) const fn refused(&self) -> u64 {
        match self {
            Self::Bytes(_) => 0,
            Self::Datagrams { refused, .. } => *refused,
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Bytes(to) => to.flush(),
            Self::Datagrams { .. } => Ok(()),
        }
    }
}

/// The first connection; none if `handle` is stopped before.
fn accept(listener: &TcpListener, handle: &Handle) -> io::Result<Option<TcpStream>> {
    listener.set_nonblocking(true)?;
    while !handle.is_stopped() {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LOOK_EVERY),
            // A client that has come and gone, or a signal.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use live::drivers::record::End;
    use record::registers::Direction;

    use super::*;

    #[test]
    fn a_connection_is_waited_for_until_a_request_for_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let handle = Handle::new(Direction::Read, End::new().unwrap());
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut accepted = accept(&listener, &handle).unwrap().unwrap();
        accepted.write_all(b"sent").unwrap();
        drop(client);
        handle.stop();
        assert!(accept(&listener, &handle).unwrap().is_none());
    }
}
