//! The host's memory: pieces that the host frees. A device that touches a freed piece is at fault.

use std::collections::BTreeMap;

/// Alignment of each piece in bytes: the page size.
pub(super) const PAGE: u64 = 4096;

/// Memory that nothing but the host and the device uses.
#[derive(Debug)]
pub(super) struct HostMemory {
    pieces: BTreeMap<u64, Vec<u8>>,
    /// No address is used twice, so that a late access is noticed.
    next: u64,
}

impl HostMemory {
    pub(super) const fn new() -> Self {
        Self { pieces: BTreeMap::new(), next: 0x1_0000_0000 }
    }

    /// Allocates `length` bytes that read as zeroes. Returns their address.
    pub(super) fn allocate(&mut self, length: usize) -> u64 {
        let address = self.next;
        self.next += (length as u64).next_multiple_of(PAGE) + PAGE;
        self.pieces.insert(address, vec![0; length]);
        address
    }

    pub(super) fn free(&mut self, address: u64) {
        self.pieces.remove(&address);
    }

    /// Frees everything.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// The `length` bytes at `address`; `None` if not all of them are allocated.
    pub(super) fn at(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let (base, piece) = self.pieces.range_mut(..=address).next_back()?;
        let start = usize::try_from(address - base).ok()?;
        piece.get_mut(start..start.checked_add(length)?)
    }
}
