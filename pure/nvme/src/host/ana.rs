//! The Asymmetric Namespace Access log, as a host reads it.

use alloc::vec::Vec;

use crate::wire::log::{AnaGroupDescriptor, AnaLogHeader};
use crate::wire::{AnaState, NamespaceId};

/// The states in an ANA log (page 0Ch), by namespace. Namespaces that a truncated log lacks are
/// left out.
pub fn ana_states(log: &[u8]) -> Vec<(NamespaceId, AnaState)> {
    let mut states = Vec::new();
    let Some((header, mut rest)) = log.split_first_chunk() else { return states };
    for _ in 0..AnaLogHeader::parse(header).groups {
        let Some((descriptor, after)) = rest.split_first_chunk() else { break };
        let group = AnaGroupDescriptor::parse(descriptor);
        let state = AnaState::from_raw(group.state);
        rest = after;
        for _ in 0..group.namespaces {
            let Some((id, after)) = rest.split_first_chunk() else { return states };
            states.push((NamespaceId(u32::from_le_bytes(*id)), state));
            rest = after;
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_group_by_group() {
        let mut log = [0; 16 + 32 + 8 + 32 + 4];
        log[8] = 2;
        // Group 1, namespaces 5 and 6, optimized; group 2, namespace 7, inaccessible.
        (log[16], log[20], log[32], log[48], log[52]) = (1, 2, 1, 5, 6);
        (log[56], log[60], log[72], log[88]) = (2, 1, 3, 7);
        let expected = [(5, AnaState::Optimized), (6, AnaState::Optimized), (7, AnaState::Inaccessible)];
        assert_eq!(ana_states(&log), expected.map(|(id, state)| (NamespaceId(id), state)));
        // A truncated log gives the states that it has, and a wrong count ends with the log.
        for length in 0..log.len() {
            assert!(ana_states(&log[..length]).len() < 3);
        }
        log[20..24].fill(0xff);
        assert_eq!(ana_states(&log).len(), 11);
    }
}
