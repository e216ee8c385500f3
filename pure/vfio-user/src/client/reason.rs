//! Why a client ends a connection.

use core::fmt;

use crate::errno::Errno;
use crate::wire::{HeaderError, VersionError};

/// Why a client ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A message's header cannot be trusted.
    Header(HeaderError),
    /// The server refuses the version.
    Refused {
        /// Error in the server's reply.
        error: Errno,
    },
    /// The server answers with a version that was not offered.
    Newer {
        /// Major version of the server's answer.
        major: u16,
        /// Minor version of the server's answer.
        minor: u16,
    },
    /// The server's version cannot be decoded.
    Version(VersionError),
    /// The server did not send its version in time.
    Handshake,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Header(error) => error.fmt(f),
            Self::Refused { error } => write!(f, "the server refuses version 0.1 of the protocol ({error})"),
            Self::Newer { major, minor } => {
                write!(
                    f,
                    "the server answers with version {major}.{minor} of the protocol where 0.1 was offered"
                )
            }
            Self::Version(error) => write!(f, "the server's version can't be read: {error}"),
            Self::Handshake => f.write_str("the server has not sent its version in time"),
        }
    }
}
