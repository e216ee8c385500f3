//! Bit rates, and transmitters that send at such a rate.

use core::fmt;
use core::str::FromStr;

use engine::{Instant, Nanos};

const PICOSECONDS_A_SECOND: u128 = 1_000_000_000_000;
const PICOSECONDS_A_NANOSECOND: u64 = 1_000;

/// Bits per second, always more than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// A rate of `bits` per second.
    ///
    /// # Panics
    /// When `bits` is 0: a link that never sends is a link that is down.
    pub const fn new(bits: u64) -> Self {
        assert!(bits > 0, "a rate of no bits a second");
        Self(bits)
    }

    /// A rate of `megabits` times 10^6 bits per second.
    ///
    /// # Panics
    /// When `megabits` is 0.
    pub const fn from_megabits(megabits: u64) -> Self {
        Self::new(megabits.saturating_mul(1_000_000))
    }

    /// A rate of `gigabits` times 10^9 bits per second.
    ///
    /// # Panics
    /// When `gigabits` is 0.
    pub const fn from_gigabits(gigabits: u64) -> Self {
        Self::new(gigabits.saturating_mul(1_000_000_000))
    }
    /// The rate in bits per second.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Time that `bytes` take, in picoseconds, rounded up; saturates.
    #[inline]
    pub fn picoseconds(self, bytes: u64) -> u64 {
        match bytes.checked_mul(8 * 1_000_000_000_000) {
            // 64 bits are enough for every frame of every link.
            Some(scaled) => scaled.div_ceil(self.0),
            None => {
                let scaled = u128::from(bytes) * 8 * PICOSECONDS_A_SECOND;
                u64::try_from(scaled.div_ceil(u128::from(self.0))).unwrap_or(u64::MAX)
            }
        }
    }
    /// Time that `bytes` take, rounded up to a nanosecond.
    pub fn time_of(self, bytes: u64) -> Nanos {
        Nanos::new(self.picoseconds(bytes).div_ceil(PICOSECONDS_A_NANOSECOND))
    }
    /// Number of whole bytes that pass in `time`; saturates.
    pub fn bytes_in(self, time: Nanos) -> u64 {
        let bits = u128::from(self.0) * u128::from(time.get()) / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Rate {
    /// Writes the rate in the unit that a person would choose, with at most three decimals: `100
    /// Mbit/s`, `2.5 Gbit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(f, "{} bit/s", self.0),
            1_000..1_000_000 => (1_000, "kbit/s"),
            1_000_000..1_000_000_000 => (1_000_000, "Mbit/s"),
            _ => (1_000_000_000, "Gbit/s"),
        };
        let (whole, mut thousandths) = (self.0 / unit, self.0 % unit * 1_000 / unit);
        if thousandths == 0 {
            return write!(f, "{whole} {name}");
        }
        let mut digits = 3;
        while thousandths.is_multiple_of(10) {
            thousandths /= 10;
            digits -= 1;
        }
        write!(f, "{whole}.{thousandths:0digits$} {name}")
    }
}

/// The text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRate;

impl fmt::Display for NoRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a rate such as 100Mbit/s, 2.5Gbit/s or 64kbit/s, and more than none")
    }
}

impl core::error::Error for NoRate {}

impl FromStr for Rate {
    type Err = NoRate;

    /// Parses a number with up to nine decimals and a unit: `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s`
    /// or `Tbit/s`, with or without `/s`.
    fn from_str(text: &str) -> Result<Self, NoRate> {
        let text = text.trim();
        let text = text.strip_suffix("/s").unwrap_or(text).strip_suffix("bit").ok_or(NoRate)?;
        let (number, unit) = match text.strip_suffix(['k', 'M', 'G', 'T']) {
            None => (text, 1),
            Some(number) => match text.as_bytes().last() {
                Some(b'k') => (number, 1_000),
                Some(b'M') => (number, 1_000_000),
                Some(b'G') => (number, 1_000_000_000),
                _ => (number, 1_000_000_000_000),
            },
        };
        let (whole, decimals) = number.trim_end().split_once('.').unwrap_or((number.trim_end(), ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 9 {
            return Err(NoRate);
        }
        let scaled = decimals.bytes().chain(core::iter::repeat(b'0')).take(9);
        let fraction = scaled.fold(0_u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
        let whole: u128 = whole.parse().map_err(|_| NoRate)?;
        let bits = whole.checked_mul(unit).ok_or(NoRate)? + fraction * unit / 1_000_000_000;
        u64::try_from(bits).ok().filter(|bits| *bits > 0).map(Self).ok_or(NoRate)
    }
}

/// A transmitter that sends one item after the other at a rate. It counts picoseconds, so that
/// short frames on fast links are sent neither too fast nor too slowly. The times that it returns
/// are rounded up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transmitter {
    /// The nanosecond in which the transmitter becomes free.
    free: Instant,
    /// Picoseconds into that nanosecond.
    picoseconds: u64,
}

impl Transmitter {
    /// A transmitter that has sent nothing yet.
    pub const IDLE: Self = Self { free: Instant::ZERO, picoseconds: 0 };

    /// When the transmitter has sent everything, rounded up.
    #[inline]
    pub fn free(&self) -> Instant {
        if self.picoseconds == 0 { self.free } else { self.free + Nanos::new(1) }
    }

    /// Whether nothing is being sent at `now`.
    #[inline]
    pub fn is_free(&self, now: Instant) -> bool {
        self.free() <= now
    }

    /// Sends `bytes` as soon as the transmitter is free, but not before `now`. Returns when the
    /// last bit is out.
    #[inline]
    pub fn send(&mut self, now: Instant, rate: Rate, bytes: u64) -> Instant {
        self.occupy(now, rate.picoseconds(bytes))
    }

    /// Occupies the transmitter for `picoseconds` as soon as it is free, but not before `now`.
    /// Returns the end.
    #[inline]
    pub fn occupy(&mut self, now: Instant, picoseconds: u64) -> Instant {
        // A transmitter that becomes free in the middle of this nanosecond continues from there.
        if self.free() < now {
            (self.free, self.picoseconds) = (now, 0);
        }
        let total = self.picoseconds.saturating_add(picoseconds);
        self.free = self.free + Nanos::new(total / PICOSECONDS_A_NANOSECOND);
        self.picoseconds = total % PICOSECONDS_A_NANOSECOND;
        self.free()
    }

    /// Frees the transmitter at `at`, also in the middle of a frame.
    pub const fn interrupt(&mut self, at: Instant) {
        (self.free, self.picoseconds) = (at, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn frames_take_what_the_tables_say() {
        // Link models: 1538 B on the wire take 12.304 / 1.230 / 0.492 / 0.246 / 0.123 µs, and the
        // smallest frame (84 B) takes 672 / 67.2 / 26.9 / 13.4 / 6.7 ns, at 1 / 10 / 25 / 50 / 100
        // Gbit/s.
        let picoseconds = [
            (1, 12_304_000, 672_000),
            (10, 1_230_400, 67_200),
            (25, 492_160, 26_880),
            (50, 246_080, 13_440),
            (100, 123_040, 6_720),
        ];
        for (gigabits, large, small) in picoseconds {
            assert_eq!(Rate::from_gigabits(gigabits).picoseconds(1538), large);
            assert_eq!(Rate::from_gigabits(gigabits).picoseconds(84), small);
        }
    }

    #[test]
    fn a_thousand_short_frames_are_not_rounded_a_thousand_times() {
        let mut transmitter = Transmitter::default();
        let rate = Rate::from_gigabits(100);
        let mut end = Instant::ZERO;
        for _ in 0..1_000 {
            end = transmitter.send(Instant::ZERO, rate, 84);
        }
        assert_eq!(end, Instant::from_nanos(6_720));
        // The same holds if each frame is sent when the one before has left.
        let mut transmitter = Transmitter::IDLE;
        for _ in 0..1_000 {
            transmitter.send(transmitter.free(), rate, 84);
        }
        assert_eq!(transmitter.free(), Instant::from_nanos(6_720));
    }

    #[test]
    fn nothing_overflows() {
        assert_eq!(Rate::new(1).picoseconds(u64::MAX), u64::MAX);
        assert_eq!(Rate::new(u64::MAX).picoseconds(1), 1);
        assert_eq!(Rate::from_gigabits(1).bytes_in(Nanos::from_micros(1)), 125);
        assert_eq!(Rate::new(u64::MAX).bytes_in(Nanos::MAX), u64::MAX);
    }

    #[test]
    fn rates_are_written_as_a_person_would() {
        assert_eq!(Rate::from_megabits(100).to_string(), "100 Mbit/s");
        assert_eq!(Rate::from_megabits(2_500).to_string(), "2.5 Gbit/s");
        assert_eq!(Rate::new(1_050).to_string(), "1.05 kbit/s");
    }

    #[test]
    fn rates_are_read_as_a_person_writes_them() {
        for (text, bits) in [
            ("1Gbit/s", 1_000_000_000),
            ("100 Mbit/s", 100_000_000),
            ("2.5Gbit", 2_500_000_000),
            ("64kbit/s", 64_000),
            ("0.5bit/s", 0),
            ("9600bit/s", 9_600),
        ] {
            assert_eq!(text.parse::<Rate>().ok().map_or(0, Rate::bits), bits, "{text}");
        }
        for text in
            ["", "1", "Gbit/s", "-1Gbit/s", "0Gbit/s", "1.Gbitt/s", "1GB/s", "99999999999999999999Tbit/s"]
        {
            assert_eq!(text.parse::<Rate>(), Err(NoRate), "{text}");
        }
        for bits in [1, 1_050, 100_000_000, 25_000_000_000, 2_500_000_000] {
            assert_eq!(Rate::new(bits).to_string().parse(), Ok(Rate::new(bits)));
        }
    }
}
