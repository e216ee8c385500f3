//! Asymmetric Namespace Access: the quality of a path to a namespace.

use alloc::vec::Vec;

use nvme::wire::{Bits, NamespaceId};

/// ANA State of a group, as one controller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnaState {
    /// The best path (01h).
    Optimized,
    /// A usable path that is not the best (02h).
    NonOptimized,
    /// No path for now (03h).
    Inaccessible,
    /// No path any more (04h).
    PersistentLoss,
    /// Between two states (0Fh).
    Change,
}

impl AnaState {
    /// Whether commands may take a path in this state.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }

    /// The state that a field encodes. A reserved value counts as Inaccessible.
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Optimized,
            2 => Self::NonOptimized,
            4 => Self::PersistentLoss,
            15 => Self::Change,
            _ => Self::Inaccessible,
        }
    }
}

/// Bytes of the log's header.
const HEADER: usize = 16;
/// Bytes of a group descriptor before its namespaces.
const DESCRIPTOR: usize = 32;
/// ANA State, in a group descriptor.
const STATE: Bits = Bits::new(3, 0);

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|raw| u32::from_le_bytes(*raw))
}

/// The states in an ANA log (page 0Ch), by namespace. Namespaces that a truncated log lacks are
/// left out.
pub fn ana_states(log: &[u8]) -> Vec<(NamespaceId, AnaState)> {
    let mut states = Vec::new();
    let groups = u32_at(log, 8).map_or(0, |word| Bits::new(15, 0).of(word));
    let mut at = HEADER;
    for _ in 0..groups {
        let (Some(count), Some(state)) = (u32_at(log, at + 4), u32_at(log, at + 16)) else { break };
        let [raw, ..] = STATE.of(state).to_le_bytes();
        at += DESCRIPTOR;
        for _ in 0..count {
            let Some(namespace) = u32_at(log, at) else { return states };
            states.push((NamespaceId(namespace), AnaState::from_raw(raw)));
            at += 4;
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
