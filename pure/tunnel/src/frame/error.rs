//! Errors in the encoding of a frame.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::FrameKind;

/// Why bytes are not a valid frame, with the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FrameError {
    /// The kind octet has this value, which names no kind.
    UnknownKind(u8),
    /// The header has flags that the kind does not have.
    UnknownFlags {
        /// Kind of the frame.
        kind: FrameKind,
        /// All flags of the header.
        flags: u8,
    },
    /// The kind cannot have this length: it is out of range, or not a multiple of 4.
    Length {
        /// Kind of the frame.
        kind: FrameKind,
        /// The Length field, in bytes.
        length: u16,
    },
    /// There are fewer bytes than the frame has.
    Truncated {
        /// How many bytes there should be.
        need: usize,
        /// How many bytes there are.
        have: usize,
    },
    /// There are more bytes than the frame has.
    Excess {
        /// How many bytes there should be.
        need: usize,
        /// How many bytes there are.
        have: usize,
    },
    /// A Hello or Welcome begins with these bytes instead of the magic number.
    Magic([u8; 8]),
    /// The lowest version is above the highest, or a Welcome chooses no single version.
    VersionRange {
        /// The lowest version in the frame.
        low: u16,
        /// The highest version in the frame.
        high: u16,
    },
    /// The role octet has this value, which names no role.
    UnknownRole(u8),
    /// The outcome octet has this value, which names no outcome or none that the frame can have.
    UnknownOutcome(u8),
    /// A reserved field is not zero, or a field has a value that it cannot have.
    Reserved {
        /// Kind of the frame.
        kind: FrameKind,
        /// Where the field is in the body, in bytes.
        offset: usize,
    },
    /// An option is longer than the rest of the body, or cannot have this length.
    OptionLength {
        /// Type of the option.
        option: u16,
        /// Length of the option's value, in bytes.
        length: u16,
    },
    /// The option of this type is mandatory, but the receiver does not know it.
    UnknownMandatoryOption(u16),
    /// The option of this type came twice.
    RepeatedOption(u16),
    /// The option of this type is missing.
    MissingOption(u16),
    /// The value of the option of this type is out of range.
    OptionValue(u16),
    /// A text is not UTF-8, or has control characters.
    Text {
        /// Kind of the frame.
        kind: FrameKind,
        /// Where the text is in the body, in bytes.
        offset: usize,
    },
    /// The frame is not as it was sent: its CRC32C does not match.
    Damaged,
    /// A Reset has this phase, which is neither a request nor an answer.
    UnknownReset(u32),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UnknownKind(kind) => write!(f, "{kind:#04x} is no kind of frame"),
            Self::UnknownFlags { kind, flags } => write!(f, "{kind:?} has no flags {flags:#04x}"),
            Self::Length { kind, length } => write!(f, "{kind:?} can't be {length} B long"),
            Self::Truncated { need, have } => write!(f, "{have} B of a frame of {need} B"),
            Self::Excess { need, have } => write!(f, "{have} B for a frame of {need} B"),
            Self::Magic(magic) => write!(f, "the magic number is {magic:02x?}"),
            Self::VersionRange { low, high } => write!(f, "versions {low} to {high} are no range"),
            Self::UnknownRole(role) => write!(f, "{role} is no role"),
            Self::UnknownOutcome(outcome) => write!(f, "{outcome} is no outcome of a handshake"),
            Self::Reserved { kind, offset } => {
                write!(f, "{kind:?} has bits set in the reserved field at {offset}")
            }
            Self::OptionLength { option, length } => {
                write!(f, "option {option:#06x} can't be {length} B long")
            }
            Self::UnknownMandatoryOption(option) => {
                write!(f, "option {option:#06x} is mandatory and not known here")
            }
            Self::RepeatedOption(option) => write!(f, "option {option:#06x} came twice"),
            Self::MissingOption(option) => write!(f, "option {option:#06x} is missing"),
            Self::OptionValue(option) => write!(f, "option {option:#06x} has a value out of range"),
            Self::Text { kind, offset } => write!(f, "{kind:?} has no proper text at {offset}"),
            Self::Damaged => f.write_str("its CRC32C is wrong"),
            Self::UnknownReset(phase) => write!(f, "{phase} is neither a reset's request nor its answer"),
        }
    }
}

impl core::error::Error for FrameError {}
