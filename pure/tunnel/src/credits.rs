//! Credits of a session: how much each end may still send.
//!
//! As in PCI Express, headers and data are counted separately for posted requests, non-posted
//! requests and completions. The ends exchange limits counted from the start of the session, so a
//! repeated or lost update does no harm.

use crate::frame::{FrameError, Reader};
use engine::Buffer;
use pcie::ordering::{Allowance, Lane, data_credits};
use pcie::wire::Tlp;
use serde::{Deserialize, Serialize};

/// Limits and counts stay closer together than this, so that they can be compared although they
/// wrap.
pub(crate) const WINDOW_MAX: u32 = 1 << 30;

/// Headers and data of one lane: an amount, or a count since the start of the session, which wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Number of TLPs.
    pub headers: u32,
    /// Payload in units of 16 B, rounded up for each TLP.
    pub data: u32,
}

impl Amount {
    const fn plus(self, other: Self) -> Self {
        Self { headers: self.headers.wrapping_add(other.headers), data: self.data.wrapping_add(other.data) }
    }
    const fn since(self, earlier: Self) -> Self {
        Self {
            headers: self.headers.wrapping_sub(earlier.headers),
            data: self.data.wrapping_sub(earlier.data),
        }
    }
    /// Whether this count is at most `limit`. Both counts wrap.
    const fn is_within(self, limit: Self) -> bool {
        let left = limit.since(self);
        left.headers <= WINDOW_MAX && left.data <= WINDOW_MAX
    }
}

/// An amount or a count for each lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditLimits {
    lanes: [Amount; Lane::COUNT],
}

impl CreditLimits {
    /// Creates the limits from those of each lane.
    pub const fn new(posted: Amount, non_posted: Amount, completion: Amount) -> Self {
        Self { lanes: [posted, non_posted, completion] }
    }
    /// The limit of `lane`.
    pub const fn of(&self, lane: Lane) -> Amount {
        self.lanes[lane.index()]
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let mut limits = Self::default();
        for lane in &mut limits.lanes {
            *lane = Amount { headers: reader.u32()?, data: reader.u32()? };
        }
        Ok(limits)
    }
    pub(crate) fn emit(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (lane, bytes) in self.lanes.iter().zip(bytes.chunks_exact_mut(8)) {
            let both = (u64::from(lane.headers) << 32) | u64::from(lane.data);
            bytes.copy_from_slice(&both.to_be_bytes());
        }
        bytes
    }
}

/// The lane of a packet, and how much of the lane's credits the packet takes.
pub(crate) type Cost = (Lane, Amount);

/// How much of its lane's credits `packet` takes.
pub(crate) fn cost(packet: &Tlp<Buffer>) -> Cost {
    (Lane::of(&packet.header), Amount { headers: 1, data: data_credits(packet) })
}

/// The sender's account: bytes and packets sent, against the limits that the peer has granted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Spending {
    sent: CreditLimits,
    limit: CreditLimits,
}

impl Spending {
    /// Takes over the peer's `limit`, counted from the start of the session. False if the peer
    /// withdraws credits that it has granted.
    pub(crate) fn allow(&mut self, limit: CreditLimits) -> bool {
        let lanes = self.limit.lanes.iter().zip(&limit.lanes).zip(&self.sent.lanes);
        let grows = lanes.into_iter().all(|((old, new), sent)| old.is_within(*new) && sent.is_within(*new));
        if grows {
            self.limit = limit;
        }
        grows
    }
}

impl Allowance for Spending {
    fn take(&mut self, lane: Lane, data: u32) -> bool {
        let sent = &mut self.sent.lanes[lane.index()];
        let then = sent.plus(Amount { headers: 1, data });
        let allowed = then.is_within(self.limit.lanes[lane.index()]);
        if allowed {
            *sent = then;
        }
        allowed
    }
}

/// The receiver's account: bytes and packets that arrived and were passed on, against the granted
/// limits.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Granting {
    window: CreditLimits,
    arrived: CreditLimits,
    passed_on: CreditLimits,
    /// The limits that were last sent to the peer.
    announced: CreditLimits,
    worth_company: bool,
    worth_segment: bool,
}

impl Granting {
    /// Creates the account of a receiver that lets the peer have at most `window` under way.
    pub(crate) fn new(window: CreditLimits) -> Self {
        let none = CreditLimits::default();
        Self {
            window,
            arrived: none,
            passed_on: none,
            announced: window,
            worth_company: false,
            worth_segment: false,
        }
    }
    /// The limits to send to the peer. The account counts them as sent.
    pub(crate) fn announce(&mut self) -> CreditLimits {
        for (announced, (passed, window)) in
            self.announced.lanes.iter_mut().zip(self.passed_on.lanes.iter().zip(&self.window.lanes))
        {
            *announced = passed.plus(*window);
        }
        (self.worth_company, self.worth_segment) = (false, false);
        self.announced
    }
    /// Counts a packet that arrived. False if it exceeds the granted limits.
    pub(crate) fn arrive(&mut self, (lane, cost): (Lane, Amount)) -> bool {
        let arrived = &mut self.arrived.lanes[lane.index()];
        *arrived = arrived.plus(cost);
        arrived.is_within(self.announced.lanes[lane.index()])
    }
    /// Counts a packet that has left our memory.
    pub(crate) const fn pass_on(&mut self, (lane, cost): (Lane, Amount)) {
        let index = lane.index();
        self.passed_on.lanes[index] = self.passed_on.lanes[index].plus(cost);
        let window = self.window.lanes[index];
        let news = self.passed_on.lanes[index].plus(window).since(self.announced.lanes[index]);
        self.worth_company |= news.headers > window.headers / 4 || news.data > window.data / 4;
        self.worth_segment |= news.headers > window.headers / 2 || news.data > window.data / 2;
    }
    /// Whether a quarter of a lane's window has become free without the peer knowing. The news is
    /// then to travel with the next segment.
    pub(crate) const fn is_worth_company(&self) -> bool {
        self.worth_company
    }
    /// Whether half of a lane's window has become free without the peer knowing. The peer may then
    /// be waiting for the news.
    pub(crate) const fn is_worth_segment(&self) -> bool {
        self.worth_segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn even(headers: u32, data: u32) -> CreditLimits {
        CreditLimits { lanes: [Amount { headers, data }; Lane::COUNT] }
    }

    #[test]
    fn what_is_spent_comes_back_when_it_is_passed_on() {
        let mut spending = Spending::default();
        let mut granting = Granting::new(even(2, 4));
        assert!(spending.allow(even(2, 4)));
        let cost = (Lane::Posted, Amount { headers: 1, data: 3 });
        assert!(spending.take(Lane::Posted, 3) && granting.arrive(cost));
        assert!(!spending.take(Lane::Posted, 3), "one data credit is left");
        assert!(!granting.is_worth_company());
        granting.pass_on(cost);
        assert!(granting.is_worth_company() && granting.is_worth_segment());
        assert!(spending.allow(granting.announce()) && !granting.is_worth_company());
        assert!(spending.take(Lane::Posted, 4) && !spending.take(Lane::Posted, 1));
        assert!(spending.take(Lane::Posted, 0) && !spending.take(Lane::Posted, 0));
        assert!(spending.take(Lane::Completion, 1), "lanes are apart");
    }

    #[test]
    fn a_peer_can_neither_overdraw_nor_take_back_and_counts_wrap() {
        let mut granting = Granting::new(even(1, 1));
        assert!(granting.arrive((Lane::NonPosted, Amount { headers: 1, data: 0 })));
        assert!(!granting.arrive((Lane::NonPosted, Amount { headers: 1, data: 0 })));
        let near_the_end = even(u32::MAX, u32::MAX);
        let mut spending = Spending { sent: near_the_end, limit: near_the_end };
        assert!(!spending.take(Lane::Posted, 1));
        assert!(spending.allow(even(4, 4)) && spending.take(Lane::Posted, 5));
        assert!(!spending.allow(even(3, 4)));
    }
}
