//! The rate of a connection when the network is congested: the reaction point of DCQCN (Zhu et al.,
//! SIGCOMM 2015). A notification of the peer cuts the rate, and time restores it.

use engine::{Instant, Nanos};

/// One as a fraction: the estimate of congestion is in units of 2^-16.
const ONE: u64 = 1 << 16;
/// The weight of one notification: 1/256.
const GAIN: u64 = 256;
/// The estimate decreases by the gain in each of these times without notification.
const ESTIMATE_TIME: Nanos = Nanos::from_micros(55);
/// The rate rises in each of these times without notification.
const RISE_TIME: Nanos = Nanos::from_micros(300);
/// Number of rises that halve the distance to the target. Later rises also raise the target.
const FAST_ROUNDS: u32 = 5;
/// Raise of the target in bytes a second at first, and after as many rounds again.
const RISE: u64 = 5_000_000;
const RISE_FAST: u64 = 50_000_000;
/// The lowest rate in bytes a second.
const RATE_MIN: u64 = 1_000_000;
/// Time that a sender that has slept may catch up.
const CATCH_UP: Nanos = Nanos::from_millis(1);

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// The present rate in bytes a second, and the target rate.
    current: u64,
    target: u64,
    /// The estimate of congestion.
    estimate: u64,
    rounds: u32,
    estimate_at: Instant,
    rise_at: Instant,
}

/// The limit on the rate of a connection, if there is one.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// The rate of the link in bytes a second. At that rate, there is no limit.
    line: u64,
    rate: Option<Rate>,
    /// The estimate at the end of the last limit.
    estimate: u64,
    /// When the sent packets have left at the rate.
    next: Instant,
}

impl Limiter {
    pub(crate) const fn new(line: u64) -> Self {
        Self { line, rate: None, estimate: ONE, next: Instant::ZERO }
    }

    /// Handles the peer's notification that packets of this connection were marked.
    pub(crate) fn on_notification(&mut self, now: Instant) {
        self.rise(now);
        let (current, estimate) =
            self.rate.map_or((self.line, self.estimate), |rate| (rate.current, rate.estimate));
        let cut = u128::from(current) * u128::from(estimate) / u128::from(2 * ONE);
        self.rate = Some(Rate {
            current: current.saturating_sub(u64::try_from(cut).unwrap_or(u64::MAX)).max(RATE_MIN),
            target: current,
            estimate: estimate - estimate / GAIN + ONE / GAIN,
            rounds: 0,
            estimate_at: now + ESTIMATE_TIME,
            rise_at: now + RISE_TIME,
        });
    }

    /// Raises the rate as time passes.
    fn rise(&mut self, now: Instant) {
        while let Some(rate) = &mut self.rate {
            if rate.estimate_at <= now && rate.estimate_at <= rate.rise_at {
                rate.estimate -= rate.estimate / GAIN;
                rate.estimate_at = rate.estimate_at + ESTIMATE_TIME;
            } else if rate.rise_at <= now {
                rate.rise_at = rate.rise_at + RISE_TIME;
                rate.rounds += 1;
                if rate.rounds > 2 * FAST_ROUNDS {
                    rate.target += RISE_FAST;
                } else if rate.rounds > FAST_ROUNDS {
                    rate.target += RISE;
                }
                rate.target = rate.target.min(self.line);
                rate.current = rate.current.midpoint(rate.target);
                if rate.current >= self.line - self.line / 100 {
                    self.estimate = rate.estimate;
                    self.rate = None;
                }
            } else {
                break;
            }
        }
    }

    /// When the next packet may be sent; `None` if now.
    pub(crate) fn blocked_until(&mut self, now: Instant) -> Option<Instant> {
        self.rise(now);
        self.rate?;
        Some(self.next).filter(|next| *next > now)
    }

    /// Notes that a packet of `bytes` bytes is sent.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: usize) {
        if let Some(rate) = self.rate {
            let start = Instant::from_nanos(now.as_nanos().saturating_sub(CATCH_UP.get()));
            let time = Nanos::new((bytes as u64).saturating_mul(1_000_000_000) / rate.current);
            self.next = self.next.max(start) + time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 1_000_000_000;

    fn sent_in(limiter: &mut Limiter, from: Instant, time: Nanos) -> u64 {
        let (mut now, mut bytes) = (from, 0);
        while now < from + time {
            match limiter.blocked_until(now) {
                Some(next) => now = next,
                None => {
                    limiter.on_sent(now, 1000);
                    bytes += 1000;
                    now = now + Nanos::new(1000);
                }
            }
        }
        bytes
    }

    #[test]
    fn a_notification_halves_the_rate_and_time_brings_it_back() {
        let mut limiter = Limiter::new(LINE);
        let start = Instant::from_nanos(1_000_000_000);
        assert_eq!(limiter.blocked_until(start), None);
        limiter.on_notification(start);
        let first = limiter.rate.unwrap();
        assert_eq!((first.current, first.target), (LINE / 2, LINE));
        let later = start + RISE_TIME;
        limiter.rise(later);
        assert_eq!(limiter.rate.unwrap().current, LINE * 3 / 4);
        limiter.rise(start + RISE_TIME * 8);
        assert!(limiter.rate.is_none(), "as fast as the link again");
        let mut limiter = Limiter::new(LINE);
        for cut in 0..200 {
            limiter.on_notification(start + Nanos::from_micros(50) * cut);
        }
        assert_eq!(limiter.rate.unwrap().current, RATE_MIN);
        let bytes = sent_in(&mut limiter, start + Nanos::from_millis(10), RISE_TIME);
        assert!(bytes < 40_000, "{bytes} B, where the link has 300,000");
        limiter.rise(start + Nanos::from_secs(10));
        assert!(limiter.rate.is_none());
    }
}
