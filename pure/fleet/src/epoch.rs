//! Epochs, by which a disk's owner refuses lists that are older than its durable one.

use core::fmt;

/// The age of a volume's list of admitted hosts.
///
/// Each change of the list has the next number. The incarnation grows when the store was restored
/// from a backup, or was rebuilt: the owner of the disk refuses the numbers of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// The life of the store.
    pub incarnation: u64,
    /// Number of changes in that life and before it.
    pub number: u64,
}

impl Epoch {
    /// The epoch of the next change, in a store of this incarnation.
    #[must_use]
    pub const fn next(self, incarnation: u64) -> Self {
        Self { incarnation, number: self.number.saturating_add(1) }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.incarnation, self.number)
    }
}
