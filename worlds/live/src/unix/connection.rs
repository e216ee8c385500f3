//! One connection to a client of the same machine.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use engine::{Buffer, BufferMut, Pool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Descriptors that are passed with one piece at most; the kernel passes no more than 253.
pub const DESCRIPTORS_MAX: usize = 64;
/// Bytes that wait to be sent at most.
const OUTBOX_BYTES_MAX: usize = 16 << 20;
/// Messages that wait to be sent at most: an empty buffer costs memory too.
const OUTBOX_MESSAGES_MAX: usize = 1 << 14;
/// Bytes to receive at once.
const BLOCK: usize = 16 << 10;
/// What arrives in one piece of up to this many bytes is copied out, so that the block is used again.
const COPY_MAX: usize = 4 << 10;
/// Buffers in one system call.
const SLICES_MAX: usize = 64;

/// What a connection had to give.
#[derive(Debug)]
pub enum Received {
    /// Some bytes of the stream, and the descriptors that came with the last of its messages.
    Data(Buffer, Vec<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// The client has closed its side; nothing will come.
    Closed,
}

/// Why a message can't be sent. The connection is of no more use: bytes of its stream are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The client has not read for so long that nothing more is kept for it.
    OutboxFull,
    /// More descriptors than [`DESCRIPTORS_MAX`].
    TooManyDescriptors,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutboxFull => f.write_str("the other end has not read for too long"),
            Self::TooManyDescriptors => {
                write!(f, "a message carries at most {DESCRIPTORS_MAX} descriptors")
            }
        }
    }
}

impl std::error::Error for SendError {}

struct Message {
    bytes: Buffer,
    /// They go with the first byte.
    descriptors: Vec<OwnedFd>,
}

/// A connection that never waits.
pub struct Connection {
    socket: UnixStream,
    outbox: VecDeque<Message>,
    /// Bytes of the first message that are sent.
    sent: usize,
    unsent: usize,
    block: Option<BufferMut>,
}

impl Connection {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, outbox: VecDeque::new(), sent: 0, unsent: 0, block: None })
    }

    /// Connects to the listener at `path`.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(path: &std::path::Path) -> io::Result<Self> {
        Self::new(UnixStream::connect(path)?)
    }

    /// Bytes that wait to be sent.
    pub const fn unsent(&self) -> usize {
        self.unsent
    }

    /// What the system says of the process at the other end: its number.
    pub fn peer_process(&self) -> Option<i32> {
        let credentials = rustix::net::sockopt::socket_peercred(&self.socket).ok()?;
        Some(credentials.pid.as_raw_nonzero().get())
    }

    /// Whether the client has closed its side, though there may be bytes of it that were not received yet.
    pub fn is_closed_by_peer(&self) -> bool {
        self.is(PollFlags::RDHUP)
    }

    /// Whether the client has closed its side, or there are bytes of it that were not received yet.
    pub fn has_news(&self) -> bool {
        self.is(PollFlags::IN | PollFlags::RDHUP)
    }

    /// Whether the socket is in one of these states now, or is of no more use.
    fn is(&self, wanted: PollFlags) -> bool {
        let mut polled = [PollFd::new(&self.socket, wanted)];
        let asked = poll(&mut polled, Some(&Timespec::default()));
        asked.is_ok() && polled[0].revents().intersects(wanted | PollFlags::HUP | PollFlags::ERR)
    }

    /// Puts `bytes` behind what waits to be sent, with `descriptors`; [`Connection::flush`] sends them.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&mut self, bytes: Buffer, descriptors: Vec<OwnedFd>) -> Result<(), SendError> {
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(SendError::TooManyDescriptors);
        }
        if self.unsent + bytes.len() > OUTBOX_BYTES_MAX || self.outbox.len() >= OUTBOX_MESSAGES_MAX {
            return Err(SendError::OutboxFull);
        }
        if !bytes.is_empty() {
            self.unsent += bytes.len();
            self.outbox.push_back(Message { bytes, descriptors });
        }
        Ok(())
    }

    /// Sends as much as the system takes without waiting; returns the bytes it took.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn flush(&mut self) -> io::Result<usize> {
        let mut total = 0;
        while self.unsent > 0 {
            match self.send_some() {
                Ok(count) => {
                    total += count;
                    self.on_sent(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// Sends the first message and those behind it, if none of them has descriptors; one with descriptors goes alone:
    /// whoever receives takes them for those of the last message that comes with them.
    fn send_some(&self) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for message in self.outbox.iter().take(SLICES_MAX) {
            if count > 0 && !message.descriptors.is_empty() {
                break;
            }
            let skip = if count == 0 { self.sent } else { 0 };
            slices[count] = IoSlice::new(&message.bytes[skip..]);
            count += 1;
            if !message.descriptors.is_empty() {
                break;
            }
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let mut borrowed = Vec::new();
        if let Some(first) =
            self.outbox.front().filter(|first| self.sent == 0 && !first.descriptors.is_empty())
        {
            borrowed.extend(first.descriptors.iter().map(AsFd::as_fd));
            let fits = control.push(SendAncillaryMessage::ScmRights(&borrowed));
            assert!(fits, "there is room for {DESCRIPTORS_MAX} descriptors");
        }
        Ok(sendmsg(&self.socket, &slices[..count], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    fn on_sent(&mut self, count: usize) {
        self.unsent -= count;
        self.sent += count;
        while let Some(first) = self.outbox.front_mut() {
            if self.sent < first.bytes.len() {
                // They have gone with the first byte.
                if self.sent > 0 {
                    first.descriptors.clear();
                }
                return;
            }
            self.sent -= first.bytes.len();
            self.outbox.pop_front();
        }
    }

    /// What has arrived, without waiting. Bytes end where descriptors were attached: these belong to the message that
    /// the last byte is of.
    ///
    /// # Errors
    /// When the connection has failed, or more descriptors came at once than [`DESCRIPTORS_MAX`].
    pub fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        let mut block = self.block.take().unwrap_or_else(|| pool.take(BLOCK));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let result = loop {
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut block)], &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result,
            }
        };
        let received = match result {
            Ok(received) => received,
            Err(error) => {
                self.block = Some(block);
                return match error {
                    rustix::io::Errno::AGAIN => Ok(Received::Nothing),
                    error => Err(error.into()),
                };
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            let text =
                format!("more than {DESCRIPTORS_MAX} descriptors came at once, or none were left here");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        match received.bytes {
            0 => Ok(Received::Closed),
            count if count <= COPY_MAX => {
                let data = pool.copy(&block[..count]);
                self.block = Some(block);
                Ok(Received::Data(data, descriptors))
            }
            count => {
                block.truncate(count);
                Ok(Received::Data(pool.seal(block), descriptors))
            }
        }
    }

    /// Ends both directions at once: what waits is not sent, and [`Connection::receive`] says closed.
    pub fn abort(&mut self) {
        self.outbox.clear();
        (self.sent, self.unsent) = (0, 0);
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({:?}, {} B unsent)", self.socket.as_raw_fd(), self.unsent)
    }
}
