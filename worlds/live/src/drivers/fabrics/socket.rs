//! A TCP socket of NVMe/TCP, plain or encrypted, that receives into a given place and sends slices
//! gathered from several.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use engine::{Buffer, BufferMut, Pool};
use nvme_fabrics::tls::{Identity, Psk};
use nvme_tcp::Outbox;

use super::tls::{self, Acceptor, Tls};

use crate::carrier::tcp::{BlockLength, Connection, Direct};

/// The most slices in one system call: headers and pages of 128 reads.
const SLICES_MAX: usize = 256;
/// The most slices for which a small table is enough.
const FEW: usize = 8;
/// How many blocks in a row must fit the next smaller size before that size is chosen.
const SHRINK_AFTER: u32 = 64;
/// Up to this many bytes are copied out of the block in which they arrived, so that the block is
/// used again.
const COPY_MAX: usize = 2 << 10;
/// Behind a place of this length, no more than [`COPY_MAX`] bytes are received: long data are
/// followed by a header, and the place of further data is known only from this header.
const LONG: usize = 16 << 10;

/// The result of receiving from a socket.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes have come: first into the place that was given, then into `bytes`.
    Data {
        /// The number of bytes in the place that was given.
        landed: usize,
        /// The bytes that came after those in the place.
        bytes: Buffer,
        /// The block had room for more, so the socket has nothing left.
        is_all: bool,
    },
    /// Nothing has come yet.
    Nothing,
    /// The peer has closed its side; nothing more will come.
    Closed,
}

/// A connected socket that never waits.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    peer: SocketAddr,
    block: Option<BufferMut>,
    block_length: BlockLength<SHRINK_AFTER>,
    secure: Secure,
    /// The identity that the other end has proved, until it is taken.
    proved: Option<Identity>,
}

/// Whether and how a connection is encrypted.
#[derive(Debug, Default)]
enum Secure {
    /// The connection is plain.
    #[default]
    Plain,
    /// The other end has said nothing yet: its first byte shows whether it speaks TLS.
    Undecided(Acceptor),
    /// The connection is encrypted.
    Tls(Box<Tls>),
}

/// A connection on its way to another thread, without the bytes that it has received.
#[derive(Debug)]
pub struct Moving {
    stream: TcpStream,
    secure: Secure,
}

impl Socket {
    /// Takes over a connected socket; sets it to non-blocking and TCP_NODELAY.
    ///
    /// # Errors
    /// When the socket was closed in the meantime.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?;
        Ok(Self::around(stream, peer, Secure::Plain))
    }

    fn around(stream: TcpStream, peer: SocketAddr, secure: Secure) -> Self {
        Self { stream, peer, block: None, block_length: BlockLength::new(), secure, proved: None }
    }

    /// The addresses of this end and of the other one, if the socket is still connected.
    pub(super) fn ends(&self) -> Option<[SocketAddr; 2]> {
        Some([self.stream.local_addr().ok()?, self.peer])
    }

    /// Has a host's end speak TLS, with `psk`.
    ///
    /// # Errors
    /// When the library does not take the settings.
    pub(super) fn encrypt(&mut self, psk: &Psk) -> io::Result<()> {
        self.secure = Secure::Tls(Box::new(Tls::host(psk, self.stream.as_raw_fd())?));
        Ok(())
    }

    /// Lets a host speak TLS, if it begins so.
    pub(super) fn accept_tls(&mut self, acceptor: &Acceptor) {
        if !acceptor.is_empty() {
            self.secure = Secure::Undecided(acceptor.clone());
        }
    }

    /// The identity that the other end has proved by TLS since the last call.
    pub(super) const fn take_proved(&mut self) -> Option<Identity> {
        self.proved.take()
    }

    /// Whether the connection is encrypted.
    pub(super) const fn is_encrypted(&self) -> bool {
        matches!(self.secure, Secure::Tls(_))
    }

    /// The address of the other end.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address of this end, to which the other end connected.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Releases the parts that another thread needs to go on. Bytes already received are not part
    /// of it.
    pub(super) fn into_moving(self) -> Moving {
        Moving { stream: self.stream, secure: self.secure }
    }

    /// Continues a connection of another thread.
    ///
    /// # Errors
    /// When the socket was closed in the meantime.
    pub(super) fn from_moving(moving: Moving) -> io::Result<Self> {
        let peer = moving.stream.peer_addr()?;
        Ok(Self::around(moving.stream, peer, moving.secure))
    }

    /// Takes arrived bytes, without waiting: first into `place`, then into a block.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn receive(&mut self, pool: &mut Pool, place: Option<&mut [u8]>) -> io::Result<Received> {
        if !matches!(self.secure, Secure::Plain) {
            return self.receive_sealed(pool, place);
        }
        let mut block = match self.block.take() {
            Some(block) => block,
            None => pool.take(self.block_length.get()),
        };
        let mut room = block.len();
        let (wanted, result) = match place {
            // The system has a shorter path for one slice than for two.
            None => (0, Direct(&self.stream).read(&mut block)),
            Some(place) => {
                let wanted = place.len();
                if wanted >= LONG {
                    room = COPY_MAX;
                }
                let mut slices = [IoSliceMut::new(place), IoSliceMut::new(&mut block[..room])];
                (wanted, Direct(&self.stream).read_vectored(&mut slices))
            }
        };
        let count = match result {
            Ok(0) => return Ok(Received::Closed),
            Ok(count) => count,
            Err(error) => {
                self.block = Some(block);
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Received::Nothing),
                    _ => Err(error),
                };
            }
        };
        let landed = count.min(wanted);
        let behind = count - landed;
        let is_all = behind < room;
        if behind <= COPY_MAX {
            let bytes = pool.copy(&block[..behind]);
            self.block = Some(block);
            return Ok(Received::Data { landed, bytes, is_all });
        }
        self.block_length.heed(behind);
        block.truncate(behind);
        Ok(Received::Data { landed, bytes: pool.seal(block), is_all })
    }

    /// Advances the handshake, and opens received records: first into `place`, then into a block.
    fn receive_sealed(&mut self, pool: &mut Pool, place: Option<&mut [u8]>) -> io::Result<Received> {
        if let Some(early) = self.decide()? {
            return Ok(early);
        }
        if matches!(self.secure, Secure::Plain) {
            return self.receive(pool, place);
        }
        if !self.shake_hands()? {
            return Ok(Received::Nothing);
        }
        let Secure::Tls(tls) = &mut self.secure else { return Ok(Received::Nothing) };
        let mut landed = 0;
        if let Some(place) = place {
            landed = match tls.receive(&self.stream, place) {
                Ok(0) => return Ok(Received::Closed),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                landed => landed?,
            };
            if landed < place.len() {
                return Ok(Received::Data { landed, bytes: Buffer::default(), is_all: tls.has_all() });
            }
        }
        let mut block = match self.block.take() {
            Some(block) => block,
            None => pool.take(self.block_length.get()),
        };
        let length = if landed >= LONG { COPY_MAX } else { block.len() };
        let received = tls.receive(&self.stream, &mut block[..length]);
        let count = match received {
            Ok(count @ 1..) => count,
            // The end or the error is reported again by the next call.
            _ if landed > 0 => {
                self.block = Some(block);
                let is_all = received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
                return Ok(Received::Data { landed, bytes: Buffer::default(), is_all });
            }
            Ok(_) => return Ok(Received::Closed),
            Err(error) => {
                self.block = Some(block);
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(Received::Nothing),
                    _ => Err(error),
                };
            }
        };
        let is_all = tls.has_all();
        if count <= COPY_MAX {
            let bytes = pool.copy(&block[..count]);
            self.block = Some(block);
            return Ok(Received::Data { landed, bytes, is_all });
        }
        self.block_length.heed(count);
        block.truncate(count);
        Ok(Received::Data { landed, bytes: pool.seal(block), is_all })
    }

    /// Finds out by a host's first byte whether it speaks TLS. Returns the result of receiving if
    /// there is no such byte.
    fn decide(&mut self) -> io::Result<Option<Received>> {
        let Secure::Undecided(acceptor) = &self.secure else { return Ok(None) };
        let mut first = [0];
        match self.stream.peek(&mut first) {
            Ok(0) => return Ok(Some(Received::Closed)),
            Ok(_) if tls::is_handshake(first[0]) => {
                let tls = Tls::target(acceptor, self.stream.as_raw_fd())?;
                self.secure = Secure::Tls(Box::new(tls));
            }
            Ok(_) => self.secure = Secure::Plain,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Some(Received::Nothing)),
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Advances a TLS handshake. Returns whether both ends have proved their identities; without
    /// TLS, there is nothing to prove.
    ///
    /// # Errors
    /// When the handshake has failed; the message has the remedy.
    pub(super) fn shake_hands(&mut self) -> io::Result<bool> {
        let Secure::Tls(tls) = &mut self.secure else { return Ok(true) };
        if !tls.is_proved() {
            match tls.shake_hands()? {
                Some(identity) => self.proved = Some(identity),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Gives the memory that waits for bytes back to `pool`: an idle connection needs none.
    pub fn rest(&mut self, pool: &mut Pool) {
        if let Secure::Tls(tls) = &mut self.secure {
            tls.rest();
        }
        if let Some(block) = self.block.take() {
            drop(pool.seal(block));
        }
    }

    /// Sends as much of `outbox` as the system takes at once; returns the number of bytes taken.
    ///
    /// # Errors
    /// When the connection has failed.
    #[inline]
    pub fn send(&mut self, outbox: &Outbox) -> io::Result<usize> {
        if let Secure::Tls(tls) = &mut self.secure {
            // Nothing is sent before both ends have proved their identities.
            return if tls.is_proved() { tls.send(&self.stream, outbox) } else { Ok(0) };
        }
        // Nearly always the outbox has one command or one answer.
        if outbox.pieces() <= FEW {
            return self.send_slices::<FEW>(outbox);
        }
        self.send_slices::<SLICES_MAX>(outbox)
    }

    fn send_slices<const MAX: usize>(&mut self, outbox: &Outbox) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MAX];
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(outbox.slices()) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        let result = match &slices[..count] {
            [one] => Direct(&self.stream).write(one),
            slices => Direct(&self.stream).write_vectored(slices),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Announces to the peer that nothing more will be sent.
    pub fn shut(&mut self) {
        if let Secure::Tls(tls) = &mut self.secure {
            tls.close(&self.stream);
        }
        // A connection that is gone already needs no closing.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Informs a host whose TLS handshake has failed that its key was refused.
    pub(super) fn refuse_key(&self) {
        if let Secure::Tls(tls) = &self.secure {
            tls.refuse(&self.stream);
        }
    }

    /// Ends both directions at once: [`Socket::receive`] then returns [`Received::Closed`].
    pub fn give_up(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Closes the connection after `last`, as far as the system takes these bytes at once.
    pub fn close(mut self, last: &[u8]) {
        match &mut self.secure {
            Secure::Tls(tls) => tls.send_last(&self.stream, last),
            _ => drop(self.stream.write(last)),
        }
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes the connection with a reset (RST): bytes that the system still holds are not sent.
    pub fn abort(self) {
        let socket = socket2::SockRef::from(&self.stream);
        let _ = socket.set_linger(Some(Duration::ZERO));
    }
}

impl AsRawFd for Moving {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl From<Connection> for Socket {
    /// Takes over a connection from which nothing was received yet.
    fn from(connection: Connection) -> Self {
        let (peer, stream) = (connection.peer(), connection.into_socket());
        Self::around(stream, peer, Secure::Plain)
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}
