//! Asymmetric Namespace Access (ANA): how well each controller reaches each group of namespaces.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::namespace::Namespace;
use crate::wire::log::{AnaGroupDescriptor, AnaLogHeader};
use crate::wire::{AnaState, Bits, NamespaceId, SubmissionQueueEntry};

/// ANA Transition Time (ANATT): the longest that a group should be in the Change state, in seconds.
pub(super) const TRANSITION_SECONDS: u8 = 10;
/// Asymmetric Namespace Access Capabilities (ANACAP): every state may be reported.
pub(super) const CAPABILITIES: u8 = 0b1_1111;
/// Return Groups Only (RGO), in the Log Specific Parameter (LSP) of CDW10.
const GROUPS_ONLY: Bits = Bits::bit(8);

/// How one controller reaches the ANA groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Access {
    /// States of the groups that are not optimized.
    states: BTreeMap<u32, AnaState>,
    /// Change Count of each group that has ever changed.
    changes: BTreeMap<u32, u64>,
    /// Change Count of the ANA log.
    log_changes: u64,
}

impl Access {
    pub(super) fn state(&self, group: u32) -> AnaState {
        self.states.get(&group).copied().unwrap_or_default()
    }

    /// Sets the state of a group. Returns false if nothing changed.
    pub(super) fn set_state(&mut self, group: u32, state: AnaState) -> bool {
        if self.state(group) == state {
            return false;
        }
        if state == AnaState::Optimized {
            self.states.remove(&group);
        } else {
            self.states.insert(group, state);
        }
        self.count_change(group);
        true
    }

    /// The groups that the controller does not reach.
    pub(super) fn unreached(&self) -> impl Iterator<Item = u32> {
        self.states.iter().filter(|(_, state)| state.refusal().is_some()).map(|(group, _)| *group)
    }

    pub(super) fn count_change(&mut self, group: u32) {
        *self.changes.entry(group).or_default() += 1;
        self.log_changes += 1;
    }
}

/// The ANA log page of a controller: the groups of the namespaces attached to it, and those
/// namespaces.
pub(super) fn log<'a>(
    access: &Access,
    attached: impl Iterator<Item = &'a Namespace>,
    entry: &SubmissionQueueEntry,
) -> Vec<u8> {
    let mut groups: BTreeMap<u32, Vec<NamespaceId>> = BTreeMap::new();
    for namespace in attached {
        groups.entry(namespace.ana_group).or_default().push(namespace.id);
    }
    let mut log = [0; AnaLogHeader::LENGTH].to_vec();
    let header = AnaLogHeader {
        change_count: access.log_changes,
        groups: u16::try_from(groups.len()).expect("ANA_GROUPS_MAX bounds them"),
    };
    header.emit(log.first_chunk_mut().expect("as long as the header"));
    for (group, mut namespaces) in groups {
        if GROUPS_ONLY.is_set(entry.cdw10) {
            namespaces.clear();
        }
        let descriptor = AnaGroupDescriptor {
            group,
            namespaces: u32::try_from(namespaces.len()).expect("identifiers are small"),
            change_count: access.changes.get(&group).copied().unwrap_or_default(),
            state: access.state(group).value(),
        };
        let mut bytes = [0; AnaGroupDescriptor::LENGTH];
        descriptor.emit(&mut bytes);
        log.extend_from_slice(&bytes);
        log.extend(namespaces.iter().flat_map(|id| id.0.to_le_bytes()));
    }
    log
}
