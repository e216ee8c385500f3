//! The end of a connection while the link stays, and the end of the link.

use alloc::borrow::ToOwned;

use engine::{Instant, Nanos};

use super::{Connection, DownReason, HandshakeError, LossReason, Output, SEGMENT_MAX, Session, Timer};
use crate::frame::{CloseCode, Frame, Role};

impl Session {
    /// Ends everything that belongs to the connection. The link, if up, stays.
    pub(super) fn drop_connection(&mut self) {
        self.connection = Connection::None;
        self.reader.clear();
        self.tlp_waits = false;
        Timer::OF_CONNECTION.into_iter().for_each(|timer| self.timers.disarm(timer));
        (self.ping_due, self.ping_sent_at, self.pong_due, self.tally_due) = (false, None, None, None);
        self.acknowledge_due = false;
        self.segment_max = SEGMENT_MAX;
        (self.digest, self.incomplete) = (None, None);
    }

    /// Gives the connection up.
    pub(super) fn lose_connection(&mut self, reason: LossReason) {
        self.emit(Output::CloseConnection);
        self.on_connection_lost(reason);
    }

    /// Handles the end of a connection: holds the link, if it is up, and dials again at the
    /// upstream end.
    pub(super) fn on_connection_lost(&mut self, reason: LossReason) {
        let was = self.connection;
        if matches!(was, Connection::Stopped | Connection::None) {
            return;
        }
        self.drop_connection();
        match (&self.link, was) {
            (Some(link), Connection::Open) => {
                let at = self.now + link.hold;
                self.timers.arm(Timer::Hold, at);
                self.emit(Output::Interrupted { reason });
                // The loss may be an accident: the first attempt is immediate, and only the next
                // ones wait.
                self.redial_delay = Nanos::ZERO;
            }
            (_, Connection::Greeting) => self.emit(Output::HandshakeFailed(HandshakeError::Disconnected)),
            _ => (),
        }
        self.redial();
    }

    /// At the upstream end, arranges the next attempt to dial. Each attempt waits longer than the
    /// one before.
    pub(super) fn redial(&mut self) {
        if self.role != Role::Upstream {
            return;
        }
        let (shortest, longest) = self.config.redial;
        let delay = self.redial_delay;
        self.redial_delay = (delay * 2).max(shortest).min(longest);
        // A random delay of up to a quarter more keeps many ends from dialling in step.
        let jitter = Nanos::new(self.entropy.below(delay.get() / 4 + 1));
        self.timers.arm(Timer::Dial, self.now + delay + jitter);
    }

    /// Takes the link down, if it is up.
    pub(super) fn link_down(&mut self, reason: DownReason) {
        self.timers.disarm(Timer::Hold);
        if let Some(link) = self.link.take() {
            self.statistics.dropped += u64::try_from(link.queued_packets()).unwrap_or(u64::MAX);
            if self.role == Role::Downstream {
                self.secret = None;
            }
            self.emit(Output::LinkDown { reason });
        }
    }

    /// Ends the link and the connection, and notifies the peer if a connection is open.
    pub(super) fn end_link(&mut self, code: CloseCode, reason: DownReason) {
        if self.connection == Connection::Open {
            let text = alloc::format!("{reason}");
            self.transmit_last(&Frame::Close(code, &text));
            self.drop_connection();
            self.redial_delay = self.config.redial.1;
            self.redial();
        }
        self.link_down(reason);
    }

    pub(super) fn on_closed_by_peer(&mut self, code: CloseCode, text: &str) {
        self.emit(Output::CloseConnection);
        self.drop_connection();
        self.link_down(DownReason::ClosedByPeer { code, text: text.to_owned() });
        self.redial_delay = self.config.redial.1;
        self.redial();
    }

    pub(super) fn on_hold_expired(&mut self) {
        let hold = self.link.as_ref().map_or(Nanos::ZERO, |link| link.hold);
        self.link_down(DownReason::HoldExpired(hold));
    }

    /// The bytes of the connection are deferred, because there is no room for them. The
    /// peer is not silent, and an incomplete frame may have its rest there. Returns false without
    /// an open connection: a handshake is to be read.
    pub(crate) fn hold_back(&mut self, now: Instant) -> bool {
        let is_open = self.is_open();
        if is_open {
            self.now = now;
            self.last_heard = now;
            if let Some((_, since)) = &mut self.incomplete {
                *since = now;
            }
        }
        is_open
    }

    pub(super) fn on_silence(&mut self) {
        let end = self.last_heard + self.config.silence;
        if end > self.now {
            self.timers.arm(Timer::Silence, end);
            return;
        }
        self.lose_connection(LossReason::Silence(self.config.silence));
    }

    /// Gives the connection up if a frame has been incomplete for too long. Its length may have
    /// been damaged on the way, so that the missing rest will never come.
    pub(super) fn look_for_rest(&mut self) {
        self.incomplete = match (self.reader.begun(), self.incomplete) {
            (Some(now), Some((before, since))) if now == before => Some((now, since)),
            (Some(now), _) => Some((now, self.now)),
            (None, _) => None,
        };
        let silence = self.config.silence;
        if self.incomplete.is_some_and(|(_, since)| self.now - since >= silence) {
            self.lose_connection(LossReason::Incomplete(silence));
        }
    }
}
