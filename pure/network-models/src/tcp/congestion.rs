//! How many segments may be under way: NewReno (RFC 5681) and CUBIC (RFC 9438), counted in segments
//! as in Linux.

use engine::{Instant, Nanos};

use super::CongestionControl;

/// Minimum threshold after a loss, in segments (RFC 5681, equation 4).
const THRESHOLD_MIN: u32 = 2;
/// Maximum window, in segments.
const WINDOW_MAX: u32 = 1 << 24;
/// CUBIC's share of the window that remains after a loss, in thousandths (RFC 9438, section 4.6).
const CUBIC_BETA: u64 = 700;
/// CUBIC's growth in the Reno-friendly region, which makes up for the larger share: `3 (1 - beta) /
/// (1 + beta)`, in thousandths (RFC 9438, section 4.3).
const CUBIC_ALPHA: u64 = 529;

/// The congestion window.
#[derive(Clone, Debug)]
pub(super) struct Window {
    control: CongestionControl,
    initial: u32,
    segments: u32,
    threshold: u32,
    /// Acknowledged segments that count towards the next growth of the window, in thousandths.
    credit: u64,
    cubic: Cubic,
}

/// State of CUBIC.
#[derive(Clone, Debug, Default)]
struct Cubic {
    /// When the current growth began.
    epoch: Option<Instant>,
    /// W_max: the window before the last loss.
    most: u32,
    /// K: the time after the epoch when the window is `most` again, in milliseconds.
    plateau: u64,
    /// The window at the plateau.
    origin: u32,
    /// W_est: the window that Reno would have, in millionths.
    reno: u64,
}

impl Window {
    pub(super) fn new(control: CongestionControl, initial: u32) -> Self {
        let initial = initial.max(1);
        Self { control, initial, segments: initial, threshold: u32::MAX, credit: 0, cubic: Cubic::default() }
    }

    /// Number of segments that may be under way.
    pub(super) const fn segments(&self) -> u32 {
        self.segments
    }

    /// Whether the window doubles in each round trip.
    pub(super) const fn in_slow_start(&self) -> bool {
        self.segments < self.threshold
    }

    /// Grows the window for `acknowledged` segments that have arrived while the window held the
    /// sender back.
    pub(super) fn grow(&mut self, now: Instant, acknowledged: u32, round_trip: Nanos) {
        let mut left = acknowledged;
        if self.in_slow_start() {
            let grown = self.segments.saturating_add(left).min(self.threshold).min(WINDOW_MAX);
            left -= (grown - self.segments).min(left);
            self.segments = grown;
        }
        if left == 0 {
            return;
        }
        match self.control {
            CongestionControl::NewReno => self.grow_by(u64::from(left) * 1_000, self.segments),
            CongestionControl::Cubic => {
                let wanted = self.cubic.target(now, self.segments, left, round_trip);
                // Section 4.4: (target - cwnd) / cwnd for each acknowledged segment, at most half a
                // window in a round trip.
                let target = wanted.min(self.segments + self.segments / 2 + 1);
                let per = match target.saturating_sub(self.segments) {
                    0 => self.segments.saturating_mul(100),
                    more => self.segments / more,
                };
                self.grow_by(u64::from(left) * 1_000, per.max(2));
            }
        }
    }

    /// Adds `credit` (in thousandths of a segment), and grows the window by one segment for each
    /// `per` segments of credit.
    fn grow_by(&mut self, credit: u64, per: u32) {
        let per = u64::from(per) * 1_000;
        if self.credit >= per {
            // Credit from a time of slower growth counts for one segment, as in Linux.
            self.credit = 0;
            self.segments = self.segments.saturating_add(1).min(WINDOW_MAX);
        }
        self.credit += credit;
        let more = self.credit / per;
        self.credit -= more * per;
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.segments = self.segments.saturating_add(more).min(WINDOW_MAX);
    }

    /// Handles a loss: returns the window to aim for (ssthresh). The caller brings the window
    /// there.
    pub(super) fn on_loss(&mut self) -> u32 {
        self.credit = 0;
        self.threshold = match self.control {
            CongestionControl::NewReno => self.segments / 2,
            CongestionControl::Cubic => {
                self.cubic.epoch = None;
                // Fast convergence (section 4.7): a window that shrinks again leaves room for
                // others.
                self.cubic.most = if self.segments < self.cubic.most {
                    share(self.segments, (1_000 + CUBIC_BETA) / 2)
                } else {
                    self.segments
                };
                share(self.segments, CUBIC_BETA)
            }
        }
        .max(THRESHOLD_MIN);
        self.threshold
    }

    /// Sets the window during recovery.
    pub(super) fn set(&mut self, segments: u32) {
        self.segments = segments.clamp(1, WINDOW_MAX);
    }

    /// Shrinks the window after nothing was sent for `timeouts` retransmission timeouts (RFC 5681,
    /// section 4.1, halving for each timeout as in Linux).
    pub(super) fn rest(&mut self, timeouts: u64) {
        let restart = self.initial.min(self.segments);
        if self.in_slow_start() || timeouts > 0 {
            self.threshold = self.threshold.max(self.segments / 4 * 3);
        }
        self.segments =
            self.segments.checked_shr(u32::try_from(timeouts).unwrap_or(32)).unwrap_or(0).max(restart);
        self.cubic.epoch = None;
    }
}

impl Cubic {
    /// The window that CUBIC wants one round trip from now.
    fn target(&mut self, now: Instant, window: u32, acknowledged: u32, round_trip: Nanos) -> u32 {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.reno = u64::from(window) * 1_000_000;
            self.origin = window.max(self.most);
            let below = u128::from(self.origin - window);
            // K = cbrt((W_max - cwnd) / C), with C = 0.4 and K in milliseconds.
            self.plateau = cube_root(below * 2_500_000_000);
            now
        });
        let elapsed = (now - epoch + round_trip).get() / 1_000_000;
        let off = u128::from(elapsed.abs_diff(self.plateau));
        let moved = u32::try_from(off.saturating_pow(3) * 2 / 5_000_000_000).unwrap_or(WINDOW_MAX);
        let cubic = if elapsed < self.plateau {
            self.origin.saturating_sub(moved)
        } else {
            self.origin.saturating_add(moved)
        };
        self.reno += u64::from(acknowledged) * CUBIC_ALPHA * 1_000 / u64::from(window).max(1);
        cubic.max(u32::try_from(self.reno / 1_000_000).unwrap_or(WINDOW_MAX)).min(WINDOW_MAX)
    }
}

/// The given share of a window, in thousandths.
fn share(segments: u32, thousandths: u64) -> u32 {
    u32::try_from(u64::from(segments) * thousandths / 1_000).unwrap_or(WINDOW_MAX)
}

/// The largest number whose cube is at most `value`.
fn cube_root(value: u128) -> u64 {
    let (mut low, mut high) = (0_u64, 1 << 42);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if u128::from(middle).pow(3) <= value {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Nanos = Nanos::from_millis(100);

    #[test]
    fn reno_doubles_then_adds_one_a_round_trip_and_halves() {
        let mut window = Window::new(CongestionControl::NewReno, 10);
        window.grow(Instant::ZERO, 10, TRIP);
        assert_eq!(window.segments(), 20);
        let threshold = window.on_loss();
        window.set(threshold);
        assert_eq!(window.segments(), 10);
        window.grow(Instant::ZERO, 10, TRIP);
        assert_eq!(window.segments(), 11);
    }

    #[test]
    fn cubic_is_back_at_its_window_after_k_and_then_beyond() {
        let mut window = Window::new(CongestionControl::Cubic, 10);
        window.set(1_000);
        let threshold = window.on_loss();
        assert_eq!(threshold, 700);
        window.set(threshold);
        // K = cbrt(300 / 0.4) = 9.086 s.
        let mut at = |seconds: u64, now: &mut u64| {
            while *now < seconds * 1_000 {
                *now += 100;
                let segments = window.segments();
                window.grow(Instant::ZERO + Nanos::from_millis(*now), segments, TRIP);
            }
            window.segments()
        };
        let mut now = 0;
        // W(4 s) = 0.4 (4 - 9.086)^3 + 1000 = 947.
        assert!(at(4, &mut now).abs_diff(947) < 20, "{}", at(4, &mut now));
        assert!(at(9, &mut now).abs_diff(1_000) < 10, "{}", at(9, &mut now));
        // W(15 s) = 0.4 (15 - 9.086)^3 + 1000 = 1082.
        assert!(at(15, &mut now).abs_diff(1_082) < 20, "{}", at(15, &mut now));
    }

    #[test]
    fn cube_roots_are_exact() {
        for root in [0, 1, 2, 10, 9_086, 1 << 30] {
            assert_eq!(cube_root(u128::from(root).pow(3)), root);
            assert_eq!(cube_root(u128::from(root).pow(3) + 1).max(1), root.max(1));
        }
    }
}
