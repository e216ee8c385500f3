//! What ends a connection.

use core::fmt;

/// Why a connection is ended: Fatal Error Status (FES) of a Terminate Connection Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FatalErrorStatus {
    /// A field of a PDU header holds what it must not.
    InvalidHeaderField,
    /// A PDU that was not expected, or not then.
    SequenceError,
    /// A header digest did not match its header.
    HeaderDigestError,
    /// Data outside of what was asked for.
    DataTransferOutOfRange,
    /// From a controller: more data than it takes at once (Data Transfer Limit Exceeded). From a host: more R2Ts than
    /// it takes at once (R2T Limit Exceeded).
    LimitExceeded,
    /// A parameter that is valid but not supported.
    UnsupportedParameter,
    /// A value without a name here.
    Other(u16),
}

impl FatalErrorStatus {
    /// The status of a field's value.
    pub const fn from_raw(raw: u16) -> Self {
        match raw {
            1 => Self::InvalidHeaderField,
            2 => Self::SequenceError,
            3 => Self::HeaderDigestError,
            4 => Self::DataTransferOutOfRange,
            5 => Self::LimitExceeded,
            6 => Self::UnsupportedParameter,
            other => Self::Other(other),
        }
    }

    /// The field's value.
    pub const fn raw(self) -> u16 {
        match self {
            Self::InvalidHeaderField => 1,
            Self::SequenceError => 2,
            Self::HeaderDigestError => 3,
            Self::DataTransferOutOfRange => 4,
            Self::LimitExceeded => 5,
            Self::UnsupportedParameter => 6,
            Self::Other(other) => other,
        }
    }
}

impl fmt::Display for FatalErrorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidHeaderField => "Invalid PDU Header Field",
            Self::SequenceError => "PDU Sequence Error",
            Self::HeaderDigestError => "Header Digest Error",
            Self::DataTransferOutOfRange => "Data Transfer Out of Range",
            Self::LimitExceeded => "Data Transfer or R2T Limit Exceeded",
            Self::UnsupportedParameter => "Unsupported Parameter",
            Self::Other(raw) => return write!(f, "fatal error status {raw:04x}h"),
        })
    }
}

/// What is wrong with a PDU, as the Terminate Connection Request that answers it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Fatal Error Status (FES).
    pub status: FatalErrorStatus,
    /// Fatal Error Information (FEI): the offset of the field in the PDU's header, the header digest that was
    /// received, or 0, as the status has it.
    pub information: u32,
}

impl Fault {
    /// Invalid PDU Header Field, at `offset` in the header.
    pub const fn field(offset: u32) -> Self {
        Self { status: FatalErrorStatus::InvalidHeaderField, information: offset }
    }

    /// Unsupported Parameter, at `offset` in the header.
    pub const fn unsupported(offset: u32) -> Self {
        Self { status: FatalErrorStatus::UnsupportedParameter, information: offset }
    }

    /// Header Digest Error; `digest` is the one that was received.
    pub const fn header_digest(digest: u32) -> Self {
        Self { status: FatalErrorStatus::HeaderDigestError, information: digest }
    }

    /// PDU Sequence Error.
    pub const SEQUENCE: Self = Self { status: FatalErrorStatus::SequenceError, information: 0 };
    /// Data Transfer Out of Range.
    pub const OUT_OF_RANGE: Self = Self { status: FatalErrorStatus::DataTransferOutOfRange, information: 0 };
    /// Data Transfer Limit Exceeded, or R2T Limit Exceeded.
    pub const LIMIT: Self = Self { status: FatalErrorStatus::LimitExceeded, information: 0 };
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            FatalErrorStatus::InvalidHeaderField | FatalErrorStatus::UnsupportedParameter => {
                write!(f, "{}, at byte {}", self.status, self.information)
            }
            FatalErrorStatus::HeaderDigestError => {
                write!(f, "{}, {:08x}h received", self.status, self.information)
            }
            _ => self.status.fmt(f),
        }
    }
}
