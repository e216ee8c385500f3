//! Received bytes, cut into FPDUs.

use engine::{Buffer, BufferMut, Pool};

use crate::wire::fpdu_length;

/// An FPDU that does not come in one block.
#[derive(Debug)]
struct Assembly {
    block: BufferMut,
    filled: usize,
}

/// What of an FPDU has come. An FPDU that is in one received block is a slice of it; any other is
/// put together once. So at most one FPDU waits here.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    assembly: Option<Assembly>,
    /// The first byte of an FPDU, when nothing else of it has come.
    first: Option<u8>,
}

impl Inbound {
    /// The next FPDU, if the rest of it is in `block` from `at` on. Moves `at` behind the bytes
    /// that were taken.
    #[inline]
    pub(crate) fn next(&mut self, block: &Buffer, at: &mut usize, pool: &mut Pool) -> Option<Buffer> {
        if self.assembly.is_none() {
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
                return Some(block.slice(start..*at));
            }
            let mut assembly = Assembly { block: pool.take(total), filled: skip };
            if let Some(high) = self.first.take() {
                assembly.block[0] = high;
            }
            self.assembly = Some(assembly);
        }
        let place = self.landing()?;
        let count = place.len().min(block.len() - *at);
        place[..count].copy_from_slice(&block[*at..*at + count]);
        *at += count;
        self.landed(count, pool)
    }

    /// Where the next received bytes belong, if an FPDU has begun.
    pub(crate) fn landing(&mut self) -> Option<&mut [u8]> {
        let Assembly { block, filled } = self.assembly.as_mut()?;
        Some(&mut block[*filled..])
    }

    /// The first `count` bytes of [`Self::landing`] have come. Returns the FPDU if it is complete.
    ///
    /// # Panics
    /// When fewer bytes were to come.
    pub(crate) fn landed(&mut self, count: usize, pool: &mut Pool) -> Option<Buffer> {
        let assembly = self.assembly.as_mut()?;
        let room = assembly.block.len() - assembly.filled;
        assert!(count <= room, "{count} B landed where {room} had room");
        assembly.filled += count;
        let whole = self.assembly.take_if(|assembly| assembly.filled == assembly.block.len())?;
        Some(pool.seal(whole.block))
    }

    /// Whether an FPDU has begun and is not complete.
    pub(crate) const fn is_within(&self) -> bool {
        self.assembly.is_some() || self.first.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// However the stream is cut, and whether bytes land or come in blocks, every FPDU comes
        /// whole and in order.
        #[test]
        fn fpdus_come_whole(lengths in prop::collection::vec(0_u16..300, 1..20),
                            cuts in prop::collection::vec((1_usize..400, any::<bool>()), 1..60)) {
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for length in lengths {
                let mut fpdu = Vec::from(length.to_be_bytes());
                fpdu.extend((2..fpdu_length(length)).map(|index| u8::try_from(index % 251).unwrap()));
                stream.extend_from_slice(&fpdu);
                expected.push(fpdu);
            }
            let (mut inbound, mut pool, mut seen) = (Inbound::default(), Pool::default(), Vec::new());
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
                        seen.extend(inbound.landed(count, &mut pool).map(|fpdu| fpdu.to_vec()));
                    }
                    None => {
                        (piece, rest) = rest.split_at(cut.min(rest.len()));
                        let (block, mut at) = (Buffer::copy_from_slice(piece), 0);
                        while let Some(fpdu) = inbound.next(&block, &mut at, &mut pool) {
                            seen.push(fpdu.to_vec());
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
