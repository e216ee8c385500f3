//! The faults that end a connection.

use core::fmt;

/// Why a connection is ended: Fatal Error Status (FES) of a Terminate Connection Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FatalErrorStatus {
    /// A field of a PDU header holds an invalid value.
    InvalidHeaderField,
    /// A PDU was not expected, or not at that time.
    SequenceError,
    /// A header digest did not match its header.
    HeaderDigestError,
    /// Data are outside of the requested range.
    DataTransferOutOfRange,
    /// From a controller: the host sent more data than allowed at a time (Data Transfer Limit
    /// Exceeded). From a host: the controller sent more R2Ts than allowed at a time (R2T Limit
    /// Exceeded).
    LimitExceeded,
    /// A parameter is valid but not supported.
    UnsupportedParameter,
    /// Another value.
    Other(u16),
}

impl FatalErrorStatus {
    /// The status that a value of FES encodes.
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

    /// The value of FES for this status.
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

/// A fault in a PDU, as reported by the Terminate Connection Request that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Fatal Error Status (FES).
    pub status: FatalErrorStatus,
    /// Fatal Error Information (FEI). Depending on the status: the offset of the wrong field in the
    /// PDU's header, the received header digest, or 0.
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

    /// Header Digest Error; `digest` is the received digest.
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
