//! What a connection of a tunnel consists of: a reliable stream of bytes, whatever carries it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;

use engine::{Buffer, Instant, Pool};

use crate::carrier::JoinedPaths;
use crate::carrier::Received;
use crate::carrier::datagrams;
use crate::carrier::identity::Fingerprint;
use crate::carrier::quic;
use crate::carrier::shm;
use crate::carrier::tcp::{self, Connection};
use crate::reactor::{Attention, Sources};
use crate::sys::tcp_info::TcpInfo;
use tunnel::session::SEGMENT_MAX;

/// A reliable stream of bytes. None of its methods waits.
#[derive(Debug)]
pub(crate) enum Stream {
    /// One TCP connection.
    Tcp(Connection),
    /// The stream of a QUIC connection.
    Quic(Box<quic::Stream>),
    /// Several TCP connections, of which the fastest counts.
    Paths(Box<JoinedPaths>),
    /// Datagrams, of which what gets lost is sent again.
    Datagrams(Box<datagrams::Stream>),
    /// Memory that both ends share.
    Shared(Box<shm::Connection>),
}

/// What stands for the address of a peer in shared memory, which has none: it is on this machine.
pub(crate) const THIS_MACHINE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Stream {
    /// The address of the other end.
    pub(crate) fn peer(&self) -> SocketAddr {
        match self {
            Self::Tcp(connection) => connection.peer(),
            Self::Quic(stream) => stream.peer(),
            Self::Paths(joined) => joined.peer(),
            Self::Datagrams(stream) => stream.peer(),
            Self::Shared(_) => THIS_MACHINE,
        }
    }

    /// What the kernel knows of each TCP connection of the stream.
    pub(crate) fn tcp_info(&self) -> Vec<TcpInfo> {
        match self {
            Self::Tcp(connection) => connection.info().into_iter().collect(),
            Self::Paths(joined) => joined.tcp_info().collect(),
            Self::Quic(_) | Self::Datagrams(_) | Self::Shared(_) => Vec::new(),
        }
    }

    /// What has become of the stream's datagrams, if these carry it.
    pub(crate) fn datagrams(&self) -> Option<datagrams::Info> {
        match self {
            Self::Datagrams(stream) => Some(stream.info()),
            Self::Tcp(_) | Self::Quic(_) | Self::Paths(_) | Self::Shared(_) => None,
        }
    }

    /// The key that the other end has proved, if the stream is encrypted.
    pub(crate) fn key(&self) -> Option<Fingerprint> {
        match self {
            Self::Tcp(connection) => connection.key(),
            Self::Quic(stream) => stream.key(),
            Self::Paths(bundle) => bundle.key(),
            Self::Datagrams(stream) => stream.key(),
            Self::Shared(_) => None,
        }
    }

    /// The longest segment of a tunnel that suits the stream, in bytes, as
    /// [`tunnel::session::Session::set_segment_max`] takes it.
    pub(crate) const fn segment_max(&self) -> usize {
        match self {
            Self::Tcp(_) => tcp::SEGMENT_BYTES,
            Self::Quic(_) | Self::Paths(_) | Self::Datagrams(_) | Self::Shared(_) => SEGMENT_MAX,
        }
    }

    /// Makes news of the stream wake the reactor.
    pub(crate) fn register(&self, sources: &Sources) -> io::Result<()> {
        self.register_as(Attention::EachTurn, sources)
    }

    /// Makes news of the stream wake the reactor, by this name if it has a descriptor of its own.
    pub(crate) fn register_named(&self, name: u32, sources: &Sources) -> io::Result<()> {
        self.register_as(Attention::Named(name), sources)
    }

    fn register_as(&self, attention: Attention, sources: &Sources) -> io::Result<()> {
        match self {
            Self::Tcp(connection) => sources.add(connection.as_raw_fd(), attention),
            Self::Shared(connection) => sources.add(connection.as_raw_fd(), attention),
            // A dialler's socket is registered since it was dialled; the others share their
            // listener's socket.
            Self::Quic(_) | Self::Datagrams(_) => Ok(()),
            // Each path is registered since it was dialled or accepted.
            Self::Paths(_) => Ok(()),
        }
    }

    /// Takes the stream from the reactor, because it will be dropped.
    pub(crate) fn unregister(&self, sources: &Sources) {
        match self {
            Self::Tcp(connection) => sources.remove(connection.as_raw_fd()),
            Self::Shared(connection) => sources.remove(connection.as_raw_fd()),
            Self::Quic(stream) => stream.descriptor().into_iter().for_each(|own| sources.remove(own)),
            Self::Datagrams(stream) => stream.descriptor().into_iter().for_each(|own| sources.remove(own)),
            // Paths are taken from the reactor when they are closed.
            Self::Paths(_) => {}
        }
    }

    /// Does what has become due, once a turn; returns whether anything was.
    #[inline]
    pub(crate) fn turn(&mut self, now: Instant, sources: &Sources) -> bool {
        match self {
            // What is due for these is done with each receive.
            Self::Quic(_) | Self::Datagrams(_) => false,
            Self::Tcp(connection) => {
                connection.turn(now);
                false
            }
            Self::Paths(joined) => joined.turn(now, sources),
            Self::Shared(connection) => {
                connection.turn(now);
                false
            }
        }
    }

    /// The next path that has gone away or come back, as [`JoinedPaths::news`] tells.
    pub(crate) fn news(&mut self) -> Option<(u8, bool)> {
        match self {
            Self::Tcp(_) | Self::Quic(_) | Self::Shared(_) | Self::Datagrams(_) => None,
            Self::Paths(joined) => joined.news(),
        }
    }

    /// When [`Stream::turn`] wants to be called, if ever.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Quic(stream) => stream.poll_timeout(),
            Self::Datagrams(stream) => stream.poll_timeout(),
            Self::Tcp(connection) => connection.poll_timeout(),
            Self::Paths(joined) => joined.poll_timeout(),
            Self::Shared(connection) => connection.poll_timeout(),
        }
    }

    /// Appends `bytes` to what waits to be sent.
    #[inline]
    pub(crate) fn send(&mut self, bytes: Buffer) {
        match self {
            Self::Tcp(connection) => {
                if connection.send(bytes).is_err() {
                    // The connection takes nothing any more; the next receive sees its end.
                    connection.abort();
                }
            }
            Self::Quic(stream) => {
                if stream.send(bytes).is_err() {
                    stream.abort();
                }
            }
            Self::Paths(joined) => joined.send(bytes),
            Self::Datagrams(stream) => {
                if stream.send(bytes).is_err() {
                    stream.close();
                }
            }
            Self::Shared(connection) => {
                if connection.send(bytes).is_err() {
                    connection.abort();
                }
            }
        }
    }

    /// Takes the next piece that has come.
    ///
    /// # Errors
    /// When the connection has failed.
    #[inline]
    pub(crate) fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        match self {
            Self::Tcp(connection) => connection.receive(pool),
            Self::Quic(stream) => stream.receive(pool),
            Self::Datagrams(stream) => stream.receive(pool),
            Self::Paths(joined) => Ok(joined.receive(pool)),
            Self::Shared(connection) => connection.receive(pool),
        }
    }

    /// Whether what comes shows in memory, so that a glance at it costs next to nothing.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Quic(_) | Self::Datagrams(_) | Self::Paths(_) => false,
            Self::Shared(connection) => connection.is_polled(),
        }
    }

    /// Does what the carrier itself can't postpone until the next piece is taken.
    pub(crate) fn keep_up(&mut self, pool: &mut Pool) {
        match self {
            Self::Tcp(_) | Self::Shared(_) => {}
            Self::Quic(stream) => stream.keep_up(),
            Self::Datagrams(stream) => stream.keep_up(),
            Self::Paths(joined) => joined.keep_up(pool),
        }
    }

    /// Sends as much as the system takes; returns the number of bytes taken.
    ///
    /// # Errors
    /// When the connection has failed.
    #[inline]
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        match self {
            Self::Tcp(connection) => connection.flush(),
            Self::Quic(stream) => stream.flush(),
            Self::Datagrams(stream) => stream.flush(),
            Self::Paths(joined) => Ok(joined.flush()),
            Self::Shared(connection) => connection.flush(),
        }
    }

    /// Whether bytes that wait can be sent: before both ends have proved their keys, they can't.
    pub(crate) fn can_say(&self) -> bool {
        match self {
            Self::Tcp(connection) => connection.can_say(),
            Self::Datagrams(stream) => stream.can_say(),
            Self::Shared(connection) => connection.has_met(),
            // Both are streams whose peers have proved their keys.
            Self::Quic(_) | Self::Paths(_) => true,
        }
    }

    /// The number of bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        match self {
            Self::Tcp(connection) => connection.unsent(),
            Self::Quic(stream) => stream.unsent(),
            Self::Datagrams(stream) => stream.unsent(),
            Self::Paths(joined) => joined.unsent(),
            Self::Shared(connection) => connection.unsent(),
        }
    }

    /// Tells the peer that nothing more will be sent; returns whether the stream can then be
    /// dropped. If not, it must be called again: nobody else would send lost bytes again.
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
            Self::Paths(joined) => {
                joined.close();
                true
            }
            Self::Datagrams(stream) => {
                stream.close();
                true
            }
            // The peer takes what is in the ring, and then sees the end of the socket.
            Self::Shared(_) => true,
        }
    }
}
