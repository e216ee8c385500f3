//! The stream of a QUIC connection, with the interface of [`crate::carrier::tcp::Connection`].

use std::fmt;
use std::io::{self, IoSlice, Write};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{Buffer, Pool};
use quinn_proto::{ReadError, VarInt, WriteError};

use super::config::RECEIVE_WINDOW;
use super::endpoint::{Shared, SharedSlot};
use super::loss::Loss;
use super::slot::Slot;
use crate::carrier::identity::Fingerprint;
use crate::carrier::stream::ByteStream;
use crate::carrier::{Outbox, OutboxFull, Received};
use crate::reactor::Sources;

/// This many waiting bytes are sent without waiting for a flush.
const FLUSH_BYTES: usize = 32 << 10;
/// The most bytes received in one piece.
const PIECE_MAX: usize = 64 << 10;
/// The most bytes given to the connection in one piece.
const WRITE_MAX: usize = 64 << 10;
/// How long a peer may take to acknowledge the end of the stream.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);
/// How many bytes must come from a new peer before it may send as much as any other.
const STRANGER_BYTES: usize = 64 << 10;
/// The most looks at the socket in one receive, so that a flood of useless datagrams can't keep
/// the loop.
const LOOKS_MAX: usize = 64;

/// The stream of one QUIC connection. Dropping the stream ends the connection.
pub struct Stream {
    endpoint: Shared,
    slot: SharedSlot,
    peer: SocketAddr,
    /// The near end's own socket; `None` at a far end.
    descriptor: Option<RawFd>,
    outbox: Outbox,
    /// Received chunks that will go into one buffer.
    chunks: Vec<Bytes>,
    /// How many bytes must still come before the peer is no stranger.
    strange: usize,
    /// The peer has finished its direction, or the connection has ended.
    ended: bool,
    /// The end of our direction has been sent.
    closing: bool,
}

impl Stream {
    pub(super) fn new(endpoint: Shared, slot: SharedSlot, descriptor: Option<RawFd>) -> Self {
        let peer = slot.borrow().peer;
        slot.borrow_mut().owned = true;
        let (outbox, chunks, strange) = (Outbox::default(), Vec::new(), STRANGER_BYTES);
        Self { endpoint, slot, peer, descriptor, outbox, chunks, strange, ended: false, closing: false }
    }

    /// The address that the other end had when it connected.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The descriptor that ends a sleep. `None` at a far end, where all connections share the
    /// listener's descriptor.
    pub const fn descriptor(&self) -> Option<RawFd> {
        self.descriptor
    }

    /// The time of the next look at the stream if nothing comes before.
    pub fn poll_timeout(&self) -> Option<engine::Instant> {
        self.endpoint.borrow().poll_timeout()
    }

    /// The key that the other end has proved.
    pub fn key(&self) -> Option<Fingerprint> {
        self.slot.borrow().key()
    }

    /// The number of bytes that wait to be sent.
    pub const fn unsent(&self) -> usize {
        self.outbox.bytes()
    }

    /// Appends `data` to the bytes that wait to be sent. They are sent by [`Stream::flush`], or at
    /// once when many wait.
    ///
    /// # Errors
    /// When too much waits; the connection must then be given up.
    pub fn send(&mut self, data: Buffer) -> Result<(), OutboxFull> {
        self.outbox.push(data)?;
        if self.outbox.bytes() >= FLUSH_BYTES {
            // The peer works on these bytes while we prepare more. The next receive reports
            // a failure.
            let _ = self.flush();
        }
        Ok(())
    }

    /// Sends as much as the peer and the network take, with acknowledgements and everything else
    /// that is due. Returns how many bytes of the stream were taken.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn flush(&mut self) -> io::Result<usize> {
        let Self { endpoint, slot, outbox, .. } = self;
        let mut slot = slot.borrow_mut();
        if let Some(loss) = &slot.lost
            && *loss != Loss::Done
        {
            return Err(loss.explain(slot.verifier.as_deref()));
        }
        let taken = match (outbox.bytes(), slot.blocked) {
            (0, _) | (_, true) => 0,
            _ => outbox.write_to(&mut Writer(&mut slot))?,
        };
        if slot.dirty {
            endpoint.borrow_mut().transmit(&mut slot, Instant::now());
        }
        Ok(taken)
    }

    /// Takes arrived bytes, without waiting.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        for _ in 0..LOOKS_MAX {
            if let Some(received) = self.read(pool)? {
                return Ok(received);
            }
            if !self.endpoint.borrow_mut().pump()? {
                return Ok(self.read(pool)?.unwrap_or(Received::Nothing));
            }
        }
        self.endpoint.borrow_mut().look_again();
        Ok(Received::Nothing)
    }

    /// Sends acknowledgements and everything else that the connection needs while its received
    /// bytes are not taken.
    pub fn keep_up(&mut self) {
        for _ in 0..LOOKS_MAX {
            // The next receive reports a socket that fails.
            if !self.endpoint.borrow_mut().pump().unwrap_or(false) {
                return;
            }
        }
        self.endpoint.borrow_mut().look_again();
    }

    /// Reads bytes that were already received.
    fn read(&mut self, pool: &mut Pool) -> io::Result<Option<Received>> {
        if self.ended {
            return Ok(Some(Received::Closed));
        }
        let mut slot = self.slot.borrow_mut();
        if !slot.readable {
            return Ok(None);
        }
        let end = take_chunks(&mut slot, &mut self.chunks);
        let total = self.chunks.iter().map(Bytes::len).sum();
        if total > 0 {
            if self.strange > 0 {
                self.strange = self.strange.saturating_sub(total);
                if self.strange == 0 {
                    slot.connection.set_receive_window(VarInt::from_u32(RECEIVE_WINDOW));
                    slot.dirty = true;
                }
            }
            let mut block = pool.take(total);
            let mut at = 0;
            for chunk in self.chunks.drain(..) {
                block[at..at + chunk.len()].copy_from_slice(&chunk);
                at += chunk.len();
            }
            return Ok(Some(Received::Data(pool.seal(block))));
        }
        match (end, &slot.lost) {
            (End::Finished, _) | (_, Some(Loss::Done | Loss::Aborted)) => {
                self.ended = true;
                Ok(Some(Received::Closed))
            }
            (End::Reset, None) => Err(Loss::Reset.explain(None)),
            (_, Some(loss)) => Err(loss.explain(slot.verifier.as_deref())),
            (End::Open, None) => Ok(None),
        }
    }

    /// Ends both directions at once: waiting bytes are not sent, and [`Stream::receive`]
    /// returns `Closed`.
    pub fn abort(&mut self) {
        self.outbox = Outbox::default();
        self.ended = true;
        self.end(Loss::Aborted);
    }

    /// Announces to the peer that nothing more will be sent; [`Stream::flush`] must have taken all
    /// bytes before. The connection stays until [`Stream::is_closed`] returns that the peer has
    /// everything, because only the connection can send lost bytes again.
    pub fn close(&mut self) {
        let mut slot = self.slot.borrow_mut();
        if core::mem::replace(&mut self.closing, true) {
            return;
        }
        let stream = slot.stream.expect("a stream with an owner is open");
        if slot.lost.is_some() || slot.connection.send_stream(stream).finish().is_err() {
            slot.finished = true;
        }
        let now = Instant::now();
        slot.deadline = Some(now + CLOSE_WITHIN);
        slot.dirty = true;
        self.endpoint.borrow_mut().transmit(&mut slot, now);
    }

    /// Whether the peer has everything that was sent before [`Stream::close`], or the connection
    /// has ended. The connection ends by itself after some seconds.
    pub fn is_closed(&self) -> bool {
        let slot = self.slot.borrow();
        self.closing && (slot.finished || slot.lost.is_some())
    }

    fn end(&self, loss: Loss) {
        let (mut slot, now) = (self.slot.borrow_mut(), Instant::now());
        slot.close(now, loss);
        if slot.dirty {
            self.endpoint.borrow_mut().transmit(&mut slot, now);
        }
    }
}

/// How a stream goes on behind the bytes that were read.
enum End {
    Open,
    Finished,
    Reset,
}

/// Takes received bytes, as many as fit a buffer.
fn take_chunks(slot: &mut Slot, chunks: &mut Vec<Bytes>) -> End {
    let stream = slot.stream.expect("a stream with an owner is open");
    let mut receive = slot.connection.recv_stream(stream);
    let Ok(mut incoming) = receive.read(true) else {
        slot.readable = false;
        return End::Finished;
    };
    let mut room = PIECE_MAX;
    let (mut readable, mut end) = (true, End::Open);
    while room > 0 {
        match incoming.next(room) {
            Ok(Some(chunk)) => {
                room -= chunk.bytes.len();
                chunks.push(chunk.bytes);
            }
            Ok(None) => {
                end = End::Finished;
                break;
            }
            Err(ReadError::Blocked) => {
                readable = false;
                break;
            }
            Err(ReadError::Reset(_)) => {
                end = End::Reset;
                break;
            }
        }
    }
    let more_room = incoming.finalize().should_transmit();
    slot.readable = readable || slot.lost.is_some();
    slot.dirty |= more_room;
    end
}

/// Writes into the stream, which keeps a copy until the peer has acknowledged it.
struct Writer<'a>(&'a mut Slot);

impl Writer<'_> {
    fn result<T>(&mut self, result: Result<T, WriteError>) -> io::Result<T> {
        self.0.dirty = true;
        result.map_err(|error| match error {
            WriteError::Blocked => {
                self.0.blocked = true;
                io::ErrorKind::WouldBlock.into()
            }
            WriteError::Stopped(_) | WriteError::ClosedStream => io::ErrorKind::ConnectionReset.into(),
        })
    }
}

impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = self.0.stream.expect("a stream with an owner is open");
        let result = self.0.connection.send_stream(stream).write(bytes);
        self.result(result)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut bytes = Vec::with_capacity(total.min(WRITE_MAX));
        for slice in slices {
            let room = WRITE_MAX - bytes.len();
            bytes.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let stream = self.0.stream.expect("a stream with an owner is open");
        let result = self.0.connection.send_stream(stream).write_chunks(&mut [Bytes::from(bytes)]);
        self.result(result).map(|written| written.bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let said_all = self.is_closed();
        self.end(if said_all { Loss::Done } else { Loss::Aborted });
        self.slot.borrow_mut().owned = false;
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, {} B unsent)", self.peer, self.unsent())
    }
}

/// A dialler's socket is registered since it was dialled; accepted streams share the listener's.
/// Work that is due is done with each receive.
impl ByteStream for Stream {
    fn peer(&self) -> SocketAddr {
        self.peer()
    }
    fn key(&self) -> Option<Fingerprint> {
        self.key()
    }
    fn unregister(&self, sources: &Sources) {
        self.descriptor().into_iter().for_each(|own| sources.remove(own));
    }
    fn poll_timeout(&self) -> Option<engine::Instant> {
        self.poll_timeout()
    }
    fn send(&mut self, bytes: Buffer) {
        // The connection takes nothing any more; the next receive sees its end.
        if self.send(bytes).is_err() {
            self.abort();
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
    fn unsent(&self) -> usize {
        self.unsent()
    }
    fn close(&mut self) -> bool {
        self.close();
        self.is_closed()
    }
}
