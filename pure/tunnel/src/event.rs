//! What an application is told about a link.

use core::fmt;

use crate::frame::Identity;
use crate::paths::PathIndex;
use crate::session::{DownReason, HandshakeError, LossReason};

/// What happened to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packets pass from now on.
    LinkUp {
        /// Who is at the other end.
        peer: Identity,
    },
    /// Packets no longer pass.
    LinkDown {
        /// Why.
        reason: DownReason,
    },
    /// The connection was lost; packets wait for another one.
    Interrupted {
        /// Why.
        reason: LossReason,
    },
    /// The link goes on over a new connection.
    Resumed,
    /// Of several paths ([`crate::paths`]) this one is away, and the link goes on over the others.
    PathAway(PathIndex),
    /// It is back.
    PathBack(PathIndex),
    /// A handshake came to nothing.
    HandshakeFailed(HandshakeError),
}

impl Event {
    /// A path is away, or is back.
    pub const fn of_path(path: PathIndex, is_away: bool) -> Self {
        if is_away { Self::PathAway(path) } else { Self::PathBack(path) }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkUp { peer } => write!(f, "link up with {peer}"),
            Self::LinkDown { reason } => write!(f, "link down: {reason}"),
            Self::Interrupted { reason } => write!(f, "interrupted: {reason}"),
            Self::Resumed => f.write_str("resumed"),
            Self::PathAway(path) => write!(f, "path {} is away: the others go on", u16::from(path.0) + 1),
            Self::PathBack(path) => write!(f, "path {} is back", u16::from(path.0) + 1),
            Self::HandshakeFailed(error) => write!(f, "{error}"),
        }
    }
}
