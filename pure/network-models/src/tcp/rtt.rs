//! The round trip and the retransmission timeout (RFC 6298).

use engine::{Instant, Nanos};

use super::Retransmission;

/// How long the lowest measured round trip counts (Linux, tcp_min_rtt_wlen).
const LEAST_FOR: Nanos = Nanos::from_secs(300);

/// Measured round trips, and the timeout that follows from them.
#[derive(Clone, Debug)]
pub(super) struct RoundTrip {
    rule: Retransmission,
    /// SRTT and RTTVAR, once there is a measurement.
    smoothed: Option<(Nanos, Nanos)>,
    /// The lowest recent round trip, and when it was measured.
    least: Option<(Nanos, Instant)>,
    latest: Nanos,
}

impl RoundTrip {
    pub(super) const fn new(rule: Retransmission) -> Self {
        Self { rule, smoothed: None, least: None, latest: Nanos::ZERO }
    }

    /// Takes a measurement (RFC 6298, section 2.3: alpha 1/8, beta 1/4).
    pub(super) fn measure(&mut self, now: Instant, sample: Nanos) {
        self.latest = sample;
        self.smoothed = Some(match self.smoothed {
            None => (sample, sample / 2),
            Some((mean, variation)) => {
                let off = Nanos::new(mean.get().abs_diff(sample.get()));
                let variation = Nanos::new((variation.get() * 3 + off.get()) / 4);
                (Nanos::new((mean.get() * 7 + sample.get()) / 8), variation)
            }
        });
        match self.least {
            Some((least, at)) if sample > least && now - at < LEAST_FOR => {}
            _ => self.least = Some((sample, now)),
        }
    }

    /// The smoothed round trip (SRTT).
    pub(super) fn smoothed(&self) -> Option<Nanos> {
        self.smoothed.map(|(mean, _)| mean)
    }

    /// The lowest recent round trip.
    pub(super) fn least(&self) -> Option<Nanos> {
        self.least.map(|(least, _)| least)
    }

    /// The timeout (RTO) after `backoff` expiries in a row.
    pub(super) fn timeout(&self, backoff: u32) -> Nanos {
        let once = match self.smoothed {
            None => self.rule.initial,
            Some((mean, variation)) => mean + (variation * 4).max(self.rule.floor),
        };
        (once * (1 << backoff.min(32))).min(self.rule.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_the_round_trip_and_its_variation_or_the_floor() {
        let rule = Retransmission {
            initial: Nanos::from_secs(1),
            floor: Nanos::from_millis(200),
            longest: Nanos::from_secs(120),
        };
        let mut trip = RoundTrip::new(rule);
        assert_eq!((trip.timeout(0), trip.timeout(1)), (Nanos::from_secs(1), Nanos::from_secs(2)));
        trip.measure(Instant::ZERO, Nanos::from_millis(100));
        // SRTT is 100 ms and RTTVAR is 50 ms, so that 4 * RTTVAR just equals the floor.
        assert_eq!(trip.timeout(0), Nanos::from_millis(300));
        trip.measure(Instant::ZERO, Nanos::from_millis(180));
        assert_eq!(trip.smoothed(), Some(Nanos::from_millis(110)));
        assert_eq!(trip.timeout(0), Nanos::from_millis(110 + 4 * 57) + Nanos::from_millis(2));
        assert_eq!(trip.timeout(40), Nanos::from_secs(120));
        assert_eq!(trip.least(), Some(Nanos::from_millis(100)));
    }
}
