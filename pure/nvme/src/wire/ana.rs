//! Asymmetric Namespace Access (ANA): how well a controller reaches a group of namespaces.

use serde::{Deserialize, Serialize};

use super::StatusCode;
use super::bits::{Bits, low_u8};

/// ANA State of a group, as one controller sees the group. Better states come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AnaState {
    /// ANA Optimized (1h): the best path.
    #[default]
    Optimized,
    /// ANA Non-Optimized (2h): another controller may be faster.
    NonOptimized,
    /// ANA Inaccessible (3h): the group may be reachable through another controller, or later.
    Inaccessible,
    /// ANA Persistent Loss (4h): this controller will never reach the group again.
    PersistentLoss,
    /// ANA Change (Fh): the state is about to change.
    Change,
}

/// Asymmetric Namespace Access State, in a group's descriptor.
const STATE: Bits = Bits::new(3, 0);

impl AnaState {
    /// The state in the byte of a group's descriptor. A reserved value counts as Inaccessible.
    pub const fn from_raw(raw: u8) -> Self {
        match low_u8(STATE.of(raw as u32)) {
            0x1 => Self::Optimized,
            0x2 => Self::NonOptimized,
            0x4 => Self::PersistentLoss,
            0xf => Self::Change,
            _ => Self::Inaccessible,
        }
    }

    /// The value of the state in a group's descriptor.
    pub const fn value(self) -> u8 {
        match self {
            Self::Optimized => 0x1,
            Self::NonOptimized => 0x2,
            Self::Inaccessible => 0x3,
            Self::PersistentLoss => 0x4,
            Self::Change => 0xf,
        }
    }

    /// Whether commands may take a path in this state.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }

    /// The status with which commands that need the namespaces' media fail in this state; `None` if
    /// they succeed.
    pub const fn refusal(self) -> Option<StatusCode> {
        match self {
            Self::Optimized | Self::NonOptimized => None,
            Self::Inaccessible => Some(StatusCode::AsymmetricAccessInaccessible),
            Self::PersistentLoss => Some(StatusCode::AsymmetricAccessPersistentLoss),
            Self::Change => Some(StatusCode::AsymmetricAccessTransition),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_comes_back_and_reserved_values_are_inaccessible() {
        for raw in 0..=u8::MAX {
            let state = AnaState::from_raw(raw);
            assert_eq!(AnaState::from_raw(state.value()), state);
            assert!(state == AnaState::Inaccessible || state.value() == raw & 0xf, "{raw:#x} is {state:?}");
        }
    }
}
