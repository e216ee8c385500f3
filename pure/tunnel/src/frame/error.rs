//! What can be wrong with a frame.

use core::fmt;

use super::FrameKind;

/// Why bytes are not a frame, with the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The kind octet names no frame.
    UnknownKind(u8),
    /// Flags that the kind doesn't have.
    UnknownFlags {
        /// The frame's kind.
        kind: FrameKind,
        /// All its flags.
        flags: u8,
    },
    /// A length that the kind can't have: out of its range, or not a multiple of 4.
    Length {
        /// The frame's kind.
        kind: FrameKind,
        /// The Length field, bytes.
        length: u16,
    },
    /// Fewer bytes than the frame has.
    Truncated {
        /// How many there should be.
        need: usize,
        /// How many there are.
        have: usize,
    },
    /// More bytes than the frame has.
    Excess {
        /// How many there should be.
        need: usize,
        /// How many there are.
        have: usize,
    },
    /// A Hello or Welcome without the magic number.
    Magic([u8; 8]),
    /// A version range whose low end is above its high end, or a Welcome that picks none.
    VersionRange {
        /// The lowest version.
        low: u16,
        /// The highest version.
        high: u16,
    },
    /// A role octet that names no role.
    UnknownRole(u8),
    /// An outcome octet that names no outcome.
    UnknownOutcome(u8),
    /// A reserved field that is not zero.
    Reserved {
        /// The frame's kind.
        kind: FrameKind,
        /// Where the field is in the body, bytes.
        offset: usize,
    },
    /// An option that is longer than what is left of the body, or that can't have this length.
    OptionLength {
        /// The option's type.
        option: u16,
        /// Its length, bytes.
        length: u16,
    },
    /// An option that the receiver must know and doesn't.
    UnknownMandatoryOption(u16),
    /// An option that came twice.
    RepeatedOption(u16),
    /// An option that must be there and isn't.
    MissingOption(u16),
    /// An option's value that is out of its range.
    OptionValue(u16),
    /// A text that is not UTF-8, too long, or has control characters.
    Text {
        /// The frame's kind.
        kind: FrameKind,
        /// Where the text is in the body, bytes.
        offset: usize,
    },
    /// A frame that is not as it was sent: its CRC32C is another one.
    Damaged,
    /// A Reset that is neither a request nor an answer.
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
