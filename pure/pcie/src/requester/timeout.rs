//! Completion timeouts: their lengths, and the request that last ran into one.

use core::fmt;

use engine::Nanos;
use serde::{Deserialize, Serialize};

use crate::wire::Bdf;

/// A request that was not answered within the Completion Timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimedOut {
    /// A memory read.
    Memory {
        /// First address.
        address: u64,
        /// Length of the read in bytes.
        length: u32,
    },
    /// A read or write of a double word of configuration space.
    Config {
        /// The function whose configuration space was accessed.
        target: Bdf,
        /// Byte offset of the double word.
        offset: u16,
        /// Whether the request was a write.
        write: bool,
    },
    /// A read or write of a double word of I/O space.
    Io {
        /// I/O address of the double word.
        address: u32,
        /// Whether the request was a write.
        write: bool,
    },
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = |write: bool| if write { "write" } else { "read" };
        match *self {
            Self::Memory { address, length } => write!(f, "read of {length} B at {address:#x}"),
            Self::Config { target, offset, write } => {
                write!(f, "configuration {} of {target} at {offset:#05x}", kind(write))
            }
            Self::Io { address, write } => write!(f, "I/O {} at {address:#x}", kind(write)),
        }
    }
}

/// How long a requester waits for a completion: the ranges of Device Control 2 (section 7.5.3.16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CompletionTimeout {
    /// The default: 50 µs to 50 ms.
    #[default]
    Default,
    /// Range A: 50 µs to 100 µs.
    A1,
    /// Range A: 1 ms to 10 ms.
    A2,
    /// Range B: 16 ms to 55 ms.
    B1,
    /// Range B: 65 ms to 210 ms.
    B2,
    /// Range C: 260 ms to 900 ms.
    C1,
    /// Range C: 1 s to 3.5 s.
    C2,
    /// Range D: 4 s to 13 s.
    D1,
    /// Range D: 17 s to 64 s.
    D2,
}

/// Every value with its 4-bit encoding and the longest wait it allows.
static VALUES: [(CompletionTimeout, u8, Nanos); 9] = [
    (CompletionTimeout::Default, 0b0000, Nanos::from_millis(50)),
    (CompletionTimeout::A1, 0b0001, Nanos::from_micros(100)),
    (CompletionTimeout::A2, 0b0010, Nanos::from_millis(10)),
    (CompletionTimeout::B1, 0b0101, Nanos::from_millis(55)),
    (CompletionTimeout::B2, 0b0110, Nanos::from_millis(210)),
    (CompletionTimeout::C1, 0b1001, Nanos::from_millis(900)),
    (CompletionTimeout::C2, 0b1010, Nanos::from_millis(3_500)),
    (CompletionTimeout::D1, 0b1101, Nanos::from_secs(13)),
    (CompletionTimeout::D2, 0b1110, Nanos::from_secs(64)),
];

impl CompletionTimeout {
    /// All values: the default, then the others from the shortest to the longest.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        VALUES.iter().map(|(value, ..)| *value)
    }
    /// The encoding of this value in Completion Timeout Value.
    pub fn code(self) -> u8 {
        self.row().1
    }
    /// The value with encoding `code`; `None` for a reserved encoding.
    pub fn from_code(code: u8) -> Option<Self> {
        VALUES.iter().find(|(_, encoding, _)| *encoding == code).map(|(value, ..)| *value)
    }
    /// The time that a requester waits: the longest that the value allows, since a far device needs
    /// all of it.
    pub fn longest(self) -> Nanos {
        self.row().2
    }
    /// Whether the value can be set in a function with these Completion Timeout Ranges Supported:
    /// bit 0 is range A, bit 3 is range D.
    pub fn is_supported(self, ranges: u8) -> bool {
        let range = match self {
            Self::Default => return true,
            Self::A1 | Self::A2 => 0,
            Self::B1 | Self::B2 => 1,
            Self::C1 | Self::C2 => 2,
            Self::D1 | Self::D2 => 3,
        };
        ranges >> range & 1 == 1
    }
    /// This value if `ranges` allows it; otherwise the longest allowed value below it; otherwise
    /// the default.
    #[must_use]
    pub fn supported_by(self, ranges: u8) -> Self {
        Self::all().rev().find(|value| *value <= self && value.is_supported(ranges)).unwrap_or_default()
    }

    fn row(self) -> (Self, u8, Nanos) {
        *VALUES.iter().find(|(value, ..)| *value == self).unwrap_or(&VALUES[0])
    }
}
