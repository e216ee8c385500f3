//! Why a server ends a connection.

use core::fmt;

use crate::wire::{Command, HeaderError, VersionError};

/// Why a server ends a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A message's header cannot be trusted.
    Header(HeaderError),
    /// The first message is not a version.
    NotVersion {
        /// Command of the first message.
        command: Command,
    },
    /// The client speaks another major version.
    Major {
        /// The client's major version.
        major: u16,
    },
    /// The payload of the client's version cannot be decoded.
    Version(VersionError),
    /// The client did not send its version in time.
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
            Self::Handshake => f.write_str("the client has not sent its version in time"),
        }
    }
}
