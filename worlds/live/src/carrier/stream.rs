//! The reliable stream of bytes that a connection of a tunnel consists of, over any carrier.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Deref, DerefMut};

use engine::{Buffer, Instant, Pool};

use crate::carrier::JoinedPaths;
use crate::carrier::Received;
use crate::carrier::datagrams;
use crate::carrier::identity::Fingerprint;
use crate::carrier::quic;
use crate::carrier::shm;
use crate::carrier::tcp::Connection;
use crate::reactor::{Attention, Sources};
use crate::sys::tcp_info::TcpInfo;
use tunnel::session::SEGMENT_MAX;

/// The operations of a tunnel's connection, which each carrier implements. None of them waits. A
/// carrier that does not need an operation leaves its default.
pub(crate) trait ByteStream {
    /// The address of the other end.
    fn peer(&self) -> SocketAddr;

    /// The kernel's figures of each TCP connection of the stream.
    fn tcp_info(&self) -> Vec<TcpInfo> {
        Vec::new()
    }

    /// The figures of the stream's datagrams, if datagrams carry it.
    fn datagrams(&self) -> Option<datagrams::Info> {
        None
    }

    /// The key that the other end has proved, if the stream is encrypted.
    fn key(&self) -> Option<Fingerprint>;

    /// The longest segment of a tunnel that suits the stream, in bytes, as
    /// [`tunnel::session::Session::set_segment_max`] takes it.
    fn segment_max(&self) -> usize {
        SEGMENT_MAX
    }

    /// Makes news of the stream wake the reactor, unless the stream's sockets are registered
    /// already.
    ///
    /// # Errors
    /// When the reactor does not take the descriptor.
    fn register_as(&self, _attention: Attention, _sources: &Sources) -> io::Result<()> {
        Ok(())
    }

    /// Takes the stream from the reactor before it is dropped.
    fn unregister(&self, sources: &Sources);

    /// Does the work that has become due, once a turn. Returns whether there was any.
    fn turn(&mut self, _now: Instant, _sources: &Sources) -> bool {
        false
    }

    /// The next path that has gone away or come back; see [`JoinedPaths::news`].
    fn news(&mut self) -> Option<(u8, bool)> {
        None
    }

    /// When [`ByteStream::turn`] is due, if ever.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Appends `bytes` to those that wait to be sent. A stream that takes no more of them ends.
    fn send(&mut self, bytes: Buffer);

    /// Takes the next piece that has arrived.
    ///
    /// # Errors
    /// When the connection has failed.
    fn receive(&mut self, pool: &mut Pool) -> io::Result<Received>;

    /// Whether arriving bytes show in memory, so that a look at it costs next to nothing.
    fn is_polled(&self) -> bool {
        false
    }

    /// Does the carrier's own work that can't wait until the next piece is taken.
    fn keep_up(&mut self, _pool: &mut Pool) {}

    /// Sends as much as the system takes, and returns the number of bytes taken.
    ///
    /// # Errors
    /// When the connection has failed.
    fn flush(&mut self) -> io::Result<usize>;

    /// Whether waiting bytes can be sent: before both ends have proved their keys, they can't.
    fn can_say(&self) -> bool {
        true
    }

    /// The number of bytes that wait to be sent.
    fn unsent(&self) -> usize;

    /// Ends this side of the stream. Returns whether the stream can be dropped now. If not, the
    /// caller calls again, because a dropped stream would not repeat lost bytes.
    fn close(&mut self) -> bool {
        true
    }
}

/// The stream of a connection, over the carrier that its route or its listener names.
#[derive(Debug)]
pub(crate) enum Stream {
    /// One TCP connection.
    Tcp(Connection),
    /// The stream of a QUIC connection.
    Quic(Box<quic::Stream>),
    /// Several TCP connections, of which the fastest counts.
    Paths(Box<JoinedPaths>),
    /// Datagrams, which are repeated when they get lost.
    Datagrams(Box<datagrams::Stream>),
    /// Memory that both ends share.
    Shared(Box<shm::Connection>),
}

/// The address of a peer in shared memory, which has none: the peer is on this machine.
pub(crate) const THIS_MACHINE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Stream {
    /// Makes news of the stream wake the reactor.
    ///
    /// # Errors
    /// When the reactor does not take the descriptor.
    pub(crate) fn register(&self, sources: &Sources) -> io::Result<()> {
        self.register_as(Attention::EachTurn, sources)
    }

    /// Makes news of the stream wake the reactor, by this name if it has a descriptor of its own.
    ///
    /// # Errors
    /// When the reactor does not take the descriptor.
    pub(crate) fn register_named(&self, name: u32, sources: &Sources) -> io::Result<()> {
        self.register_as(Attention::Named(name), sources)
    }
}

impl Deref for Stream {
    type Target = dyn ByteStream;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Tcp(connection) => connection,
            Self::Quic(stream) => &**stream,
            Self::Paths(joined) => &**joined,
            Self::Datagrams(stream) => &**stream,
            Self::Shared(connection) => &**connection,
        }
    }
}

impl DerefMut for Stream {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Tcp(connection) => connection,
            Self::Quic(stream) => &mut **stream,
            Self::Paths(joined) => &mut **joined,
            Self::Datagrams(stream) => &mut **stream,
            Self::Shared(connection) => &mut **connection,
        }
    }
}
