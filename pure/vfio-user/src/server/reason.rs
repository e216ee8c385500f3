//! Why a connection is ended.

use core::fmt;

use crate::wire::{Command, HeaderError, VersionError};

/// Why a server ends a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A message's header can't be trusted.
    Header(HeaderError),
    /// The first message is not a version.
    NotVersion {
        /// Its command.
        command: Command,
    },
    /// A major version that is not ours.
    Major {
        /// What the client proposes.
        major: u16,
    },
    /// The version's payload can't be read.
    Version(VersionError),
    /// No version came in time.
    Handshake,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Header(error) => error.fmt(f),
            Self::NotVersion { command } => {
                write!(
                    f,
                    "the first message is {command:?} ({}): a version (1) must come first",
                    u16::from(command)
                )
            }
            Self::Major { major } => {
                write!(f, "the client speaks version {major} of the protocol: this is version 0")
            }
            Self::Version(error) => write!(f, "the client's version can't be read: {error}"),
            Self::Handshake => f.write_str("the client has not said its version in time"),
        }
    }
}
