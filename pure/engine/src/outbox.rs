//! Bytes to be sent.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::{Buffer, Pool};

/// Payloads shorter than this are copied behind their header, which costs less than a separate
/// piece.
const GATHER_MIN: usize = 512;
/// Limit on sent bytes at the front of the written bytes. Beyond it, the outbox may move the unsent
/// bytes to the front.
const SENT_MAX: usize = 64 << 10;

#[derive(Debug)]
enum Piece {
    /// Length of a piece of the written bytes.
    Written(usize),
    Payload(Buffer),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Written(length) => *length,
            Self::Payload(payload) => payload.len(),
        }
    }
}

/// The bytes that a connection has to send, in order: headers are written into one block, payloads
/// stay where they are. A driver passes [`Outbox::slices`] to one gathering system call, and
/// reports by the connection's `sent` how many bytes were sent.
#[derive(Debug, Default)]
pub struct Outbox {
    written: Vec<u8>,
    /// Bytes of `written` that were sent.
    start: usize,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were sent.
    offset: usize,
    length: usize,
    sent: u64,
}

impl Outbox {
    /// Number of bytes to be sent.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether everything was sent.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of pieces in [`Outbox::slices`].
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The bytes to be sent, in pieces.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = self.start;
        let mut offset = self.offset;
        self.pieces.iter().map(move |piece| {
            let skip = core::mem::take(&mut offset);
            match piece {
                Piece::Written(length) => {
                    // `start` is already past the sent bytes of the first piece.
                    let bytes = &self.written[at..at + length - skip];
                    at += length - skip;
                    bytes
                }
                Piece::Payload(payload) => &payload[skip..],
            }
        })
    }

    /// Takes everything out as buffers, for a world that has no gathering system call.
    pub fn take_all(&mut self, pool: &mut Pool, mut each: impl FnMut(Buffer)) {
        let mut at = self.start;
        let mut offset = core::mem::take(&mut self.offset);
        while let Some(piece) = self.pieces.pop_front() {
            let skip = core::mem::take(&mut offset);
            match piece {
                Piece::Written(length) => {
                    let end = at + length - skip;
                    for chunk in self.written[at..end].chunks(Pool::LENGTH_MAX) {
                        each(pool.copy(chunk));
                    }
                    at = end;
                }
                Piece::Payload(payload) => each(payload.slice(skip..payload.len())),
            }
        }
        self.sent += self.length as u64;
        self.length = 0;
        self.written.clear();
        self.start = 0;
    }

    /// Position of the end of the outbox in the stream: the number of bytes sent once everything
    /// here now was sent.
    pub const fn end(&self) -> u64 {
        self.sent + self.length as u64
    }

    /// Bytes sent since the beginning.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Adds bytes by copying them.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        self.length += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Written(length)) => *length += bytes.len(),
            _ => self.pieces.push_back(Piece::Written(bytes.len())),
        }
    }

    /// Adds `count` zeros.
    #[inline]
    pub fn pad(&mut self, count: usize) {
        const ZEROES: [u8; 128] = [0; 128];
        if count > 0 {
            self.write(&ZEROES[..count]);
        }
    }

    /// Adds a payload.
    #[inline]
    pub fn gather(&mut self, payload: Buffer) {
        if payload.len() < GATHER_MIN {
            if !payload.is_empty() {
                self.write(&payload);
            }
            return;
        }
        self.length += payload.len();
        self.pieces.push_back(Piece::Payload(payload));
    }

    /// The first `count` bytes were sent.
    ///
    /// # Panics
    /// When there are fewer than `count` bytes.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.length, "{count} B sent of {}", self.length);
        self.length -= count;
        self.sent += count as u64;
        let mut left = count;
        while let Some(piece) = self.pieces.front() {
            let rest = piece.len() - self.offset;
            let taken = rest.min(left);
            if matches!(piece, Piece::Written(_)) {
                self.start += taken;
            }
            left -= taken;
            if taken < rest {
                self.offset += taken;
                break;
            }
            self.offset = 0;
            self.pieces.pop_front();
        }
        if self.start == self.written.len() {
            self.written.clear();
            self.start = 0;
        } else if self.start > SENT_MAX && self.start > self.written.len() / 2 {
            self.written.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every byte is sent once and in order, for any sizes of the pieces taken.
        #[test]
        fn every_byte_goes_once(pieces in prop::collection::vec((any::<bool>(), 0_usize..2000), 1..40),
                                takes in prop::collection::vec(1_usize..3000, 1..60)) {
            let (mut outbox, mut expected, mut seen) = (Outbox::default(), Vec::new(), Vec::new());
            let mut takes = takes.into_iter().cycle();
            for (number, (gather, length)) in (0_u8..).zip(pieces) {
                let bytes = std::vec![number; length];
                expected.extend_from_slice(&bytes);
                if gather {
                    outbox.gather(Buffer::copy_from_slice(&bytes));
                } else {
                    outbox.write(&bytes);
                }
                let all: Vec<u8> = outbox.slices().flatten().copied().collect();
                prop_assert_eq!(all.len(), outbox.len());
                let count = takes.next().unwrap().min(all.len());
                seen.extend_from_slice(&all[..count]);
                outbox.advance(count);
            }
            prop_assert_eq!(outbox.sent(), seen.len() as u64);
            outbox.take_all(&mut Pool::default(), |buffer| seen.extend_from_slice(&buffer));
            prop_assert!(outbox.is_empty() && outbox.end() == expected.len() as u64);
            prop_assert_eq!(seen, expected);
        }
    }
}
