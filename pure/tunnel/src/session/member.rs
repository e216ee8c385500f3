//! A session's part as one strand of a link that has several.

use engine::{Engine, Entropy, Instant};
use pcie::wire::Packet;
use serde::{Deserialize, Serialize};

use super::{CloseCode, Config, Connection, DownReason, Item, Link, Output, Session};
use crate::credits::Cost;
use crate::frame::{Member, Secret, SessionId};

/// The credits that a packet holds until it is passed on.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    cost: Cost,
    link: u32,
}

impl Session {
    /// The session's settings, as far as they are in force.
    pub const fn config(&self) -> &Config {
        &self.config
    }
    /// Randomness for what accompanies this session, independent of the session's own.
    pub(crate) fn fork(&self, name: &str) -> Entropy {
        self.entropy.fork(name)
    }
    /// The session's name; `None` while the link is down.
    pub(crate) fn id(&self) -> Option<SessionId> {
        self.link.as_ref().map(|link| link.id)
    }
    /// Over how many connections the link may be spread; 1 while the link is down.
    pub(crate) fn strands(&self) -> usize {
        self.link.as_ref().map_or(1, |link| link.strands)
    }
    /// Resets that have not been answered.
    pub(crate) fn resets_pending(&self) -> u32 {
        self.link.as_ref().map_or(0, |link| link.resets_pending)
    }
    /// Whether the session waits for [`Session::restart`].
    pub(crate) fn is_stopped(&self) -> bool {
        self.connection == Connection::Stopped
    }
    /// Whether [`Session::send`] would send `packet`.
    pub(crate) fn takes(&self, packet: &Packet) -> bool {
        self.link.as_ref().is_some_and(|link| packet.payload.len() <= usize::from(link.max_payload))
    }
    /// Counts a packet that was dropped before it came here.
    pub(crate) const fn count_dropped(&mut self) {
        self.statistics.dropped += 1;
    }
    /// Makes the session the strand `member` of a link with `secret`, from the next Hello on.
    pub(crate) const fn set_member(&mut self, member: Member, secret: Option<Secret>) {
        (self.member, self.secret) = (Some(member), secret);
    }
    /// The secret that the latest Welcome gave, or gives, to the host.
    pub(crate) const fn secret(&self) -> Option<Secret> {
        self.secret
    }
    /// At the device's end: whether the host is known to have learnt of the link. False while the
    /// link is down.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_confirmed)
    }
    /// Takes the link down, and sends the peer the reason.
    pub(crate) fn end(&mut self, now: Instant, code: CloseCode, reason: DownReason) {
        self.now = now;
        self.catch_up();
        self.end_link(code, reason);
    }

    /// Like `poll_output`, except that a packet keeps its credits until [`Session::pass_on`].
    #[inline(never)]
    pub(crate) fn poll_kept(&mut self) -> Option<(Output, Option<Kept>)> {
        self.catch_up();
        if let Some(Item::Tlp(..)) = self.items.front()
            && let Some(Item::Tlp(packet, arrival, cost, link)) = self.items.pop_front()
        {
            return Some((Output::Tlp { packet, arrival }, Some(Kept { cost, link })));
        }
        Some((self.poll_output()?, None))
    }
    /// Frees the credits of a packet that has been passed on.
    pub(crate) fn pass_on(&mut self, kept: Kept) {
        if kept.link == self.link_number
            && let Some(link) = &mut self.link
        {
            link.granting().pass_on(kept.cost);
        }
    }
}
