//! Where replayed bytes go.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use crate::args::Destination;
use crate::lasting::Lasting;

/// What replayed bytes are handed to.
pub(super) enum Outlet {
    Bytes(Box<dyn Write>),
    Datagrams { socket: UdpSocket, refused: u64 },
}

impl Outlet {
    /// Opens what `to` names; waits for a connection where it listens.
    pub(super) fn open(to: &Destination) -> io::Result<Self> {
        Ok(Self::Bytes(match to {
            Destination::StandardOutput => Box::new(io::stdout()),
            Destination::File(path) => Box::new(Lasting(File::create(path)?)),
            Destination::Connect(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Destination::Listen(address) => {
                let listener = TcpListener::bind(address)?;
                info!("waiting for a connection at {}", listener.local_addr()?);
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Box::new(stream)
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
                    // The answer to an earlier datagram: nobody receives at the address.
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
