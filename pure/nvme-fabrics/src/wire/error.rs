//! Why bytes cannot be decoded.

use core::fmt;

use super::NqnError;

/// A structure with a wrong length, or a field with an invalid value. Fields have the
/// specification's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A structure has another length than it must have.
    Length {
        /// Name of the structure.
        structure: &'static str,
        /// Length that the structure must have, in bytes.
        expected: usize,
        /// Length that was found, in bytes.
        found: usize,
    },
    /// A field holds a reserved value.
    Reserved {
        /// Name of the field.
        field: &'static str,
        /// The value that was found.
        found: u64,
    },
    /// A text field holds a byte that is not text.
    Text {
        /// Name of the field.
        field: &'static str,
        /// Offset of the byte in the field.
        at: usize,
        /// The byte that is not text.
        byte: u8,
    },
    /// A field is not a valid NVMe Qualified Name.
    Nqn {
        /// Name of the field.
        field: &'static str,
        /// Why the name is invalid.
        why: NqnError,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { structure, expected, found } => {
                write!(f, "{structure} is {expected} B long, found {found} B")
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
