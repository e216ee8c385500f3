//! Why a connection is ended.

use core::fmt;

use crate::errno::Errno;

/// Why a server ends a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A header gives a size that no message has.
    Size {
        /// What it says.
        size: u32,
    },
    /// A header's type is neither command nor reply.
    Type {
        /// The header's flags.
        flags: u32,
    },
    /// The first message is not a version.
    NotVersion {
        /// Its command.
        command: u16,
    },
    /// A major version that is not ours.
    Major {
        /// What the client proposes.
        major: u16,
    },
    /// The version's payload can't be read.
    Version {
        /// What the client was answered.
        errno: Errno,
    },
    /// No version came in time.
    Handshake,
    /// A new client has connected.
    Replaced,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size { size } => {
                write!(
                    f,
                    "a message's header says {size} B; at least 16 and at most {} are allowed",
                    crate::MESSAGE_MAX
                )
            }
            Self::Type { flags } => {
                write!(f, "a message's flags are {flags:#x}: neither a command nor a reply")
            }
            Self::NotVersion { command } => {
                write!(f, "the first message is command {command}; a version (1) must come first")
            }
            Self::Major { major } => {
                write!(f, "the client speaks version {major} of the protocol; this is version 0")
            }
            Self::Version { errno } => write!(f, "the client's version message can't be read ({errno})"),
            Self::Handshake => f.write_str("the client has not said its version in time"),
            Self::Replaced => f.write_str("another client has connected"),
        }
    }
}
