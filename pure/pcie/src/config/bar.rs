//! Base Address Registers.

use serde::{Deserialize, Serialize};

use super::{ConfigSpace, Field, header};

/// Number of a Base Address Register: 0..6. A 64-bit BAR has the number of its low half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BarIndex(u8);

impl BarIndex {
    /// BAR 0, the first one.
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

/// Address space that a BAR decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BarKind {
    /// Memory space below 4 GiB.
    Memory32,
    /// Memory space at any address; takes two registers.
    Memory64,
    /// I/O space.
    Io,
}

/// Parameters that a Base Address Register is built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// Address space that the BAR decodes.
    pub kind: BarKind,
    /// Whether reads have no side effects and writes may be merged.
    pub prefetchable: bool,
    /// Size of the decoded range in bytes: a power of two, at least 16 for memory and 4 for I/O.
    pub size: u64,
}

impl Bar {
    /// A 64-bit memory BAR of `size` bytes that is not prefetchable.
    pub const fn memory64(size: u64) -> Self {
        Self { kind: BarKind::Memory64, prefetchable: false, size }
    }
    /// A 32-bit memory BAR of `size` bytes that is not prefetchable.
    pub const fn memory32(size: u64) -> Self {
        Self { kind: BarKind::Memory32, prefetchable: false, size }
    }
    /// This BAR made prefetchable.
    #[must_use]
    pub const fn prefetchable(self) -> Self {
        Self { prefetchable: true, ..self }
    }

    /// The addresses that this BAR, at `index` of `space`, is set to. The enable bits of the
    /// Command register are not considered.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// First address of the window.
    pub base: u64,
    /// Last address of the window; below `base` if the window is closed.
    pub last: u64,
}

impl Window {
    /// A window that holds no address.
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

/// Bits in the low part of a BAR that encode its type.
const IO_SPACE: u32 = 0b1;
const MEMORY_64: u32 = 0b100;
const PREFETCHABLE: u32 = 0b1000;

const fn register(index: u8) -> Field {
    Field::dword(header::BAR0 + index as u16 * 4)
}

/// Builds the registers of `bar`.
///
/// # Panics
/// When a BAR cannot have this size, or when a 64-bit BAR has no second register.
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
