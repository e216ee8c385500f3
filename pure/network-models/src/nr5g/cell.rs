//! Parameters of a cell and its devices.

use engine::{Instant, Nanos, Rng};

use crate::Chance;

/// Number of symbols in a slot (TS 38.211, normal cyclic prefix).
const SYMBOLS_A_SLOT: u32 = 14;
const SYMBOLS: u64 = SYMBOLS_A_SLOT as u64;
/// Number of symbols of a report about a downlink transmission (PUCCH format 0, TS 38.211 6.3.2.3).
const FEEDBACK_SYMBOLS: u32 = 2;

/// Direction of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the network to the device.
    Down,
    /// From the device to the network.
    Up,
}

impl core::fmt::Display for Direction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Up => "up",
        })
    }
}

/// The use of the slots in a TDD period: downlink slots, one special slot, uplink slots. With
/// paired spectrum (FDD), each direction has a carrier of its own and uses all slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Number of downlink slots at the beginning.
    pub down: u32,
    /// Whether a special slot follows the downlink slots.
    pub special: bool,
    /// Number of symbols in the special slot for downlink (at its beginning) and for uplink (at its
    /// end).
    pub special_symbols: (u32, u32),
    /// Whether the special slot carries downlink data.
    pub special_used: bool,
    /// Number of uplink slots at the end.
    pub up: u32,
    /// Whether each direction has a carrier of its own, on which it uses every slot (FDD, TS 38.104
    /// 5.2, bands with duplex mode FDD).
    pub paired: bool,
}

impl Pattern {
    /// Maximum number of slots in a pattern: 20 ms at 30 kHz.
    pub const SLOTS_MAX: u32 = 40;
    /// DDDSU, where S has 10 downlink, 2 guard and 2 uplink symbols: 2.5 ms at 30 kHz.
    pub const DDDSU: Self =
        Self { down: 3, special: true, special_symbols: (10, 2), special_used: true, up: 1, paired: false };
    /// 7 downlink slots, one special slot, 2 uplink slots: 5 ms at 30 kHz.
    pub const D7S_U2: Self = Self { down: 7, up: 2, ..Self::DDDSU };

    /// FDD: both directions use every slot.
    pub const FDD: Self = Self { down: 1, special: false, up: 0, paired: true, ..Self::DDDSU };

    /// Number of slots in the period.
    pub fn slots(&self) -> u32 {
        self.down + u32::from(self.special) + self.up
    }

    /// The symbols of slot `index` for `direction`: the first symbol and the count.
    fn symbols(&self, index: u32, direction: Direction) -> (u64, u64) {
        let (down, up) = (u64::from(self.special_symbols.0), u64::from(self.special_symbols.1));
        let is_special = self.special && index == self.down;
        match direction {
            Direction::Down | Direction::Up if self.paired => (0, SYMBOLS),
            Direction::Down if index < self.down => (0, SYMBOLS),
            Direction::Down if is_special && self.special_used => (0, down),
            // Uplink data uses whole uplink slots. The two uplink symbols of the special slot are
            // for signals.
            Direction::Up if index >= self.slots() - self.up => (0, SYMBOLS),
            Direction::Up if is_special => (SYMBOLS - up, up),
            _ => (0, 0),
        }
    }
}

/// The time from one attempt of a transmission to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundTrip {
    /// From the end of an attempt to the end of the next one it is always as long as this.
    Fixed(Nanos),
    /// The cell's own slots and processing times decide: see [`Cell::delivered`].
    Scheduled,
}

/// How often a transmission fails (HARQ), and the time that failures cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harq {
    /// Chance that the first attempt fails.
    pub first: Chance,
    /// Chance that a later attempt fails; the receiver combines it with the earlier ones.
    pub later: Chance,
    /// Maximum number of attempts. After these, the layer above (RLC) recovers the frame.
    pub attempts: u32,
    /// Time from one attempt to the next.
    pub round_trip: RoundTrip,
    /// Time that the retransmission by RLC takes.
    pub recovery: Nanos,
}

impl Harq {
    /// A link without failures.
    pub const NONE: Self = Self {
        first: Chance::NEVER,
        later: Chance::NEVER,
        attempts: 1,
        round_trip: RoundTrip::Fixed(Nanos::ZERO),
        recovery: Nanos::ZERO,
    };
}

/// Grants that an active device gets without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proactive {
    /// How long the grants continue after the device's last frame.
    pub lasts: Nanos,
    /// Size of each grant in bytes; there is one in every uplink slot.
    pub bytes: u32,
}

/// How a device gets permission to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grants {
    /// The device sends a scheduling request, unless it has proactive grants.
    Dynamic {
        /// Slots between two opportunities for a request (TS 38.331: 1, 2, 4, 8, 10, 16, 20, 40, 80
        /// at 30 kHz).
        request_period: u32,
        /// Slot of the first opportunity for a request.
        request_offset: u32,
        /// Size in bytes of the grant that answers a request. At this point the cell does not know
        /// how much data waits.
        first: u32,
        /// Grants without a request, if the cell gives any.
        proactive: Option<Proactive>,
    },
    /// The device was assigned occasions in advance (configured grant, TS 38.321 5.8.2).
    Configured {
        /// Symbols between two occasions (TS 38.331, ConfiguredGrantConfig: `periodicity` has sym2,
        /// sym7 and multiples of 14).
        period: u32,
        /// The first occasion in symbols after the beginning of the frame.
        offset: u32,
        /// Size of each grant in bytes.
        bytes: u32,
        /// How many times each transmission is sent, one right after the other (TS 38.331, `repK`:
        /// 1, 2, 4, 8). The station decodes after each.
        repetitions: u32,
    },
}

/// A cell, and one device in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Numerology of the cell: subcarrier spacing is 15 kHz * 2^numerology, and a slot is 1 ms /
    /// 2^numerology.
    pub numerology: u32,
    /// The TDD pattern of the slots.
    pub pattern: Pattern,
    /// Length of a transmission in symbols: 14, or 2, 4 or 7 for mini-slots, which may begin at
    /// each multiple of their length.
    pub mini_slot: u32,
    /// Capacity of a downlink slot in bytes.
    pub down_bytes: u32,
    /// Capacity of an uplink slot in bytes.
    pub up_bytes: u32,
    /// How the device gets permission to send.
    pub grants: Grants,
    /// Minimum number of slots from a grant to the slot that it is for (k2).
    pub k2: u32,
    /// Time that the base station needs to decode or to schedule.
    pub station: Nanos,
    /// Time that the device needs to decode (N1), in symbols.
    pub n1: u32,
    /// Time that the device needs to prepare a transmission (N2), in symbols.
    pub n2: u32,
    /// Failures of uplink transmissions.
    pub harq_up: Harq,
    /// Failures of downlink transmissions.
    pub harq_down: Harq,
    /// Whether the device reports failures on a second carrier whenever its own has no uplink (TS
    /// 38.213 9.A, Release 17: PUCCH cell switching).
    pub switched_feedback: bool,
}

impl Cell {
    /// N1 and N2 of processing capability 1, in symbols, indexed by numerology (TS 38.214, tables
    /// 5.3-1 and 6.4-1).
    pub const CAPABILITY_1: [(u32, u32); 4] = [(8, 10), (10, 12), (17, 23), (20, 36)];

    /// N1 and N2 of processing capability 2, in symbols, indexed by numerology up to 60 kHz (TS
    /// 38.214, tables 5.3-2 and 6.4-2). The 4.5 and 5.5 symbols at 30 kHz are rounded up.
    pub const CAPABILITY_2: [(u32, u32); 3] = [(3, 5), (5, 6), (9, 11)];

    /// The stand-alone Release-15 cell of the published 5G experiment: 3.6 GHz, 100 MHz, 30 kHz,
    /// TDD.
    ///
    /// Numerology, bandwidth and an uplink rate of 50 to 70 Mbit/s on the air are published. 60
    /// Mbit/s are 18,750 bytes for each uplink slot of DDDSU, the usual pattern. Requests every 10
    /// slots are a common setting, and the device has processing capability 1. The downlink bytes
    /// stand for about 600 Mbit/s (estimate). The station's time, k2, and the proactive grants to
    /// an active device are calibrated: see `docs/published.md`. One first attempt in ten fails; a
    /// HARQ round trip is one period of the pattern.
    pub const CAMPUS: Self = Self {
        numerology: 1,
        pattern: Pattern::DDDSU,
        mini_slot: 14,
        down_bytes: 40_000,
        up_bytes: 18_750,
        grants: Grants::Dynamic {
            request_period: 10,
            request_offset: 4,
            first: 200,
            proactive: Some(Proactive { lasts: Nanos::from_millis(100), bytes: 200 }),
        },
        k2: 2,
        station: Nanos::from_micros(150),
        n1: Self::CAPABILITY_1[1].0,
        n2: Self::CAPABILITY_1[1].1,
        harq_up: Harq {
            first: Chance::percent(10),
            later: Chance::percent(1),
            attempts: 4,
            round_trip: RoundTrip::Fixed(Nanos::from_micros(2_500)),
            recovery: Nanos::from_millis(40),
        },
        harq_down: Harq {
            first: Chance::percent(10),
            later: Chance::percent(1),
            attempts: 4,
            round_trip: RoundTrip::Fixed(Nanos::from_micros(2_500)),
            recovery: Nanos::from_millis(40),
        },
        switched_feedback: false,
    };

    /// Length of a slot.
    pub const fn slot(&self) -> Nanos {
        Nanos::new(1_000_000 >> self.numerology)
    }

    /// Duration of `symbols` symbols.
    pub const fn symbols(&self, symbols: u32) -> Nanos {
        Nanos::new(self.slot().get() * symbols as u64 / SYMBOLS)
    }

    /// How long a transmission is on the air.
    pub const fn transmission(&self) -> Nanos {
        self.symbols(self.mini_slot)
    }

    /// Length in symbols of a transmission in `direction` in a slot with `count` symbols for this
    /// direction; `None` if none fits.
    fn usable(&self, direction: Direction, count: u64) -> Option<u64> {
        let length = u64::from(self.mini_slot);
        // A transmission shorter than the slot's symbols may begin at each multiple of its length.
        // In a special slot, a transmission of a whole slot is cut to the available symbols, but
        // only in the downlink.
        let usable = if direction == Direction::Down { length.min(count) } else { length };
        (count > 0 && usable > 0 && usable <= count).then_some(usable)
    }

    /// A direction in which nothing can ever be sent, if any.
    pub fn lacks(&self) -> Option<Direction> {
        let none = |direction: &Direction| {
            let mut slots = (0..self.pattern.slots()).map(|index| self.pattern.symbols(index, *direction).1);
            !slots.any(|count| self.usable(*direction, count).is_some())
        };
        [Direction::Down, Direction::Up].into_iter().find(none)
    }

    /// Start and end of the first transmission in `direction` that starts at `at` or later.
    ///
    /// # Panics
    /// When the pattern has no slot for the direction, or has too many slots.
    pub fn next(&self, direction: Direction, at: Instant) -> (Instant, Instant) {
        let slots = self.pattern.slots();
        assert!(slots <= Pattern::SLOTS_MAX, "a pattern of {slots} slots");
        let slot = self.slot().get();
        let first = at.as_nanos() / slot;
        for index in first..=first + 2 * u64::from(slots) {
            let of_pattern = u32::try_from(index % u64::from(slots)).unwrap_or(0);
            let (begin, count) = self.pattern.symbols(of_pattern, direction);
            let Some(usable) = self.usable(direction, count) else { continue };
            let mut symbol = begin;
            while symbol + usable <= begin + count {
                let start = index * slot + symbol * slot / SYMBOLS;
                if start >= at.as_nanos() {
                    let end = index * slot + (symbol + usable) * slot / SYMBOLS;
                    return (Instant::from_nanos(start), Instant::from_nanos(end));
                }
                symbol += usable;
            }
        }
        panic!("a pattern without slots for {direction:?}: {:?}", self.pattern)
    }

    /// The earliest start of an uplink transmission whose need the base station learned at `at`.
    /// The station decides, informs the device in the next downlink, and the device prepares the
    /// transmission for k2 slots, N2 at least (TS 38.214 6.1.2.1 and 6.4).
    pub(super) fn granted(&self, at: Instant) -> Instant {
        let (informed, _) = self.next(Direction::Down, at + self.station);
        informed + (self.slot() * u64::from(self.k2)).max(self.symbols(self.n2))
    }

    /// When the base station knows that the device did not decode what ended at `end`: the device
    /// decodes for N1, and reports in the next two symbols of uplink (TS 38.213 9.2.3, PUCCH format
    /// 0), those of the special slot included.
    fn reported(&self, end: Instant) -> Instant {
        let mini = Self { mini_slot: FEEDBACK_SYMBOLS.min(self.mini_slot), ..*self };
        let pattern = if self.switched_feedback { Pattern::FDD } else { self.pattern };
        Self { pattern, ..mini }.next(Direction::Up, end + self.symbols(self.n1)).1
    }

    /// When a transmission in `direction` whose first attempt ends at `end` has got through.
    /// Failures come from `rng`.
    ///
    /// With [`RoundTrip::Scheduled`], an uplink is repeated in a slot that the station grants, and
    /// a downlink in the first slot after the device's report and the station's decision (TS 38.321
    /// 5.3.2 and 5.4.2).
    pub fn delivered(&self, direction: Direction, end: Instant, rng: &mut Rng) -> Instant {
        let harq = match direction {
            Direction::Down => &self.harq_down,
            Direction::Up => &self.harq_up,
        };
        self.recovered(harq, direction, end, rng)
    }

    /// The same with other failures than the cell's.
    pub(super) fn recovered(
        &self,
        harq: &Harq,
        direction: Direction,
        mut end: Instant,
        rng: &mut Rng,
    ) -> Instant {
        let mut chance = harq.first;
        for attempt in 1..=harq.attempts {
            if !chance.happens(rng) {
                return end;
            }
            end = match harq.round_trip {
                _ if attempt == harq.attempts => end + harq.recovery,
                round_trip => self.repeated(round_trip, direction, end),
            };
            chance = harq.later;
        }
        end
    }

    /// End of the attempt that follows a failed one, which ended at `end`.
    pub(super) fn repeated(&self, round_trip: RoundTrip, direction: Direction, end: Instant) -> Instant {
        match round_trip {
            RoundTrip::Fixed(time) => end + time,
            RoundTrip::Scheduled => {
                let from = match direction {
                    Direction::Up => self.granted(end),
                    Direction::Down => self.reported(end) + self.station,
                };
                self.next(direction, from).1
            }
        }
    }

    /// Start of the first of the slots `offset`, `offset + period`, … that starts at `at` or later.
    pub fn occasion(&self, period: u32, offset: u32, at: Instant) -> Instant {
        let symbols = |slots: u32| u64::from(slots) * SYMBOLS;
        self.start_of(self.symbol_occasion(symbols(period), symbols(offset), at))
    }

    /// Number of the first of the symbols `offset`, `offset + period`, … that starts at `at` or
    /// later.
    fn symbol_occasion(&self, period: u64, offset: u64, at: Instant) -> u64 {
        let first = (u128::from(at.as_nanos()) * u128::from(SYMBOLS)).div_ceil(self.slot().get().into());
        let first = u64::try_from(first).unwrap_or(u64::MAX);
        let period = period.max(1);
        offset.saturating_add(first.saturating_sub(offset).div_ceil(period).saturating_mul(period))
    }

    /// Start of the symbol with this number.
    fn start_of(&self, symbol: u64) -> Instant {
        let nanos = u128::from(symbol) * u128::from(self.slot().get()) / u128::from(SYMBOLS);
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Start and end of the first transmission of a configured grant that starts at `at` or later.
    /// An occasion whose symbols are not all uplink is omitted (TS 38.213 11.1). If all occasions
    /// are omitted, the next transmission in the uplink takes the place of the first.
    pub(super) fn configured(&self, period: u32, offset: u32, at: Instant) -> (Instant, Instant) {
        let first = self.symbol_occasion(period.into(), offset.into(), at);
        let (slots, length) = (u64::from(self.pattern.slots()), u64::from(self.mini_slot));
        let fits = |symbol: &u64| {
            let of_pattern = u32::try_from(symbol / SYMBOLS % slots).unwrap_or(0);
            let (begin, count) = self.pattern.symbols(of_pattern, Direction::Up);
            let symbol = symbol % SYMBOLS;
            symbol >= begin && symbol + length <= begin + count
        };
        let occasions = (0..=slots * SYMBOLS).map(|number| first + number * u64::from(period.max(1)));
        match occasions.into_iter().find(fits) {
            Some(symbol) => (self.start_of(symbol), self.start_of(symbol + length)),
            None => self.next(Direction::Up, self.start_of(first)),
        }
    }
}
