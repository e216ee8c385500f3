//! A process hands over its state and descriptors to its successor, over a socket that the two have
//! between them.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most descriptors of a hand-over, that of its state among them.
pub const DESCRIPTORS_MAX: usize = 64;
/// Why a state was not taken over.
const ENDED: &str = "the successor has ended without taking over";
/// The byte that descriptors come with.
const LEFT: u8 = 0;
/// The successor has taken the state, and goes on with it.
const TAKEN: u8 = 1;

/// The means by which a successor goes on.
#[derive(Debug)]
pub struct HandOver {
    /// The state.
    pub state: Vec<u8>,
    /// Sockets and files that go on being used, at most [`DESCRIPTORS_MAX`] - 1.
    pub descriptors: Vec<OwnedFd>,
}

/// The socket between a process and its successor.
#[derive(Debug)]
pub struct Channel(UnixStream);

impl Channel {
    /// The two ends of a new socket.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn pair() -> io::Result<[Self; 2]> {
        let (one, other) = UnixStream::pair()?;
        Ok([Self(one), Self(other)])
    }

    /// Sends `hand_over`, and waits until the successor has taken it, for `patience` at most.
    ///
    /// # Errors
    /// When the successor ends, or does not answer in time. The caller goes on then.
    pub fn leave(&self, hand_over: &HandOver, patience: Duration) -> io::Result<()> {
        let mut memory = File::from(memfd_create("farlane-state", MemfdFlags::CLOEXEC)?);
        memory.write_all(&hand_over.state)?;
        memory.rewind()?;
        let mut descriptors = vec![memory.as_fd()];
        descriptors.extend(hand_over.descriptors.iter().map(AsFd::as_fd));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other(format!("more than {} descriptors", DESCRIPTORS_MAX - 1)));
        }
        sendmsg(&self.0, &[IoSlice::new(&[LEFT])], &mut rights, SendFlags::NOSIGNAL)?;
        self.0.set_read_timeout(Some(patience))?;
        let mut answer = [0];
        match self.read(&mut answer) {
            Ok(1) if answer == [TAKEN] => Ok(()),
            Ok(_) => Err(io::Error::other(ENDED)),
            // It has not even read all of it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Err(io::Error::other(ENDED)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the successor did not take over in time"))
            }
            Err(error) => Err(error),
        }
    }

    /// The process that has made the pair of sockets, if the system knows it.
    pub fn maker(&self) -> Option<i32> {
        let credentials = rustix::net::sockopt::socket_peercred(&self.0).ok()?;
        Some(credentials.pid.as_raw_nonzero().get())
    }

    /// Takes what the predecessor leaves; `None` if it leaves nothing within `patience`, or ends.
    ///
    /// # Errors
    /// When the socket fails, or brings something else.
    pub fn take(&self, patience: Duration) -> io::Result<Option<HandOver>> {
        self.0.set_read_timeout(Some(patience))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut left = [LEFT];
        let slices = &mut [IoSliceMut::new(&mut left)];
        let received = loop {
            match recvmsg(&self.0, slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                result => break result?,
            }
        };
        let rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let mut descriptors: Vec<OwnedFd> = rights.flatten().collect();
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || descriptors.is_empty() {
            return Err(io::Error::other("this process has no descriptors left"));
        }
        let mut state = Vec::new();
        File::from(descriptors.remove(0)).read_to_end(&mut state)?;
        Ok(Some(HandOver { state, descriptors }))
    }

    /// Says that the state is taken, and waits until the predecessor has let go of everything
    /// else, for `patience` at most.
    ///
    /// # Errors
    /// When the predecessor no longer waits.
    pub fn accept(&self, patience: Duration) -> io::Result<()> {
        (&self.0).write_all(&[TAKEN])?;
        self.0.set_read_timeout(Some(patience))?;
        // The end of the stream, and an end of the patience, both mean to go on.
        let _ = self.read(&mut [0]);
        Ok(())
    }

    /// Reads like [`Read::read`]. A medium's work in the background interrupts calls that wait.
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.0).read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self(socket.into())
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time that no answer of a thread takes.
    const LONG: Duration = Duration::from_secs(20);

    fn hand_over() -> HandOver {
        let pipe = io::pipe().unwrap();
        HandOver { state: vec![7; 3 << 20], descriptors: vec![pipe.1.into()] }
    }

    #[test]
    fn a_state_is_taken_with_its_descriptors() {
        let [successor, predecessor] = Channel::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let left = HandOver { descriptors: vec![writer.into()], ..hand_over() };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                predecessor.leave(&left, LONG).unwrap();
                drop(left);
                drop(predecessor);
            });
            let taken = successor.take(LONG).unwrap().unwrap();
            assert_eq!(taken.state.len(), 3 << 20);
            successor.accept(LONG).unwrap();
            let [writer] = <[OwnedFd; 1]>::try_from(taken.descriptors).unwrap();
            File::from(writer).write_all(b"on").unwrap();
            let mut read = [0; 2];
            reader.read_exact(&mut read).unwrap();
            assert_eq!(&read, b"on");
        });
    }

    #[test]
    fn a_successor_that_ends_or_says_nothing_has_not_taken_it() {
        let [successor, predecessor] = Channel::pair().unwrap();
        let late = predecessor.leave(&hand_over(), Duration::from_millis(20)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(successor);
        assert!(predecessor.leave(&hand_over(), LONG).is_err());
    }

    #[test]
    fn a_predecessor_that_ends_leaves_nothing() {
        let [successor, predecessor] = Channel::pair().unwrap();
        assert!(successor.take(Duration::from_millis(20)).unwrap().is_none());
        drop(predecessor);
        assert!(successor.take(LONG).unwrap().is_none());
        assert!(successor.accept(LONG).is_err());
    }
}
