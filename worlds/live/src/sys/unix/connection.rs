//! A connection to a process of the same machine, over which descriptors can be passed.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use engine::{Buffer, BufferMut, Pool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};

/// The largest number of descriptors passed with one message; the kernel's own limit is 253.
pub const DESCRIPTORS_MAX: usize = 64;
/// The largest number of bytes that wait to be sent.
const OUTBOX_BYTES_MAX: usize = 16 << 20;
/// The largest number of messages that wait to be sent. The limit exists because an empty buffer
/// costs memory, too.
const OUTBOX_MESSAGES_MAX: usize = 1 << 14;
/// Length of a receive block in bytes.
const BLOCK: usize = 16 << 10;
/// A received piece of up to this many bytes is copied out, so that its block can be used again.
const COPY_MAX: usize = 4 << 10;
/// Number of buffers in one system call.
const SLICES_MAX: usize = 64;

/// The result of [`Connection::receive`].
#[derive(Debug)]
pub enum Received {
    /// Some bytes of the stream, and the descriptors that came with the last message in them.
    Data(Buffer, Vec<OwnedFd>),
    /// No bytes have arrived.
    Nothing,
    /// The peer has closed its side, and no more bytes will come.
    Closed,
}

/// Why a message cannot be sent. The connection is of no more use: bytes of its stream are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The outbox is full, because the peer has not read for too long.
    OutboxFull,
    /// The message has more than [`DESCRIPTORS_MAX`] descriptors.
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
    /// The descriptors that are sent with the first byte.
    descriptors: Vec<OwnedFd>,
}

/// A connection over a Unix socket whose calls never block.
pub struct Connection {
    socket: UnixStream,
    outbox: VecDeque<Message>,
    /// Number of bytes of the first message that are sent already.
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
    /// When no process listens at `path`. `WouldBlock` if the queue of connections to be accepted
    /// is full.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &SocketAddrUnix::new(path)?) {
            Ok(()) => Self::new(socket.into()),
            Err(Errno::AGAIN) => {
                let text = "its queue of connections is full; does the process that listens still run?";
                Err(io::Error::new(io::ErrorKind::WouldBlock, text))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Number of bytes that wait to be sent.
    pub const fn unsent(&self) -> usize {
        self.unsent
    }

    /// Number of bytes that have arrived and wait to be received. The most there can be where the
    /// system does not say.
    pub fn unread(&self) -> usize {
        let count = rustix::io::ioctl_fionread(&self.socket).ok();
        count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
    }

    /// The process id of the peer, if the system knows it.
    pub fn peer_process(&self) -> Option<i32> {
        let credentials = rustix::net::sockopt::socket_peercred(&self.socket).ok()?;
        Some(credentials.pid.as_raw_nonzero().get())
    }

    /// Whether the peer has closed its side. Bytes that it sent before may still be unread.
    pub fn is_closed_by_peer(&self) -> bool {
        self.is(PollFlags::RDHUP)
    }

    /// Whether the peer has closed its side, or has sent bytes that are still unread.
    pub fn has_news(&self) -> bool {
        self.is(PollFlags::IN | PollFlags::RDHUP)
    }

    /// Whether the socket is in one of the `wanted` states now, or has failed.
    fn is(&self, wanted: PollFlags) -> bool {
        let mut polled = [PollFd::new(&self.socket, wanted)];
        let asked = poll(&mut polled, Some(&Timespec::default()));
        asked.is_ok() && polled[0].revents().intersects(wanted | PollFlags::HUP | PollFlags::ERR)
    }

    /// Queues `bytes` and `descriptors` behind the bytes that wait to be sent.
    /// [`Connection::flush`] sends the queue.
    ///
    /// # Errors
    /// When the queue is full, or there are too many descriptors: see [`SendError`].
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

    /// Sends as many bytes as the kernel takes without blocking, and returns their number.
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

    /// Sends the first messages in one call, as long as none has descriptors. A message with
    /// descriptors is sent alone, because the receiver assigns descriptors to the last message of a
    /// piece.
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
                // The descriptors have been sent with the first byte.
                if self.sent > 0 {
                    first.descriptors.clear();
                }
                return;
            }
            self.sent -= first.bytes.len();
            self.outbox.pop_front();
        }
    }

    /// Receives the bytes that have arrived, without blocking. The bytes end where descriptors were
    /// attached: the descriptors belong to the message that holds the last byte.
    ///
    /// # Errors
    /// When the connection has failed, or more than [`DESCRIPTORS_MAX`] descriptors came at once.
    pub fn receive(&mut self, pool: &mut Pool) -> io::Result<Received> {
        let mut block = self.block.take().unwrap_or_else(|| pool.take(BLOCK));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let result = loop {
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut block)], &mut control, flags) {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        let received = match result {
            Ok(received) => received,
            Err(error) => {
                self.block = Some(block);
                return match error {
                    Errno::AGAIN => Ok(Received::Nothing),
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
            let text = format!(
                "more than {DESCRIPTORS_MAX} descriptors arrived at once, or this process has none left"
            );
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

    /// Ends both directions at once: bytes that wait are not sent, and [`Connection::receive`]
    /// returns [`Received::Closed`].
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
