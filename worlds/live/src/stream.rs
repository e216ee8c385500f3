//! What a connection of a tunnel is made of: a reliable stream of bytes, whatever carries it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::{Buffer, Instant, Pool};

use crate::reactor::{Attention, Sources};
use crate::tcp::{Connection, Received};

/// See the module. None of its methods waits.
#[derive(Debug)]
pub(crate) enum Stream {
    /// One TCP connection.
    Tcp(Connection),
}

impl Stream {
    /// The address of the other end.
    pub(crate) const fn peer(&self) -> SocketAddr {
        match self {
            Self::Tcp(connection) => connection.peer(),
        }
    }

    /// Has news of it wake the reactor.
    pub(crate) fn register(&self, sources: &Sources) -> io::Result<()> {
        match self {
            Self::Tcp(connection) => sources.add(connection.as_raw_fd(), Attention::EachTurn),
        }
    }

    /// Takes it from the reactor: it will be dropped.
    pub(crate) fn unregister(&self, sources: &Sources) {
        match self {
            Self::Tcp(connection) => sources.remove(connection.as_raw_fd()),
        }
    }

    /// Does what has become due, once a turn. Whether anything was.
    #[inline]
    pub(crate) const fn turn(&mut self, _: Instant, _: &Sources) -> io::Result<bool> {
        match self {
            Self::Tcp(_) => Ok(false),
        }
    }

    /// When [`Stream::turn`] wants to be called, if ever.
    #[inline]
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Tcp(_) => None,
        }
    }

    /// Puts `bytes` behind what waits to be sent.
    #[inline]
    pub(crate) fn send(&mut self, bytes: Buffer) {
        match self {
            Self::Tcp(connection) => {
                if connection.send(bytes).is_err() {
                    // It takes nothing any more; its end is seen with the next receive.
                    connection.abort();
                }
            }
        }
    }

    /// The next piece that has come.
    ///
    /// # Errors
    /// When the connection has failed.
    #[inline]
    pub(crate) fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        match self {
            Self::Tcp(connection) => connection.receive(pool),
        }
    }

    /// Sends as much as the system takes; the bytes that it took.
    ///
    /// # Errors
    /// When the connection has failed.
    #[inline]
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        match self {
            Self::Tcp(connection) => connection.flush(),
        }
    }

    /// Bytes that wait to be sent.
    pub(crate) const fn unsent(&self) -> usize {
        match self {
            Self::Tcp(connection) => connection.unsent(),
        }
    }

    /// Tells the peer that nothing more will be sent.
    pub(crate) fn close(&mut self) {
        match self {
            Self::Tcp(connection) => connection.close(),
        }
    }
}
