//! The length of the blocks that bytes are received into.

/// The length of the next receive block. A received buffer keeps its whole block, so the length
/// grows while blocks are filled to the end, and shrinks after `SHRINK_AFTER` blocks in a row would
/// have fitted the next smaller size.
#[derive(Debug)]
pub(crate) struct BlockLength<const SHRINK_AFTER: u32> {
    length: usize,
    /// Number of blocks in a row that were larger than needed.
    roomy: u32,
}

impl<const SHRINK_AFTER: u32> BlockLength<SHRINK_AFTER> {
    /// The smallest block in bytes; [`Self::MAX`] is the largest.
    const MIN: usize = 16 << 10;
    const MAX: usize = 256 << 10;
    /// The factor between two block sizes.
    const STEP: usize = 4;

    pub(crate) const fn new() -> Self {
        Self { length: Self::MIN, roomy: 0 }
    }

    /// Length of the next block in bytes.
    pub(crate) const fn get(&self) -> usize {
        self.length
    }

    /// Adapts the length to the `count` bytes that were used of the last block.
    pub(crate) fn heed(&mut self, count: usize) {
        if count == self.length {
            self.length = (self.length * Self::STEP).min(Self::MAX);
            self.roomy = 0;
        } else if count <= self.length / Self::STEP {
            self.roomy += 1;
            if self.roomy == SHRINK_AFTER {
                self.length = (self.length / Self::STEP).max(Self::MIN);
                self.roomy = 0;
            }
        } else {
            self.roomy = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: usize = BlockLength::<2>::MIN;
    const MAX: usize = BlockLength::<2>::MAX;

    #[test]
    fn blocks_are_as_long_as_what_comes() {
        let mut block = BlockLength::<2>::new();
        for length in [MIN, 4 * MIN, MAX, MAX] {
            assert_eq!(block.get(), length);
            block.heed(length);
        }
        // A block that is filled by more than a quarter restarts the count.
        for (count, length) in
            [(1, MAX), (MAX / 2, MAX), (1, MAX), (1, 4 * MIN), (1, 4 * MIN), (1, MIN), (1, MIN), (1, MIN)]
        {
            block.heed(count);
            assert_eq!(block.get(), length);
        }
    }
}
