//! What a cell and its devices are.

use engine::{Instant, Nanos, Rng};

use crate::Chance;

/// Symbols of a slot (TS 38.211, normal cyclic prefix).
const SYMBOLS: u64 = 14;

/// Which way.
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

/// What the slots of a period are for: downlink, one special slot, uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Downlink slots at the beginning.
    pub down: u32,
    /// Whether a special slot follows.
    pub special: bool,
    /// Symbols of the special slot for downlink, at its beginning, and for uplink, at its end.
    pub special_symbols: (u32, u32),
    /// Whether downlink data is sent in the special slot.
    pub special_used: bool,
    /// Uplink slots at the end.
    pub up: u32,
}

impl Pattern {
    /// Slots of a pattern at most: 20 ms at 30 kHz.
    pub const SLOTS_MAX: u32 = 40;
    /// DDDSU with S of 10 downlink, 2 guard and 2 uplink symbols: 2.5 ms at 30 kHz.
    pub const DDDSU: Self =
        Self { down: 3, special: true, special_symbols: (10, 2), special_used: true, up: 1 };
    /// 7 downlink, one special, 2 uplink slots: 5 ms at 30 kHz.
    pub const D7S_U2: Self = Self { down: 7, up: 2, ..Self::DDDSU };

    /// Slots of the period.
    pub fn slots(&self) -> u32 {
        self.down + u32::from(self.special) + self.up
    }

    /// The symbols of slot `index` that go `direction`: the first one and how many.
    fn symbols(&self, index: u32, direction: Direction) -> (u64, u64) {
        let (down, up) = (u64::from(self.special_symbols.0), u64::from(self.special_symbols.1));
        let is_special = self.special && index == self.down;
        match direction {
            Direction::Down if index < self.down => (0, SYMBOLS),
            Direction::Down if is_special && self.special_used => (0, down),
            // Data goes up in whole uplink slots; the special slot's two symbols are for signals.
            Direction::Up if index >= self.slots() - self.up => (0, SYMBOLS),
            Direction::Up if is_special => (SYMBOLS - up, up),
            _ => (0, 0),
        }
    }
}

/// How often a transmission fails, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harq {
    /// The first attempt fails.
    pub first: Chance,
    /// Each later one does, which is combined with those before.
    pub later: Chance,
    /// Attempts at most; then the frame is left to the layer above (RLC).
    pub attempts: u32,
    /// From one attempt to the next.
    pub round_trip: Nanos,
    /// What RLC's repetition takes.
    pub recovery: Nanos,
}

impl Harq {
    /// No failures.
    pub const NONE: Self = Self {
        first: Chance::NEVER,
        later: Chance::NEVER,
        attempts: 1,
        round_trip: Nanos::ZERO,
        recovery: Nanos::ZERO,
    };

    /// What failures add to a transmission this time.
    pub fn sample(&self, rng: &mut Rng) -> Nanos {
        let mut time = Nanos::ZERO;
        let mut chance = self.first;
        for attempt in 1..=self.attempts {
            if !chance.happens(rng) {
                return time;
            }
            time += if attempt == self.attempts { self.recovery } else { self.round_trip };
            chance = self.later;
        }
        time
    }
}

/// Grants that a device is given without asking while it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proactive {
    /// For how long after its last frame.
    pub lasts: Nanos,
    /// Bytes of each; one in every uplink slot.
    pub bytes: u32,
}

/// How a device comes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grants {
    /// It asks with a scheduling request, unless it has proactive grants.
    Dynamic {
        /// Slots from one chance to ask to the next (TS 38.331: 1, 2, 4, 8, 10, 16, 20, 40, 80 at 30 kHz).
        request_period: u32,
        /// The slot of the first one.
        request_offset: u32,
        /// Bytes of the grant that answers a request, when nobody knows yet how much is waiting.
        first: u32,
        /// Grants without asking.
        proactive: Option<Proactive>,
    },
    /// It was given slots beforehand (configured grant).
    Configured {
        /// Slots from one to the next.
        period: u32,
        /// The first one.
        offset: u32,
        /// Bytes of each.
        bytes: u32,
    },
}

/// A cell, and a device in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Subcarrier spacing 15 kHz * 2^numerology; a slot is 1 ms / 2^numerology.
    pub numerology: u32,
    /// What slots are for.
    pub pattern: Pattern,
    /// Symbols of a transmission: 14, or 2, 4 or 7 for mini-slots, which may begin at each multiple.
    pub mini_slot: u32,
    /// Bytes that a downlink slot carries.
    pub down_bytes: u32,
    /// Bytes that an uplink slot carries.
    pub up_bytes: u32,
    /// How a device comes to send.
    pub grants: Grants,
    /// From a grant to its slot, in slots, at least (k2).
    pub k2: u32,
    /// What the base station takes to decode or to schedule.
    pub station: Nanos,
    /// What the device takes to decode (N1), in symbols.
    pub n1: u32,
    /// What the device takes to prepare a transmission (N2), in symbols.
    pub n2: u32,
    /// Failures of a transmission going up.
    pub harq_up: Harq,
    /// Failures of one going down.
    pub harq_down: Harq,
}

impl Cell {
    /// N1 and N2 of processing capability 1, in symbols by numerology (TS 38.214, tables 5.3-1 and 6.4-1).
    pub const CAPABILITY_1: [(u32, u32); 4] = [(8, 10), (10, 12), (17, 23), (20, 36)];

    /// The same of processing capability 2, which is for up to 60 kHz (ibid., tables 5.3-2 and 6.4-2); the 4.5 and 5.5 symbols at
    /// 30 kHz are rounded up.
    pub const CAPABILITY_2: [(u32, u32); 3] = [(3, 5), (5, 6), (9, 11)];

    /// The stand-alone Release-15 cell of the published 5G experiment: 3.6 GHz, 100 MHz, 30 kHz, TDD.
    ///
    /// Published are numerology and bandwidth, and 50 to 70 Mbit/s on the air upwards: 60 Mbit/s are 18,750 bytes for each
    /// uplink slot of DDDSU, the usual pattern. Requests each 10 slots are a common setting, and the device has
    /// processing capability 1. Downlink bytes are those of about 600 Mbit/s (estimate). The station's time, k2, and that grants
    /// go on without asking while a device is active, are calibrated: see `docs/published.md`. A first attempt fails
    /// once in ten; a HARQ round trip is one period of the pattern.
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
            round_trip: Nanos::from_micros(2_500),
            recovery: Nanos::from_millis(40),
        },
        harq_down: Harq {
            first: Chance::percent(10),
            later: Chance::percent(1),
            attempts: 4,
            round_trip: Nanos::from_micros(2_500),
            recovery: Nanos::from_millis(40),
        },
    };

    /// A slot's length.
    pub const fn slot(&self) -> Nanos {
        Nanos::new(1_000_000 >> self.numerology)
    }

    /// How long `symbols` take.
    pub const fn symbols(&self, symbols: u32) -> Nanos {
        Nanos::new(self.slot().get() * symbols as u64 / SYMBOLS)
    }

    /// How long a transmission is on the air.
    pub const fn transmission(&self) -> Nanos {
        self.symbols(self.mini_slot)
    }

    /// The symbols of a transmission `direction` in a slot that has `count` symbols for it, if one fits.
    fn usable(&self, direction: Direction, count: u64) -> Option<u64> {
        let length = u64::from(self.mini_slot);
        // A transmission shorter than a slot's symbols may begin at each multiple of its length; in a special slot, one
        // of a whole slot is cut to what there is, which only the downlink does.
        let usable = if direction == Direction::Down { length.min(count) } else { length };
        (count > 0 && usable > 0 && usable <= count).then_some(usable)
    }

    /// A direction in which nothing can ever be sent.
    pub fn lacks(&self) -> Option<Direction> {
        let none = |direction: &Direction| {
            let mut slots = (0..self.pattern.slots()).map(|index| self.pattern.symbols(index, *direction).1);
            !slots.any(|count| self.usable(*direction, count).is_some())
        };
        [Direction::Down, Direction::Up].into_iter().find(none)
    }

    /// The first transmission `direction` that starts at `at` or later: when it starts and when it ends.
    ///
    /// # Panics
    /// When the pattern has no slot of that direction, or too many slots.
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

    /// The first of the slots `offset`, `offset + period`, … that starts at `at` or later.
    pub fn occasion(&self, period: u32, offset: u32, at: Instant) -> Instant {
        let (slot, period) = (self.slot().get(), u64::from(period.max(1)));
        let first = at.as_nanos().div_ceil(slot).saturating_sub(u64::from(offset)).div_ceil(period);
        Instant::from_nanos((u64::from(offset) + first * period) * slot)
    }
}
