//! The memory that the client shares.

use alloc::collections::BTreeMap;

use crate::errno::Errno;
use crate::limits::MAPS_MAX;
use crate::pending::Token;
use crate::wire::DmaMap;

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Address of the last byte.
    last: u64,
    readable: bool,
    writable: bool,
    /// Names the request that mapped the piece.
    token: Token,
}

/// Pieces of memory by the address of their first byte. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pieces: BTreeMap<u64, Piece>,
}

/// The kind of access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Memory {
    /// Whether `map` may be added.
    pub(super) fn check(&self, map: &DmaMap) -> Result<(), Errno> {
        let last = map.address + (map.length - 1);
        let before = self.pieces.range(..=last).next_back();
        if before.is_some_and(|(_, piece)| piece.last >= map.address) {
            return Err(Errno::EEXIST);
        }
        if self.pieces.len() >= MAPS_MAX { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Adds a piece that [`Memory::check`] has allowed.
    pub(super) fn insert(&mut self, map: &DmaMap, token: Token) {
        let last = map.address + (map.length - 1);
        let piece = Piece { last, readable: map.readable, writable: map.writable, token };
        self.pieces.insert(map.address, piece);
    }

    /// Removes the piece with exactly this address and length.
    pub(super) fn remove(&mut self, address: u64, length: u64) -> Result<(), Errno> {
        match self.pieces.get(&address) {
            Some(piece) if piece.last == address + (length - 1) => {
                self.pieces.remove(&address);
                Ok(())
            }
            _ => Err(Errno::ENOENT),
        }
    }

    /// Removes the piece at `address` if the request called `token` has added it.
    pub(super) fn retract(&mut self, address: u64, token: Token) {
        if self.pieces.get(&address).is_some_and(|piece| piece.token == token) {
            self.pieces.remove(&address);
        }
    }

    /// Removes any piece and returns its address and length.
    pub(super) fn pop(&mut self) -> Option<(u64, u64)> {
        let (address, piece) = self.pieces.pop_first()?;
        Some((address, piece.last - address + 1))
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Checks that all of `address..address + length` is shared, and for this kind of access.
    pub(super) fn allows(&self, address: u64, length: u64, access: Access) -> Result<(), Errno> {
        let before = length.checked_sub(1).ok_or(Errno::EINVAL)?;
        let last = address.checked_add(before).ok_or(Errno::EFAULT)?;
        let mut next = address;
        loop {
            let (_, piece) = self.pieces.range(..=next).next_back().ok_or(Errno::EFAULT)?;
            if piece.last < next {
                return Err(Errno::EFAULT);
            }
            let allowed = match access {
                Access::Read => piece.readable,
                Access::Write => piece.writable,
            };
            if !allowed {
                return Err(Errno::EACCES);
            }
            if piece.last >= last {
                return Ok(());
            }
            next = piece.last + 1;
        }
    }
}
