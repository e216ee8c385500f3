//! Ranges of the Dataset Management command.

use super::layout::layout;

layout! {
    /// A range of the Dataset Management command.
    DatasetRange, 16, {
        /// Context Attributes of the range, which are hints.
        0 context: u32,
        /// Length of the range in logical blocks.
        4 blocks: u32,
        /// Starting LBA (SLBA) of the range.
        8 starting_lba: u64,
    }
}

impl DatasetRange {
    /// The ranges in `bytes`. An incomplete last entry is ignored.
    pub fn list(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.as_chunks::<{ Self::LENGTH }>().0.iter().map(Self::parse)
    }
}
