//! Received bytes that were not processed yet.

use alloc::collections::VecDeque;

use engine::Buffer;

/// Length of the longest run of bytes that is needed in one piece: a header, its digest and the
/// padding behind it.
const CARRY_MAX: usize = 256;

/// Blocks of received bytes, read as one stream. A header that spans two blocks is assembled in
/// `carry`, so that a block is released as soon as its bytes were processed.
pub(crate) struct Inbound {
    block: Buffer,
    /// Bytes of the block that were processed.
    at: usize,
    later: VecDeque<Buffer>,
    carry: [u8; CARRY_MAX],
    carried: usize,
}

impl Default for Inbound {
    fn default() -> Self {
        Self { block: Buffer::EMPTY, at: 0, later: VecDeque::new(), carry: [0; CARRY_MAX], carried: 0 }
    }
}

impl core::fmt::Debug for Inbound {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Inbound({} carried, {} here, {} blocks later)",
            self.carried,
            self.left(),
            self.later.len()
        )
    }
}

impl Inbound {
    pub(crate) fn push(&mut self, bytes: Buffer) {
        if self.left() == 0 && self.later.is_empty() {
            self.block = bytes;
            self.at = 0;
        } else if !bytes.is_empty() {
            self.later.push_back(bytes);
        }
    }

    /// Bytes that were not processed yet, except the carried beginning of a header.
    pub(crate) fn len(&self) -> usize {
        self.left() + self.later.iter().map(|block| block.len()).sum::<usize>()
    }

    /// Bytes of the block that were not processed yet.
    fn left(&self) -> usize {
        self.block.len() - self.at
    }

    /// Whether no byte waits, except the carried beginning of a header.
    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0 && self.later.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Advances to the next block if this block is used up. Returns false if there is no further
    /// byte.
    fn advance(&mut self) -> bool {
        if self.left() > 0 {
            return true;
        }
        self.block = self.later.pop_front().unwrap_or(Buffer::EMPTY);
        self.at = 0;
        !self.block.is_empty()
    }

    /// The next `length` bytes, if they have arrived. The caller must then call [`Self::consume`]
    /// with the same length, or ask for more bytes.
    #[inline]
    pub(crate) fn head(&mut self, length: usize) -> Option<&[u8]> {
        if self.carried == 0 {
            if self.left() >= length {
                return self.block.get(self.at..self.at + length);
            }
            if self.is_empty() {
                return None;
            }
        }
        self.carry_to(length)
    }

    #[cold]
    fn carry_to(&mut self, length: usize) -> Option<&[u8]> {
        while self.carried < length {
            if !self.advance() {
                return None;
            }
            let count = (length - self.carried).min(self.left());
            self.carry[self.carried..self.carried + count]
                .copy_from_slice(&self.block[self.at..self.at + count]);
            self.carried += count;
            self.at += count;
        }
        self.advance();
        self.carry.get(..length)
    }

    /// Consumes the `length` bytes that [`Self::head`] has shown.
    #[inline]
    pub(crate) fn consume(&mut self, length: usize) {
        if self.carried == 0 {
            self.at += length;
        } else {
            assert!(self.carried == length, "assembled bytes are consumed together");
            self.carried = 0;
        }
        if self.left() == 0 {
            self.advance();
        }
    }

    /// Takes the next `length` bytes without copying, if they are in one block.
    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Option<Buffer> {
        if self.carried > 0 || self.left() < length {
            return None;
        }
        let bytes = self.block.slice(self.at..self.at + length);
        self.at += length;
        if self.left() == 0 {
            self.advance();
        }
        Some(bytes)
    }

    /// Moves as many received bytes into `place` as fit. Returns their number.
    pub(crate) fn fill(&mut self, place: &mut [u8]) -> usize {
        let mut done = 0;
        while done < place.len() && self.advance() {
            let count = (place.len() - done).min(self.left());
            place[done..done + count].copy_from_slice(&self.block[self.at..self.at + count]);
            self.at += count;
            done += count;
        }
        if self.left() == 0 {
            self.advance();
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// Every byte arrives once and in order, for any division of the stream and any reads.
        #[test]
        fn the_stream_is_whole(cuts in prop::collection::vec(1_usize..60, 1..40),
                               reads in prop::collection::vec((0..3_u8, 1_usize..100), 1..200)) {
            let total: usize = cuts.iter().sum();
            let bytes: Vec<u8> = (0..total).map(|index| u8::try_from(index % 251).unwrap()).collect();
            let mut inbound = Inbound::default();
            let mut seen = Vec::new();
            let mut rest = &bytes[..];
            let mut cuts = cuts.into_iter();
            for (how, length) in reads {
                if let Some(cut) = cuts.next() {
                    inbound.push(Buffer::copy_from_slice(&rest[..cut]));
                    rest = &rest[cut..];
                }
                match how {
                    0 => if let Some(head) = inbound.head(length).map(<[u8]>::to_vec) {
                        seen.extend(head);
                        inbound.consume(length);
                    } else {
                        // The bytes assembled so far are read with the next call.
                        let carried = inbound.carried;
                        seen.extend_from_slice(&inbound.carry[..carried]);
                        inbound.carried = 0;
                    },
                    1 => seen.extend(inbound.take(length).iter().flat_map(|taken| taken.to_vec())),
                    _ => {
                        let mut place = std::vec![0; length];
                        let count = inbound.fill(&mut place);
                        seen.extend_from_slice(&place[..count]);
                    }
                }
            }
            prop_assert_eq!(&seen[..], &bytes[..seen.len()]);
        }
    }
}
