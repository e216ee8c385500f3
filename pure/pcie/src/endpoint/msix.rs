//! The MSI-X table and its pending bits, as they appear in a BAR.

use alloc::vec::Vec;
use core::ops::Range;

use engine::Buffer;
use serde::{Deserialize, Serialize};

use crate::config::{BarIndex, halves, msix};

/// Location of a function's MSI-X table and pending bit array (PBA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MsixLayout {
    /// The BAR that holds both table and PBA.
    pub bar: BarIndex,
    /// Number of vectors, 1..=2048.
    pub vectors: u16,
    /// Byte offset of the table, a multiple of 8. The table has 16 bytes for each vector.
    pub table_offset: u32,
    /// Byte offset of the PBA, a multiple of 8. The PBA has one bit for each vector, in whole quad
    /// words.
    pub pending_offset: u32,
}

/// Length of a table entry in double words.
const ENTRY_DWORDS: usize = 4;
/// Mask Bit in Vector Control.
const MASKED: u32 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    address: u64,
    /// Message Data as the bytes of the write, kept ready so that an interrupt allocates nothing.
    data: Buffer,
    masked: bool,
    pending: bool,
}

/// The MSI-X table with its pending bits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MsixTable {
    layout: MsixLayout,
    entries: Vec<Entry>,
    /// Number of entries that are pending.
    pending: usize,
}

/// The MSI-X structure at an offset of the BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MsixRegion {
    Table,
    Pending,
}

impl MsixTable {
    pub(super) fn new(layout: MsixLayout) -> Self {
        let blank = Entry { address: 0, data: Buffer::zeroed(4), masked: true, pending: false };
        let entries = core::iter::repeat_n(blank, usize::from(layout.vectors)).collect();
        Self { layout, entries, pending: 0 }
    }

    /// Restores the values after a reset.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.layout);
    }

    fn table(&self) -> Range<u64> {
        let start = u64::from(self.layout.table_offset);
        start..start + u64::from(self.layout.vectors) * u64::from(msix::ENTRY_SIZE)
    }
    fn pending_bits(&self) -> Range<u64> {
        let start = u64::from(self.layout.pending_offset);
        start..start + u64::from(self.layout.vectors).div_ceil(64) * 8
    }

    /// The MSI-X structure at `offset` of `bar`, if any.
    #[inline]
    pub(super) fn region(&self, bar: BarIndex, offset: u64) -> Option<MsixRegion> {
        if bar != self.layout.bar {
            None
        } else if self.table().contains(&offset) {
            Some(MsixRegion::Table)
        } else if self.pending_bits().contains(&offset) {
            Some(MsixRegion::Pending)
        } else {
            None
        }
    }

    /// The index of the entry at `offset` of the BAR, and the index of the double word in this
    /// entry.
    fn place(&self, offset: u64) -> Option<(usize, usize)> {
        let dword = usize::try_from(offset.checked_sub(self.table().start)? / 4).ok()?;
        let index = dword / ENTRY_DWORDS;
        (index < self.entries.len()).then_some((index, dword % ENTRY_DWORDS))
    }

    /// The double word at `offset` of the BAR, a multiple of 4; 0 outside table and PBA.
    pub(super) fn read(&self, offset: u64) -> u32 {
        if let Some((index, dword)) = self.place(offset) {
            return self.entries[index].dword(dword);
        }
        let Some(byte) = offset.checked_sub(self.pending_bits().start) else { return 0 };
        let first = usize::try_from(byte).unwrap_or(usize::MAX).saturating_mul(8);
        let bits = self.entries.iter().skip(first).take(32).enumerate();
        bits.fold(0, |word, (bit, entry)| word | u32::from(entry.pending) << bit)
    }

    /// Writes the bytes of `value` selected by `enables` to the double word at `offset` of the BAR,
    /// and returns the vector whose entry this is. The pending bits are read-only.
    pub(super) fn write(&mut self, offset: u64, value: u32, enables: u8) -> Option<u16> {
        let (index, dword) = self.place(offset)?;
        let entry = &mut self.entries[index];
        let (mut bytes, written) = (entry.dword(dword).to_le_bytes(), value.to_le_bytes());
        for (byte, (old, new)) in bytes.iter_mut().zip(written).enumerate() {
            if enables >> byte & 1 == 1 {
                *old = new;
            }
        }
        let value = u32::from_le_bytes(bytes);
        let [low, high] = halves(entry.address);
        match dword {
            0 => entry.address = u64::from(high) << 32 | u64::from(value & !0b11),
            1 => entry.address = u64::from(value) << 32 | u64::from(low),
            2 => entry.data = Buffer::copy_from_slice(&value.to_le_bytes()),
            _ => entry.masked = value & MASKED != 0,
        }
        u16::try_from(index).ok()
    }

    /// Sets the pending bit of `vector`.
    pub(super) fn set_pending(&mut self, vector: u16) {
        if let Some(entry) = self.entries.get_mut(usize::from(vector))
            && !entry.pending
        {
            entry.pending = true;
            self.pending += 1;
        }
    }

    /// Address and data of the write that signals `vector`; `None` if the vector is masked.
    pub(super) fn message(&self, vector: u16) -> Option<(u64, &Buffer)> {
        let entry = self.entries.get(usize::from(vector))?;
        (!entry.masked).then_some((entry.address, &entry.data))
    }

    /// Clears `vector`'s pending bit if the interrupt may be sent now, and returns the address and
    /// data to write.
    pub(super) fn take_pending(&mut self, vector: u16) -> Option<(u64, Buffer)> {
        let entry = self.entries.get_mut(usize::from(vector))?;
        if !entry.pending || entry.masked {
            return None;
        }
        entry.pending = false;
        self.pending -= 1;
        Some((entry.address, entry.data.clone()))
    }

    /// The range of all vectors, or an empty range if none is pending.
    pub(super) fn pending_vectors(&self) -> Range<u16> {
        if self.pending == 0 { 0..0 } else { 0..self.layout.vectors }
    }
}

impl Entry {
    fn dword(&self, dword: usize) -> u32 {
        match dword {
            0 => halves(self.address)[0],
            1 => halves(self.address)[1],
            2 => self.data.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)),
            _ => u32::from(self.masked),
        }
    }
}
