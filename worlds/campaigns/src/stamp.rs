//! The contents of blocks: bytes that identify the write that made them and the block that they
//! belong to.

use std::fmt;

/// The write that a block's bytes come from; zero stands for no write, or a write of zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Value(pub u64);

impl Value {
    /// The value of a block that reads as zeroes.
    pub const ZEROES: Self = Self(0);
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ZEROES => f.write_str("zeroes"),
            Self(number) => write!(f, "write {number}"),
        }
    }
}

/// Why a block's bytes are not those of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// The block begins like a write's and goes on differently: parts of several writes, or damage.
    Torn {
        /// Offset of the first wrong word in bytes.
        at: usize,
        /// The write that the block begins like.
        begins: Value,
    },
    /// The bytes are a write's, but of another block.
    Misplaced {
        /// The write that made the bytes.
        value: Value,
        /// The number of the block that the bytes belong to.
        block: u64,
    },
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn { at, begins } => write!(f, "torn: begins as {begins}, differs from byte {at} on"),
            Self::Misplaced { value, block } => write!(f, "misplaced: {value} of block {block}"),
        }
    }
}

fn word(value: Value, block: u64, index: usize) -> u64 {
    match index {
        _ if value == Value::ZEROES => 0,
        0 => value.0,
        1 => block,
        _ => {
            let mixed =
                value.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed.wrapping_add(index as u64).wrapping_mul(0x94d0_49bb_1331_11eb)
        }
    }
}

/// Fills `bytes`, one block, with the stamp of `value` for the block number `block`.
///
/// # Panics
/// When the length is less than 16 bytes, or no multiple of 8 bytes.
pub fn fill(value: Value, block: u64, bytes: &mut [u8]) {
    assert!(bytes.len() >= 16 && bytes.len().is_multiple_of(8), "{} B are no block", bytes.len());
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(value, block, index).to_le_bytes());
    }
}

/// Returns which write made `bytes`, which were read from the block number `block`.
///
/// # Errors
/// When no single write made the bytes, or the bytes belong to another block.
///
/// # Panics
/// When the length is less than 16 bytes, or no multiple of 8 bytes.
pub fn recognise(bytes: &[u8], block: u64) -> Result<Value, Bad> {
    assert!(bytes.len() >= 16 && bytes.len().is_multiple_of(8), "{} B are no block", bytes.len());
    let at = |index: usize| u64::from_le_bytes(bytes[8 * index..][..8].try_into().expect("8 bytes"));
    let (value, place) = (Value(at(0)), at(1));
    match (0..bytes.len() / 8).find(|&index| at(index) != word(value, place, index)) {
        Some(index) => Err(Bad::Torn { at: 8 * index, begins: value }),
        None if value != Value::ZEROES && place != block => Err(Bad::Misplaced { value, block: place }),
        None => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_recognised_only_whole_and_in_its_place() {
        let mut block = [0; 512];
        assert_eq!(recognise(&block, 7), Ok(Value::ZEROES));
        fill(Value(3), 7, &mut block);
        assert_eq!(recognise(&block, 7), Ok(Value(3)));
        assert_eq!(recognise(&block, 8), Err(Bad::Misplaced { value: Value(3), block: 7 }));
        let mut other = [0; 512];
        fill(Value(4), 7, &mut other);
        block[256..].copy_from_slice(&other[256..]);
        assert_eq!(recognise(&block, 7), Err(Bad::Torn { at: 256, begins: Value(3) }));
    }

    #[test]
    fn no_flipped_bit_passes() {
        let mut block = [0; 64];
        fill(Value(9), 2, &mut block);
        for bit in 0..512 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(recognise(&block, 2), Ok(Value(9)), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
