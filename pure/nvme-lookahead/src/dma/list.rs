//! A list that a device may read, and the memory that it names.

use alloc::vec::Vec;

use nvme::pointer::Walk;

/// The longest list that is followed, in bytes.
pub(crate) const LIST_MAX: u32 = 64 << 10;
/// Bytes of a list that count as one.
const UNIT: usize = 4;

/// The content of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Where data or metadata is.
    Data(Walk),
    /// Where the pages of a queue are.
    Queue(Walk),
    /// Where the host memory buffer is.
    Buffer,
}

/// A list that a command names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) kind: Kind,
    pub(crate) command: u32,
    pub(crate) address: u64,
    pub(crate) length: u32,
    /// The device's access to the memory that the list names.
    pub(crate) flags: u8,
    /// Whether the list may end earlier than its walk believes.
    pub(crate) guessed: bool,
}

/// The part of a list that a device was given so far.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) list: u32,
    pub(crate) bytes: Vec<u8>,
    /// Flags of the double words that have arrived.
    have: Vec<bool>,
    /// How many bytes from the start have been followed.
    pub(crate) followed: usize,
}

impl Partial {
    pub(crate) fn new(list: u32, length: u32) -> Self {
        let length = usize::try_from(length.min(LIST_MAX)).unwrap_or(0);
        let have = alloc::vec![false; length / UNIT];
        Self { list, bytes: alloc::vec![0; length], have, followed: 0 }
    }

    /// Records bytes that belong at `offset`; only whole double words count.
    pub(crate) fn on_bytes(&mut self, offset: usize, bytes: &[u8]) {
        let Some(place) = self.bytes.get_mut(offset..offset + bytes.len()) else { return };
        place.copy_from_slice(bytes);
        let (first, end) = (offset.div_ceil(UNIT), (offset + bytes.len()) / UNIT);
        if let Some(have) = self.have.get_mut(first..end) {
            have.fill(true);
        }
    }

    /// Number of bytes from the start that have arrived without a gap.
    pub(crate) fn prefix(&self) -> usize {
        self.have.iter().position(|have| !have).unwrap_or(self.have.len()) * UNIT
    }
}
