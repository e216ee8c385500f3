//! Codes that say why an end refuses a handshake or ends a session.

use serde::{Deserialize, Serialize};

/// Why a handshake is refused: the code of a Refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefuseCode {
    /// 1: the first bytes are no Hello (or Welcome) of this protocol.
    NotFarlane,
    /// 2: the ends have no version in common.
    Version,
    /// 3: both ends have the same role.
    Role,
    /// 4: a frame of the handshake is malformed.
    Malformed,
    /// 5: a mandatory option is unknown.
    UnknownOption,
    /// 6: the device is in use.
    InUse,
    /// 7: the device is not available now, because too many connections are waiting or because a
    /// session is held for a host whose connection was lost.
    Busy,
    /// 8: the handshake was not completed in time.
    Deadline,
    /// 9: the peer is not allowed to do this.
    Forbidden,
    /// 10: a frame of the handshake was damaged on its way.
    Damaged,
    /// A code of a later version.
    Other(u16),
}

impl RefuseCode {
    /// Decodes the code from the bits on the wire.
    pub const fn from_bits(bits: u16) -> Self {
        match bits {
            1 => Self::NotFarlane,
            2 => Self::Version,
            3 => Self::Role,
            4 => Self::Malformed,
            5 => Self::UnknownOption,
            6 => Self::InUse,
            7 => Self::Busy,
            8 => Self::Deadline,
            9 => Self::Forbidden,
            10 => Self::Damaged,
            other => Self::Other(other),
        }
    }
    /// Encodes the code as the bits on the wire.
    pub const fn bits(self) -> u16 {
        match self {
            Self::NotFarlane => 1,
            Self::Version => 2,
            Self::Role => 3,
            Self::Malformed => 4,
            Self::UnknownOption => 5,
            Self::InUse => 6,
            Self::Busy => 7,
            Self::Deadline => 8,
            Self::Forbidden => 9,
            Self::Damaged => 10,
            Self::Other(other) => other,
        }
    }
}

/// Why a session ends: the code of a Close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseCode {
    /// 1: the application ended the session.
    Normal,
    /// 2: the peer broke the protocol.
    Protocol,
    /// 3: more packets were queued than allowed.
    Overrun,
    /// 4: another session replaces this one.
    Superseded,
    /// A code of a later version.
    Other(u16),
}

impl CloseCode {
    /// Decodes the code from the bits on the wire.
    pub const fn from_bits(bits: u16) -> Self {
        match bits {
            1 => Self::Normal,
            2 => Self::Protocol,
            3 => Self::Overrun,
            4 => Self::Superseded,
            other => Self::Other(other),
        }
    }
    /// Encodes the code as the bits on the wire.
    pub const fn bits(self) -> u16 {
        match self {
            Self::Normal => 1,
            Self::Protocol => 2,
            Self::Overrun => 3,
            Self::Superseded => 4,
            Self::Other(other) => other,
        }
    }
}
