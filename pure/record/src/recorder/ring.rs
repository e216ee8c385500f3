//! Rings: when the medium is full, the oldest is overwritten, unless it is pinned.

use alloc::vec::Vec;
use core::ops::Range;

use engine::{Instant, Nanos};

use super::flight::{Flight, State};
use super::{Phase, Recorder};
use crate::digest::{Algorithm, Hasher};
use crate::format::{
    Gap, HEADER_LENGTH, HOLDING_SLOTS, Holding, Kind, Overwrote, Pin, StreamTotals, capacity,
};

/// The first slot of a ring's chunks.
const FIRST: u64 = HOLDING_SLOTS[1] + 1;
/// How many chunks in a row are left alone because their streams are to be kept for longer. Then
/// the oldest is given up all the same. Pinned chunks do not count.
const SKIPS_MAX: usize = 65_536;
/// The part of a stream that is given up at once where everything is to be kept.
const RELEASED_PART: u64 = 16;
/// The fewest slots of a ring that are not pinned, in buffers: everything that is on its way has
/// a slot.
const UNPINNED_MIN: usize = 2;

/// How long a stream of a ring is kept while others are overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Bytes younger than this.
    pub time: Option<Nanos>,
    /// This many of its last bytes.
    pub bytes: Option<u64>,
}

/// How a ring is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingConfig {
    /// By stream, the bytes to keep if anything else can be overwritten. Streams that are not named
    /// here are overwritten oldest first.
    pub keep: Vec<Keep>,
}

impl RingConfig {
    /// The fewest slots of a ring behind a buffer of `buffer` chunks.
    pub const fn slots_min(buffer: usize) -> u64 {
        FIRST + (UNPINNED_MIN * buffer) as u64
    }
}

/// A range that a user wants to pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinRange {
    /// The bytes of every stream that came within this time until now.
    Last(Nanos),
    /// Bytes of a stream.
    Bytes {
        /// The number of the stream.
        stream: u32,
        /// The place of the first byte.
        from: u64,
        /// How many bytes.
        bytes: u64,
    },
}

/// Why nothing was pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinRefusal {
    /// The recording is no ring, or has ended.
    NoRing,
    /// There is no such stream; the number of streams is given.
    NoStream(u32),
    /// Nothing of it is held: the stream is held from the floor that is given here, and it has come
    /// so far.
    NotHeld {
        /// The first byte that is held.
        floor: u64,
        /// The place behind the last byte that came.
        end: u64,
    },
    /// There are [`PINS_MAX`](crate::format::PINS_MAX) pinned ranges already.
    TooMany,
    /// It would leave fewer unpinned slots than the buffer needs.
    NoRoom {
        /// How many slots would be left.
        left: u64,
        /// How many are needed.
        needed: u64,
    },
}

/// A slot for a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) slot: u64,
    pub(super) overwrote: Option<Overwrote>,
}

/// A chunk that the medium has.
#[derive(Clone, Copy, Debug)]
struct Held {
    stream: u32,
    offset: u64,
    length: u32,
    time: u64,
    /// How many bytes of the stream were stored, up to its end.
    mark: u64,
    digest: [u8; 32],
}

impl Held {
    const fn end(&self) -> u64 {
        self.offset + self.length as u64
    }
}

/// How far gap records reach in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reach {
    stream: u32,
    places: Range<u64>,
    /// How many bytes of the stream were stored when they were written.
    mark: u64,
}

/// The content of a slot.
#[derive(Clone, Debug)]
enum Slot {
    /// Nothing that is held.
    Free,
    /// A chunk on its way.
    Busy,
    Data(Held),
    /// Gap records: how far they reach in each stream, and when they were written.
    Gaps(Vec<Reach>, u64),
}

/// How far the medium's newest account of the held bytes is. Of two slots, the other one is written
/// over next: while the newest is not durable, the other is the one that counts after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// It is being written.
    Writing,
    /// It is written. The next sync makes it durable.
    Written,
    /// The sync under way makes it durable.
    Syncing,
    /// It survives a power cut, or is lost and the other one still counts.
    Durable,
}

/// The slots of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    keep: Vec<Keep>,
    slots: Vec<Slot>,
    /// Where the search for the next slot begins.
    cursor: usize,
    /// How many slots were ever taken.
    used: usize,
    /// By stream, how many bytes were ever stored. Bytes lost on the wire do not count: a sender
    /// that skips sequence numbers makes nothing older.
    stored: Vec<u64>,
    holding: Holding,
    /// Whether the medium's account of the held bytes is out of date.
    pub(super) is_stale: bool,
    said: Said,
    /// Which of both slots takes the next account of the held bytes.
    turn: usize,
}

impl Ring {
    pub(super) fn new(config: RingConfig, slots: u64) -> Self {
        let slots = usize::try_from(slots - FIRST).unwrap_or(usize::MAX);
        let (keep, slots) = (config.keep, alloc::vec![Slot::Free; slots]);
        let (stored, holding) = (Vec::new(), Holding::default());
        let (is_stale, said) = (true, Said::Durable);
        Self { keep, slots, cursor: 0, used: 0, stored, holding, is_stale, said, turn: 0 }
    }

    /// The slot behind the last one that was ever taken.
    pub(super) const fn end(&self) -> u64 {
        FIRST + self.used as u64
    }

    fn at(&mut self, slot: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(slot.checked_sub(FIRST)?).ok()?)
    }

    /// Nothing of the slot is held any more.
    pub(super) fn free(&mut self, slot: u64) {
        if let Some(at) = self.at(slot) {
            *at = Slot::Free;
        }
    }

    /// How many bytes of a stream were stored.
    fn mark(&self, stream: u32) -> u64 {
        self.stored.get(stream as usize).copied().unwrap_or_default()
    }

    /// Counts `bytes` more stored bytes of a stream. Returns how many there are with them.
    fn count(&mut self, stream: u32, bytes: u32) -> u64 {
        let at = stream as usize;
        if self.stored.len() <= at {
            self.stored.resize(at + 1, 0);
        }
        self.stored[at] = self.stored[at].saturating_add(u64::from(bytes));
        self.stored[at]
    }

    /// Whether the bytes of a stream before a mark, from `time`, are to be kept.
    fn is_kept(&self, (stream, mark, time): (u32, u64, u64), clock: u64) -> bool {
        let keep = self.keep.get(stream as usize).copied().unwrap_or_default();
        keep.time.is_some_and(|length| time.saturating_add(length.get()) > clock)
            || keep.bytes.is_some_and(|bytes| mark.saturating_add(bytes) > self.mark(stream))
    }

    /// The next slot whose chunk may be overwritten. Its former bytes are no longer held.
    fn take(&mut self, clock: u64) -> Option<Taken> {
        let round = self.slots.len();
        if let Some(taken) = self.take_within(SKIPS_MAX, |ring, what| ring.is_kept(what, clock)) {
            return Some(taken);
        }
        // Everything is to be kept: part of it is not.
        self.release();
        self.take_within(round, |ring, what| ring.is_kept(what, clock))
            .or_else(|| self.take_within(round, |_, _| false))
    }

    /// The next slot whose chunk may be overwritten, behind fewer than `skips` that are to be kept.
    fn take_within(
        &mut self,
        skips: usize,
        is_kept: impl Fn(&Self, (u32, u64, u64)) -> bool,
    ) -> Option<Taken> {
        let mut skipped = 0;
        for _ in 0..self.slots.len() {
            if skipped == skips {
                return None;
            }
            let at = self.cursor;
            self.cursor = (at + 1) % self.slots.len();
            let overwrote = match &self.slots[at] {
                Slot::Busy => continue,
                Slot::Free => None,
                Slot::Data(held) => {
                    let (stream, end) = (held.stream, held.end());
                    let is_above = end > self.holding.floor(stream);
                    let is_pinned = self.holding.is_pinned(stream, held.offset, end);
                    if is_pinned || (is_above && is_kept(self, (stream, held.mark, held.time))) {
                        skipped += usize::from(!is_pinned);
                        continue;
                    }
                    // Bytes below the floor were given up before.
                    Some(Overwrote { stream, end: end.max(self.holding.floor(stream)) })
                }
                Slot::Gaps(gaps, time) => {
                    let stays = |gap: &Reach| {
                        let (stream, Range { start, end }) = (gap.stream, gap.places.clone());
                        let is_above = end > self.holding.floor(stream);
                        self.holding.is_pinned(stream, start, end)
                            || (is_above && is_kept(self, (stream, gap.mark, *time)))
                    };
                    if gaps.iter().any(stays) {
                        skipped += 1;
                        continue;
                    }
                    for gap in gaps {
                        self.is_stale |= self.holding.raise(gap.stream, gap.places.end);
                    }
                    gaps.first().map(|gap| Overwrote { stream: gap.stream, end: gap.places.end })
                }
            };
            if let Some(before) = overwrote {
                self.is_stale |= self.holding.raise(before.stream, before.end);
            }
            self.slots[at] = Slot::Busy;
            self.used = self.used.max(at + 1);
            return Some(Taken { slot: FIRST + at as u64, overwrote });
        }
        None
    }

    /// Gives up the oldest bytes of the stream that has most unpinned ones.
    fn release(&mut self) {
        let held = self.slots.iter().filter_map(|slot| match slot {
            Slot::Data(held) if self.holding.may_go(held.stream, held.offset, held.end()) => Some(held),
            _ => None,
        });
        let mut sums = alloc::vec![0_u64; self.stored.len()];
        for held in held.clone() {
            if let Some(sum) = sums.get_mut(held.stream as usize) {
                *sum += u64::from(held.length);
            }
        }
        let Some((number, sum)) = (0..).zip(sums).max_by_key(|(_, sum)| *sum) else { return };
        let chunks = held.filter(|held| held.stream == number);
        let begin = |held: &Held| held.mark.saturating_sub(u64::from(held.length));
        let Some(oldest) = chunks.clone().map(begin).min() else { return };
        let until = oldest + sum / RELEASED_PART;
        // A floor lies between two chunks.
        let floor = chunks.filter(|held| begin(held) < until).map(Held::end).max();
        if let Some(floor) = floor {
            self.is_stale |= self.holding.raise(number, floor);
        }
    }

    /// A chunk's end is known.
    pub(super) fn retire(&mut self, flight: &Flight, algorithm: Algorithm) {
        let Some(header) = flight.header.as_ref() else { return };
        if header.kind == Kind::Holding {
            // A lost account is written again, because its content is stale.
            self.said = if flight.state == State::Stored { Said::Written } else { Said::Durable };
            // It goes to the same slot then: the other one still counts.
            self.turn = if flight.state == State::Stored { self.turn } else { 1 - self.turn };
            return;
        }
        let payload = &flight.buffer[HEADER_LENGTH..][..header.length as usize];
        let held = match (flight.state, header.kind) {
            (State::Stored, Kind::Data) => Slot::Data(Held {
                stream: header.stream,
                offset: header.offset,
                length: header.length,
                time: header.time.nanos,
                mark: self.count(header.stream, header.length),
                digest: algorithm.digest(payload),
            }),
            (State::Stored, Kind::Gaps) => {
                let mut gaps = reach(&Gap::parse(payload));
                gaps.iter_mut().for_each(|gap| gap.mark = self.mark(gap.stream));
                Slot::Gaps(gaps, header.time.nanos)
            }
            _ => Slot::Free,
        };
        if let Some(slot) = self.at(flight.slot) {
            *slot = held;
        }
    }

    /// How many slots would not be pinned with these pins.
    fn unpinned(&self, holding: &Holding) -> u64 {
        let is_free = |slot: &&Slot| match slot {
            Slot::Data(held) => !holding.is_pinned(held.stream, held.offset, held.end()),
            Slot::Gaps(gaps, _) => {
                let is_pinned = |gap: &Reach| holding.is_pinned(gap.stream, gap.places.start, gap.places.end);
                !gaps.iter().any(is_pinned)
            }
            Slot::Free | Slot::Busy => true,
        };
        self.slots.iter().filter(is_free).count() as u64
    }

    /// The account of a stream: the bytes that are held.
    pub(super) fn account(&self, stream: u32, bytes_in: u64, algorithm: Algorithm) -> StreamTotals {
        let is_held = |held: &&Held| {
            held.stream == stream && self.holding.holds(stream, held.offset, held.end()) && held.length > 0
        };
        let all =
            self.slots.iter().filter_map(|slot| if let Slot::Data(held) = slot { Some(held) } else { None });
        let mut held: Vec<_> = all.filter(is_held).collect();
        held.sort_unstable_by_key(|held| held.offset);
        let mut all = Hasher::new(algorithm);
        held.iter().for_each(|held| all.update(&held.digest));
        let stored = held.iter().map(|held| u64::from(held.length)).sum();
        let overwritten = self.holding.overwritten(stream, bytes_in);
        let lost = bytes_in.saturating_sub(overwritten + stored);
        StreamTotals { bytes_in, stored, lost, overwritten, digest: all.finalize() }
    }
}

/// From where to where gaps reach, by stream.
fn reach(gaps: &[Gap]) -> Vec<Reach> {
    let mut all = Vec::<Reach>::new();
    for gap in gaps {
        match all.iter_mut().find(|reach| reach.stream == gap.stream) {
            Some(Reach { places, .. }) => {
                *places = places.start.min(gap.from)..places.end.max(gap.end());
            }
            None => all.push(Reach { stream: gap.stream, places: gap.from..gap.end(), mark: 0 }),
        }
    }
    all
}

impl Recorder {
    /// The next slot, unless the medium ends before it.
    pub(super) fn take_slot(&mut self) -> Option<Taken> {
        if let Some(ring) = &mut self.ring {
            let taken = ring.take(self.clock);
            if taken.is_some_and(|taken| taken.overwrote.is_some()) {
                self.progress.overwritten = self.overwritten();
            }
            return taken;
        }
        let slot = self.next_slot;
        let is_there = self.config.slots.is_none_or(|slots| slot < slots);
        is_there.then(|| {
            self.next_slot += 1;
            Taken { slot, overwrote: None }
        })
    }

    fn overwritten(&self) -> u64 {
        let Some(ring) = &self.ring else { return 0 };
        let all = (0..).zip(&self.streams);
        all.map(|(number, stream)| ring.holding.overwritten(number, stream.bytes_in)).sum()
    }

    /// The bytes that the ring holds; everything if the recording is no ring.
    pub fn holding(&self) -> Holding {
        self.ring.as_ref().map(|ring| ring.holding.clone()).unwrap_or_default()
    }

    /// Writes the account of the held bytes to the medium, if the medium's one is out of date and
    /// durable. Returns whether the account there is not durable yet, or is out of date.
    pub(super) fn write_holding(&mut self) -> bool {
        let time = self.time();
        let Some(ring) = self.ring.as_mut() else { return false };
        if ring.is_stale && ring.said == Said::Durable {
            (ring.is_stale, ring.said) = (false, Said::Writing);
            let slot = HOLDING_SLOTS[ring.turn];
            ring.turn = 1 - ring.turn;
            let holding = ring.holding.clone();
            self.control(Kind::Holding, Taken { slot, overwrote: None }, time, |payload| {
                holding.emit(payload)
            });
            return true;
        }
        ring.is_stale || ring.said != Said::Durable
    }

    /// Asks for a sync if the newest account of the held bytes waits for one.
    pub(super) fn sync_holding(&mut self) {
        let waits = self.ring.as_ref().is_some_and(|ring| ring.said == Said::Written);
        self.wants_sync |= waits && self.syncing.is_none();
    }

    /// A sync begins.
    pub(super) fn on_sync_begins(&mut self) {
        if let Some(ring) = self.ring.as_mut().filter(|ring| ring.said == Said::Written) {
            ring.said = Said::Syncing;
        }
    }

    /// A sync has ended. Where it failed, the recording ends, and nothing is promised any more.
    pub(super) fn on_sync_ends(&mut self) {
        if let Some(ring) = self.ring.as_mut().filter(|ring| ring.said == Said::Syncing) {
            ring.said = Said::Durable;
        }
    }

    /// A chunk with an account of the held bytes is not on the medium.
    pub(super) fn on_holding_lost(&mut self) {
        let Some(ring) = self.ring.as_mut() else { return };
        ring.is_stale = true;
        // While bytes come, it is tried again. At the end there is nothing that would try.
        self.is_damaged |= self.phase == Phase::Closing;
    }

    /// Keeps bytes from being overwritten, with all of the chunks in which they lie. Returns the
    /// pinned ranges. They survive a power cut once they are on the medium, which takes as long as
    /// [`crate::Config::flush`] and a sync at most.
    ///
    /// # Errors
    /// When they can't be pinned; see [`PinRefusal`].
    pub fn pin(&mut self, now: Instant, range: PinRange) -> Result<Vec<Pin>, PinRefusal> {
        if self.phase != Phase::Recording || self.ring.is_none() {
            return Err(PinRefusal::NoRing);
        }
        let streams = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        let wanted = match range {
            PinRange::Last(_) => 0..streams,
            PinRange::Bytes { stream, .. } if stream < streams => stream..stream + 1,
            PinRange::Bytes { .. } => return Err(PinRefusal::NoStream(streams)),
        };
        // A pinned range ends with a chunk.
        wanted.clone().for_each(|stream| self.close(stream as usize));
        let Some(ring) = &self.ring else { return Err(PinRefusal::NoRing) };
        let mut holding = ring.holding.clone();
        let pins = self.wanted(ring, &wanted, range);
        if pins.is_empty() {
            let stream = wanted.start;
            let end = self.streams[stream as usize].bytes_in;
            return Err(PinRefusal::NotHeld { floor: ring.holding.floor(stream), end });
        }
        if !pins.iter().all(|pin| holding.pin(*pin)) {
            return Err(PinRefusal::TooMany);
        }
        let (left, needed) = (ring.unpinned(&holding), (UNPINNED_MIN * self.config.buffer) as u64);
        if left < needed {
            return Err(PinRefusal::NoRoom { left, needed });
        }
        self.hold(now, holding);
        Ok(pins)
    }

    /// Lets everything that is pinned be overwritten.
    ///
    /// # Errors
    /// When the recording is no ring, or has ended.
    pub fn unpin(&mut self, now: Instant) -> Result<(), PinRefusal> {
        let mut holding = self.holding();
        holding.pins.clear();
        if self.phase != Phase::Recording || self.ring.is_none() {
            return Err(PinRefusal::NoRing);
        }
        self.hold(now, holding);
        Ok(())
    }

    fn hold(&mut self, now: Instant, holding: Holding) {
        if let Some(ring) = &mut self.ring {
            (ring.holding, ring.is_stale) = (holding, true);
        }
        self.progress.overwritten = self.overwritten();
        self.write_holding();
        self.arm(now);
    }

    /// The bytes of these streams that a range means, in whole chunks, as far as they are held:
    /// bytes overwritten between two held parts do not come back.
    fn wanted(&self, ring: &Ring, streams: &Range<u32>, range: PinRange) -> Vec<Pin> {
        // Whether a part has a chunk is not known yet.
        let mut parts = Vec::<(Pin, bool)>::new();
        for (stream, reach) in streams.clone().zip(self.reaches(ring, streams, range)) {
            let Some(Range { start, end }) = reach else { continue };
            let held = ring.holding.ranges(stream, self.streams[stream as usize].bytes_in).into_iter();
            let pins = held.map(|held| Pin { stream, from: held.0.max(start), end: held.1.min(end) });
            parts.extend(pins.filter(|pin| pin.from < pin.end).map(|pin| (pin, false)));
        }
        self.for_each_chunk(ring, streams, |stream, places, _| {
            let first = parts.partition_point(|(pin, _)| (pin.stream, pin.end) <= (stream, places.start));
            let parts = parts[first..].iter_mut();
            parts
                .take_while(|(pin, _)| pin.stream == stream && pin.from < places.end)
                .for_each(|(_, has_chunk)| *has_chunk = true);
        });
        parts.into_iter().filter(|(_, has_chunk)| *has_chunk).map(|(pin, _)| pin).collect()
    }

    /// From where to where a range reaches in each of these streams, in whole chunks.
    fn reaches(&self, ring: &Ring, streams: &Range<u32>, range: PinRange) -> Vec<Option<Range<u64>>> {
        let came = |stream: u32| self.streams[stream as usize].bytes_in;
        match range {
            PinRange::Last(time) => {
                let since = self.clock.saturating_sub(time.get());
                // Of each stream, the last chunk that began before, and the first one that did not.
                let mut found: Vec<(Option<u64>, Option<u64>)> = alloc::vec![(None, None); streams.len()];
                self.for_each_chunk(ring, streams, |stream, places, began| {
                    let (last, first) = &mut found[(stream - streams.start) as usize];
                    if began < since {
                        *last = (*last).max(Some(places.start));
                    } else {
                        *first = Some(first.map_or(places.start, |first| first.min(places.start)));
                    }
                });
                // A chunk has the bytes that came until the next one began.
                let begins = found.into_iter().map(|(last, first)| last.or(first));
                let all = streams.clone().zip(begins);
                all.map(|(stream, begin)| begin.map(|begin| begin..came(stream))).collect()
            }
            PinRange::Bytes { stream, from, bytes } => {
                let end = from.saturating_add(bytes).min(came(stream));
                let mut whole = from..end;
                self.for_each_chunk(ring, streams, |_, places, _| {
                    let covers = |place: u64| places.start < place && place < places.end;
                    if covers(from) {
                        whole.start = places.start;
                    }
                    if covers(end) {
                        whole.end = places.end;
                    }
                });
                alloc::vec![Some(whole)]
            }
        }
    }

    /// Calls `each` for every chunk of these streams that is held or on its way, in no order, with
    /// its stream, its places and when it began. A ring may have millions of chunks, so nothing
    /// gathers them. Bytes come meanwhile, so the slots are looked at once for all streams.
    fn for_each_chunk(&self, ring: &Ring, streams: &Range<u32>, mut each: impl FnMut(u32, Range<u64>, u64)) {
        for slot in &ring.slots {
            if let Slot::Data(held) = slot
                && streams.contains(&held.stream)
                && ring.holding.holds(held.stream, held.offset, held.end())
            {
                each(held.stream, held.offset..held.end(), held.time);
            }
        }
        let on_their_way = self.flights.iter().filter_map(|flight| flight.data());
        for header in on_their_way.filter(|header| streams.contains(&header.stream)) {
            each(header.stream, header.offset..header.end(), header.time.nanos);
        }
    }
}

const _: () = assert!(capacity(crate::format::CHUNK_MIN) > 8 + 64 * 8 + 256 * 24);

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk of one byte, of a stream whose bytes were all stored until then.
    fn chunk((stream, offset): (u32, u64)) -> Slot {
        Slot::Data(Held { stream, offset, length: 1, time: 0, mark: offset + 1, digest: [0; 32] })
    }

    /// Two streams of a ring, with the given numbers of chunks of one byte each.
    fn two(keep: Keep, lengths: [u64; 2]) -> Ring {
        let keep = alloc::vec![keep, Keep::default()];
        let mut ring = Ring::new(RingConfig { keep }, FIRST + lengths.iter().sum::<u64>());
        let places = (0..).zip(lengths).flat_map(|(stream, length)| (0..length).map(move |at| (stream, at)));
        ring.slots = places.map(chunk).collect();
        ring.stored = lengths.to_vec();
        ring
    }

    #[test]
    fn the_last_bytes_of_a_stream_are_those_that_were_stored() {
        let mut ring = two(Keep { time: None, bytes: Some(4) }, [4, 2]);
        let taken = ring.take(0).expect("the other stream is not kept");
        assert_eq!((taken.slot, ring.holding.floor(0)), (FIRST + 4, 0));
        // Its next byte comes behind a loss of 2^40 bytes: only one of the four is given up.
        let mark = ring.count(0, 1);
        let held = Held { stream: 0, offset: 1 << 40, length: 1, time: 0, mark, digest: [0; 32] };
        ring.slots[4] = Slot::Data(held);
        ring.cursor = 0;
        assert_eq!(ring.take(0).map(|taken| taken.slot), Some(FIRST));
        ring.cursor = 0;
        assert_eq!(ring.take(0).map(|taken| taken.slot), Some(FIRST + 5));
    }

    #[test]
    fn a_loss_on_the_wire_makes_a_ring_give_up_no_more_than_its_part() {
        let mut ring = two(Keep { time: None, bytes: Some(1_000) }, [64, 0]);
        let mark = ring.count(0, 1);
        let held = Held { stream: 0, offset: 1 << 40, length: 1, time: 0, mark, digest: [0; 32] };
        ring.slots.push(Slot::Data(held));
        assert_eq!(ring.take(0).map(|taken| taken.slot), Some(FIRST));
        assert_eq!(ring.holding.floor(0), 4);
    }

    #[test]
    fn a_pinned_stream_is_not_the_one_that_has_most_to_give_up() {
        let keep = Keep { time: None, bytes: Some(1_000) };
        let mut ring = two(keep, [64, 32]);
        ring.keep = alloc::vec![keep; 2];
        assert!(ring.holding.pin(Pin { stream: 0, from: 0, end: 64 }));
        assert_eq!(ring.take(0).map(|taken| taken.slot), Some(FIRST + 64));
        assert_eq!((ring.holding.floor(0), ring.holding.floor(1)), (0, 2));
    }

    #[test]
    fn what_is_pinned_is_not_the_oldest_that_is_given_up() {
        let mut ring = two(Keep { time: None, bytes: Some(1_000) }, [64, 0]);
        assert!(ring.holding.pin(Pin { stream: 0, from: 0, end: 32 }));
        assert_eq!(ring.take(0).map(|taken| taken.slot), Some(FIRST + 32));
        assert_eq!(ring.holding.floor(0), 34);
    }

    #[test]
    fn a_long_pinned_part_costs_no_other_stream_anything() {
        let pinned = SKIPS_MAX as u64 + 10;
        let lengths = [pinned, pinned + 20];
        let mut ring = Ring::new(RingConfig::default(), FIRST + lengths.iter().sum::<u64>());
        let places = (0..).zip(lengths).flat_map(|(stream, length)| (0..length).map(move |at| (stream, at)));
        ring.slots = places.map(chunk).collect();
        assert!(ring.holding.pin(Pin { stream: 0, from: 0, end: pinned }));
        let taken = ring.take(0).expect("what is not pinned may be overwritten");
        assert_eq!((taken.slot, ring.holding.floor(1)), (FIRST + pinned, 1));
    }
}
