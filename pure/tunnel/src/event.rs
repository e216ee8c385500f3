//! Events of a link, for the application.

use core::fmt;

use pcie::switch::Refusal;
use serde::{Deserialize, Serialize};

use crate::frame::Identity;
use crate::paths::PathIndex;
use crate::session::{DownReason, HandshakeError, LossReason};

/// A change of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Packets pass from now on.
    LinkUp {
        /// Identity of the other end.
        peer: Identity,
    },
    /// Packets no longer pass.
    LinkDown {
        /// Why the link went down.
        reason: DownReason,
    },
    /// The connection was lost. Packets wait for another one.
    Interrupted {
        /// Why the connection was lost.
        reason: LossReason,
    },
    /// The link goes on over a new connection.
    Resumed,
    /// This path ([`crate::paths`]) is away. The link goes on over the other paths.
    PathAway(PathIndex),
    /// A path that was away is back.
    PathBack(PathIndex),
    /// A handshake failed.
    HandshakeFailed(HandshakeError),
    /// The device's end asked for memory that it may not reach.
    Refused(Refusal),
}

impl Event {
    /// The event for a path that is away or back.
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
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}
