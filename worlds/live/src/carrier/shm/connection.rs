//! One end of a connection in shared memory.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use engine::{Buffer, BufferMut, Instant, Nanos, Pool};

use super::rings::{Rings, fault};
use crate::carrier::identity::Fingerprint;
use crate::carrier::stream::{ByteStream, THIS_MACHINE};
use crate::carrier::tcp::BlockLength;
use crate::carrier::{Outbox, OutboxFull, Received};
use crate::reactor::{Attention, Sources};
use crate::sys::unix;

/// The message with the descriptor of the memory: the name and version of its layout.
const GREETING: &[u8] = b"farlane lines 1\n";
/// How long an end without news polls its ring before it says that it sleeps. From then on the peer
/// makes a system call when it sends.
const SLEEP_AFTER: Nanos = Nanos::from_micros(100);
/// A received piece of up to this many bytes is copied out, so that its block can be used again.
const COPY_MAX: usize = 4 << 10;
/// Number of blocks in a row that would have fitted the next smaller size before the block shrinks.
const SHRINK_AFTER: u32 = 16;
/// The most looks at the socket in one receive, so that a peer that rings without end can't keep
/// the loop.
const LOOKS_MAX: usize = 16;

/// A connection in shared memory whose calls never block.
pub struct Connection {
    socket: unix::Connection,
    /// The memory and its rings; `None` until the peer has passed the memory.
    rings: Option<Rings>,
    outbox: Outbox,
    /// The block that the next bytes are received into.
    block: Option<BufferMut>,
    block_length: BlockLength<SHRINK_AFTER>,
    /// The time of the current turn.
    now: Instant,
    /// Since when nothing has come.
    quiet_since: Option<Instant>,
    /// The ring was found empty since this end has said that it sleeps.
    has_looked: bool,
    /// The socket has ended: the bytes in the ring are the last.
    has_ended: bool,
}

impl Write for Rings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.end.send(&mut self.memory, bytes).map_err(fault)? {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection {
    /// Connects to the far end that listens at `path`, and passes it new memory.
    ///
    /// # Errors
    /// When no process listens there, or the system has no memory or descriptors left.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let mut socket = unix::Connection::connect(path)?;
        let rings = Rings::pass(&mut socket, GREETING)?;
        socket.flush()?;
        Ok(Self { rings: Some(rings), ..Self::accepted(socket) })
    }

    /// A connection whose peer is about to pass the memory.
    pub(super) fn accepted(socket: unix::Connection) -> Self {
        Self {
            socket,
            rings: None,
            outbox: Outbox::default(),
            block: None,
            block_length: BlockLength::new(),
            now: Instant::ZERO,
            quiet_since: None,
            has_looked: false,
            has_ended: false,
        }
    }

    /// Begins a turn of the loop at `now`: an end to which nothing has come for a while says that
    /// it sleeps.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.now = now;
        let since = *self.quiet_since.get_or_insert(now);
        if let Some(rings) = &mut self.rings
            && !rings.end.is_asleep()
            && now - since >= SLEEP_AFTER
        {
            // Memory that is gone shows with the next receive.
            let _ = rings.end.sleep(&mut rings.memory, true);
            self.has_looked = false;
        }
    }

    /// The time of the next call to [`Connection::turn`], if any. An end that has not said that it
    /// sleeps is not woken, so it must not wait.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let rings = self.rings.as_ref()?;
        let may_wait = rings.end.is_asleep() && self.has_looked;
        (!may_wait).then(|| self.quiet_since.map_or(self.now, |since| since + SLEEP_AFTER))
    }

    /// Whether the peer has passed the memory.
    pub(crate) const fn has_met(&self) -> bool {
        self.rings.is_some()
    }

    /// Whether received bytes show in memory: a look costs no system call.
    pub(crate) fn is_polled(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| !rings.end.is_asleep()) && !self.has_ended
    }

    /// Number of bytes that wait to be stored.
    pub(crate) const fn unsent(&self) -> usize {
        self.outbox.bytes()
    }

    /// Stores `data` for the peer at once: no system call is spared by waiting for more. Bytes
    /// without room wait for [`Connection::flush`], which also wakes the peer.
    ///
    /// # Errors
    /// When too much waits, or the peer has written nonsense. The connection must then be given up.
    pub(crate) fn send(&mut self, data: Buffer) -> Result<(), OutboxFull> {
        let sent = match &mut self.rings {
            Some(rings) if self.outbox.bytes() == 0 => {
                rings.end.send(&mut rings.memory, &data).map_err(|_| OutboxFull)?
            }
            _ => 0,
        };
        if sent < data.len() { self.outbox.push(data.slice(sent..data.len())) } else { Ok(()) }
    }

    /// Stores as many bytes as there is room for, and returns their number.
    ///
    /// # Errors
    /// When the peer has written nonsense, or the memory is gone.
    pub(crate) fn flush(&mut self) -> io::Result<usize> {
        let Some(rings) = &mut self.rings else { return Ok(0) };
        let count = match self.outbox.bytes() {
            0 => 0,
            _ => self.outbox.write_to(rings)?,
        };
        rings.wake(&mut self.socket)?;
        Ok(count)
    }

    /// Takes the bytes that have come.
    ///
    /// # Errors
    /// When the peer has written nonsense, or the memory is gone.
    pub(crate) fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        if self.rings.is_none() {
            return self.meet(pool);
        }
        for _ in 0..LOOKS_MAX {
            if let Some(bytes) = self.take(pool)? {
                return Ok(Received::Data(bytes));
            }
            if self.has_ended {
                return Ok(Received::Closed);
            }
            // An end that polls has no time for system calls.
            if !self.rings.as_ref().is_some_and(|rings| rings.end.is_asleep()) {
                return Ok(Received::Nothing);
            }
            self.has_looked = true;
            match self.socket.receive(pool) {
                Ok(unix::Received::Nothing) => return Ok(Received::Nothing),
                // The ring has the received bytes, regardless of the wake-up's cause.
                Ok(unix::Received::Data(..)) => {}
                Ok(unix::Received::Closed) | Err(_) => self.has_ended = true,
            }
        }
        self.has_looked = false;
        Ok(Received::Nothing)
    }

    /// Takes the bytes in the ring.
    fn take(&mut self, pool: &mut Pool) -> io::Result<Option<Buffer>> {
        let Some(rings) = &mut self.rings else { return Ok(None) };
        if !rings.end.has_news(&rings.memory).map_err(fault)? {
            return Ok(None);
        }
        let mut block = self.block.take().unwrap_or_else(|| pool.take(self.block_length.get()));
        let count = rings.end.receive(&mut rings.memory, &mut block).map_err(fault)?;
        if count == 0 {
            self.block = Some(block);
            return Ok(None);
        }
        self.quiet_since = None;
        rings.end.sleep(&mut rings.memory, false).map_err(fault)?;
        rings.wake(&mut self.socket)?;
        if count <= COPY_MAX {
            let data = pool.copy(&block[..count]);
            self.block = Some(block);
            return Ok(Some(data));
        }
        self.block_length.heed(count);
        block.truncate(count);
        Ok(Some(pool.seal(block)))
    }

    /// Waits for the memory, which comes with the greeting.
    fn meet(&mut self, pool: &mut Pool) -> io::Result<Received> {
        match self.socket.receive(pool)? {
            unix::Received::Nothing => Ok(Received::Nothing),
            unix::Received::Closed => Ok(Received::Closed),
            unix::Received::Data(bytes, descriptors) => {
                self.rings = Some(Rings::take(GREETING, &bytes, descriptors)?);
                self.receive(pool)
            }
        }
    }

    /// Writes one byte anywhere into the memory, as a peer gone mad does.
    #[cfg(test)]
    pub(super) fn scribble(&mut self, place: u64, byte: u8) {
        use pcie::memory::Memory;
        self.rings.as_mut().expect("the end has its memory").memory.write(place, &[byte]).unwrap();
    }

    /// The socket, for tests that read the kernel's information.
    #[cfg(test)]
    pub(super) const fn socket(&self) -> &unix::Connection {
        &self.socket
    }

    /// Ends both directions at once: [`Connection::receive`] returns [`Received::Closed`] once the
    /// ring is empty.
    pub(crate) fn abort(&mut self) {
        self.outbox = Outbox::default();
        self.socket.abort();
        self.has_ended = true;
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?}, {} B unsent)", self.socket, self.unsent())
    }
}

/// [`ByteStream::close`] needs no action: the peer takes the contents of the ring, and then sees
/// the end of the socket.
impl ByteStream for Connection {
    fn peer(&self) -> SocketAddr {
        THIS_MACHINE
    }
    fn key(&self) -> Option<Fingerprint> {
        None
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
    fn is_polled(&self) -> bool {
        self.is_polled()
    }
    #[inline]
    fn flush(&mut self) -> io::Result<usize> {
        self.flush()
    }
    fn can_say(&self) -> bool {
        self.has_met()
    }
    fn unsent(&self) -> usize {
        self.unsent()
    }
}
