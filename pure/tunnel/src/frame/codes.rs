//! Why an end says no, or goes.

/// Why a handshake is refused (Refuse).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefuseCode {
    /// 1: what came first is no Hello (or Welcome) of this protocol.
    NotFarlane,
    /// 2: no version in common.
    Version,
    /// 3: both ends have the same role.
    Role,
    /// 4: a frame of the handshake is malformed.
    Malformed,
    /// 5: an option is mandatory and unknown.
    UnknownOption,
    /// 6: the device is in use.
    InUse,
    /// 7: not now: too many connections are waiting, or a session is held for a host whose connection was lost.
    Busy,
    /// 8: the handshake took too long.
    Deadline,
    /// 9: the peer may not do this.
    Forbidden,
    /// 10: a frame of the handshake was damaged on its way.
    Damaged,
    /// A code of a later version.
    Other(u16),
}

impl RefuseCode {
    /// From the bits on the wire.
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
    /// The bits on the wire.
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

/// Why a session ends (Close).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    /// 1: the application wanted it so.
    Normal,
    /// 2: the peer broke the protocol.
    Protocol,
    /// 3: more was queued than may be.
    Overrun,
    /// 4: another session takes the place of this one.
    Superseded,
    /// A code of a later version.
    Other(u16),
}

impl CloseCode {
    /// From the bits on the wire.
    pub const fn from_bits(bits: u16) -> Self {
        match bits {
            1 => Self::Normal,
            2 => Self::Protocol,
            3 => Self::Overrun,
            4 => Self::Superseded,
            other => Self::Other(other),
        }
    }
    /// The bits on the wire.
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
