//! Logical blocks that Write Uncorrectable made unreadable, until they are written again.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::errors::Failure;
use super::record::UnreadableBlocks;
use crate::wire::{NamespaceId, StatusCode};

/// The most unreadable blocks in a namespace, which also bounds the number of runs.
pub(super) const UNCORRECTABLE_BLOCKS_MAX: u64 = 65_536;

/// Runs of marked blocks: a map from the first block of a run to the block after its last. Runs
/// neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks(BTreeMap<u64, u64>);

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first marked block in `start..end`.
    pub(super) fn first_in(&self, start: u64, end: u64) -> Option<u64> {
        if start >= end {
            return None;
        }
        let before = self.0.range(..=start).next_back().filter(|(_, run_end)| **run_end > start);
        before.map(|_| start).or_else(|| self.0.range(start..end).next().map(|(first, _)| *first))
    }

    /// Marks `start..end`. Returns false and changes nothing if the marked blocks could exceed
    /// [`UNCORRECTABLE_BLOCKS_MAX`].
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        let marked: u64 = self.runs().map(|(first, last)| last - first).sum();
        let both: u64 = self.runs().map(|(first, last)| last.min(end).saturating_sub(first.max(start))).sum();
        if marked + (end - start - both) > UNCORRECTABLE_BLOCKS_MAX {
            return false;
        }
        let (mut start, mut end) = (start, end);
        // Runs that touch the new one are merged with it.
        while let Some((&first, &last)) =
            self.0.range(..=end).next_back().filter(|(_, run_end)| **run_end >= start)
        {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
        true
    }

    /// Removes the marks from `start..end`, and returns whether there were any.
    pub(super) fn remove(&mut self, start: u64, end: u64) -> bool {
        let mut any = false;
        if start >= end {
            return any;
        }
        while let Some((&first, &last)) =
            self.0.range(..end).next_back().filter(|(_, run_end)| **run_end > start)
        {
            any = true;
            self.0.remove(&first);
            if first < start {
                self.0.insert(first, start);
            }
            if last > end {
                self.0.insert(end, last);
            }
        }
        any
    }

    /// The runs as (first block, block after the last), in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(start, end)| (*start, *end))
    }
}

/// The unreadable blocks of all namespaces.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Unreadable(BTreeMap<NamespaceId, Marks>);

impl Unreadable {
    /// Marks blocks. Returns false and changes nothing if the namespace could have too many.
    pub(super) fn add(&mut self, blocks: &UnreadableBlocks) -> bool {
        let marks = self.0.entry(blocks.namespace).or_default();
        marks.add(blocks.lba, blocks.lba.saturating_add(blocks.blocks))
    }

    /// Removes the marks from blocks, and returns whether there were any.
    pub(super) fn remove(&mut self, blocks: &UnreadableBlocks) -> bool {
        let marks = self.0.get_mut(&blocks.namespace);
        marks.is_some_and(|marks| marks.remove(blocks.lba, blocks.lba + blocks.blocks))
    }

    /// Forgets the marks of a namespace.
    pub(super) fn forget(&mut self, namespace: NamespaceId) {
        self.0.remove(&namespace);
    }

    /// Whether the namespace has unreadable blocks.
    pub(super) fn has(&self, namespace: NamespaceId) -> bool {
        self.0.get(&namespace).is_some_and(|marks| !marks.is_empty())
    }

    /// Fails if one of the blocks is unreadable.
    #[cold]
    pub(super) fn check(&self, namespace: NamespaceId, lba: u64, blocks: u64) -> Result<(), Failure> {
        match self.0.get(&namespace).and_then(|marks| marks.first_in(lba, lba + blocks)) {
            Some(lba) => Err(Failure::at_lba(StatusCode::UnrecoveredReadError, lba)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marked_blocks_have_a_limit() {
        let mut marks = Marks::default();
        assert!(marks.add(10, 10 + 65_536));
        assert!(!marks.add(0, 1));
        // Blocks that are marked already take no more room.
        assert!(marks.add(10, 20) && marks.add(10, 10 + 65_536));
        assert!(!marks.add(9, 20));
        assert!(marks.remove(11, 12));
        assert!(marks.runs().eq([(10, 11), (12, 65_546)]));
        assert!(marks.add(11, 12));
        assert!(marks.runs().eq([(10, 65_546)]));
    }

    proptest! {
        #[test]
        fn marks_agree_with_an_array(steps in prop::collection::vec((any::<bool>(), 0..60_u64, 0..9_u64), 1..60)) {
            let mut marks = Marks::default();
            let mut model = [false; 80];
            for (add, start, length) in steps {
                let end = start + length;
                let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
                if add {
                    prop_assert!(marks.add(start, end));
                } else {
                    prop_assert_eq!(marks.remove(start, end), model[range.clone()].contains(&true));
                }
                model[range].fill(add);
                for from in 0..70 {
                    let found = (from..from + 5).find(|block| model[usize::try_from(*block).unwrap()]);
                    prop_assert_eq!(marks.first_in(from, from + 5), found);
                }
            }
        }
    }
}
