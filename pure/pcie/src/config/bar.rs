//! Base Address Registers.

use super::{ConfigSpace, Field, header};

/// Which of the six Base Address Registers: 0..6. A 64-bit one is named by its low half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarIndex(u8);

impl BarIndex {
    /// BAR 0.
    pub const ZERO: Self = Self(0);

    /// The BAR numbered `index`.
    ///
    /// # Panics
    /// When `index` is 6 or more.
    pub const fn new(index: u8) -> Self {
        assert!(index < 6, "a function has six BARs");
        Self(index)
    }
    /// The BAR's number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What a BAR decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// Memory below 4 GiB.
    Memory32,
    /// Memory anywhere; takes two registers.
    Memory64,
    /// I/O.
    Io,
}

/// A Base Address Register as it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// What it decodes.
    pub kind: BarKind,
    /// Reads have no side effects and writes may be merged.
    pub prefetchable: bool,
    /// Bytes: a power of two; at least 16 for memory, 4 for I/O.
    pub size: u64,
}

impl Bar {
    /// A 64-bit, not prefetchable memory BAR of `size` bytes.
    pub const fn memory64(size: u64) -> Self {
        Self { kind: BarKind::Memory64, prefetchable: false, size }
    }
    /// A 32-bit, not prefetchable memory BAR of `size` bytes.
    pub const fn memory32(size: u64) -> Self {
        Self { kind: BarKind::Memory32, prefetchable: false, size }
    }
    /// The same BAR, prefetchable.
    #[must_use]
    pub const fn prefetchable(self) -> Self {
        Self { prefetchable: true, ..self }
    }

    /// Where this BAR, at `index` of `space`, now is; nothing of its space's enable bit.
    pub fn window(self, space: &ConfigSpace, index: BarIndex) -> Window {
        let low = u64::from(space.read(register(index.0).offset()));
        let high = match self.kind {
            BarKind::Memory64 => u64::from(space.read(register(index.0 + 1).offset())),
            BarKind::Memory32 | BarKind::Io => 0,
        };
        let base = (high << 32 | low) & !(self.size - 1);
        Window { base, last: base + (self.size - 1) }
    }
}

/// A range of addresses: `base..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First address.
    pub base: u64,
    /// Last address; below `base` where the window is closed.
    pub last: u64,
}

impl Window {
    /// Nothing.
    pub const CLOSED: Self = Self { base: u64::MAX, last: 0 };

    /// Whether `address` lies in the window.
    #[inline]
    pub const fn contains(self, address: u64) -> bool {
        self.base <= address && address <= self.last
    }
    /// Whether the window holds no address.
    pub const fn is_closed(self) -> bool {
        self.last < self.base
    }
}

/// Type bits of a BAR.
const IO_SPACE: u32 = 0b1;
const MEMORY_64: u32 = 0b100;
const PREFETCHABLE: u32 = 0b1000;

const fn register(index: u8) -> Field {
    Field::dword(header::BAR0 + index as u16 * 4)
}

/// Builds the registers of `bar`.
///
/// # Panics
/// When the size is none that a BAR can have, or a 64-bit BAR has no second register.
pub(super) fn define(space: &mut ConfigSpace, index: BarIndex, bar: Bar) {
    use super::Access;
    let smallest = if bar.kind == BarKind::Io { 4 } else { 16 };
    assert!(bar.size.is_power_of_two() && bar.size >= smallest, "a BAR can't decode {} B", bar.size);
    let type_bits = match bar.kind {
        BarKind::Io => IO_SPACE,
        BarKind::Memory32 => 0,
        BarKind::Memory64 => MEMORY_64,
    } | if bar.prefetchable { PREFETCHABLE } else { 0 };
    let shift = bar.size.trailing_zeros();
    space.define(register(index.0), Access::ReadOnly, type_bits);
    if shift < 32 {
        let low = u8::try_from(shift).expect("below 32");
        space.define(Field::new(register(index.0).offset(), 31, low), Access::ReadWrite, 0);
    } else {
        assert!(bar.kind == BarKind::Memory64, "a 32-bit BAR decodes less than 4 GiB");
    }
    if bar.kind == BarKind::Memory64 {
        assert!(index.0 < 5, "a 64-bit BAR takes two registers");
        let upper = register(index.0 + 1);
        space.define(upper, Access::ReadOnly, 0);
        if shift < 64 {
            let low = u8::try_from(shift.saturating_sub(32)).expect("below 32");
            space.define(Field::new(upper.offset(), 31, low), Access::ReadWrite, 0);
        }
    }
}
