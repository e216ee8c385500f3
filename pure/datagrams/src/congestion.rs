//! Congestion control: the bytes in flight and their rate, by NewReno with pacing (RFC 9002,
//! sections 7.3 and 7.7).

use engine::{Instant, Nanos};

/// Number of datagrams in flight at the beginning (RFC 9002, `kInitialWindow`), and at least.
const FIRST: u64 = 10;
const LEAST: u64 = 2;
/// Maximum number of bytes in flight, so that the retained bytes have a limit.
const MOST: u64 = 16 << 20;
/// Number of datagrams that may be sent in a row, for any round trip.
const BURST: u64 = 16;
/// The datagrams that pacing allows within this time may be sent in a row, too: timers are no
/// finer.
const BURST_TIME: Nanos = Nanos::from_millis(1);

/// Congestion control of one direction.
#[derive(Debug)]
pub(crate) struct Congestion {
    window: u64,
    threshold: u64,
    /// Losses of packets sent before this count as one loss.
    recovering_since: Option<Instant>,
    /// Bytes that may be sent at once.
    budget: u64,
    refilled: Instant,
}

impl Congestion {
    pub(crate) const fn new(now: Instant, datagram: u64) -> Self {
        let budget = BURST * datagram;
        Self { window: FIRST * datagram, threshold: u64::MAX, recovering_since: None, budget, refilled: now }
    }

    /// Maximum number of bytes in flight.
    pub(crate) const fn window(&self) -> u64 {
        self.window
    }

    /// Notes that the path carries longer datagrams: the least window grows with them.
    pub(crate) fn on_datagram(&mut self, datagram: u64) {
        self.window = self.window.max(LEAST * datagram);
    }

    /// Notes the acknowledgement of `bytes` of a packet sent at `sent`. `was_full` says whether the
    /// window, not the user, limited the bytes in flight.
    pub(crate) fn on_acknowledged(&mut self, sent: Instant, bytes: u64, datagram: u64, was_full: bool) {
        if self.recovering_since.is_some_and(|since| sent <= since) || !was_full {
            return;
        }
        let growth =
            if self.window < self.threshold { bytes } else { (datagram * bytes / self.window).max(1) };
        self.window = (self.window + growth).min(MOST);
    }

    /// A packet that was sent at `sent` got lost.
    pub(crate) fn on_lost(&mut self, now: Instant, sent: Instant, datagram: u64) {
        if self.recovering_since.is_some_and(|since| sent <= since) {
            return;
        }
        self.recovering_since = Some(now);
        self.threshold = (self.window / 2).max(LEAST * datagram);
        self.window = self.threshold;
    }

    /// Restarts with the least window, after a long time without any acknowledgement.
    pub(crate) const fn on_outage(&mut self, datagram: u64) {
        self.window = LEAST * datagram;
        self.recovering_since = None;
    }

    /// Bytes a second, given the smoothed round trip: somewhat more than a window a round trip, so
    /// that pacing alone does not limit.
    fn rate(&self, round_trip: Nanos) -> u64 {
        let times = if self.window < self.threshold { 8 } else { 5 };
        let bytes = u128::from(self.window) * times / 4 * 1_000_000_000;
        u64::try_from(bytes / u128::from(round_trip.get().max(1))).unwrap_or(u64::MAX).max(1)
    }

    /// When `bytes` may be sent: at `now`, if it is not later.
    pub(crate) fn pace(&mut self, now: Instant, bytes: u64, round_trip: Nanos, datagram: u64) -> Instant {
        let rate = self.rate(round_trip);
        let refill = (now - self.refilled).get();
        let most = u128::from(refill) * u128::from(rate) / 1_000_000_000;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        if most > 0 {
            let at_once = u128::from(BURST_TIME.get()) * u128::from(rate) / 1_000_000_000;
            let full = (BURST * datagram).max(u64::try_from(at_once).unwrap_or(u64::MAX));
            self.budget = self.budget.saturating_add(most).min(full);
            self.refilled = now;
        }
        match bytes.checked_sub(self.budget) {
            None | Some(0) => now,
            Some(missing) => {
                let wait = u128::from(missing) * 1_000_000_000 / u128::from(rate);
                self.refilled + Nanos::new(u64::try_from(wait).unwrap_or(u64::MAX).max(1_000))
            }
        }
    }

    /// `bytes` were sent.
    pub(crate) const fn on_sent(&mut self, bytes: u64) {
        self.budget = self.budget.saturating_sub(bytes);
    }
}
