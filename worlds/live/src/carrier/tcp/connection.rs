//! A TCP connection, with pooled buffers for received bytes.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use engine::{Buffer, BufferMut, Instant, Nanos, Pool};

use super::block::BlockLength;
use super::stamp;
use super::system::Direct;
use crate::carrier::identity::Fingerprint;
use crate::carrier::stream::ByteStream;
use crate::carrier::tls::{Opened, Tls};
use crate::carrier::{Outbox, OutboxFull, Received};
use crate::reactor::{Attention, Sources};
use crate::sys::tcp_info::TcpInfo;

/// A received piece of up to this many bytes is copied out, so that its block can be used again.
const COPY_MAX: usize = 4 << 10;
/// Once this many bytes wait, they are sent without waiting for a flush: nearly as many as the
/// kernel puts into one packet of its own (64 KiB with its headers). Smaller calls make more
/// packets, and each costs time at both ends.
const FLUSH_BYTES: usize = 56 << 10;
/// The longest segment of a tunnel, in bytes: one packet of the kernel.
const SEGMENT_BYTES: usize = 63 << 10;
/// Length in bytes of the block for the messages by which both ends prove their keys.
const PROOF_BYTES: usize = 4 << 10;
/// Number of blocks in a row that would have fitted the next smaller size before the block shrinks.
const SHRINK_AFTER: u32 = 16;

/// A TCP connection whose calls never block.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    peer: SocketAddr,
    outbox: Outbox,
    /// The block that the next bytes are received into.
    block: Option<BufferMut>,
    block_length: BlockLength<SHRINK_AFTER>,
    /// How long the last received bytes had waited in the kernel; `None` where stamps are off.
    age: Option<Nanos>,
    coalescing: Option<Coalescing>,
    /// Seals and opens the bytes that pass, if the connection is encrypted.
    tls: Option<Box<Tls>>,
}

/// The state of a connection whose small writes wait for more bytes.
#[derive(Debug)]
struct Coalescing {
    length: Nanos,
    /// The time of the current turn.
    now: Instant,
    /// When the waiting bytes are sent even if they fill no segment.
    due: Option<Instant>,
}

impl Connection {
    /// Takes over a connected socket: makes it non-blocking and turns Nagle's algorithm off
    /// (TCP_NODELAY).
    pub(super) fn new(socket: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let (outbox, block_length) = (Outbox::default(), BlockLength::new());
        Ok(Self { socket, peer, outbox, block: None, block_length, age: None, coalescing: None, tls: None })
    }

    /// Has everything pass through `tls`.
    pub(super) fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(Box::new(tls));
        self
    }

    /// Advances the TLS handshake. Returns whether it is complete; without TLS, it is.
    ///
    /// # Errors
    /// When the connection has failed, or the far end is not the one that was meant.
    pub(super) fn is_proved(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        tls.send(&mut self.outbox, &mut Direct(&self.socket))?;
        if tls.is_proved() {
            return Ok(true);
        }
        match tls.receive(&mut Direct(&self.socket), &mut Pool::default(), PROOF_BYTES, |block| {
            Direct(&self.socket).read(block)
        })? {
            Opened::Closed => Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "it has closed the connection before it had proved its key",
            )),
            _ => Ok(tls.is_proved()),
        }
    }

    /// Whether bytes that wait can be sent, because both ends have proved their keys or have none.
    pub(crate) fn can_say(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_proved())
    }

    /// The key that the peer has proved, if the connection is encrypted.
    pub fn key(&self) -> Option<Fingerprint> {
        self.tls.as_ref()?.key()
    }

    /// Has the kernel stamp all bytes received from now on, for [`Connection::age`]. Where the
    /// kernel has no stamps, every age is zero.
    pub fn stamp(&mut self) {
        self.age = stamp::enable(&self.socket).is_ok().then_some(Nanos::ZERO);
    }

    /// Has bytes that fill no segment wait up to `length` for more; zero turns the waiting off.
    pub(crate) fn coalesce(&mut self, length: Nanos) {
        let coalescing = Coalescing { length, now: Instant::ZERO, due: None };
        self.coalescing = (length > Nanos::ZERO).then_some(coalescing);
    }

    /// Begins a turn of the loop at `now`.
    #[inline]
    pub(crate) const fn turn(&mut self, now: Instant) {
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.now = now;
        }
    }

    /// When bytes that wait for more are sent without them.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.coalescing.as_ref().and_then(|coalescing| coalescing.due)
    }

    /// How long the last byte of the last [`Connection::receive`] had waited in the kernel.
    pub fn age(&self) -> Nanos {
        self.age.unwrap_or(Nanos::ZERO)
    }

    /// The address of the peer.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The kernel's information on the connection.
    pub(crate) fn info(&self) -> Option<TcpInfo> {
        TcpInfo::of(&self.socket).ok()
    }

    /// Gives up the socket to another owner. Bytes that were not sent yet are dropped.
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// The TLS session and the socket, for tests that tamper with the records.
    #[cfg(test)]
    pub(super) fn into_parts(self) -> (rustls::Connection, TcpStream) {
        (self.tls.expect("the connection has TLS").into_session(), self.socket)
    }

    /// Number of bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.outbox.bytes() + self.sealed()
    }

    /// Number of bytes that are sealed and that the kernel has not taken.
    fn sealed(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.unsent())
    }

    /// Queues `data` behind the bytes that wait to be sent. [`Connection::flush`] sends the queue;
    /// a queue of 56 KiB or more is sent at once.
    ///
    /// # Errors
    /// When too much waits in the queue. The connection must then be given up.
    pub fn send(&mut self, data: Buffer) -> Result<(), OutboxFull> {
        self.outbox.push(data)?;
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.due.get_or_insert(coalescing.now + coalescing.length);
        }
        if self.outbox.bytes() >= FLUSH_BYTES {
            // The peer works on these bytes while we prepare more. A failure shows with the
            // next receive.
            let _ = self.flush();
        }
        Ok(())
    }

    /// Sends as many bytes as the kernel takes without blocking, and returns their number.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn flush(&mut self) -> io::Result<usize> {
        let waiting = self.outbox.bytes();
        if let Some(Coalescing { now, due, .. }) = &mut self.coalescing {
            if waiting < FLUSH_BYTES && due.is_some_and(|due| due > *now) {
                return Ok(0);
            }
            *due = None;
        }
        match waiting {
            _ if let Some(tls) = &mut self.tls => tls.send(&mut self.outbox, &mut Direct(&self.socket)),
            0 => Ok(0),
            _ => self.outbox.write_to(&mut Direct(&self.socket)),
        }
    }

    /// Receives the bytes that have arrived, without blocking.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        if self.tls.is_some() {
            return self.receive_sealed(pool);
        }
        let mut block = match self.block.take() {
            Some(block) => block,
            None => pool.take(self.block_length.get()),
        };
        let read = match &mut self.age {
            None => Direct(&self.socket).read(&mut block),
            Some(age) => stamp::read(&self.socket, &mut block).map(|(count, waited)| {
                *age = waited;
                count
            }),
        };
        let count = match read {
            Ok(count) => count,
            Err(error) => {
                self.block = Some(block);
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Received::Nothing),
                    _ => Err(error),
                };
            }
        };
        if count == 0 {
            return Ok(Received::Closed);
        }
        if count <= COPY_MAX {
            let data = pool.copy(&block[..count]);
            self.block = Some(block);
            return Ok(Received::Data(data));
        }
        self.block_length.heed(count);
        block.truncate(count);
        Ok(Received::Data(pool.seal(block)))
    }

    /// Receives the bytes that have arrived in records.
    fn receive_sealed(&mut self, pool: &mut Pool) -> io::Result<Received> {
        let Self { tls: Some(tls), socket, age, block_length, .. } = self else {
            return Ok(Received::Nothing);
        };
        let length = block_length.get();
        let read = |block: &mut [u8]| {
            let count = match age {
                None => Direct(socket).read(block)?,
                Some(age) => {
                    let (count, waited) = stamp::read(socket, block)?;
                    *age = waited;
                    count
                }
            };
            block_length.heed(count);
            Ok(count)
        };
        Ok(match tls.receive(&mut Direct(socket), pool, length, read)? {
            Opened::Data(bytes) => Received::Data(bytes),
            Opened::Nothing => Received::Nothing,
            Opened::Closed => Received::Closed,
            Opened::Plain(bytes) => {
                self.tls = None;
                Received::Data(bytes)
            }
        })
    }

    /// Ends both directions at once: bytes that wait are not sent, and [`Connection::receive`]
    /// returns [`Received::Closed`].
    pub fn abort(&mut self) {
        self.outbox = Outbox::default();
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Announces to the peer that no more bytes will be sent.
    pub fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&mut Direct(&self.socket));
        }
        // A connection that is already gone needs no closing.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl ByteStream for Connection {
    fn peer(&self) -> SocketAddr {
        self.peer()
    }
    fn tcp_info(&self) -> Vec<TcpInfo> {
        self.info().into_iter().collect()
    }
    fn key(&self) -> Option<Fingerprint> {
        self.key()
    }
    fn segment_max(&self) -> usize {
        SEGMENT_BYTES
    }
    fn register_as(&self, attention: Attention, sources: &Sources) -> io::Result<()> {
        sources.add(self.as_raw_fd(), attention)
    }
    fn unregister(&self, sources: &Sources) {
        sources.remove(self.as_raw_fd());
    }
    #[inline]
    fn turn(&mut self, now: Instant, _sources: &Sources) -> bool {
        self.turn(now);
        false
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
    #[inline]
    fn send(&mut self, bytes: Buffer) {
        // The connection takes nothing any more; the next receive sees its end.
        if self.send(bytes).is_err() {
            self.abort();
        }
    }
    #[inline]
    fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        self.receive(pool)
    }
    #[inline]
    fn flush(&mut self) -> io::Result<usize> {
        self.flush()
    }
    fn can_say(&self) -> bool {
        self.can_say()
    }
    fn unsent(&self) -> usize {
        self.unsent()
    }
    fn close(&mut self) -> bool {
        self.close();
        true
    }
}
