//! Named bit fields of configuration registers.

/// A bit field of one double word of a configuration space or of a capability.
///
/// Offsets of fields in a capability count from the capability's first byte; [`Field::at`] places
/// such a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    offset: u16,
    low: u8,
    width: u8,
}

impl Field {
    /// Bits `high` down to `low` (0..32) of the double word at byte `offset`, a multiple of 4.
    pub const fn new(offset: u16, high: u8, low: u8) -> Self {
        assert!(offset.is_multiple_of(4) && high < 32 && low <= high, "not a field of a double word");
        Self { offset, low, width: high - low + 1 }
    }
    /// Bit `bit` (0..32) of the double word at byte `offset`.
    pub const fn bit(offset: u16, bit: u8) -> Self {
        Self::new(offset, bit, bit)
    }
    /// The whole double word at byte `offset`.
    pub const fn dword(offset: u16) -> Self {
        Self::new(offset, 31, 0)
    }
    /// This field in the capability that starts at byte `base`, a multiple of 4.
    #[must_use]
    pub const fn at(self, base: u16) -> Self {
        assert!(base.is_multiple_of(4), "capabilities start at double words");
        Self { offset: self.offset + base, ..self }
    }
    /// Byte offset of the double word.
    pub const fn offset(self) -> u16 {
        self.offset
    }
    /// A mask with the field's bits, at their place in the double word.
    pub const fn mask(self) -> u32 {
        (u32::MAX >> (32 - self.width)) << self.low
    }
    /// The field's value in `dword`.
    pub const fn of(self, dword: u32) -> u32 {
        (dword & self.mask()) >> self.low
    }
    /// Whether any bit of the field is set in `dword`.
    pub const fn is_set(self, dword: u32) -> bool {
        dword & self.mask() != 0
    }
    /// `dword` with the field set to `value`; bits of `value` beyond the field are dropped.
    #[must_use]
    pub const fn with(self, dword: u32, value: u32) -> u32 {
        (dword & !self.mask()) | ((value << self.low) & self.mask())
    }
    /// The byte enables that cover the field, as in a configuration write.
    pub const fn enables(self) -> u8 {
        let mut enables = 0;
        let bytes = self.mask().to_le_bytes();
        let mut index = 0;
        while index < 4 {
            if bytes[index] != 0 {
                enables |= 1 << index;
            }
            index += 1;
        }
        enables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_reads_and_writes_its_own_bits_only() {
        let field = Field::new(8, 14, 12).at(0x70);
        assert_eq!((field.offset(), field.mask(), field.enables()), (0x78, 0x7000, 0b0010));
        assert_eq!(field.of(0xffff_5fff), 5);
        assert_eq!(field.with(0xffff_ffff, 0b1010), 0xffff_afff);
        assert_eq!(Field::dword(0).with(0, u32::MAX), u32::MAX);
    }
}
