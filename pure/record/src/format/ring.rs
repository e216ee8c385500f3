//! Rings: the bytes of each stream that are still held after the oldest were overwritten.

use alloc::vec::Vec;

use super::{STREAMS_MAX, u32_at, u64_at};

/// The most pinned ranges of a recording.
pub const PINS_MAX: usize = 256;
/// Length of a pinned range in bytes.
const LENGTH: usize = 24;
/// Length of the head that precedes the floors, in bytes.
const HEAD: usize = 8;

/// Bytes of a stream that a ring does not overwrite, regardless of their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// The number of the stream.
    pub stream: u32,
    /// The place of the first byte in the stream.
    pub from: u64,
    /// The place behind the last byte.
    pub end: u64,
}

impl Pin {
    /// Whether one of these bytes of `stream` is pinned. Of no bytes, the place counts.
    pub const fn touches(&self, stream: u32, from: u64, end: u64) -> bool {
        let behind = if end > from { end } else { from.saturating_add(1) };
        self.stream == stream && self.from < behind && from < self.end
    }
}

/// The bytes that a ring holds: of each stream everything from its floor on, and the pinned ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// By stream: everything before this place was overwritten or will be next, unless it is
    /// pinned. A stream that is not named here has floor 0.
    pub floors: Vec<u64>,
    /// Pinned ranges, in order and distinct: at most [`PINS_MAX`].
    pub pins: Vec<Pin>,
}

impl Holding {
    /// The floor of a stream.
    pub fn floor(&self, stream: u32) -> u64 {
        self.floors.get(stream as usize).copied().unwrap_or_default()
    }

    /// Raises the floor of a stream to `place`. Returns whether it was lower.
    pub fn raise(&mut self, stream: u32, place: u64) -> bool {
        let at = stream as usize;
        if self.floors.len() <= at {
            self.floors.resize(at + 1, 0);
        }
        let is_lower = self.floors[at] < place;
        self.floors[at] = self.floors[at].max(place);
        is_lower
    }

    /// Whether one of these bytes of `stream` is pinned.
    pub fn is_pinned(&self, stream: u32, from: u64, end: u64) -> bool {
        // Pins are in order and distinct, and so are their ends.
        let at = self.pins.partition_point(|pin| (pin.stream, pin.end) <= (stream, from));
        self.pins.get(at).is_some_and(|pin| pin.touches(stream, from, end))
    }

    /// Whether a higher floor would give up some of these bytes of `stream`: they are above the
    /// floor and not pinned.
    pub(crate) fn may_go(&self, stream: u32, from: u64, end: u64) -> bool {
        end > self.floor(stream) && !self.is_pinned(stream, from, end)
    }

    /// Whether all of these bytes of `stream` are held.
    pub fn holds(&self, stream: u32, from: u64, end: u64) -> bool {
        let floor = self.floor(stream);
        if from >= floor {
            return true;
        }
        // Of the pins that begin before, the last one ends last.
        let at = self.pins.partition_point(|pin| (pin.stream, pin.from) <= (stream, from));
        let last = self.pins[..at].last().filter(|pin| pin.stream == stream);
        last.is_some_and(|pin| end <= pin.end || floor <= pin.end)
    }

    /// The held ranges of a stream of `length` bytes: places of first bytes and behind last ones,
    /// in order and distinct.
    pub fn ranges(&self, stream: u32, length: u64) -> Vec<(u64, u64)> {
        let floor = self.floor(stream).min(length);
        let pins = self.pins.iter().filter(|pin| pin.stream == stream);
        let below = pins.map(|pin| (pin.from.min(floor), pin.end.min(floor)));
        below.chain([(floor, length)]).filter(|(from, end)| from < end).collect()
    }

    /// How many bytes of a stream of `length` bytes are not held.
    pub fn overwritten(&self, stream: u32, length: u64) -> u64 {
        let held: u64 = self.ranges(stream, length).iter().map(|(from, end)| end - from).sum();
        length - held.min(length)
    }

    /// Adds a pinned range. Returns whether there is room for one more.
    pub fn pin(&mut self, pin: Pin) -> bool {
        let mut pins = self.pins.clone();
        pins.push(pin);
        pins.sort_unstable();
        let mut distinct = Vec::<Pin>::with_capacity(pins.len());
        for pin in pins {
            match distinct.last_mut().filter(|last| last.stream == pin.stream && last.end >= pin.from) {
                Some(last) => last.end = last.end.max(pin.end),
                None if pin.from < pin.end => distinct.push(pin),
                None => {}
            }
        }
        let has_room = distinct.len() <= PINS_MAX;
        if has_room {
            self.pins = distinct;
        }
        has_room
    }

    /// Writes the held ranges to the start of `payload`. Returns the length in bytes.
    ///
    /// # Panics
    /// When there are more than [`STREAMS_MAX`] streams or [`PINS_MAX`] pins.
    pub fn emit(&self, payload: &mut [u8]) -> usize {
        assert!(
            self.floors.len() <= STREAMS_MAX && self.pins.len() <= PINS_MAX,
            "a holding within its limits"
        );
        let counts =
            [self.floors.len(), self.pins.len()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let mut bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        bytes.extend(self.floors.iter().flat_map(|floor| floor.to_le_bytes()));
        for pin in &self.pins {
            bytes.extend(
                [u64::from(pin.stream), pin.from, pin.end].iter().flat_map(|value| value.to_le_bytes()),
            );
        }
        payload[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    }

    /// Parses a payload; `None` if it is no holding.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (head, rest) = payload.split_at_checked(HEAD)?;
        let (floors, pins) = (u32_at(head, 0) as usize, u32_at(head, 4) as usize);
        if floors > STREAMS_MAX || pins > PINS_MAX {
            return None;
        }
        let (floors, rest) = rest.split_at_checked(floors * 8)?;
        let floors = floors.chunks_exact(8).map(|floor| u64_at(floor, 0)).collect();
        let mut holding = Self { floors, pins: Vec::new() };
        for pin in rest.get(..pins * LENGTH)?.chunks_exact(LENGTH) {
            let stream = u32::try_from(u64_at(pin, 0)).ok()?;
            if stream as usize >= STREAMS_MAX {
                return None;
            }
            holding.pin(Pin { stream, from: u64_at(pin, 8), end: u64_at(pin, 16) });
        }
        Some(holding)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn pins_below_the_floor_are_held_and_the_rest_is_overwritten() {
        let mut holding = Holding::default();
        assert!(holding.raise(1, 100) && !holding.raise(1, 90));
        for (from, end) in [(10, 20), (15, 30), (80, 120), (50, 50)] {
            assert!(holding.pin(Pin { stream: 1, from, end }));
        }
        assert_eq!(holding.pins.len(), 2);
        assert_eq!(holding.ranges(1, 200), [(10, 30), (80, 100), (100, 200)]);
        assert_eq!((holding.overwritten(1, 200), holding.overwritten(0, 200)), (60, 0));
        assert!(holding.holds(1, 10, 30) && holding.holds(1, 100, 101) && !holding.holds(1, 30, 80));
        let mut payload = [0; 200];
        let length = holding.emit(&mut payload);
        assert_eq!((length, Holding::parse(&payload[..length])), (8 + 16 + 48, Some(holding)));
        assert_eq!(Holding::parse(&payload[..length - 1]), None);
    }

    #[test]
    fn what_is_pinned_is_found_as_if_every_pin_was_looked_at() {
        let mut holding = Holding { floors: vec![50, 70, 0], pins: Vec::new() };
        for (stream, from, end) in [(0, 3, 9), (0, 9, 11), (0, 20, 60), (1, 0, 5), (1, 7, 8), (1, 30, 70)] {
            assert!(holding.pin(Pin { stream, from, end }));
        }
        for (stream, from) in (0..3).flat_map(|stream| (0..80).map(move |from| (stream, from))) {
            for end in from..81 {
                let why = (stream, from, end);
                let is_pinned = holding.pins.iter().any(|pin| pin.touches(stream, from, end));
                assert_eq!(holding.is_pinned(stream, from, end), is_pinned, "{why:?}");
                let floor = holding.floor(stream);
                let mut pins = holding.pins.iter().filter(|pin| pin.stream == stream);
                let holds = pins.any(|pin| pin.from <= from && (end <= pin.end || floor <= pin.end));
                assert_eq!(holding.holds(stream, from, end), from >= floor || holds, "{why:?}");
            }
        }
    }

    #[test]
    fn there_are_no_more_pins_than_a_chunk_has_room_for() {
        let mut holding = Holding { floors: vec![u64::MAX; STREAMS_MAX], pins: Vec::new() };
        for number in 0..300 {
            let pin = Pin { stream: 0, from: number * 2, end: number * 2 + 1 };
            assert_eq!(holding.pin(pin), number < PINS_MAX as u64);
        }
        let mut payload = vec![0; super::super::capacity(super::super::CHUNK_MIN)];
        let length = holding.emit(&mut payload);
        assert_eq!(Holding::parse(&payload[..length]), Some(holding));
    }
}
