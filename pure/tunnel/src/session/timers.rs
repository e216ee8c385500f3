//! The deadlines of a session.

use engine::Instant;
use serde::{Deserialize, Serialize};

/// The purpose of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// When to dial next.
    Dial,
    /// When to give up on a handshake.
    Handshake,
    /// When to give up on a session that has no connection.
    Hold,
    /// When to acknowledge and grant credits without a TLP that carries them.
    Acknowledge,
    /// When to send a Ping.
    Ping,
    /// When to take a silent connection for lost.
    Silence,
}

impl Timer {
    const ALL: [Self; 6] =
        [Self::Dial, Self::Handshake, Self::Hold, Self::Acknowledge, Self::Ping, Self::Silence];
    /// Timers that belong to a connection and end with it.
    pub(super) const OF_CONNECTION: [Self; 4] =
        [Self::Handshake, Self::Acknowledge, Self::Ping, Self::Silence];

    const fn index(self) -> usize {
        match self {
            Self::Dial => 0,
            Self::Handshake => 1,
            Self::Hold => 2,
            Self::Acknowledge => 3,
            Self::Ping => 4,
            Self::Silence => 5,
        }
    }
}

/// The deadlines of a session. Each timer has a slot, because one of them is armed and disarmed for
/// every exchange.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Timers {
    at: [Option<Instant>; Timer::ALL.len()],
}

impl Timers {
    pub(super) const fn arm(&mut self, timer: Timer, at: Instant) {
        self.at[timer.index()] = Some(at);
    }
    pub(super) const fn disarm(&mut self, timer: Timer) {
        self.at[timer.index()] = None;
    }
    pub(super) const fn is_armed(&self, timer: Timer) -> bool {
        self.at[timer.index()].is_some()
    }
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.at.iter().flatten().min().copied()
    }
    /// Takes the earliest timer that is due.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Timer> {
        let due = |timer: &Timer| self.at[timer.index()].filter(|at| *at <= now);
        let timer = Timer::ALL.into_iter().filter_map(|timer| Some((due(&timer)?, timer)));
        let (_, timer) = timer.min_by_key(|(at, _)| *at)?;
        self.disarm(timer);
        Some(timer)
    }
}
