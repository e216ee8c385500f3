//! The Asymmetric Namespace Access log, as a host reads it.

use alloc::vec::Vec;

use crate::wire::log::{AnaGroupDescriptor, AnaLogHeader};
use crate::wire::{AnaState, NamespaceId};

/// A group in an ANA log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnaGroup {
    /// The group's descriptor.
    pub descriptor: AnaGroupDescriptor,
    /// The group's namespaces, as far as the log has them.
    pub namespaces: Vec<NamespaceId>,
}

/// The groups in an ANA log (page 0Ch), as far as the log has them.
pub fn ana_groups(log: &[u8]) -> Vec<AnaGroup> {
    let mut groups = Vec::new();
    let Some((header, mut rest)) = log.split_first_chunk() else { return groups };
    for _ in 0..AnaLogHeader::parse(header).groups {
        let Some((descriptor, after)) = rest.split_first_chunk() else { break };
        let descriptor = AnaGroupDescriptor::parse(descriptor);
        let (ids, _) = after.as_chunks::<4>();
        let count = usize::try_from(descriptor.namespaces).unwrap_or(usize::MAX).min(ids.len());
        let namespaces = ids[..count].iter().map(|id| NamespaceId(u32::from_le_bytes(*id))).collect();
        groups.push(AnaGroup { descriptor, namespaces });
        rest = &after[count * 4..];
    }
    groups
}

/// The length in bytes of the ANA log that begins with `log`; `None` if `log` is not all of it.
pub fn ana_log_length(log: &[u8]) -> Option<usize> {
    let header = AnaLogHeader::parse(log.first_chunk()?);
    let groups = ana_groups(log);
    let is_whole = |one: &AnaGroup| one.namespaces.len() as u64 == u64::from(one.descriptor.namespaces);
    let lengths = groups.iter().map(|one| AnaGroupDescriptor::LENGTH + one.namespaces.len() * 4);
    (groups.len() == usize::from(header.groups) && groups.iter().all(is_whole))
        .then(|| AnaLogHeader::LENGTH + lengths.sum::<usize>())
}

/// The states in an ANA log (page 0Ch), by namespace. Namespaces that a truncated log lacks are
/// left out.
pub fn ana_states(log: &[u8]) -> Vec<(NamespaceId, AnaState)> {
    let state = |one: &AnaGroup| AnaState::from_raw(one.descriptor.state);
    let groups = ana_groups(log).into_iter();
    groups
        .flat_map(|one| {
            let state = state(&one);
            one.namespaces.into_iter().map(move |id| (id, state))
        })
        .collect()
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
            assert_eq!(ana_log_length(&log[..length]), None);
        }
        let padded = [&log[..], &[0; 12]].concat();
        assert_eq!(ana_log_length(&padded), Some(log.len()));
        let groups = ana_groups(&padded);
        assert_eq!((groups.len(), groups[1].descriptor.group), (2, 2));
        log[20..24].fill(0xff);
        assert_eq!(ana_states(&log).len(), 11);
    }
}
