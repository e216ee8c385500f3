//! Alignment of the peer's clock with ours.

use engine::{Instant, Nanos};
use serde::{Deserialize, Serialize};

use crate::frame::{NetworkTime, Pong};

/// How many exchanges of Ping and Pong are remembered.
const SAMPLES_MAX: usize = 16;
/// How far two clocks may drift apart, in parts per million: 100 each way, as for
/// common oscillators.
const DRIFT_PPM: u64 = 200;

/// Difference between the peer's clock and ours, with a bound of its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAlignment {
    /// Nanoseconds to add to our time to get the peer's time.
    pub offset_ns: i64,
    /// The offset is right to within this time, if the clocks drift apart by no more than 200 ppm.
    pub error: Nanos,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Sample {
    taken_at: Instant,
    alignment: ClockAlignment,
}

/// Exchanges of Ping and Pong. The best recent one counts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Clock {
    samples: [Option<Sample>; SAMPLES_MAX],
    next: usize,
    round_trip: Option<Nanos>,
    /// The times of both ends by their network's time.
    by_network: Option<ClockAlignment>,
}

impl Clock {
    /// The alignment of two ends of which both may know the time of their network.
    pub(super) fn by(ours: Option<NetworkTime>, theirs: Option<NetworkTime>) -> Self {
        let by_network = ours.zip(theirs).and_then(|(ours, theirs)| {
            // Both ends show the same time when it is the same.
            let offset_ns = ours.ahead_ns.checked_sub(theirs.ahead_ns)?;
            let error = ours.error + theirs.error;
            (ours.grandmaster == theirs.grandmaster).then_some(ClockAlignment { offset_ns, error })
        });
        Self { by_network, ..Self::default() }
    }

    /// Handles a Pong that arrives at `now`. An impossible Pong, such as one that took longer than
    /// the exchange, is ignored.
    pub(super) fn on_pong(&mut self, now: Instant, pong: &Pong) {
        let away = i128::from((now - pong.ping_sent_at).get());
        let there = i128::from(pong.sent_at.as_nanos()) - i128::from(pong.ping_received_at.as_nanos());
        if there < 0 || there > away {
            return;
        }
        let out = i128::from(pong.ping_received_at.as_nanos()) - i128::from(pong.ping_sent_at.as_nanos());
        let back = i128::from(pong.sent_at.as_nanos()) - i128::from(now.as_nanos());
        let (Ok(offset_ns), Ok(round_trip)) =
            (i64::try_from((out + back).div_euclid(2)), u64::try_from(away - there))
        else {
            return;
        };
        // One nanosecond is for rounding in the division by two.
        let error = Nanos::new(round_trip.div_ceil(2)) + Nanos::new(1);
        self.round_trip = Some(Nanos::new(round_trip));
        self.samples[self.next] =
            Some(Sample { taken_at: now, alignment: ClockAlignment { offset_ns, error } });
        self.next = (self.next + 1) % SAMPLES_MAX;
    }

    /// The best alignment that is known at `now`.
    pub(super) fn alignment(&self, now: Instant) -> Option<ClockAlignment> {
        let aged = self.samples.iter().flatten().map(|sample| {
            let drift = (now - sample.taken_at) * DRIFT_PPM / 1_000_000;
            ClockAlignment { error: sample.alignment.error + drift, ..sample.alignment }
        });
        let exchanged = aged.min_by_key(|alignment| alignment.error);
        // A clock that contradicts an exchange does not follow the network's time.
        let agrees = |one: ClockAlignment, other: ClockAlignment| {
            one.offset_ns.abs_diff(other.offset_ns) <= (one.error + other.error).get()
        };
        let by_network = self.by_network.filter(|ours| exchanged.is_none_or(|other| agrees(*ours, other)));
        by_network.into_iter().chain(exchanged).min_by_key(|alignment| alignment.error)
    }

    /// Whether both ends know the time of one network.
    pub(super) const fn is_shared(&self) -> bool {
        self.by_network.is_some()
    }

    /// Time that the latest exchange spent in the network.
    pub(super) const fn round_trip(&self) -> Option<Nanos> {
        self.round_trip
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanoseconds: u64) -> Instant {
        Instant::from_nanos(nanoseconds)
    }

    #[test]
    fn the_offset_is_within_its_bound_however_uneven_the_ways_are() {
        for (out, dwell, back) in [(100, 50, 100), (0, 7, 501), (333, 0, 0)] {
            // The peer's clock is 1,000 ahead.
            let pong = Pong {
                ping_sent_at: at(10),
                ping_received_at: at(1_010 + out),
                sent_at: at(1_010 + out + dwell),
            };
            let mut clock = Clock::default();
            clock.on_pong(at(10 + out + dwell + back), &pong);
            let found = clock.alignment(at(10 + out + dwell + back)).unwrap();
            assert!(found.offset_ns.abs_diff(1_000) <= found.error.get(), "{found:?}");
            assert_eq!(found.error.get(), (out + back).div_ceil(2) + 1);
        }
    }

    #[test]
    fn the_time_of_the_network_counts_where_it_is_better_and_not_disproved() {
        let time = |ahead_ns, error, grandmaster| {
            Some(NetworkTime { ahead_ns, error: Nanos::new(error), grandmaster: [grandmaster; 8] })
        };
        // The peer's clock is 1,000 ahead, so less is missing to the time of the network. The way
        // there takes 900 of 1,000: the exchange alone is off by 400.
        let exchange = |clock: &mut Clock| {
            let pong = Pong { ping_sent_at: at(10), ping_received_at: at(1_910), sent_at: at(1_910) };
            clock.on_pong(at(1_010), &pong);
            clock.alignment(at(1_010)).unwrap()
        };
        let mut clock = Clock::by(time(5_000, 20, 1), time(4_000, 30, 1));
        assert_eq!(clock.alignment(at(10)), Some(ClockAlignment { offset_ns: 1_000, error: Nanos::new(50) }));
        assert_eq!(exchange(&mut clock), ClockAlignment { offset_ns: 1_000, error: Nanos::new(50) });
        for (ours, theirs) in [
            (time(5_000, 20, 1), time(4_000, 30, 2)),
            (time(5_000, 20, 1), None),
            (time(5_000, 900, 1), time(4_000, 900, 1)),
            (time(9_000, 20, 1), time(4_000, 30, 1)),
            (time(i64::MAX, 20, 1), time(-1, 30, 1)),
        ] {
            let found = exchange(&mut Clock::by(ours, theirs));
            assert_eq!(found, ClockAlignment { offset_ns: 1_400, error: Nanos::new(501) });
        }
    }

    #[test]
    fn a_good_exchange_ages_and_nonsense_is_ignored() {
        let mut clock = Clock::default();
        let pong = |sent, received, answered| Pong {
            ping_sent_at: at(sent),
            ping_received_at: at(received),
            sent_at: at(answered),
        };
        clock.on_pong(at(100), &pong(0, 50, 50));
        clock.on_pong(at(2_000), &pong(0, 1_000, 1_000));
        assert_eq!(clock.alignment(at(2_000)).unwrap().error.get(), 51);
        let later = at(100_000_000);
        assert_eq!(clock.alignment(later).unwrap().error.get(), 51 + 19_999);
        clock.on_pong(later, &pong(99_999_990, 9, 5));
        clock.on_pong(later, &pong(99_999_990, 0, u64::MAX));
        assert_eq!(clock.alignment(later).unwrap().error.get(), 51 + 19_999);
    }
}
