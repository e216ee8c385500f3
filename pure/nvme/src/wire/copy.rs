//! Source ranges of the Copy command.

use super::layout::layout;

layout! {
    /// Source Range Entry, Copy Descriptor Format 0h.
    CopyRange, 32, {
        /// Starting LBA (SLBA) of the source range.
        8 starting_lba: u64,
        /// Number of Logical Blocks (NLB), 0's based as on the wire; see [`CopyRange::blocks`].
        16 zeros_based_blocks: u16,
    }
}

layout! {
    /// Source Range Entry, Copy Descriptor Format 1h: like format 0h, with a longer reference tag.
    LongCopyRange, 40, {
        /// Starting LBA (SLBA) of the source range.
        8 starting_lba: u64,
        /// Number of Logical Blocks (NLB), 0's based as on the wire.
        16 zeros_based_blocks: u16,
    }
}

impl CopyRange {
    /// Number of logical blocks in the range.
    pub fn blocks(&self) -> u64 {
        u64::from(self.zeros_based_blocks) + 1
    }

    /// Length in bytes of an entry in Copy Descriptor Format `format`, if the format exists.
    pub const fn length_of(format: u32) -> Option<u32> {
        match format {
            0 => Some(32),
            1 => Some(40),
            _ => None,
        }
    }

    /// The ranges in `bytes`, in Copy Descriptor Format `format`. An incomplete last entry is
    /// ignored.
    pub fn list(format: u32, bytes: &[u8]) -> impl Iterator<Item = Self> {
        let (short, long) = match format {
            0 => (bytes, &[][..]),
            _ => (&[][..], bytes),
        };
        let of_long = |raw: &[u8; LongCopyRange::LENGTH]| {
            let LongCopyRange { starting_lba, zeros_based_blocks } = LongCopyRange::parse(raw);
            Self { starting_lba, zeros_based_blocks }
        };
        let short = short.as_chunks::<{ Self::LENGTH }>().0.iter().map(Self::parse);
        short.chain(long.as_chunks::<{ LongCopyRange::LENGTH }>().0.iter().map(of_long))
    }
}
