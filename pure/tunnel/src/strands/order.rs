//! How many posted packets have passed on each strand: what may not overtake what.
//!
//! The main strand's packets stay in order with all that is posted, those of the others with what is posted on their own and on the
//! main one. Only the order behind posted packets is kept, as PCI Express asks; the sender's order is a total one, so
//! waiting has no cycles.

use alloc::vec::Vec;

use super::STRANDS_MAX;
use super::message::After;

/// Counts that wrap are compared by their difference: it is less than this, since credits bound what is under way.
const AHEAD_MAX: u32 = 1 << 31;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Posted packets sent on each strand.
    sent: [u32; STRANDS_MAX],
    /// What was said on each strand of how many were sent on the others.
    told: [[u32; STRANDS_MAX]; STRANDS_MAX],
    /// Posted packets of the peer that were passed on.
    passed_on: [u32; STRANDS_MAX],
}

impl Order {
    /// What has to be said on `strand` before a packet goes there.
    pub(super) fn before(&mut self, strand: usize) -> Option<Vec<After>> {
        let others = if strand == 0 { 1..STRANDS_MAX } else { 0..1 };
        if self.sent[others.clone()] == self.told[strand][others.clone()] {
            return None;
        }
        let mut after = Vec::new();
        for other in others {
            if self.told[strand][other] != self.sent[other] {
                self.told[strand][other] = self.sent[other];
                let number = u8::try_from(other).expect("there are few strands");
                after.push(After { strand: number, posted: self.sent[other] });
            }
        }
        Some(after)
    }
    /// A posted packet goes out on `strand`.
    pub(super) const fn send(&mut self, strand: usize) {
        self.sent[strand] = self.sent[strand].wrapping_add(1);
    }
    /// A posted packet of `strand` has been passed on.
    pub(super) const fn pass_on(&mut self, strand: usize) {
        self.passed_on[strand] = self.passed_on[strand].wrapping_add(1);
    }
    /// Whether all of `after` has been passed on.
    pub(super) fn is_met(&self, after: &[After]) -> bool {
        after.iter().all(|After { strand, posted }| {
            self.passed_on[usize::from(*strand)].wrapping_sub(*posted) < AHEAD_MAX
        })
    }
}
