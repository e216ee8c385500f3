//! A TCP socket that receives into place and sends what is gathered.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use engine::{Buffer, BufferMut, Pool};
use nvme_tcp::Outbox;

/// Slices in one system call.
const SLICES_MAX: usize = 256;
/// The smallest and the largest block to receive into. A received buffer keeps its whole block: blocks grow while they
/// are filled to the end, and shrink while they are not.
const BLOCK_MIN: usize = 16 << 10;
const BLOCK_MAX: usize = 256 << 10;
/// The factor between block sizes, that of the pool's classes.
const BLOCK_STEP: usize = 4;
/// Blocks in a row that would have fitted the next smaller size before that is chosen.
const SHRINK_AFTER: u32 = 64;
/// What arrives in one piece of up to this many bytes is copied out, so that the block it arrived in is used again.
const COPY_MAX: usize = 2 << 10;

/// What a socket had to give.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes are where they were wanted, and these came behind them.
    Data {
        /// Bytes in the place that was given.
        landed: usize,
        /// The bytes behind them.
        bytes: Buffer,
    },
    /// Nothing now.
    Nothing,
    /// The peer has closed its side; nothing will come.
    Closed,
}

/// A connected socket that never waits.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    peer: SocketAddr,
    block: Option<BufferMut>,
    block_length: usize,
    roomy: u32,
}

impl Socket {
    /// Takes over a connected socket: no waiting, no delay for company (TCP_NODELAY).
    ///
    /// # Errors
    /// When the socket was closed in the meantime.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?;
        Ok(Self { stream, peer, block: None, block_length: BLOCK_MIN, roomy: 0 })
    }

    /// The address of the other end.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What has arrived, without waiting: first into `place`, then into a block.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn receive(&mut self, pool: &mut Pool, place: Option<&mut [u8]>) -> io::Result<Received> {
        let mut block = match self.block.take() {
            Some(block) => block,
            None => pool.take(self.block_length),
        };
        let wanted = place.as_ref().map_or(0, |place| place.len());
        let mut slices = [IoSliceMut::new(place.unwrap_or_default()), IoSliceMut::new(&mut block)];
        let slices = if wanted == 0 { &mut slices[1..] } else { &mut slices[..] };
        let result = loop {
            match self.stream.read_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
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
        if behind <= COPY_MAX {
            let bytes = pool.copy(&block[..behind]);
            self.block = Some(block);
            return Ok(Received::Data { landed, bytes });
        }
        self.choose_block_length(behind);
        block.truncate(behind);
        Ok(Received::Data { landed, bytes: pool.seal(block) })
    }

    fn choose_block_length(&mut self, count: usize) {
        if count == self.block_length {
            self.block_length = (self.block_length * BLOCK_STEP).min(BLOCK_MAX);
            self.roomy = 0;
        } else if count <= self.block_length / BLOCK_STEP {
            self.roomy += 1;
            if self.roomy == SHRINK_AFTER {
                self.block_length = (self.block_length / BLOCK_STEP).max(BLOCK_MIN);
                self.roomy = 0;
            }
        } else {
            self.roomy = 0;
        }
    }

    /// Lets go of the block that waits for bytes: an idle connection needs none.
    pub fn rest(&mut self) {
        self.block = None;
    }

    /// Sends what `outbox` holds as far as the system takes it at once; how much it took.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn send(&mut self, outbox: &Outbox) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(outbox.slices()) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        loop {
            match self.stream.write_vectored(&slices[..count]) {
                Ok(sent) => return Ok(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes the connection after `last` bytes, if the system takes them at once.
    pub fn close(mut self, last: &[u8]) {
        let _ = self.stream.write(last);
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes the connection so that nothing that the system holds is sent any more (RST).
    pub fn abort(self) {
        let socket = socket2::SockRef::from(&self.stream);
        let _ = socket.set_linger(Some(Duration::ZERO));
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}
