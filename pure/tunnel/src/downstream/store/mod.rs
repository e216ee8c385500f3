//! At the device's end: memory that was sent ahead, kept until the device reads it.

pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos, Pool};
use pcie::completer::{self, Completer};
use pcie::wire::{AddressType, Kind, MemoryOperation, MemoryRequest, Packet};
use serde::{Deserialize, Serialize};

use crate::frame::{Ahead, AheadKey, Tally};

/// The most pieces that are kept, of any length.
pub const PIECES_MAX: usize = 4096;
/// How long a piece is kept that the device does not read. A device that takes longer can also wait
/// for the host.
pub const KEPT_FOR: Nanos = Nanos::from_secs(5);
/// Completions end at a multiple of this many bytes. It is also a multiple of 64 B, so it suits
/// either Read Completion Boundary (RCB).
const BOUNDARY: u32 = 128;
const DWORD: usize = 4;

#[derive(Debug, Serialize, Deserialize)]
struct Piece {
    ahead: Ahead,
    bytes: Buffer,
    /// How many of the bytes have been read.
    read: usize,
    at: Instant,
}

impl Piece {
    const fn start(&self) -> u64 {
        self.ahead.address
    }
    const fn end(&self) -> u64 {
        self.ahead.address + self.bytes.len() as u64
    }
}

/// Host memory that was sent ahead to the device's end, kept until the device reads it.
///
/// Pieces of memory never overlap: a new piece replaces all pieces that it touches. Pieces are
/// sorted by address.
#[derive(Debug, Serialize, Deserialize)]
pub struct Store {
    pieces: Vec<Piece>,
    bytes: usize,
    bytes_max: usize,
    completer: Completer,
    pool: Pool,
    tally: Tally,
}

impl Store {
    /// Creates an empty store that keeps at most `bytes_max` bytes.
    pub fn new(bytes_max: u32) -> Self {
        Self {
            pieces: Vec::new(),
            bytes: 0,
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            completer: Completer::default(),
            pool: Pool::default(),
            tally: Tally::default(),
        }
    }

    /// Counters of memory sent ahead since the store was created.
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }
    /// How many bytes are kept now.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a piece, which replaces all pieces that it touches.
    pub fn insert(&mut self, now: Instant, ahead: Ahead, bytes: Buffer) {
        self.tally.bytes_received += bytes.len() as u64;
        self.remove_touched(ahead.address, bytes.len() as u64);
        while self.pieces.len() >= PIECES_MAX || self.bytes + bytes.len() > self.bytes_max {
            if !self.evict_oldest() {
                self.tally.bytes_in_vain += bytes.len() as u64;
                return;
            }
        }
        self.bytes += bytes.len();
        // A small piece must not keep the block of a whole segment.
        let bytes = if bytes.len() < 1024 { self.pool.copy(&bytes) } else { bytes };
        let index = self.pieces.partition_point(|piece| piece.start() < ahead.address);
        self.pieces.insert(index, Piece { ahead, bytes, read: 0, at: now });
    }

    /// Drops the pieces with this key, or all pieces for [`AheadKey::ALL`].
    pub fn forget(&mut self, key: AheadKey) {
        if key == AheadKey::ALL {
            return self.clear();
        }
        let mut index = 0;
        while let Some(piece) = self.pieces.get(index) {
            if piece.ahead.key == key {
                self.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Drops all pieces.
    pub fn clear(&mut self) {
        while !self.pieces.is_empty() {
            self.remove(self.pieces.len() - 1);
        }
    }

    /// Handles a packet that the device sends. If it is a read and all of its memory is here, gives
    /// the completions to `answer` and returns true. Otherwise returns false: the packet must go to
    /// the host.
    #[inline]
    pub fn take(&mut self, now: Instant, packet: &Packet, answer: impl FnMut(Packet)) -> bool {
        let Kind::Memory(request) = &packet.header.kind else { return false };
        let request = *request;
        let length = u64::from(packet.header.length) * DWORD as u64;
        if request.operation != MemoryOperation::Read {
            if !self.pieces.is_empty() {
                // A write changes the memory.
                self.remove_touched(request.address, length);
            }
            return false;
        }
        let answered = !self.pieces.is_empty() && self.on_read(now, &request, packet, answer);
        self.tally.hits += u64::from(answered);
        self.tally.misses += u64::from(!answered);
        answered
    }

    fn on_read(
        &mut self,
        now: Instant,
        request: &MemoryRequest,
        packet: &Packet,
        answer: impl FnMut(Packet),
    ) -> bool {
        let length = usize::from(packet.header.length) * DWORD;
        let first = self.pieces.partition_point(|piece| piece.end() <= request.address);
        let plain = packet.prefixes.is_empty()
            && packet.digest.is_none()
            && packet.header.byte_length() > 0
            && !packet.header.traits.is_poisoned()
            && packet.header.traits.address_type() == AddressType::Untranslated;
        let covered = if plain { self.cover(now, first, request.address, length) } else { None };
        let answered = if let Some(bytes) = covered {
            let ahead = &self.pieces[first].ahead;
            self.completer.set(completer::Settings {
                id: ahead.completer,
                boundary: BOUNDARY,
                payload_size: u32::from(ahead.payload_size),
            });
            self.completer.data(&packet.header, &bytes, answer);
            self.tally.bytes_answered += length as u64;
            true
        } else {
            false
        };
        self.use_up(first, request.address, length, answered);
        answered
    }

    /// The bytes of a read, if pieces from `first` on cover all of it.
    fn cover(&mut self, now: Instant, first: usize, address: u64, length: usize) -> Option<Buffer> {
        let piece = self.pieces.get(first).filter(|piece| piece.start() <= address)?;
        let end = address.checked_add(length as u64)?;
        if piece.end() >= end {
            let start = usize::try_from(address - piece.start()).ok()?;
            let fresh = piece.at + KEPT_FOR > now;
            return fresh.then(|| piece.bytes.slice(start..start + length));
        }
        let mut block = self.pool.take(length);
        let mut filled = 0;
        for piece in &self.pieces[first..] {
            let at = address + filled as u64;
            if piece.start() > at || piece.at + KEPT_FOR <= now {
                return None;
            }
            let start = usize::try_from(at - piece.start()).ok()?;
            let count = (piece.bytes.len() - start).min(length - filled);
            block[filled..filled + count].copy_from_slice(&piece.bytes[start..start + count]);
            filled += count;
            if filled == length {
                return Some(self.pool.seal(block));
            }
        }
        None
    }

    /// Drops the pieces, from `first` on, that are used up by a read of `length` bytes at
    /// `address`. The read was `answered` from the pieces, or went to the host.
    fn use_up(&mut self, first: usize, address: u64, length: usize, answered: bool) {
        let end = address.saturating_add(length as u64);
        let mut index = first;
        while let Some(piece) = self.pieces.get_mut(index)
            && piece.start() < end
        {
            let shared = piece.end().min(end) - piece.start().max(address);
            if answered {
                piece.read += usize::try_from(shared).unwrap_or(usize::MAX);
            }
            if piece.ahead.once || piece.read >= piece.bytes.len() {
                self.remove(index);
            } else {
                index += 1;
            }
        }
    }

    fn remove_touched(&mut self, address: u64, length: u64) {
        let end = address.saturating_add(length);
        let index = self.pieces.partition_point(|piece| piece.end() <= address);
        while self.pieces.get(index).is_some_and(|piece| piece.start() < end) {
            self.remove(index);
        }
    }

    fn remove(&mut self, index: usize) {
        let piece = self.pieces.remove(index);
        self.bytes -= piece.bytes.len();
        self.tally.bytes_in_vain += piece.bytes.len().saturating_sub(piece.read) as u64;
    }

    /// Drops the oldest piece to make room. False if there is none.
    fn evict_oldest(&mut self) -> bool {
        let oldest = self.pieces.iter().enumerate().min_by_key(|(_, piece)| piece.at);
        let Some((index, _)) = oldest else { return false };
        self.tally.evicted += 1;
        self.remove(index);
        true
    }
}
