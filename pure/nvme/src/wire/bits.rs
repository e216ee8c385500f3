//! Named fields of a double word.

/// The bit field `high..=low` of a double word, which spares its users a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    low: u8,
    mask: u32,
}

impl Bits {
    /// The field from bit `high` down to bit `low`, both included, in the specification's order.
    ///
    /// # Panics
    /// When `high..=low` is not a range within 32 bits.
    pub const fn new(high: u8, low: u8) -> Self {
        assert!(high >= low && high < 32, "bits high:low of a double word");
        Self { low, mask: u32::MAX >> (31 - (high - low)) }
    }

    /// A field of one bit, at `position` 0..=31.
    pub const fn bit(position: u8) -> Self {
        Self::new(position, position)
    }

    /// The field's value in `word`.
    pub const fn of(self, word: u32) -> u32 {
        (word >> self.low) & self.mask
    }

    /// Whether any bit of the field is set in `word`.
    pub const fn is_set(self, word: u32) -> bool {
        self.of(word) != 0
    }

    /// A word with `value` in the field and zeroes elsewhere. Excess bits of `value` are dropped.
    pub const fn put(self, value: u32) -> u32 {
        (value & self.mask) << self.low
    }

    /// `word` with the field set to `value`. Excess bits of `value` are dropped.
    #[must_use]
    pub const fn replace(self, word: u32, value: u32) -> u32 {
        (word & !(self.mask << self.low)) | self.put(value)
    }
}

/// The low 8 bits of `value`.
pub(crate) const fn low_u8(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

/// The low 16 bits of `value`.
pub(crate) const fn low_u16(value: u32) -> u16 {
    let [first, second, ..] = value.to_le_bytes();
    u16::from_le_bytes([first, second])
}

/// The low 32 bits of `value`.
pub(crate) const fn low_u32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The high 32 bits of `value`.
pub(crate) const fn high_u32(value: u64) -> u32 {
    low_u32(value >> 32)
}

/// The quad word with these halves.
pub(crate) const fn join_u64(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_where_it_was_put() {
        let field = Bits::new(27, 16);
        assert_eq!(field.of(0x0abc_0000), 0xabc);
        assert_eq!(field.put(0xfabc), 0x0abc_0000);
        assert_eq!(field.replace(u32::MAX, 0), 0xf000_ffff);
        assert_eq!(Bits::new(31, 0).of(u32::MAX), u32::MAX);
        assert_eq!(high_u32(join_u64(1, 2)), 2);
    }
}
