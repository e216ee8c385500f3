//! Counts of posted packets that have passed on each strand, which keep packets from overtaking.
//!
//! Packets of the main strand stay in order with all posted packets. Packets of a further strand
//! stay in order with posted packets of their own strand and the main one. As PCI Express asks,
//! only the order behind posted packets is kept. The sender's order is total, so waiting has no
//! cycles.

use alloc::vec::Vec;

use pcie::switch::Strand;
use serde::{Deserialize, Serialize};

use super::STRANDS_MAX;
use super::message::After;

/// Counts wrap, and are compared by their difference. It is less than this, since credits bound
/// what is under way.
const AHEAD_MAX: u32 = 1 << 31;

/// The order between the strands of a link, at one end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Order {
    /// Posted packets sent on each strand.
    sent: [u32; STRANDS_MAX],
    /// For each strand, the counts of the other strands that were last sent on it.
    announced: [[u32; STRANDS_MAX]; STRANDS_MAX],
    /// Posted packets of the peer that were passed on, for each strand.
    passed_on: [u32; STRANDS_MAX],
}

impl Order {
    /// The counts that must be sent on `strand` before a packet goes there, if any.
    pub(super) fn before(&mut self, strand: Strand) -> Option<Vec<After>> {
        let others = if strand.is_main() { 1..STRANDS_MAX } else { 0..1 };
        if self.sent[others.clone()] == self.announced[strand.index()][others.clone()] {
            return None;
        }
        let mut after = Vec::new();
        let announced = &mut self.announced[strand.index()];
        for other in Strand::first(STRANDS_MAX).filter(|other| others.contains(&other.index())) {
            let posted = self.sent[other.index()];
            if announced[other.index()] != posted {
                announced[other.index()] = posted;
                after.push(After { strand: other, posted });
            }
        }
        Some(after)
    }
    /// Counts a posted packet that goes out on `strand`.
    pub(super) const fn send(&mut self, strand: Strand) {
        self.sent[strand.index()] = self.sent[strand.index()].wrapping_add(1);
    }
    /// Counts a posted packet of `strand` that has been passed on.
    pub(super) const fn pass_on(&mut self, strand: Strand) {
        self.passed_on[strand.index()] = self.passed_on[strand.index()].wrapping_add(1);
    }
    /// Whether all packets that `after` names have been passed on.
    pub(super) fn is_met(&self, after: &[After]) -> bool {
        after
            .iter()
            .all(|After { strand, posted }| self.passed_on[strand.index()].wrapping_sub(*posted) < AHEAD_MAX)
    }
}
