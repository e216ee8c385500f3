//! A connection's stream, with the interface of [`crate::carrier::tcp::Connection`].

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::RawFd;

use engine::{Buffer, Instant, Pool};

use super::info::Info;
use super::plain::Plain;
use crate::carrier::identity::Fingerprint;
use crate::carrier::stream::ByteStream;
use crate::carrier::tls::{Opened, Tls};
use crate::carrier::{Outbox, OutboxFull, Received};
use crate::reactor::Sources;

/// Once this many bytes wait to be sealed, they are, without waiting for a flush.
const FLUSH_BYTES: usize = 32 << 10;
/// The most sealed bytes that wait for their first datagram. The rest waits unsealed.
const WAITING_MAX: u64 = 256 << 10;
/// Length in bytes of a block for received records.
const BLOCK_BYTES: usize = 64 << 10;
/// The most blocks of one receive, so that records without data can't keep the loop.
const BLOCKS_MAX: usize = 4;

/// The stream of one connection. Dropping the stream ends the connection.
#[derive(Debug)]
pub struct Stream {
    plain: Plain,
    /// Seals and opens the bytes that pass, if the connection is encrypted.
    secured: Option<Box<Secured>>,
    /// Received bytes that did not fit a block of records.
    rest: Option<Buffer>,
}

#[derive(Debug)]
struct Secured {
    tls: Tls,
    /// Bytes that wait to be sealed.
    outbox: Outbox,
}

impl Stream {
    pub(super) const fn new(plain: Plain) -> Self {
        Self { plain, secured: None, rest: None }
    }

    /// Has everything pass through `tls`.
    pub(super) fn with_tls(mut self, tls: Tls) -> Self {
        self.secured = Some(Box::new(Secured { tls, outbox: Outbox::default() }));
        self
    }

    /// Advances the TLS handshake. Returns whether it is complete; without TLS, it is.
    ///
    /// # Errors
    /// When the connection has failed, or the far end is not the one that was meant.
    pub(super) fn is_proved(&mut self) -> io::Result<bool> {
        let is_proved = |secured: &Option<Box<Secured>>| match secured {
            None => true,
            Some(secured) => secured.tls.is_proved(),
        };
        self.flush()?;
        if is_proved(&self.secured) {
            return Ok(true);
        }
        match self.receive(&mut Pool::default())? {
            Received::Closed => Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "it has closed the connection before it had proved its key",
            )),
            _ => Ok(is_proved(&self.secured)),
        }
    }

    /// Whether bytes that wait can be sent, because both ends have proved their keys or have none.
    pub(crate) fn can_say(&self) -> bool {
        self.secured.as_ref().is_none_or(|secured| secured.tls.is_proved())
    }

    /// The key that the peer has proved, if the connection is encrypted.
    pub fn key(&self) -> Option<Fingerprint> {
        self.secured.as_ref()?.tls.key()
    }

    /// The address of the other end.
    pub const fn peer(&self) -> SocketAddr {
        self.plain.peer()
    }

    /// Counts of its datagrams.
    pub fn info(&self) -> Info {
        self.plain.info()
    }

    /// The descriptor that ends a sleep. `None` at a far end, where all connections share the
    /// listener's descriptor.
    pub const fn descriptor(&self) -> Option<RawFd> {
        self.plain.descriptor()
    }

    /// The time of the next look at the stream if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.plain.poll_timeout()
    }

    /// The number of bytes that the other end has not acknowledged.
    pub fn unsent(&self) -> usize {
        let sealed = |secured: &Secured| secured.outbox.bytes() + secured.tls.unsent();
        self.plain.unsent() + self.secured.as_deref().map_or(0, sealed)
    }

    /// Appends `data` to the bytes that wait to be sent. They are sent by [`Stream::flush`], or at
    /// once when many wait.
    ///
    /// # Errors
    /// When too much waits; the connection must then be given up.
    pub fn send(&mut self, data: Buffer) -> Result<(), OutboxFull> {
        let Some(secured) = &mut self.secured else { return self.plain.send(data) };
        secured.outbox.push(data)?;
        if secured.outbox.bytes() >= FLUSH_BYTES {
            // A failure shows with the next receive.
            let _ = self.flush();
        }
        Ok(())
    }

    /// Sends as much as the other end and the network take, with acknowledgements and everything
    /// else that is due. Returns how many bytes were taken of those that waited.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn flush(&mut self) -> io::Result<usize> {
        let Some(Secured { tls, outbox }) = self.secured.as_deref_mut() else {
            return self.plain.flush();
        };
        let taken = tls.send(outbox, &mut Writer(&self.plain))?;
        self.plain.flush()?;
        Ok(taken)
    }

    /// Takes arrived bytes, without waiting.
    ///
    /// # Errors
    /// When the connection has failed, or the peer is not the one that was meant.
    pub fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        for _ in 0..BLOCKS_MAX {
            let Self { plain, secured, rest } = self;
            let Some(Secured { tls, .. }) = secured.as_deref_mut() else {
                return rest.take().map_or_else(|| plain.receive(), |rest| Ok(Received::Data(rest)));
            };
            let mut has_come = false;
            let read = |block: &mut [u8]| {
                let count = fill(block, rest, plain)?;
                has_come = count > 0;
                Ok(count)
            };
            let opened = tls.receive(&mut Writer(plain), pool, BLOCK_BYTES, read);
            if has_come {
                // Answers that TLS makes by itself leave at once.
                let _ = plain.flush();
            }
            match opened? {
                Opened::Data(bytes) => return Ok(Received::Data(bytes)),
                Opened::Closed => return Ok(Received::Closed),
                Opened::Plain(bytes) => {
                    self.secured = None;
                    return Ok(Received::Data(bytes));
                }
                Opened::Nothing if !has_come => return Ok(Received::Nothing),
                Opened::Nothing => {}
            }
        }
        self.plain.look_again();
        Ok(Received::Nothing)
    }

    /// Does the work that can't wait until the next receive: sends acknowledgements and lost
    /// datagrams.
    pub fn keep_up(&mut self) {
        self.plain.keep_up();
    }

    /// Ends the connection, and informs the other end. Bytes without an acknowledgement may be
    /// lost.
    pub fn close(&mut self) {
        if let Some(secured) = &mut self.secured {
            secured.tls.close(&mut Writer(&self.plain));
        }
        self.plain.close();
    }
}

/// Fills `block` with received bytes, beginning with `rest`, as far as they go. Returns 0 when the
/// peer has ended the stream.
fn fill(block: &mut [u8], rest: &mut Option<Buffer>, plain: &Plain) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        let bytes = match rest.take().map_or_else(|| plain.receive(), |rest| Ok(Received::Data(rest))) {
            Ok(Received::Data(bytes)) => bytes,
            Ok(Received::Closed) => break,
            Ok(Received::Nothing) if filled == 0 => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) if filled == 0 => return Err(error),
            // A failure shows with the next receive.
            Ok(Received::Nothing) | Err(_) => break,
        };
        let count = bytes.len().min(block.len() - filled);
        block[filled..filled + count].copy_from_slice(&bytes[..count]);
        filled += count;
        if count < bytes.len() {
            *rest = Some(bytes.slice(count..bytes.len()));
        }
    }
    Ok(filled)
}

/// Takes sealed bytes into a stream.
struct Writer<'a>(&'a Plain);

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.waiting() >= WAITING_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.send(Buffer::from(bytes.to_vec())).map_err(io::Error::other)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A dialler's socket is registered since it was dialled; accepted streams share the listener's.
/// Work that is due is done with each receive.
impl ByteStream for Stream {
    fn peer(&self) -> SocketAddr {
        self.peer()
    }
    fn datagrams(&self) -> Option<Info> {
        Some(self.info())
    }
    fn key(&self) -> Option<Fingerprint> {
        self.key()
    }
    fn unregister(&self, sources: &Sources) {
        self.descriptor().into_iter().for_each(|own| sources.remove(own));
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }
    fn send(&mut self, bytes: Buffer) {
        // The connection takes nothing any more; the next receive sees its end.
        if self.send(bytes).is_err() {
            self.close();
        }
    }
    fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        self.receive(pool)
    }
    fn keep_up(&mut self, _pool: &mut Pool) {
        self.keep_up();
    }
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
