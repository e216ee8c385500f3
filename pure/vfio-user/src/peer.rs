//! The other end: how well it is known.

use engine::Instant;

use crate::version::Negotiated;

/// Whether there is another end, and whether its version is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Away,
    AwaitingVersion { until: Instant },
    Ready(Negotiated),
}

impl Peer {
    pub(crate) const fn is_away(&self) -> bool {
        matches!(self, Self::Away)
    }
    pub(crate) const fn negotiated(&self) -> Option<Negotiated> {
        match self {
            Self::Ready(negotiated) => Some(*negotiated),
            _ => None,
        }
    }
    /// Whether the other end's version is overdue at `now`.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        matches!(self, Self::AwaitingVersion { until } if *until <= now)
    }
    /// When the other end is late: with its version, or, once the version is known, with an answer
    /// that is due at `owed`.
    pub(crate) fn deadline(&self, owed: Option<Instant>) -> Option<Instant> {
        match self {
            Self::Away => None,
            Self::AwaitingVersion { until } => Some(*until),
            Self::Ready(_) => owed,
        }
    }
}
