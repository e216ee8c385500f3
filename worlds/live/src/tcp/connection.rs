//! One TCP connection.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use engine::{Buffer, BufferMut, Instant, Nanos, Pool};

use super::block::BlockLength;
use super::outbox::{Outbox, OutboxFull};
use super::stamp;
use super::system::Direct;

/// What arrives in one piece of up to this many bytes is copied out, so that the block it arrived in is used again.
const COPY_MAX: usize = 4 << 10;
/// So much is sent without waiting for a flush.
const FLUSH_BYTES: usize = 32 << 10;
/// Blocks in a row that would have fitted the next smaller size before that is chosen.
const SHRINK_AFTER: u32 = 16;

/// What a connection had to give.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Some bytes of the stream; there may be more.
    Data(Buffer),
    /// Nothing now.
    Nothing,
    /// The peer has closed its side; nothing will come.
    Closed,
}

/// A connection that never waits.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    peer: SocketAddr,
    outbox: Outbox,
    /// Where the next bytes go.
    block: Option<BufferMut>,
    block_length: BlockLength<SHRINK_AFTER>,
    /// How long ago the bytes that were received last had come; none where nobody wants to know.
    age: Option<Nanos>,
    coalescing: Option<Coalescing>,
}

/// What waits for company.
#[derive(Debug)]
struct Coalescing {
    length: Nanos,
    /// The time of the turn.
    now: Instant,
    /// When what waits is sent in any case.
    due: Option<Instant>,
}

impl Connection {
    /// Takes over a connected socket: no waiting, no delay for company (TCP_NODELAY).
    pub(super) fn new(socket: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let (outbox, block_length) = (Outbox::default(), BlockLength::new());
        Ok(Self { socket, peer, outbox, block: None, block_length, age: None, coalescing: None })
    }

    /// Has the kernel stamp what comes from now on; see [`Connection::age`]. Where it has no stamps, all ages are zero.
    pub fn stamp(&mut self) {
        self.age = stamp::enable(&self.socket).is_ok().then_some(Nanos::ZERO);
    }

    /// Has bytes wait so long for more, where they fill no segment.
    pub(crate) fn coalesce(&mut self, length: Nanos) {
        let coalescing = Coalescing { length, now: Instant::ZERO, due: None };
        self.coalescing = (length > Nanos::ZERO).then_some(coalescing);
    }

    /// A turn begins.
    #[inline]
    pub(crate) const fn turn(&mut self, now: Instant) {
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.now = now;
        }
    }

    /// When what waits for company is sent without it.
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.coalescing.as_ref().and_then(|coalescing| coalescing.due)
    }

    /// How long the last of the bytes that were received last had waited for that.
    pub fn age(&self) -> Nanos {
        self.age.unwrap_or(Nanos::ZERO)
    }

    /// The address of the other end.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The socket itself, for another owner; what was received stays behind.
    pub fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Bytes that wait to be sent.
    pub const fn unsent(&self) -> usize {
        self.outbox.bytes()
    }

    /// Puts `data` behind what waits to be sent; [`Connection::flush`] sends it, and so does this once there is much.
    ///
    /// # Errors
    /// When too much waits; the connection must then be given up.
    pub fn send(&mut self, data: Buffer) -> Result<(), OutboxFull> {
        self.outbox.push(data)?;
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.due.get_or_insert(coalescing.now + coalescing.length);
        }
        if self.outbox.bytes() >= FLUSH_BYTES {
            // The peer works on this while we prepare more. A failure is seen with the next receive.
            let _ = self.flush();
        }
        Ok(())
    }

    /// Sends as much as the system takes without waiting; returns the bytes it took.
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
            0 => Ok(0),
            _ => self.outbox.write_to(&mut Direct(&self.socket)),
        }
    }

    /// What has arrived, without waiting.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
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

    /// Ends both directions at once: what waits is not sent, and [`Connection::receive`] says closed.
    pub fn abort(&mut self) {
        self.outbox = Outbox::default();
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Tells the peer that nothing more will be sent.
    pub fn close(&mut self) {
        // A connection that is gone already needs no closing.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
