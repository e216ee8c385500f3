//! The bytes of one direction of a connection, from when they are given until they have arrived.

use alloc::collections::VecDeque;

use engine::Buffer;

/// Buffers that one direction holds at most; a sender of single bytes must wait for them to arrive.
pub(super) const BUFFERS_MAX: usize = 1 << 16;

/// Bytes in order.
#[derive(Debug, Default)]
pub(super) struct Stream {
    buffers: VecDeque<Buffer>,
    /// Bytes of the first buffer that were taken.
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

    /// Takes up to `most` bytes, those of one buffer.
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
