//! Why bytes are not what they should be.

use core::fmt;

use super::NqnError;

/// A field that holds what it may not; names the field as the specification does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A structure of another length.
    Length {
        /// The structure.
        structure: &'static str,
        /// Bytes that it has.
        expected: usize,
        /// Bytes that were there.
        found: usize,
    },
    /// A value that is reserved.
    Reserved {
        /// The field.
        field: &'static str,
        /// What it holds.
        found: u64,
    },
    /// A field of text with a byte that is none.
    Text {
        /// The field.
        field: &'static str,
        /// Which byte of it.
        at: usize,
        /// The byte.
        byte: u8,
    },
    /// A field that is no NVMe Qualified Name.
    Nqn {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: NqnError,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { structure, expected, found } => {
                write!(f, "{structure} is {expected} B long, and {found} B are there")
            }
            Self::Reserved { field, found } => write!(f, "{field} holds the reserved value {found:#x}"),
            Self::Text { field, at, byte } => {
                write!(f, "{field} is text, and its byte {at} is {byte:02x}h")
            }
            Self::Nqn { field, why } => write!(f, "{field}: {why}"),
        }
    }
}

impl core::error::Error for WireError {}
