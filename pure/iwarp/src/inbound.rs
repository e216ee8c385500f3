//! Splits received bytes into FPDUs.

use core::ops::Range;

use engine::{Buffer, BufferMut, Pool};
use rdma::SharedPool;

use crate::wire::{CRC_LENGTH, Header, LENGTH_FIELD, fpdu_length, padding};

/// Length of an FPDU before the data of a tagged segment, in bytes.
pub(crate) const HEAD_LENGTH: usize = LENGTH_FIELD + Header::TAGGED_LENGTH;
/// Maximum number of bytes behind the data: padding and CRC.
const TAIL_MAX: usize = 3 + CRC_LENGTH;

/// The place of a tagged segment's data: a range of a block.
pub(crate) type Place = (BufferMut, Range<usize>);

/// A tagged segment whose data arrive directly in their place.
#[derive(Debug)]
pub(crate) struct Placed {
    /// Length field and header.
    pub(crate) head: [u8; HEAD_LENGTH],
    pub(crate) block: BufferMut,
    /// The range of the data in the block.
    pub(crate) range: Range<usize>,
    tail: [u8; TAIL_MAX],
    /// Number of bytes of data and tail that have arrived.
    filled: usize,
}

impl Placed {
    fn begin(head: &[u8; HEAD_LENGTH], (block, range): Place) -> Self {
        Self { head: *head, block, range, tail: [0; TAIL_MAX], filled: 0 }
    }

    /// Length of padding and CRC in bytes.
    fn tail_length(&self) -> usize {
        padding(u16::from_be_bytes([self.head[0], self.head[1]])) + CRC_LENGTH
    }

    /// Padding and CRC.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail[..self.tail_length()]
    }

    /// The data.
    pub(crate) fn data(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }

    /// The place of the next bytes.
    fn landing(&mut self) -> &mut [u8] {
        let length = self.range.len();
        match self.filled < length {
            true => &mut self.block[self.range.start + self.filled..self.range.end],
            false => {
                let end = self.tail_length();
                &mut self.tail[self.filled - length..end]
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.filled == self.range.len() + self.tail_length()
    }
}

/// An FPDU that arrives in several blocks.
#[derive(Debug)]
enum Partial {
    /// It is assembled in a block.
    Assembly { block: BufferMut, filled: usize },
    /// Its data have a place of their own, and are not assembled.
    Placed(Placed),
}

/// A complete FPDU.
#[derive(Debug)]
pub(crate) enum Fpdu {
    /// In one piece.
    Whole(Buffer),
    /// Its data are in their place.
    Placed(Placed),
}

/// The incomplete FPDU. An FPDU within one received block is a slice of that block. The data of any
/// other tagged segment arrive directly in their place. A segment without a place is assembled,
/// which copies it once. So at most one FPDU waits here.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    partial: Option<Partial>,
    /// The first byte of an FPDU of which nothing else has arrived.
    first: Option<u8>,
}

impl Inbound {
    /// The next FPDU, if `block` has the rest of it from `at` on. Moves `at` behind the bytes
    /// taken. `place` returns the place of the data for the head of a tagged segment, if they may
    /// be written there before the CRC is checked.
    #[inline]
    pub(crate) fn next(
        &mut self,
        block: &Buffer,
        at: &mut usize,
        pool: &SharedPool,
        place: impl FnOnce(&[u8; HEAD_LENGTH]) -> Option<Place>,
    ) -> Option<Fpdu> {
        if self.partial.is_none() {
            let rest = &block[*at..];
            let (skip, length) = match (self.first, rest) {
                (None, [high, low, ..]) => (0, u16::from_be_bytes([*high, *low])),
                (Some(high), [low, ..]) => (1, u16::from_be_bytes([high, *low])),
                (None, [high]) => {
                    self.first = Some(*high);
                    *at += 1;
                    return None;
                }
                (_, []) => return None,
            };
            let total = fpdu_length(length);
            if skip == 0 && rest.len() >= total {
                let start = *at;
                *at += total;
                return Some(Fpdu::Whole(block.slice(start..*at)));
            }
            let head = rest.first_chunk().filter(|_| skip == 0);
            self.partial = Some(match head.and_then(|head| Some((head, place(head)?))) {
                Some((head, place)) => {
                    *at += HEAD_LENGTH;
                    Partial::Placed(Placed::begin(head, place))
                }
                None => {
                    let mut block = pool.borrow_mut().take(total);
                    if let Some(high) = self.first.take() {
                        block[0] = high;
                    }
                    Partial::Assembly { block, filled: skip }
                }
            });
        }
        // The data and the bytes behind them are two pieces.
        while let Some(landing) = self.awaited().filter(|_| *at < block.len()) {
            let count = landing.len().min(block.len() - *at);
            landing[..count].copy_from_slice(&block[*at..*at + count]);
            *at += count;
            if let Some(fpdu) = self.landed(count, &mut pool.borrow_mut()) {
                return Some(fpdu);
            }
        }
        None
    }

    fn awaited(&mut self) -> Option<&mut [u8]> {
        match self.partial.as_mut()? {
            Partial::Assembly { block, filled } => Some(&mut block[*filled..]),
            Partial::Placed(placed) => Some(placed.landing()),
        }
    }

    /// The place of the next received bytes, if an FPDU is incomplete and lacks more than the few
    /// bytes behind its data.
    pub(crate) fn landing(&mut self) -> Option<&mut [u8]> {
        self.awaited().filter(|place| place.len() > TAIL_MAX)
    }

    /// Reports that the first `count` bytes of [`Self::landing`] have arrived. Returns the FPDU if
    /// it is complete.
    ///
    /// # Panics
    /// When the place is shorter.
    pub(crate) fn landed(&mut self, count: usize, pool: &mut Pool) -> Option<Fpdu> {
        let room = self.awaited()?.len();
        assert!(count <= room, "{count} B landed in a place of {room}");
        let is_whole = match self.partial.as_mut()? {
            Partial::Assembly { block, filled } => {
                *filled += count;
                *filled == block.len()
            }
            Partial::Placed(placed) => {
                placed.filled += count;
                placed.is_whole()
            }
        };
        match self.partial.take_if(|_| is_whole)? {
            Partial::Assembly { block, .. } => Some(Fpdu::Whole(pool.seal(block))),
            Partial::Placed(placed) => Some(Fpdu::Placed(placed)),
        }
    }

    /// Takes away the place of an incomplete segment, if `is_it` selects that segment. The segment
    /// is assembled in its place.
    pub(crate) fn displace(
        &mut self,
        pool: &SharedPool,
        is_it: impl FnOnce(&[u8; HEAD_LENGTH]) -> bool,
    ) -> Option<Placed> {
        let is_placed = |partial: &mut Partial| match partial {
            Partial::Placed(placed) => is_it(&placed.head),
            Partial::Assembly { .. } => false,
        };
        let Partial::Placed(placed) = self.partial.take_if(is_placed)? else { return None };
        let length = placed.range.len();
        let mut block = pool.borrow_mut().take(HEAD_LENGTH + length + placed.tail_length());
        block[..HEAD_LENGTH].copy_from_slice(&placed.head);
        block[HEAD_LENGTH..HEAD_LENGTH + length].copy_from_slice(placed.data());
        block[HEAD_LENGTH + length..].copy_from_slice(placed.tail());
        self.partial = Some(Partial::Assembly { block, filled: HEAD_LENGTH + placed.filled });
        Some(placed)
    }

    /// Whether an FPDU is incomplete.
    pub(crate) const fn is_within(&self) -> bool {
        self.partial.is_some() || self.first.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn bytes_of(fpdu: Fpdu) -> Vec<u8> {
        match fpdu {
            Fpdu::Whole(bytes) => bytes.to_vec(),
            Fpdu::Placed(placed) => [&placed.head, placed.data(), placed.tail()].concat(),
        }
    }

    proptest! {
        /// Every FPDU arrives complete and in order, for any division of the stream, with landing
        /// or in blocks, and with or without a place for the data.
        #[test]
        fn fpdus_come_whole(lengths in prop::collection::vec(0_u16..300, 1..20),
                            cuts in prop::collection::vec((1_usize..400, any::<bool>()), 1..60),
                            is_placed in any::<bool>(), displaces in any::<bool>()) {
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for length in lengths {
                let mut fpdu = Vec::from(length.to_be_bytes());
                fpdu.extend((2..fpdu_length(length)).map(|index| u8::try_from(index % 251).unwrap()));
                stream.extend_from_slice(&fpdu);
                expected.push(fpdu);
            }
            let (mut inbound, pool, mut seen) = (Inbound::default(), SharedPool::default(), Vec::new());
            let mut rest = &stream[..];
            for (cut, lands) in cuts.into_iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let piece;
                match inbound.landing().filter(|_| lands) {
                    Some(place) => {
                        let count = place.len().min(cut).min(rest.len());
                        (piece, rest) = rest.split_at(count);
                        place[..count].copy_from_slice(piece);
                        seen.extend(inbound.landed(count, &mut pool.borrow_mut()).map(bytes_of));
                    }
                    None => {
                        (piece, rest) = rest.split_at(cut.min(rest.len()));
                        let (block, mut at) = (Buffer::copy_from_slice(piece), 0);
                        let place = |head: &[u8; HEAD_LENGTH]| {
                            let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
                            let length = length.checked_sub(HEAD_LENGTH - LENGTH_FIELD)?;
                            let block = pool.borrow_mut().take(length + 9);
                            is_placed.then_some((block, 9..length + 9))
                        };
                        while let Some(fpdu) = inbound.next(&block, &mut at, &pool, place) {
                            seen.push(bytes_of(fpdu));
                        }
                        if displaces {
                            inbound.displace(&pool, |_| true);
                        }
                        prop_assert_eq!(at, block.len());
                    }
                }
            }
            prop_assert!(!inbound.is_within());
            prop_assert_eq!(seen, expected);
        }
    }
}
