//! Framed protocol data units (RFC 5044, section 4): length, ULPDU, padding, CRC. Without markers.

/// Length of the field ULPDU_Length, in bytes.
pub const LENGTH_FIELD: usize = 2;
/// Length of the field CRC, in bytes. The field exists even if CRCs are not checked.
pub const CRC_LENGTH: usize = 4;
/// Length of the longest ULPDU, in bytes: a DDP segment with its header.
pub const ULPDU_LENGTH_MAX: usize = u16::MAX as usize;
/// Length of the longest FPDU, in bytes.
pub const FPDU_LENGTH_MAX: usize = fpdu_length(u16::MAX);

/// Bytes of padding behind a ULPDU of `length` bytes.
pub const fn padding(length: u16) -> usize {
    (LENGTH_FIELD + length as usize).wrapping_neg() % 4
}

/// Length of an FPDU with a ULPDU of `length` bytes, in bytes.
pub const fn fpdu_length(length: u16) -> usize {
    LENGTH_FIELD + length as usize + padding(length) + CRC_LENGTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fpdus_are_whole_words() {
        for length in 0..=u16::MAX {
            assert!(fpdu_length(length).is_multiple_of(4) && padding(length) < 4, "{length}");
        }
        assert_eq!((padding(42), fpdu_length(42)), (0, 48));
    }
}
