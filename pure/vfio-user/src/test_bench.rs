//! Bytes written by hand, and descriptors that are counted.

use alloc::rc::Rc;
use alloc::vec::Vec;

/// Decodes bytes written as hexadecimal digits. White space is ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(|digit| u8::try_from(digit).unwrap())
        .collect();
    assert!(digits.len().is_multiple_of(2));
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A descriptor of an imaginary world, which counts the open descriptors.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) number: u32,
    _open: Rc<()>,
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Counted {}

/// The open descriptors of a world.
#[derive(Default)]
pub(crate) struct Counter {
    open: Rc<()>,
    last: u32,
}

impl Counter {
    pub(crate) fn open(&mut self) -> Counted {
        self.last += 1;
        Counted { number: self.last, _open: Rc::clone(&self.open) }
    }
    /// How many descriptors are open.
    pub(crate) fn count(&self) -> usize {
        Rc::strong_count(&self.open) - 1
    }
}
