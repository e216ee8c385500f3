//! What a connection of a tunnel is made of: a reliable stream of bytes, whatever carries it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use engine::{Buffer, Instant, Pool};

use crate::bundle::Bundle;
use crate::quic;
use crate::reactor::{Attention, Sources};
use crate::tcp::{Connection, Received};

/// See the module. None of its methods waits.
#[derive(Debug)]
pub(crate) enum Stream {
    /// One TCP connection.
    Tcp(Connection),
    /// The stream of a QUIC connection.
    Quic(Box<quic::Stream>),
    /// Several, of which the fastest counts.
    Paths(Box<Bundle>),
}

impl Stream {
    /// The address of the other end.
    pub(crate) fn peer(&self) -> SocketAddr {
        match self {
            Self::Tcp(connection) => connection.peer(),
            Self::Quic(stream) => stream.peer(),
            Self::Paths(bundle) => bundle.peer(),
        }
    }

    /// Has news of it wake the reactor.
    pub(crate) fn register(&self, sources: &Sources) -> io::Result<()> {
        match self {
            Self::Tcp(connection) => sources.add(connection.as_raw_fd(), Attention::EachTurn),
            // A dialler's socket is there since it was dialled, the others have that of their listener.
            Self::Quic(_) => Ok(()),
            // Each path is there since it was dialled or accepted.
            Self::Paths(_) => Ok(()),
        }
    }

    /// Takes it from the reactor: it will be dropped.
    pub(crate) fn unregister(&self, sources: &Sources) {
        match self {
            Self::Tcp(connection) => sources.remove(connection.as_raw_fd()),
            Self::Quic(stream) => stream.descriptor().into_iter().for_each(|own| sources.remove(own)),
            // They leave when they are closed.
            Self::Paths(_) => {}
        }
    }

    /// Does what has become due, once a turn. Whether anything was.
    #[inline]
    pub(crate) fn turn(&mut self, now: Instant, sources: &Sources) -> bool {
        match self {
            // What is due to QUIC is done with each receive.
            Self::Quic(_) => false,
            Self::Tcp(connection) => {
                connection.turn(now);
                false
            }
            Self::Paths(bundle) => bundle.turn(now, sources),
        }
    }

    /// See [`Bundle::news`].
    pub(crate) fn news(&mut self) -> Option<(u8, bool)> {
        match self {
            Self::Tcp(_) | Self::Quic(_) => None,
            Self::Paths(bundle) => bundle.news(),
        }
    }

    /// When [`Stream::turn`] wants to be called, if ever.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Quic(stream) => stream.poll_timeout(),
            Self::Tcp(connection) => connection.poll_timeout(),
            Self::Paths(bundle) => bundle.poll_timeout(),
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
            Self::Quic(stream) => {
                if stream.send(bytes).is_err() {
                    stream.abort();
                }
            }
            Self::Paths(bundle) => bundle.send(bytes),
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
            Self::Quic(stream) => stream.receive(pool),
            Self::Paths(bundle) => Ok(bundle.receive(pool)),
        }
    }

    /// Does what cannot wait until the next piece is taken: its carrier's own business.
    pub(crate) fn keep_up(&mut self) {
        match self {
            Self::Tcp(_) | Self::Paths(_) => {}
            Self::Quic(stream) => stream.keep_up(),
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
            Self::Quic(stream) => stream.flush(),
            Self::Paths(bundle) => Ok(bundle.flush()),
        }
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        match self {
            Self::Tcp(connection) => connection.unsent(),
            Self::Quic(stream) => stream.unsent(),
            Self::Paths(bundle) => bundle.unsent(),
        }
    }

    /// Tells the peer that nothing more will be sent; whether it can be dropped then. If not, to be called again: what is lost on
    /// its way nobody else sends again.
    pub(crate) fn close(&mut self) -> bool {
        match self {
            Self::Tcp(connection) => {
                connection.close();
                true
            }
            Self::Quic(stream) => {
                stream.close();
                stream.is_closed()
            }
            Self::Paths(bundle) => {
                bundle.close();
                true
            }
        }
    }
}
