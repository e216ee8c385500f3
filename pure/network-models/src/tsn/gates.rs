//! Gates that open and close by the clock (IEEE 802.1Qbv; IEEE 802.1Q-2018, 8.6.8.4 and 8.6.9).

use alloc::vec::Vec;
use core::fmt;

use engine::{Instant, Nanos};

use super::clock::ClockError;

/// Which queues' gates are open: bit n is queue n (IEEE 802.1Q-2018, 8.6.9.4: `gateStatesValue`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateStates(u8);

impl GateStates {
    /// All gates are closed.
    pub const CLOSED: Self = Self(0);
    /// All gates are open.
    pub const OPEN: Self = Self(u8::MAX);

    /// The gates of these queues are open. Queues beyond 7 are ignored.
    pub fn of(queues: impl IntoIterator<Item = usize>) -> Self {
        Self(queues.into_iter().filter(|queue| *queue < 8).fold(0, |bits, queue| bits | 1 << queue))
    }
    /// Decodes the octet in which bit n is queue n.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
    /// The states as an octet, in which bit n is queue n.
    pub const fn bits(self) -> u8 {
        self.0
    }
    /// Whether the gate of `queue` is open.
    pub const fn is_open(self, queue: usize) -> bool {
        queue < 8 && self.0 >> queue & 1 == 1
    }
    /// These states with every gate reversed.
    #[must_use]
    pub const fn inverted(self) -> Self {
        Self(!self.0)
    }
}

/// An entry of a gate control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateEntry {
    /// The states of all gates.
    pub states: GateStates,
    /// How long the states last.
    pub length: Nanos,
}

/// Why a list of entries is not a valid schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// The list has no entries, or more than [`GateSchedule::ENTRIES_MAX`].
    Entries(usize),
    /// The cycle is longer than [`GateSchedule::CYCLE_MAX`].
    Cycle(Nanos),
    /// The clock's error is half a cycle or more, so that the number of a cycle would be ambiguous.
    Clock(Nanos),
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(count) => {
                write!(
                    f,
                    "a gate control list of {count} entries, 1 to {} are possible",
                    GateSchedule::ENTRIES_MAX
                )
            }
            Self::Cycle(cycle) => {
                write!(f, "a cycle of {cycle}, 1 ns to {} are possible", GateSchedule::CYCLE_MAX)
            }
            Self::Clock(bound) => write!(f, "a clock error of {bound}, less than half a cycle is possible"),
        }
    }
}

/// A gate control list that repeats for ever, by the clock of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateSchedule {
    entries: Vec<GateEntry>,
    cycle: i64,
    /// Start of a cycle, in `0..cycle`.
    base: i64,
    clock: ClockError,
}

/// A part of a cycle in which the states don't change, in true time.
#[derive(Clone, Copy, Debug)]
struct Segment {
    states: GateStates,
    start: i64,
    end: i64,
}

impl GateSchedule {
    /// Maximum number of entries in a list.
    pub const ENTRIES_MAX: usize = 1024;
    /// Maximum length of a cycle.
    pub const CYCLE_MAX: Nanos = Nanos::from_secs(1_000);
    /// Number of cycles that are searched for a window of sufficient length.
    const SEARCH_CYCLES: usize = 16;

    /// A schedule that repeats `entries` in order. A cycle begins at `base`, and the schedule
    /// extends infinitely in both directions. Its clock has no error.
    ///
    /// # Errors
    /// [`ScheduleError::Entries`] or [`ScheduleError::Cycle`] when the number of entries or the
    /// cycle is out of range. Entries of no length are left out.
    pub fn new(base: Instant, entries: impl IntoIterator<Item = GateEntry>) -> Result<Self, ScheduleError> {
        let entries: Vec<_> = entries.into_iter().filter(|entry| entry.length > Nanos::ZERO).collect();
        let cycle = entries.iter().fold(Nanos::ZERO, |sum, entry| sum + entry.length);
        if entries.is_empty() || entries.len() > Self::ENTRIES_MAX {
            return Err(ScheduleError::Entries(entries.len()));
        }
        if cycle > Self::CYCLE_MAX {
            return Err(ScheduleError::Cycle(cycle));
        }
        let cycle = signed(cycle.get());
        Ok(Self { entries, cycle, base: signed(base.as_nanos()).rem_euclid(cycle), clock: ClockError::NONE })
    }

    /// This schedule by a clock that has an error.
    ///
    /// # Errors
    /// [`ScheduleError::Clock`] when the clock's error is half a cycle or more.
    pub fn with_clock(mut self, clock: ClockError) -> Result<Self, ScheduleError> {
        if signed(clock.bound().get()) >= self.cycle / 2 {
            return Err(ScheduleError::Clock(clock.bound()));
        }
        self.clock = clock;
        Ok(self)
    }

    /// The entries of the gate control list.
    pub fn entries(&self) -> &[GateEntry] {
        &self.entries
    }
    /// Length of the cycle: all entries together.
    pub fn cycle(&self) -> Nanos {
        Nanos::new(self.cycle.unsigned_abs())
    }
    /// Start of the first entry, as the time after a whole number of cycles.
    pub fn base(&self) -> Nanos {
        Nanos::new(self.base.unsigned_abs())
    }
    /// The error of the schedule's clock.
    pub const fn clock(&self) -> &ClockError {
        &self.clock
    }

    /// How long the gate of `queue` is open in each cycle.
    pub fn open_time(&self, queue: usize) -> Nanos {
        let open = self.entries.iter().filter(|entry| entry.states.is_open(queue));
        open.fold(Nanos::ZERO, |sum, entry| sum + entry.length)
    }

    /// The windows of `queue` in a cycle that starts at the first entry: start and length of each.
    /// A window that continues in the next cycle is listed in the cycle in which it starts. A
    /// window of a whole cycle never closes.
    pub fn windows(&self, queue: usize) -> Vec<(Nanos, Nanos)> {
        let mut windows: Vec<(Nanos, Nanos)> = Vec::new();
        let mut at = Nanos::ZERO;
        for entry in &self.entries {
            if entry.states.is_open(queue) {
                match windows.last_mut() {
                    Some((start, length)) if *start + *length == at => *length += entry.length,
                    _ => windows.push((at, entry.length)),
                }
            }
            at += entry.length;
        }
        if let (Some((first, length)), Some((last, tail))) =
            (windows.first().copied(), windows.last().copied())
            && windows.len() > 1
            && first == Nanos::ZERO
            && last + tail == at
        {
            windows.remove(0);
            if let Some((_, tail)) = windows.last_mut() {
                *tail += length;
            }
        }
        windows
    }

    /// Whether the gate of `queue` is open at `at`.
    pub fn is_open(&self, queue: usize, at: Instant) -> bool {
        self.segments(at).next().is_some_and(|segment| segment.states.is_open(queue))
    }

    /// The first time, not before `at`, from which the gate of `queue` stays open for `need`;
    /// `None` if no window is long enough.
    pub fn earliest(&self, queue: usize, at: Instant, need: Nanos) -> Option<Instant> {
        let (now, need) = (signed(at.as_nanos()), signed(need.get()));
        let mut opened = None;
        for segment in self.segments(at).take(Self::SEARCH_CYCLES * self.entries.len() + 1) {
            if !segment.states.is_open(queue) {
                opened = None;
                continue;
            }
            let opened = *opened.get_or_insert(segment.start.max(now));
            if segment.end - opened >= need {
                return Some(instant(opened));
            }
        }
        None
    }

    /// How long the gate of `queue` stays open from `at` on, limited to `enough`.
    pub fn open_for(&self, queue: usize, at: Instant, enough: Nanos) -> Nanos {
        let (now, enough) = (signed(at.as_nanos()), signed(enough.get()));
        let mut until = now;
        for segment in self.segments(at) {
            if !segment.states.is_open(queue) || until - now >= enough {
                break;
            }
            until = segment.end;
        }
        Nanos::new((until - now).min(enough).unsigned_abs())
    }

    /// How long the gate of `queue` is open between two times.
    pub fn open_between(&self, queue: usize, from: Instant, to: Instant) -> Nanos {
        let (start, end) = (signed(from.as_nanos()), signed(to.as_nanos()));
        let mut open = 0;
        for segment in self.segments(from).take_while(|segment| segment.start < end) {
            if segment.states.is_open(queue) {
                open += segment.end.min(end) - segment.start.max(start);
            }
        }
        Nanos::new(open.unsigned_abs())
    }

    /// When the gate of `queue` will have been open for `long` in total since `from`; `None` if the
    /// gate never opens.
    pub fn after_open(&self, queue: usize, from: Instant, long: Nanos) -> Option<Instant> {
        if self.open_time(queue) == Nanos::ZERO {
            return None;
        }
        let (start, mut left) = (signed(from.as_nanos()), signed(long.get()));
        for segment in self.segments(from).filter(|segment| segment.states.is_open(queue)) {
            let begin = segment.start.max(start);
            if segment.end - begin >= left {
                return Some(instant(begin + left));
            }
            left -= segment.end - begin;
        }
        None
    }

    /// Start of cycle `number` in true time.
    fn start_of(&self, number: i64) -> i64 {
        let nominal = self.base.saturating_add(number.saturating_mul(self.cycle));
        // A clock that is ahead does everything too early.
        nominal.saturating_sub(self.clock.at(nominal))
    }

    /// The parts of cycles without end, starting with the one that contains `at`.
    fn segments(&self, at: Instant) -> impl Iterator<Item = Segment> + '_ {
        let now = signed(at.as_nanos());
        let mut number = (now - self.base).div_euclid(self.cycle);
        if self.start_of(number) > now {
            number -= 1;
        } else if self.start_of(number + 1) <= now {
            number += 1;
        }
        let (mut start, mut next) = (self.start_of(number), self.start_of(number + 1));
        let mut index = 0;
        core::iter::from_fn(move || {
            loop {
                if index == self.entries.len() || start >= next {
                    number += 1;
                    index = 0;
                    start = next;
                    next = self.start_of(number + 1);
                }
                let entry = self.entries[index];
                index += 1;
                let begin = start;
                // The last entry ends with the cycle, whether the clock is slow or fast.
                start = match index == self.entries.len() {
                    true => next,
                    false => begin.saturating_add(signed(entry.length.get())).min(next),
                };
                if start > begin {
                    return Some(Segment { states: entry.states, start: begin, end: start });
                }
            }
        })
        .skip_while(move |segment| segment.end <= now)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn instant(value: i64) -> Instant {
    Instant::from_nanos(u64::try_from(value).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanoseconds: u64) -> Instant {
        Instant::from_nanos(nanoseconds)
    }

    fn entry(states: u8, length: u64) -> GateEntry {
        GateEntry { states: GateStates::from_bits(states), length: Nanos::new(length) }
    }

    /// Queue 1 for 20 ns, queue 0 for 70 ns, all queues for 10 ns.
    fn schedule() -> GateSchedule {
        GateSchedule::new(at(1_000), [entry(2, 20), entry(1, 70), entry(0xff, 10)]).unwrap()
    }

    #[test]
    fn a_frame_waits_for_a_window_in_which_it_ends() {
        let schedule = schedule();
        assert_eq!(schedule.earliest(1, at(1_005), Nanos::new(15)), Some(at(1_005)));
        // Open until 1020, and again from 1090 through the first entry of the next cycle.
        assert_eq!(schedule.earliest(1, at(1_006), Nanos::new(15)), Some(at(1_090)));
        assert_eq!(schedule.earliest(1, at(1_006), Nanos::new(30)), Some(at(1_090)));
        assert_eq!(schedule.earliest(1, at(1_006), Nanos::new(31)), None);
        // Before the base time the cycles are the same.
        assert_eq!(schedule.earliest(0, at(5), Nanos::new(80)), Some(at(20)));
    }

    #[test]
    fn windows_join_across_the_end_of_a_cycle() {
        let schedule = schedule();
        assert_eq!(schedule.windows(1), [(Nanos::new(90), Nanos::new(30))]);
        assert_eq!(schedule.windows(0), [(Nanos::new(20), Nanos::new(80))]);
        assert_eq!(schedule.open_time(1), Nanos::new(30));
        let always = GateSchedule::new(at(0), [entry(0xff, 5), entry(0xff, 6)]).unwrap();
        assert_eq!(always.windows(3), [(Nanos::ZERO, Nanos::new(11))]);
        assert_eq!(always.earliest(3, at(4), Nanos::new(100)), Some(at(4)));
    }

    #[test]
    fn open_time_is_counted_and_found_again() {
        let schedule = schedule();
        assert_eq!(schedule.open_between(1, at(1_010), at(1_295)), Nanos::new(10 + 30 + 30 + 5));
        assert_eq!(schedule.after_open(1, at(1_010), Nanos::new(75)), Some(at(1_295)));
        assert_eq!(schedule.open_for(1, at(1_095), Nanos::new(1_000)), Nanos::new(25));
        assert_eq!(schedule.open_for(1, at(1_095), Nanos::new(7)), Nanos::new(7));
        assert_eq!(schedule.after_open(4, at(0), Nanos::new(11)), Some(at(91 + 100)));
    }

    #[test]
    fn a_clock_that_is_ahead_opens_early() {
        let clock = ClockError { offset: 7, ..ClockError::NONE };
        let schedule = schedule().with_clock(clock).unwrap();
        assert!(!schedule.is_open(0, at(1_012)) && schedule.is_open(0, at(1_013)));
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        assert_eq!(GateSchedule::new(at(0), []), Err(ScheduleError::Entries(0)));
        assert_eq!(GateSchedule::new(at(0), [entry(1, 0)]), Err(ScheduleError::Entries(0)));
        let clock = ClockError { offset: 50, ..ClockError::NONE };
        assert_eq!(schedule().with_clock(clock), Err(ScheduleError::Clock(Nanos::new(50))));
    }

    proptest! {
        #[test]
        fn what_is_found_is_open(
            lengths in proptest::collection::vec((0_u8..4, 1_u64..50), 1..6),
            now in 0_u64..10_000,
            need in 1_u64..60,
            offset in -5_i64..5,
        ) {
            let entries: Vec<_> = lengths.iter().map(|(states, length)| entry(*states, *length)).collect();
            let schedule = GateSchedule::new(at(3), entries).unwrap();
            let clock = ClockError { offset, wander: Nanos::new(3), interval: Nanos::new(200), ..ClockError::NONE };
            let schedule = schedule.clone().with_clock(clock).unwrap_or(schedule);
            if let Some(found) = schedule.earliest(0, at(now), Nanos::new(need)) {
                let end = at(found.as_nanos() + need);
                prop_assert!(found >= at(now));
                prop_assert_eq!(schedule.open_between(0, found, end), Nanos::new(need));
                prop_assert_eq!(schedule.open_for(0, found, Nanos::new(need)), Nanos::new(need));
                // Brute force: no earlier time has such a window.
                for early in now..found.as_nanos() {
                    prop_assert!(schedule.open_for(0, at(early), Nanos::new(need)) < Nanos::new(need));
                }
            }
        }
    }
}
