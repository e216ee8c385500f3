//! Recovery: finds the contents of a medium, without its index and past any bad chunk.

use alloc::vec::Vec;

use crate::digest::Algorithm;
use crate::format::{
    Certificate, ChunkError, Entry, FIRST_SLOT, GAP_SLOT, Gap, HOLDING_SLOTS, Header, Holding, Kind,
    STREAMS_MAX, Superblock, Trigger,
};
use engine::Crc32c;

/// A slot that should have a chunk and has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The slot.
    pub slot: u64,
    /// The error.
    pub why: ChunkError,
}

/// Bytes of a stream that are neither on the medium nor declared as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The number of the stream.
    pub stream: u32,
    /// The place of the first byte in the stream.
    pub from: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// Reads a medium, slot by slot from the first, and reports its contents.
#[derive(Debug)]
pub struct Scan {
    chunk: u32,
    crc: Crc32c,
    recording: Option<[u8; 16]>,
    superblock: Option<Superblock>,
    certificate: Option<Certificate>,
    trigger: Option<Trigger>,
    entries: Vec<Entry>,
    /// Gap records, and the slots that have them.
    gaps: Vec<(u64, Vec<Gap>)>,
    /// The newest account of a ring's held bytes by the ring itself: sequence number, slot,
    /// account.
    held: Option<(u64, u64, Holding)>,
    /// The bytes that chunks of a ring declare as overwritten.
    overwritten: Option<Holding>,
    bad: Vec<Bad>,
    /// The slot behind the last chunk of the recording.
    end: u64,
    /// The slot behind the last one that is not empty.
    filled: u64,
    sequence: u64,
    times: Option<(u64, u64)>,
}

impl Scan {
    /// A scan of a medium with chunks of `chunk` bytes.
    pub const fn new(chunk: u32, crc: Crc32c) -> Self {
        Self {
            chunk,
            crc,
            recording: None,
            superblock: None,
            certificate: None,
            trigger: None,
            entries: Vec::new(),
            gaps: Vec::new(),
            held: None,
            overwritten: None,
            bad: Vec::new(),
            end: 0,
            filled: 0,
            sequence: 0,
            times: None,
        }
    }

    /// Takes in what `slot` has; the medium's last slot may be shorter than others. The first
    /// good chunk says which recording counts. Chunks of another one were there before, and are
    /// left out.
    pub fn on_slot(&mut self, slot: u64, bytes: &[u8]) {
        let parsed = Header::parse_chunk(slot, bytes, self.crc);
        if parsed != Err(ChunkError::Empty) {
            self.filled = self.filled.max(slot + 1);
        }
        match parsed {
            Ok((header, payload)) => self.on_chunk(slot, &header, payload),
            Err(ChunkError::Empty) => {}
            Err(why) => self.bad.push(Bad { slot, why }),
        }
    }

    /// The length of a chunk in bytes.
    pub const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Takes in an index's entries of data chunks, which are not read here. The caller checks the
    /// chunks later, when they are used.
    pub fn on_entries(&mut self, entries: Vec<Entry>) {
        for entry in &entries {
            self.end = self.end.max(entry.slot.saturating_add(1));
            self.on_time(entry.time);
        }
        match self.entries.is_empty() {
            true => self.entries = entries,
            false => self.entries.extend(entries),
        }
    }

    /// Forgets data chunks of which there are two or more at the same place of a stream, and
    /// returns their slots. A caller that has not read payloads shows the scan these slots whole.
    pub fn take_doubled(&mut self) -> Vec<u64> {
        let place = |entry: &Entry| (entry.stream, entry.offset);
        self.entries.sort_unstable_by_key(place);
        let mut doubled = Vec::new();
        for pair in self.entries.windows(2) {
            if place(&pair[0]) == place(&pair[1]) {
                doubled.extend([pair[0].slot, pair[1].slot]);
            }
        }
        doubled.sort_unstable();
        doubled.dedup();
        self.entries.retain(|entry| doubled.binary_search(&entry.slot).is_err());
        doubled
    }

    fn on_time(&mut self, time: u64) {
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
    }

    /// Takes in the header of a data chunk that lies in `slot`, whose payload is not checked yet.
    /// The caller checks payloads later, when they are used.
    ///
    /// # Panics
    /// When the header is not that of a data chunk.
    pub fn on_unchecked(&mut self, slot: u64, header: &Header) {
        assert!(header.kind == Kind::Data, "a data chunk");
        match header.slot == slot {
            true => self.on_chunk(slot, header, &[]),
            false => self.bad.push(Bad { slot, why: ChunkError::Misdirected(header.slot) }),
        }
    }

    fn on_chunk(&mut self, slot: u64, header: &Header, payload: &[u8]) {
        let is_ours = *self.recording.get_or_insert(header.recording) == header.recording;
        if !is_ours || header.chunk != self.chunk {
            return;
        }
        self.end = self.end.max(slot + 1);
        self.sequence = self.sequence.max(header.sequence.saturating_add(1));
        // Where something else belongs, recovery would write over it.
        if !header.kind.belongs_in(slot) {
            return self.bad.push(Bad { slot, why: ChunkError::Place });
        }
        if let Some(before) = header.overwrote {
            self.overwritten.get_or_insert_default().raise(before.stream, before.end);
        }
        match header.kind {
            Kind::Superblock => self.superblock = Superblock::parse(payload),
            Kind::Certificate => self.certificate = Certificate::parse(payload),
            Kind::Gaps => self.gaps.push((slot, Gap::parse(payload))),
            Kind::Holding => {
                let is_newer = self.held.as_ref().is_none_or(|(newest, ..)| *newest < header.sequence);
                if let Some(holding) = Holding::parse(payload).filter(|_| is_newer) {
                    self.held = Some((header.sequence, slot, holding));
                }
            }
            Kind::Trigger => self.trigger = Trigger::parse(payload).or(self.trigger),
            // The chunks themselves say more, and do not lie.
            Kind::Index | Kind::Member => {}
            Kind::Data => {
                let (stream, offset, length) = (header.stream, header.offset, header.length);
                let time = header.time.nanos;
                self.on_time(time);
                self.entries.push(Entry { slot, stream, offset, length, time });
            }
        }
    }

    /// The bytes that a ring holds, by its own account and by the overwrites of its chunks since.
    fn ring(&self) -> Option<RingSurvey> {
        // Without its superblock, a ring is known by what only a ring has.
        let has_signs = self.held.is_some() || self.overwritten.is_some();
        if !self.superblock.as_ref().map_or(has_signs, |superblock| superblock.is_ring) {
            return None;
        }
        let mut holding = self.held.as_ref().map(|held| held.2.clone()).unwrap_or_default();
        let since = self.overwritten.iter().flat_map(|since| &since.floors);
        for (stream, floor) in (0..).zip(since) {
            holding.raise(stream, *floor);
        }
        let newest = self.held.as_ref().map(|held| held.1);
        let next = if newest == Some(HOLDING_SLOTS[0]) { HOLDING_SLOTS[1] } else { HOLDING_SLOTS[0] };
        Some(RingSurvey { holding, next })
    }

    /// Counts data chunks and gap records as bad in the slots of a ring's own account.
    fn clear_holding_slots(&mut self) {
        let is_reserved = |slot: u64| HOLDING_SLOTS.contains(&slot);
        let chunks = self.entries.iter().map(|entry| entry.slot);
        let slots = chunks.chain(self.gaps.iter().map(|gaps| gaps.0)).filter(|slot| is_reserved(*slot));
        self.bad.extend(slots.map(|slot| Bad { slot, why: ChunkError::Place }));
        self.bad.sort_by_key(|bad| bad.slot);
        self.entries.retain(|entry| !is_reserved(entry.slot));
        self.gaps.retain(|gaps| !is_reserved(gaps.0));
    }

    /// The contents of the medium.
    pub fn finish(mut self) -> Survey {
        let ring = self.ring();
        if ring.is_some() {
            self.clear_holding_slots();
        }
        let end = self.certificate.as_ref().map_or(self.end, |certificate| certificate.slots.max(self.end));
        // Bytes behind the end were there before, and belong to another recording.
        self.bad.retain(|bad| bad.slot < end || self.certificate.is_none());
        let gap_slots = self.gaps.iter().map(|gaps| gaps.0).collect();
        let mut gaps = distinct(self.gaps.into_iter().flat_map(|gaps| gaps.1).collect());
        if let Some(ring) = &ring {
            gaps = gaps.iter().flat_map(|gap| held_parts(gap, &ring.holding)).collect();
            self.entries.retain(|entry| ring.holding.holds(entry.stream, entry.offset, entry.end()));
        }
        // A medium may have carried out a write that it reported as failed, and whose bytes were
        // then declared lost: the declaration counts.
        let lost: Vec<_> = gaps.iter().filter(|gap| gap.bytes > 0).copied().collect();
        self.entries.retain(|entry| !touches(&lost, entry));
        self.entries.sort_by_key(|entry| (entry.stream, entry.offset, core::cmp::Reverse(entry.length)));
        // A chunk that was written again in another slot may be there twice.
        let mut last = None;
        self.entries.retain(|entry| {
            let is_new =
                last.is_none_or(|last: Entry| last.stream != entry.stream || last.end() <= entry.offset);
            let is_kept = is_new && entry.length > 0;
            last = if is_kept { Some(*entry) } else { last };
            is_kept
        });
        let mut survey = Survey {
            chunk: self.chunk,
            recording: self.recording,
            superblock: self.superblock,
            certificate: self.certificate,
            trigger: self.trigger,
            entries: self.entries,
            gaps,
            holes: Vec::new(),
            overlap: false,
            ring,
            gap_slots,
            bad: self.bad,
            end,
            filled: self.filled,
            sequence: self.sequence,
            times: self.times.unwrap_or_default(),
        };
        survey.find_holes();
        survey
    }
}

/// `gaps` in order, each once, and each lost byte in one of them. A gap is declared again where the
/// medium reported the chunk that declared it as failed.
fn distinct(mut gaps: Vec<Gap>) -> Vec<Gap> {
    gaps.sort_by_key(|gap| (gap.stream, gap.from, core::cmp::Reverse(gap.bytes), gap.when, gap.packets));
    gaps.dedup();
    let mut kept = Vec::<Gap>::with_capacity(gaps.len());
    for mut gap in gaps {
        let has_no_length = gap.bytes == 0;
        if let Some(last) = kept.last().filter(|last| last.stream == gap.stream) {
            let (from, end) = (gap.from.max(last.end()), gap.end());
            (gap.from, gap.bytes) = (from, end.saturating_sub(from));
        }
        if gap.bytes > 0 || has_no_length {
            kept.push(gap);
        }
    }
    kept
}

/// The held parts of a gap.
fn held_parts(gap: &Gap, holding: &Holding) -> Vec<Gap> {
    if gap.bytes == 0 {
        return holding.holds(gap.stream, gap.from, gap.from).then_some(*gap).into_iter().collect();
    }
    let ranges = holding.ranges(gap.stream, u64::MAX).into_iter();
    let parts = ranges.map(|(from, end)| (from.max(gap.from), end.min(gap.end())));
    let parts = parts.filter(|(from, end)| from < end);
    parts.map(|(from, end)| Gap { from, bytes: end - from, ..*gap }).collect()
}

/// Whether a byte of `entry` is in one of `gaps`, which are in order and distinct, and have bytes:
/// packets of unknown length take no place, and lie anywhere in a chunk.
fn touches(gaps: &[Gap], entry: &Entry) -> bool {
    let at = gaps.partition_point(|gap| (gap.stream, gap.end()) <= (entry.stream, entry.offset));
    gaps.get(at).is_some_and(|gap| gap.stream == entry.stream && gap.from < entry.end())
}

/// The state of a ring on a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSurvey {
    /// The held bytes.
    pub holding: Holding,
    /// The slot in which the ring next writes which bytes it holds.
    pub next: u64,
}

/// The contents of a recording on a medium.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The length of a chunk in bytes.
    pub chunk: u32,
    /// The recording's name; `None` if there is no chunk.
    pub recording: Option<[u8; 16]>,
    /// When it was triggered, if it waited for that.
    pub trigger: Option<Trigger>,
    /// The recording's description of itself, unless that is lost.
    pub superblock: Option<Superblock>,
    /// The certificate, if the recording was ended or recovered.
    pub certificate: Option<Certificate>,
    /// Every good data chunk, by stream and then by place in the stream.
    pub entries: Vec<Entry>,
    /// Declared gaps, in the same order.
    pub gaps: Vec<Gap>,
    /// Bytes that are neither stored nor declared, in the same order.
    pub holes: Vec<Hole>,
    /// Whether bytes are stored and declared as lost, too.
    pub overlap: bool,
    /// The held bytes, if the recording is a ring: `entries` and `gaps` have nothing else.
    pub ring: Option<RingSurvey>,
    /// Slots of gap records.
    pub gap_slots: Vec<u64>,
    /// Slots whose bytes are no chunk.
    pub bad: Vec<Bad>,
    /// The slot behind the recording's last.
    pub end: u64,
    /// The slot behind the last one that is not empty, whether or not its content is valid.
    pub filled: u64,
    /// The sequence number behind the highest.
    pub sequence: u64,
    /// When the first and the last data chunk began, in nanoseconds since 1970.
    pub times: (u64, u64),
}

impl Survey {
    /// The number of streams.
    pub fn streams(&self) -> usize {
        let named = self.superblock.as_ref().map_or(0, |superblock| superblock.streams.len());
        let certified = self.certificate.as_ref().map_or(0, |certificate| certificate.streams.len());
        let stored = self.entries.iter().map(|entry| entry.stream as usize + 1).max().unwrap_or(0);
        let lost = self.gaps.iter().map(|gap| gap.stream as usize + 1).max().unwrap_or(0);
        named.max(certified).max(stored).max(lost).min(STREAMS_MAX)
    }

    /// Bytes of all streams on the medium.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.length)).sum()
    }

    /// The place behind the last byte of a stream, as far as is known.
    pub fn end_of(&self, stream: u32) -> u64 {
        let certified = self.certificate.as_ref().and_then(|all| all.streams.get(stream as usize));
        let stored = self.entries.iter().filter(|entry| entry.stream == stream).map(Entry::end).max();
        let lost = self.gaps.iter().filter(|gap| gap.stream == stream).map(Gap::end).max();
        let floor = self.ring.as_ref().map_or(0, |ring| ring.holding.floor(stream));
        let found = stored.unwrap_or(0).max(lost.unwrap_or(0)).max(floor);
        certified.map_or(found, |totals| totals.bytes_in.max(found))
    }

    fn find_holes(&mut self) {
        for stream in 0..u32::try_from(self.streams()).unwrap_or(0) {
            let stored = self.entries.iter().filter(|entry| entry.stream == stream);
            let lost = self.gaps.iter().filter(|gap| gap.stream == stream);
            let mut ranges: Vec<_> = stored.map(|entry| (entry.offset, entry.end())).collect();
            // Packets of unknown length have no bytes, and lie anywhere in a chunk.
            ranges.extend(lost.filter(|gap| gap.bytes > 0).map(|gap| (gap.from, gap.end())));
            ranges.sort_unstable();
            let end = self.end_of(stream);
            if let Some(ring) = &self.ring {
                // Bytes that are not held are not missing.
                let held = ring.holding.ranges(stream, end);
                let starts = [0].into_iter().chain(held.iter().map(|held| held.1));
                let ends = held.iter().map(|held| held.0).chain([end]);
                ranges.extend(starts.zip(ends).filter(|(from, behind)| from < behind));
                ranges.sort_unstable();
            }
            let mut at = 0;
            for (from, behind) in ranges.into_iter().chain([(end, end)]) {
                if from > at {
                    self.holes.push(Hole { stream, from: at, bytes: from - at });
                }
                self.overlap |= from < at;
                at = at.max(behind);
            }
        }
    }

    /// Which digest proves the recording: the certificate's, or SHA-256 where it has none.
    pub fn algorithm(&self) -> Algorithm {
        match self.certificate.as_ref().map(|certificate| certificate.algorithm) {
            Some(Algorithm::None) | None => Algorithm::Sha256,
            Some(algorithm) => algorithm,
        }
    }

    /// Whether the oldest was overwritten when the medium was full.
    pub const fn is_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Slots for `count` chunks of gap records: the one that is kept free for them, so that a full
    /// medium is made whole, too, then those behind the last one; in a ring, where nothing is held.
    pub fn free_slots(&self, count: usize) -> Vec<u64> {
        if self.ring.is_none() {
            let kept = Some(GAP_SLOT).filter(|slot| !self.gap_slots.contains(slot));
            return kept.into_iter().chain(self.end.max(FIRST_SLOT)..).take(count).collect();
        }
        let mut used: Vec<_> =
            self.entries.iter().map(|entry| entry.slot).chain(self.gap_slots.clone()).collect();
        used.sort_unstable();
        (HOLDING_SLOTS[1] + 1..).filter(|slot| used.binary_search(slot).is_err()).take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::format::{Cause, Place};

    const fn gap(from: u64, bytes: u64, packets: u64) -> Gap {
        Gap { stream: 0, from, bytes, packets, when: 7, place: Place::Wire, cause: Cause::NeverCame }
    }

    #[test]
    fn gaps_without_a_length_are_kept_and_counted_once() {
        let declared = vec![gap(50, 0, 3), gap(0, 10, 1), gap(50, 0, 3), gap(0, 10, 1), gap(50, 0, 4)];
        assert_eq!(distinct(declared), [gap(0, 10, 1), gap(50, 0, 3), gap(50, 0, 4)]);
    }

    #[test]
    fn a_chunk_with_a_gap_without_bytes_inside_is_kept() {
        let entry = Entry { slot: 3, stream: 0, offset: 0, length: 100, time: 7 };
        let mut scan = Scan::new(crate::format::CHUNK_MIN, |_, _| 0);
        scan.on_entries(vec![entry, Entry { slot: 4, offset: 100, ..entry }]);
        scan.gaps = vec![(5, vec![gap(0, 0, 1), gap(50, 0, 2), gap(99, 0, 0), gap(150, 20, 1)])];
        let survey = scan.finish();
        assert_eq!((survey.entries, survey.gaps.len()), (vec![entry], 4));
    }

    #[test]
    fn recovery_writes_gaps_to_the_slot_that_is_kept_for_them_unless_it_has_some() {
        let entry = Entry { slot: 3, stream: 0, offset: 0, length: 100, time: 7 };
        let free = |gap_slots: Vec<u64>| {
            let mut scan = Scan::new(crate::format::CHUNK_MIN, |_, _| 0);
            scan.on_entries(vec![entry]);
            scan.gaps = gap_slots.into_iter().map(|slot| (slot, vec![])).collect();
            scan.finish().free_slots(2)
        };
        assert_eq!(free(vec![]), [GAP_SLOT, 4]);
        assert_eq!(free(vec![GAP_SLOT]), [4, 5]);
    }

    #[test]
    fn a_byte_is_lost_once_and_a_gap_within_another_is_not_a_gap() {
        let declared = vec![gap(5, 5, 2), gap(0, 10, 1), gap(8, 4, 1)];
        assert_eq!(distinct(declared), [gap(0, 10, 1), gap(10, 2, 1)]);
    }
}
