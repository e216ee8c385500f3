//! Loss recovery: received and lost packets, and probes (RFC 9002, sections 5 and 6).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use engine::{Instant, Nanos};

use crate::packet::Ack;

/// A packet counts as lost when one sent this many later was received (`kPacketThreshold`).
const PACKETS: u64 = 3;
/// The granularity of timers. RFC 9002 recommends 1 ms; a round trip here may take a hundredth of
/// that.
const GRANULARITY: Nanos = Nanos::from_micros(500);
/// The assumed round trip before one was measured.
const ROUND_TRIP_FIRST: Nanos = Nanos::from_millis(100);
/// The longest time for which an end may keep an acknowledgement back.
pub(crate) const ACK_DELAY: Nanos = Nanos::from_millis(1);
/// The longest pause between probes.
const PROBE_MAX: Nanos = Nanos::from_secs(1);
/// After this many probes in a row without an answer, the path is assumed to have changed. If a
/// round trip takes no time, they span 100 ms: a busy machine that stops an end for a few
/// milliseconds is not a changed path.
pub(crate) const PROBES_OUTAGE: u32 = 6;

/// A packet that requires an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) at: Instant,
    /// Its part of the stream; empty if it has none.
    pub(crate) part: Range<u64>,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// It probes for a longer datagram: its loss is no sign of a full network.
    pub(crate) is_probe: bool,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Came,
    Lost,
}

/// The packets in flight, and the round trips measured.
#[derive(Debug)]
pub(crate) struct Recovery {
    under_way: VecDeque<Sent>,
    /// Room for those that are missing while packets are judged.
    missing: Vec<Sent>,
    /// Number of bytes of the packets in flight.
    bytes: u64,
    smoothed: Option<Nanos>,
    variation: Nanos,
    latest: Nanos,
    least: Nanos,
    /// When the earliest packet counts as lost that was passed by later ones.
    loss_at: Option<Instant>,
    /// Probes in a row without an answer.
    pub(crate) probes: u32,
    probe_from: Instant,
    /// The largest number that was acknowledged.
    largest: u64,
    /// How often a packet was looked at to judge it.
    #[cfg(test)]
    pub(crate) looks: u64,
}

impl Recovery {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            under_way: VecDeque::new(),
            missing: Vec::new(),
            bytes: 0,
            smoothed: None,
            variation: Nanos::new(0),
            latest: Nanos::new(0),
            least: Nanos::MAX,
            loss_at: None,
            probes: 0,
            probe_from: now,
            largest: 0,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Number of bytes in flight.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there are packets in flight.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.under_way.is_empty()
    }

    pub(crate) fn round_trip(&self) -> Nanos {
        self.smoothed.unwrap_or(ROUND_TRIP_FIRST)
    }

    pub(crate) fn on_sent(&mut self, sent: Sent) {
        self.probe_from = sent.at;
        self.bytes += sent.bytes;
        self.under_way.push_back(sent);
    }

    /// A round trip was measured, of which the peer waited `delay`.
    pub(crate) fn measure(&mut self, length: Nanos, delay: Nanos) {
        self.least = self.least.min(length);
        let delay = delay.min(ACK_DELAY);
        self.latest = if length >= self.least + delay { length.saturating_sub(delay) } else { length };
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(self.latest), self.latest / 2),
            Some(smoothed) => {
                let off = smoothed.max(self.latest).saturating_sub(smoothed.min(self.latest));
                self.variation = (self.variation * 3 + off) / 4;
                self.smoothed = Some((smoothed * 7 + self.latest) / 8);
            }
        }
    }

    /// Handles an acknowledgement of the peer: passes every packet whose fate is now known to
    /// `each`. Returns `false` if the peer acknowledges packets that were not sent.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        sent: u64,
        each: impl FnMut(&Sent, Fate),
    ) -> bool {
        if ack.largest > sent {
            return false;
        }
        let at = self.under_way.partition_point(|packet| packet.number < ack.largest);
        if let Some(newest) = self.under_way.get(at).filter(|packet| packet.number == ack.largest) {
            let length = now - newest.at;
            self.measure(length, ack.delay());
        }
        self.largest = self.largest.max(ack.largest);
        self.judge(now, Some(ack), each);
        true
    }

    /// Decides the fate of the packets in flight by the acknowledgement, and by the time. Packets
    /// behind the largest received one stay unchanged, and are not examined: there may be
    /// thousands.
    fn judge(&mut self, now: Instant, ack: Option<&Ack>, mut each: impl FnMut(&Sent, Fate)) {
        let patience = (self.round_trip().max(self.latest) * 9 / 8).max(GRANULARITY);
        let (mut gone, mut came) = (0, false);
        self.loss_at = None;
        let is_passed = |packet: &Sent| packet.number <= self.largest;
        while self.under_way.front().is_some_and(is_passed)
            && let Some(packet) = self.under_way.pop_front()
        {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let has = ack.is_some_and(|ack| {
                ack.has(packet.number) || !packet.part.is_empty() && packet.part.end <= ack.whole
            });
            let is_lost = packet.number + PACKETS <= self.largest || packet.at + patience <= now;
            if !has && !is_lost {
                self.loss_at = Instant::earlier(self.loss_at, Some(packet.at + patience));
                self.missing.push(packet);
                continue;
            }
            came |= has;
            gone += packet.bytes;
            each(&packet, if has { Fate::Came } else { Fate::Lost });
        }
        while let Some(packet) = self.missing.pop() {
            self.under_way.push_front(packet);
        }
        self.bytes -= gone;
        if gone > 0 {
            self.probe_from = now;
        }
        if came {
            self.probes = 0;
        }
    }

    /// How long to wait for an acknowledgement before a probe.
    fn probe_after(&self) -> Nanos {
        let round_trip = self.round_trip();
        let variation = if self.smoothed.is_some() { self.variation * 4 } else { round_trip * 2 };
        let once = round_trip + variation.max(GRANULARITY) + ACK_DELAY;
        (once * (1 << self.probes.min(16))).min(PROBE_MAX.max(once))
    }

    /// When [`Recovery::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.loss_at {
            Some(at) => Some(at),
            None => self.is_waiting().then(|| self.probe_from + self.probe_after()),
        }
    }

    /// Passes packets that count as lost by now to `each`, or reports that a probe must be sent.
    pub(crate) fn handle_timeout(&mut self, now: Instant, each: impl FnMut(&Sent, Fate)) -> bool {
        if self.loss_at.is_some_and(|at| at <= now) {
            self.judge(now, None, each);
            return false;
        }
        if self.poll_timeout().is_none_or(|at| at > now) {
            return false;
        }
        self.probes += 1;
        self.probe_from = now;
        true
    }

    /// Declares every packet in flight lost, after a long time without any acknowledgement.
    pub(crate) fn lose_all(&mut self, mut each: impl FnMut(&Sent)) {
        self.under_way.drain(..).for_each(|packet| each(&packet));
        (self.bytes, self.loss_at) = (0, None);
    }
}
