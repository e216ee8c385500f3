//! The state of the caches at a card's read of host memory, and its effect on the measured time.
//!
//! The card counts cycles of its clock of 4 ns, so each published figure is a multiple of 4. Two
//! clocks meet twice: where the count begins and ends, and where requests enter the host. Together
//! they spread an exact time over three counts.

use engine::{Nanos, Rng};

use super::{FEMTOS, Parameters};

/// A cycle of the card's clock in picoseconds.
const TICK: u64 = 4_000;
/// The meetings of a card's reads with others' accesses to the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// One read in this many meets another transaction in the host (estimate: rare enough that the
    /// means of `cpu_idle` and `cpu_read` stay equal).
    pub meets_one_in: u64,
    /// How long such a read of an idle line waits, in picoseconds. From the maximum of `cpu_idle`.
    pub wait_idle: u64,
    /// How long such a read waits for a processor's own fetch of the line, in picoseconds. From the
    /// maximum of `cpu_read`.
    pub wait_read: u64,
    /// A line that a processor owns is answered by its cache, which is nearer than memory by this
    /// many picoseconds. From the mean of `cpu_write`.
    pub owned_earlier: u64,
    /// The processor stores into its line without a pause; between two stores the line is given
    /// away. Time of a store and its hand-over in picoseconds, from the deviation of `cpu_write`.
    pub store_period: u64,
}

impl Caches {
    /// The host of the published reads.
    pub const NIQ: Self = Self {
        meets_one_in: 1_000,
        wait_idle: 4_000,
        wait_read: 12_000,
        owned_earlier: 26_500,
        store_period: 29_000,
    };
}

/// The state of the line that a card reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLine {
    /// No processor uses it.
    Idle,
    /// A processor reads it all the time.
    Read,
    /// A processor writes it all the time, or has just written it, and owns it.
    Written,
}

impl CacheLine {
    /// How much later than an idle line it is answered on average, in femtoseconds.
    pub(super) const fn mean_femtos(self, caches: &Caches) -> i64 {
        match self {
            Self::Idle | Self::Read => 0,
            Self::Written => {
                caches.store_period.cast_signed() / 2 * 1_000 - caches.owned_earlier.cast_signed() * 1_000
            }
        }
    }

    /// How much longer a read takes than that of an idle line, in picoseconds, and the time from
    /// which this counts.
    fn sample(self, caches: &Caches, rng: &mut Rng) -> (u64, u64) {
        let meets = |rng: &mut Rng| u64::from(rng.one_in(caches.meets_one_in.max(1)));
        match self {
            Self::Idle => (meets(rng) * caches.wait_idle, 0),
            Self::Read => (meets(rng) * caches.wait_read, 0),
            Self::Written => (rng.below(caches.store_period.max(1)), caches.owned_earlier),
        }
    }
}

/// A read of 4 bytes of host memory as the card counts it: whole cycles, in nanoseconds.
pub fn read_ticks(parameters: &Parameters, line: CacheLine, rng: &mut Rng) -> Nanos {
    let idle = parameters.read * FEMTOS + parameters.passing(24, 0) + parameters.passing(20, 4);
    let (later, earlier) = line.sample(&parameters.caches, rng);
    // The request enters the host with its clock, up to a cycle late; the fixed time has half
    // of it.
    let crossing = rng.below(TICK);
    let length = idle / 1_000 + later + crossing - earlier - TICK / 2;
    // The count begins anywhere in a cycle.
    let begin = rng.below(TICK);
    Nanos::new((begin + length) / TICK * TICK / 1_000)
}
