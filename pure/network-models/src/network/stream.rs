//! The bytes of one direction of a connection, from the sending application until their arrival.

use alloc::collections::VecDeque;

use engine::Buffer;

/// Maximum number of buffers in one direction. A sender of single bytes must wait for their
/// arrival.
pub(super) const BUFFERS_MAX: usize = 1 << 16;

/// Bytes in order, in the buffers in which they were sent.
#[derive(Debug, Default)]
pub(super) struct Stream {
    buffers: VecDeque<Buffer>,
    /// Number of bytes of the first buffer that were taken.
    taken: usize,
}

impl Stream {
    pub(super) fn buffers(&self) -> usize {
        self.buffers.len()
    }

    pub(super) fn push(&mut self, data: Buffer) {
        if !data.is_empty() {
            self.buffers.push_back(data);
        }
    }

    /// Takes up to `most` bytes, all from one buffer.
    pub(super) fn take(&mut self, most: usize) -> Buffer {
        let Some(first) = self.buffers.front() else { return Buffer::EMPTY };
        let end = first.len().min(self.taken + most);
        let data = first.slice(self.taken..end);
        if end == first.len() {
            self.buffers.pop_front();
            self.taken = 0;
        } else {
            self.taken = end;
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in() {
        let mut stream = Stream::default();
        stream.push(Buffer::copy_from_slice(b"hello "));
        stream.push(Buffer::EMPTY);
        stream.push(Buffer::copy_from_slice(b"world"));
        assert_eq!(stream.buffers(), 2);
        let mut all = alloc::vec::Vec::new();
        for most in [2, 9, 3, 9, 9] {
            all.extend_from_slice(&stream.take(most));
        }
        assert_eq!(all, b"hello world");
        assert_eq!(stream.buffers(), 0);
    }
}
