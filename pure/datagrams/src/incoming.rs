//! The received part: packets, and bytes of the stream.

use alloc::collections::{BTreeMap, VecDeque};

use engine::{Buffer, BufferMut, Instant, Pool};

use crate::packet::{Ack, COVERED};

/// Maximum number of bytes of the stream that are kept for the user, or until earlier ones arrive.
const WINDOW: u64 = 8 << 20;
/// Maximum number of pieces that are kept until earlier ones arrive. Datagrams beyond count as
/// lost.
const PIECES_MAX: usize = 4096;
/// The most bytes of these pieces.
const EARLY_MAX: u64 = 2 * WINDOW;

/// Length of a block, which holds the bytes of many packets in a row. The cost of the user for each
/// piece is so high that a piece for each packet would be most of the work.
const BLOCK: usize = 64 << 10;
/// A block with no more than this many bytes is copied for the user, and filled further.
const COPY_MAX: usize = 4 << 10;

/// The received part of one end.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// The largest number of a received packet; 0 if there is none.
    largest: u64,
    /// Bit `i`: the packet `i + 1` before the largest was received too.
    before: u128,
    largest_at: Instant,
    /// Every byte of the stream before this one was received.
    whole: u64,
    /// Pieces that were received before an earlier one, by their offset.
    early: BTreeMap<u64, Buffer>,
    early_bytes: u64,
    /// Full blocks that wait for the user.
    ready: VecDeque<Buffer>,
    /// The block behind them, and the number of its valid bytes.
    filling: Option<BufferMut>,
    filled: usize,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is new, and the one after the largest before.
    InOrder,
    /// It is new, and others are missing before it, or it was missing.
    OutOfOrder,
    /// It is a duplicate, or too old to be known.
    Again,
    /// There is no room for its bytes, or they are invalid; it counts as lost.
    NoRoom,
}

impl Incoming {
    /// Accepts packet `number` with `bytes` at `offset` of the stream, without bytes that were
    /// received before.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        number: u64,
        (offset, bytes): (u64, &[u8]),
        pool: &mut Pool,
    ) -> Taken {
        if number == 0 || self.has(number) {
            return Taken::Again;
        }
        if !bytes.is_empty() && !self.keep(offset, bytes, pool) {
            return Taken::NoRoom;
        }
        let in_order = number - 1 == self.largest;
        match number.checked_sub(self.largest) {
            Some(ahead) => {
                // The former largest becomes the one `ahead` before the new one.
                let shifted = if ahead < COVERED { self.before << ahead } else { 0 };
                let former = if ahead <= COVERED && self.largest > 0 { 1 << (ahead - 1) } else { 0 };
                self.before = shifted | former;
                (self.largest, self.largest_at) = (number, now);
            }
            None => self.before |= 1 << (self.largest - number - 1),
        }
        if in_order { Taken::InOrder } else { Taken::OutOfOrder }
    }

    /// Whether packet `number` was received, or is so old that it must count as received.
    fn has(&self, number: u64) -> bool {
        self.largest.checked_sub(number).is_some_and(|back| back > COVERED)
            || Ack { largest: self.largest, before: self.before, ..Ack::default() }.has(number)
    }

    /// Keeps the new part of the bytes at `offset`; returns whether there is room for all of it.
    fn keep(&mut self, offset: u64, bytes: &[u8], pool: &mut Pool) -> bool {
        let Some(end) = offset.checked_add(bytes.len() as u64) else { return false };
        // The missing bytes that the others wait for always have room.
        let is_crowd = offset > self.whole && self.early.len() >= PIECES_MAX;
        if end > self.whole + self.window() || is_crowd {
            return end <= self.whole;
        }
        let start = offset.max(self.whole);
        let Some(skipped) = end.checked_sub(start).map(|left| bytes.len() as u64 - left) else { return true };
        let fresh = &bytes[usize::try_from(skipped).unwrap_or(bytes.len())..];
        if fresh.is_empty() {
            return true;
        }
        if start > self.whole {
            let known = self.early.get(&start).map_or(0, Buffer::len);
            let more = fresh.len().saturating_sub(known) as u64;
            // Pieces may overlap, so that the window does not limit their bytes.
            if self.early_bytes + more > EARLY_MAX {
                return false;
            }
            if more > 0 {
                self.early_bytes += more;
                self.early.insert(start, pool.copy(fresh));
            }
            return true;
        }
        self.append(fresh, pool);
        while let Some(first) = self.early.first_entry() {
            if *first.key() > self.whole {
                break;
            }
            let (offset, piece) = first.remove_entry();
            self.early_bytes -= piece.len() as u64;
            let known = usize::try_from(self.whole - offset).unwrap_or(usize::MAX);
            self.append(piece.get(known..).unwrap_or_default(), pool);
        }
        true
    }

    /// Appends bytes of the stream to the readable part.
    fn append(&mut self, mut bytes: &[u8], pool: &mut Pool) {
        self.whole += bytes.len() as u64;
        while !bytes.is_empty() {
            let block = self.filling.get_or_insert_with(|| pool.take(BLOCK));
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            block[self.filled..][..now.len()].copy_from_slice(now);
            (self.filled, bytes) = (self.filled + now.len(), later);
            if self.filled == BLOCK {
                let full = self.filling.take().map(|block| pool.seal(block));
                self.ready.extend(full);
                self.filled = 0;
            }
        }
    }

    /// Number of bytes from the first missing one on that may be sent.
    fn window(&self) -> u64 {
        WINDOW.saturating_sub((self.ready.len() * BLOCK + self.filled) as u64)
    }

    /// The next bytes of the stream, and whether to report to the peer that there is room again.
    pub(crate) fn pop(&mut self, pool: &mut Pool) -> Option<(Buffer, bool)> {
        let before = self.window();
        let piece = match self.ready.pop_front() {
            Some(full) => full,
            None => self.pop_filled(pool)?,
        };
        Some((piece, before < WINDOW / 2 && self.window() >= WINDOW / 2))
    }

    /// The valid bytes of the block that is being filled.
    fn pop_filled(&mut self, pool: &mut Pool) -> Option<Buffer> {
        let filled = core::mem::take(&mut self.filled);
        match &self.filling {
            _ if filled == 0 => None,
            Some(block) if filled <= COPY_MAX => Some(pool.copy(&block[..filled])),
            _ => self.filling.take().map(|mut block| {
                block.truncate(filled);
                pool.seal(block)
            }),
        }
    }

    /// Whether any packet was received.
    pub(crate) const fn has_any(&self) -> bool {
        self.largest > 0
    }

    /// The acknowledgement for all of this at `now`.
    pub(crate) fn ack(&self, now: Instant) -> Ack {
        Ack {
            largest: self.largest,
            before: self.before,
            whole: self.whole,
            window: u32::try_from(self.window()).unwrap_or(u32::MAX),
            delay: u32::try_from((now - self.largest_at).get()).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn pieces_that_overlap_have_a_limit() {
        const LENGTH: usize = 60_000;
        let (mut incoming, mut pool, piece) = (Incoming::default(), Pool::default(), vec![0; LENGTH]);
        let mut take = |number: u64| incoming.take(Instant::ZERO, number, (number, &piece[..]), &mut pool);
        let kept = (1..=1_000).filter(|number| take(*number) != Taken::NoRoom).count();
        assert_eq!(kept as u64, EARLY_MAX / LENGTH as u64);
    }

    #[test]
    fn numbers_end_with_the_largest() {
        let (mut incoming, mut pool) = (Incoming::default(), Pool::default());
        for number in [u64::MAX, u64::MAX - 1] {
            let taken = incoming.take(Instant::ZERO, number, (0, &[][..]), &mut pool);
            assert_eq!(taken, Taken::OutOfOrder, "{number:#x}");
        }
    }
}
