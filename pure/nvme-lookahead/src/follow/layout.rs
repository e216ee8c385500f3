//! Addresses of a function's capabilities, base address registers and interrupts.
//!
//! The host walks the capability list and programs MSI-X or MSI. The passing answers and writes
//! determine which messages the function may send.

use alloc::vec::Vec;

use pcie::config::{capability, header, msi, msix};

/// The six base address registers.
const BARS: core::ops::Range<u16> = header::BAR0..0x28;
/// The pointer to the first capability.
const FIRST_CAPABILITY: u16 = header::CAPABILITIES.offset();
/// Capabilities begin behind the header and end with the first 256 bytes.
const CAPABILITIES: core::ops::Range<u16> = 0x40..0x100;
/// MSI Message Control, in the capability's first double word: the number of messages as a power of
/// two.
const MSI_COUNT_SHIFT: u32 = 20;
const MSI_COUNT: u32 = 7;
/// A base address register: memory with a 64-bit address, and the bits that are no address.
const BAR_KIND: u32 = 7;
const BAR_WIDE: u32 = 4;
const BAR_FLAGS: u32 = 0xf;
/// Bytes of an MSI-X table entry, and where its control word begins.
const ENTRY: u64 = 16;
const ENTRY_CONTROL: u64 = 12;
/// Device Control, in the PCI Express capability.
const DEVICE_CONTROL: u16 = 8;

/// An interrupt's message: address and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Message {
    address: u64,
    data: u32,
}

/// An entry of the MSI-X table. A message on its way may be the one before the latest change.
#[derive(Clone, Copy, Debug, Default)]
struct Vector {
    now: Message,
    before: Message,
    /// Whether `now` has changed since the entry's control word was written.
    changing: bool,
}

/// The known part of a function's configuration space.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// A bit for each double word that a capability is known to begin at.
    chain: u64,
    express: Option<u16>,
    msi: Option<u16>,
    msix: Option<u16>,
    /// The second double word of the MSI-X capability, and the number of entries.
    table: Option<u32>,
    entries: u32,
    bars: [u32; 6],
    /// A bit for each register that begins a 64-bit address.
    wide: u8,
    /// First address of the MSI-X table, and the address behind it.
    table_at: (u64, u64),
    vectors: Vec<Vector>,
    /// The MSI capability as the host has written it: control, address, and three more.
    message: [u32; 4],
    is_wide: bool,
}

impl Layout {
    /// Handles a reset of the function: capabilities stay where they are.
    pub(crate) fn reset(&mut self) {
        self.bars = [0; 6];
        self.message = [0; 4];
        self.vectors.clear();
        self.measure();
    }

    /// Where Device Control is, if known.
    pub(crate) fn device_control(&self) -> Option<u16> {
        self.express.map(|at| at + DEVICE_CONTROL)
    }

    /// Whether the answer to a read of this double word is of use.
    pub(crate) fn wants(&self, offset: u16) -> bool {
        offset == FIRST_CAPABILITY
            || BARS.contains(&offset)
            || self.is_capability(offset)
            || self.msix.is_some_and(|at| offset == at + 4)
    }

    fn is_capability(&self, offset: u16) -> bool {
        CAPABILITIES.contains(&offset) && self.chain >> (offset / 4) & 1 == 1
    }

    fn expect(&mut self, pointer: u8) {
        let offset = u16::from(pointer) & !3;
        if CAPABILITIES.contains(&offset) {
            self.chain |= 1 << (offset / 4);
        }
    }

    /// Records a double word from a read. Only the enabled bytes count.
    pub(crate) fn on_answer(&mut self, offset: u16, enables: u8, value: u32) {
        let [id, next, ..] = value.to_le_bytes();
        if offset == FIRST_CAPABILITY && enables & 1 != 0 {
            self.expect(id);
        } else if BARS.contains(&offset) && enables & 1 != 0 {
            let bit = 1 << ((offset - BARS.start) / 4);
            self.wide = if value & BAR_KIND == BAR_WIDE { self.wide | bit } else { self.wide & !bit };
        } else if self.is_capability(offset) {
            if enables & 3 == 3 {
                self.expect(next);
                match id {
                    capability::MSI => self.msi = Some(offset),
                    capability::EXPRESS => self.express = Some(offset),
                    capability::MSIX => self.msix = Some(offset),
                    _ => {}
                }
            }
            if enables & 0xc == 0xc && self.msix == Some(offset) {
                self.entries = msix::TABLE_SIZE.of(value) + 1;
            }
            if enables & 0xc != 0 && self.msi == Some(offset) {
                self.is_wide = msi::ADDRESS_64.is_set(value);
            }
        } else if self.msix.is_some_and(|at| offset == at + 4) && enables == 0xf {
            self.table = Some(value);
        }
        self.measure();
    }

    /// Handles a configuration write.
    pub(crate) fn on_config(&mut self, offset: u16, enables: u8, value: u32) {
        if BARS.contains(&offset) {
            if enables == 0xf {
                self.bars[usize::from((offset - BARS.start) / 4)] = value;
                self.measure();
            }
        } else if let Some(at) = self.msi
            && let Some(word) = offset.checked_sub(at).map(|distance| usize::from(distance / 4))
            && let Some(place) = self.message.get_mut(word)
        {
            let mut bytes = place.to_le_bytes();
            for (index, byte) in value.to_le_bytes().into_iter().enumerate() {
                if enables >> index & 1 == 1 {
                    bytes[index] = byte;
                }
            }
            *place = u32::from_le_bytes(bytes);
        }
    }

    /// The address in a base address register, if the host has written one.
    pub(crate) fn bar(&self, bar: usize) -> Option<u64> {
        let low = self.bars.get(bar).filter(|low| **low != 0)?;
        let is_wide = self.wide >> bar & 1 == 1;
        let high = if is_wide { self.bars.get(bar + 1).copied().unwrap_or(0) } else { 0 };
        Some(u64::from(high) << 32 | u64::from(low & !BAR_FLAGS))
    }

    fn measure(&mut self) {
        self.table_at = (0, 0);
        let Some(table) = self.table else { return };
        let Some(base) = self.bar(msix::TABLE_BAR.of(table) as usize) else { return };
        let Some(start) = base.checked_add(u64::from(table & msix::TABLE_OFFSET.mask())) else { return };
        self.table_at = (start, start.saturating_add(u64::from(self.entries) * ENTRY));
    }

    /// Whether an entry of the MSI-X table is at `address`.
    #[inline]
    pub(crate) const fn has_table_at(&self, address: u64) -> bool {
        self.table_at.0 <= address && address < self.table_at.1
    }

    /// Handles a write of the host to the function's memory.
    pub(crate) fn on_write(&mut self, address: u64, bytes: &[u8]) {
        if address < self.table_at.1 && address >= self.table_at.0 {
            self.on_table(address - self.table_at.0, bytes);
        }
    }

    fn on_table(&mut self, offset: u64, bytes: &[u8]) {
        for (offset, byte) in (offset..).zip(bytes) {
            let (index, at) = (offset / ENTRY, offset % ENTRY);
            let Ok(index) = usize::try_from(index) else { return };
            // The table's size limits this: at most 2048 entries.
            if index >= self.entries as usize {
                return;
            }
            if index >= self.vectors.len() {
                self.vectors.resize(index + 1, Vector::default());
            }
            let vector = &mut self.vectors[index];
            if at >= ENTRY_CONTROL {
                vector.changing = false;
                continue;
            }
            if !vector.changing {
                (vector.before, vector.changing) = (vector.now, true);
            }
            let shift = at % 8 * 8;
            if at < 8 {
                vector.now.address = vector.now.address & !(0xff << shift) | u64::from(*byte) << shift;
            } else {
                vector.now.data = vector.now.data & !(0xff << shift) | u32::from(*byte) << shift;
            }
        }
    }

    /// Whether a write of `bytes` at `address` is an interrupt that the host has programmed.
    pub(crate) fn is_interrupt(&self, address: u64, bytes: &[u8]) -> bool {
        let Ok(data) = bytes.try_into().map(u32::from_le_bytes) else { return false };
        let message = Message { address, data };
        if address == 0 {
            return false;
        }
        self.vectors.iter().any(|vector| vector.now == message || vector.before == message)
            || self.is_message(message)
    }

    /// Whether a message is one of MSI, where the function varies the low bits of the data.
    fn is_message(&self, message: Message) -> bool {
        let [control, low, high, data] = self.message;
        let (high, data) = if self.is_wide { (high, data) } else { (0, high) };
        let varied = (1_u32 << (control >> MSI_COUNT_SHIFT & MSI_COUNT).min(5)) - 1;
        self.msi.is_some()
            && message.address == u64::from(high) << 32 | u64::from(low)
            && (message.data ^ (data & 0xffff)) & !varied == 0
    }
}
