//! What has come: which packets, and which bytes of the stream.

use alloc::collections::{BTreeMap, VecDeque};

use engine::{Buffer, BufferMut, Instant, Pool};

use crate::packet::{Ack, TOLD};

/// The most bytes of the stream that are kept for the user and for want of earlier ones.
const WINDOW: u64 = 8 << 20;
/// The most pieces that are kept for want of earlier ones. Datagrams beyond count as lost.
const PIECES_MAX: usize = 4096;
/// The most bytes of these pieces.
const EARLY_MAX: u64 = 2 * WINDOW;

/// Bytes of a block, in which the bytes of many packets stand one behind the other. What handles
/// them has so much to do for each piece that a piece for each packet would be most of the work.
const BLOCK: usize = 64 << 10;
/// A block with no more than this many bytes is copied for the user, and filled further.
const COPY_MAX: usize = 4 << 10;

/// What one end has received.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// The largest number of a packet that came; 0 if none did.
    largest: u64,
    /// Bit `i`: the packet `i + 1` before the largest came too.
    before: u128,
    largest_at: Instant,
    /// Every byte of the stream before this one came.
    whole: u64,
    /// Pieces that came before an earlier one, by their offset.
    early: BTreeMap<u64, Buffer>,
    early_bytes: u64,
    /// Full blocks that wait for the user.
    ready: VecDeque<Buffer>,
    /// The block behind them, and how many of its bytes are there.
    filling: Option<BufferMut>,
    filled: usize,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is new, and the one after the largest before.
    InOrder,
    /// It is new, and others are missing before it, or it was missing.
    OutOfOrder,
    /// It came before, or is too old to know.
    Again,
    /// There is no room for its bytes, or they can't be; it counts as lost.
    NoRoom,
}

impl Incoming {
    /// Takes packet `number` with `bytes` at `offset` of the stream; bytes that came before are
    /// left out.
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
                let shifted = if ahead < TOLD { self.before << ahead } else { 0 };
                let former = if ahead <= TOLD && self.largest > 0 { 1 << (ahead - 1) } else { 0 };
                self.before = shifted | former;
                (self.largest, self.largest_at) = (number, now);
            }
            None => self.before |= 1 << (self.largest - number - 1),
        }
        if in_order { Taken::InOrder } else { Taken::OutOfOrder }
    }

    /// Whether packet `number` came, or is so old that it must be taken for one that did.
    fn has(&self, number: u64) -> bool {
        self.largest.checked_sub(number).is_some_and(|back| back > TOLD)
            || Ack { largest: self.largest, before: self.before, ..Ack::default() }.has(number)
    }

    /// Keeps what is new of the bytes at `offset`; returns whether there is room for all of it.
    fn keep(&mut self, offset: u64, bytes: &[u8], pool: &mut Pool) -> bool {
        let Some(end) = offset.checked_add(bytes.len() as u64) else { return false };
        // What the others wait for has room however many they are.
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

    /// Appends bytes of the stream to what the user can have.
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

    /// How many bytes from the first missing one on may come.
    fn window(&self) -> u64 {
        WINDOW.saturating_sub((self.ready.len() * BLOCK + self.filled) as u64)
    }

    /// The next bytes of the stream, and whether the peer should hear that there is room again.
    pub(crate) fn pop(&mut self, pool: &mut Pool) -> Option<(Buffer, bool)> {
        let before = self.window();
        let piece = match self.ready.pop_front() {
            Some(full) => full,
            None => self.pop_filled(pool)?,
        };
        Some((piece, before < WINDOW / 2 && self.window() >= WINDOW / 2))
    }

    /// What is there of the block that is being filled.
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

    /// Whether any packet has come.
    pub(crate) const fn has_any(&self) -> bool {
        self.largest > 0
    }

    /// What the peer is told of all this at `now`.
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
