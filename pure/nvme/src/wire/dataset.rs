//! Ranges of Dataset Management.

use super::layout::layout;

layout! {
    /// A range of the Dataset Management command.
    DatasetRange, 16, {
        /// Context Attributes.
        0 context: u32,
        /// Length in logical blocks.
        4 blocks: u32,
        /// Starting LBA.
        8 starting_lba: u64,
    }
}

impl DatasetRange {
    /// The ranges that `bytes` hold; what does not fill a range is left out.
    pub fn list(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.as_chunks::<{ Self::LENGTH }>().0.iter().map(Self::parse)
    }
}
