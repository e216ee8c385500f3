//! The memory page size, in which a host and its controller count memory.

use serde::{Deserialize, Serialize};

/// The memory page size in bytes, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSize(u32);

impl PageSize {
    /// A page size of 4 KiB.
    pub const KIB4: Self = Self(4096);

    /// The page size that CC.MPS selects: 4 KiB times 2 to the power `mps` (0..=15).
    pub const fn from_mps(mps: u64) -> Self {
        Self(4096 << (mps & 15))
    }
    /// The page size in bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }
    /// The offset of `address` in its page, in bytes.
    pub fn offset_of(self, address: u64) -> u32 {
        let offset = address % u64::from(self.0);
        u32::try_from(offset).expect("an offset in a page is less than the page's size")
    }
}

impl Default for PageSize {
    fn default() -> Self {
        Self::KIB4
    }
}
