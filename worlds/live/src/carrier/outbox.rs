//! Bytes that are to be sent and that the kernel has not taken yet.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, Write};

use engine::Buffer;

/// The largest number of bytes that wait in a connection's outbox.
pub const OUTBOX_BYTES_MAX: usize = 16 << 20;
/// The largest number of buffers in an outbox. The limit exists because an empty buffer costs
/// memory, too.
const OUTBOX_BUFFERS_MAX: usize = 1 << 16;
/// Number of buffers in one system call.
const SLICES_MAX: usize = 64;

/// The outbox is full, because the peer has not read for too long. The connection is of no more
/// use: bytes of its stream are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxFull;

impl fmt::Display for OutboxFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer has left {OUTBOX_BYTES_MAX} B unread")
    }
}

impl std::error::Error for OutboxFull {}

/// Buffers that wait to be sent, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    buffers: VecDeque<Buffer>,
    /// Number of bytes of the first buffer that are sent already.
    sent: usize,
    bytes: usize,
}

impl Outbox {
    /// Number of bytes that the kernel has not taken yet.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, data: Buffer) -> Result<(), OutboxFull> {
        if self.bytes + data.len() > OUTBOX_BYTES_MAX || self.buffers.len() >= OUTBOX_BUFFERS_MAX {
            return Err(OutboxFull);
        }
        if !data.is_empty() {
            self.bytes += data.len();
            self.buffers.push_back(data);
        }
        Ok(())
    }

    /// Writes as much as `socket` takes without blocking, and returns the number of bytes.
    pub(crate) fn write_to(&mut self, socket: &mut impl Write) -> io::Result<usize> {
        let mut total = 0;
        while self.bytes > 0 {
            let written = match &mut self.buffers {
                buffers if buffers.len() == 1 => socket.write(&buffers[0][self.sent..]),
                buffers => {
                    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                    let count = buffers.len().min(SLICES_MAX);
                    for (slice, buffer) in slices.iter_mut().zip(&*buffers) {
                        *slice = IoSlice::new(buffer);
                    }
                    slices[0] = IoSlice::new(&buffers[0][self.sent..]);
                    socket.write_vectored(&slices[..count])
                }
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.on_written(count);
                    total += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn on_written(&mut self, count: usize) {
        self.bytes -= count;
        self.sent += count;
        while let Some(first) = self.buffers.front().map(|first| first.len()) {
            if self.sent < first {
                return;
            }
            self.sent -= first;
            self.buffers.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes in each call, and now and then none.
    #[derive(Default)]
    struct Trickle {
        taken: Vec<u8>,
        calls: usize,
    }

    impl Write for Trickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.calls % 7 + 1);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_socket_that_takes_little_gets_every_byte_once_and_in_order() {
        let (mut outbox, mut socket, mut expected) = (Outbox::default(), Trickle::default(), Vec::new());
        for length in 0..100_u8 {
            let bytes = vec![length; usize::from(length) % 13];
            expected.extend_from_slice(&bytes);
            outbox.push(Buffer::from(bytes)).unwrap();
            outbox.write_to(&mut socket).unwrap();
        }
        while outbox.bytes() > 0 {
            outbox.write_to(&mut socket).unwrap();
        }
        assert_eq!(socket.taken, expected);
        assert_eq!((outbox.buffers.len(), outbox.sent), (0, 0));
    }

    #[test]
    fn it_holds_no_more_than_its_limits() {
        let mut outbox = Outbox::default();
        let megabyte = Buffer::zeroed(1 << 20);
        for _ in 0..16 {
            outbox.push(megabyte.clone()).unwrap();
        }
        assert_eq!(outbox.push(megabyte.slice(0..1)), Err(OutboxFull));
        let mut outbox = Outbox::default();
        let pushed = (0..100_000).take_while(|_| outbox.push(megabyte.slice(0..1)).is_ok()).count();
        assert_eq!(pushed, OUTBOX_BUFFERS_MAX);
    }
}
