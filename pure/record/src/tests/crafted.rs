//! Recordings that were made by hand: every checksum is right, and one value is not. The recovered
//! recordings prove themselves.

use super::*;
use crate::format::{
    Content, Entry, GAP_SLOT, Gap, HEADER_LENGTH, HOLDING_SLOTS, Holding, Index, Kind, Overwrote, Pin,
    SUPERBLOCK_SLOT, Superblock, Trigger,
};

/// A medium, and its next write.
#[derive(Clone, Default)]
struct Crafted {
    medium: Vec<u8>,
    sequence: u64,
}

impl Crafted {
    fn put(&mut self, header: Header, emit: impl FnOnce(&mut [u8]) -> usize) {
        let mut bytes = vec![0; CHUNK];
        let length = u32::try_from(emit(&mut bytes[HEADER_LENGTH..])).unwrap();
        Header { length, sequence: self.sequence, ..header }.emit(&mut bytes, engine::crc32c);
        self.sequence += 1;
        apply(&mut self.medium, header.slot * CHUNK as u64, &bytes);
    }

    fn control(&mut self, kind: Kind, slot: u64, emit: impl FnOnce(&mut [u8]) -> usize) {
        self.put(header(kind, slot), emit);
    }

    fn data(&mut self, slot: u64, stream: u32, offset: u64, overwrote: Option<Overwrote>) {
        let byte = u8::try_from(slot).unwrap();
        let header = Header { stream, offset, overwrote, ..header(Kind::Data, slot) };
        self.put(header, |payload| {
            payload[..100].fill(byte);
            100
        });
    }

    fn superblock(&mut self, is_ring: bool) {
        let streams = vec!["one".into(), "two".into()];
        let superblock =
            Superblock { streams, contents: vec![Content::Bytes; 2], is_ring, rules: Vec::new() };
        self.control(Kind::Superblock, SUPERBLOCK_SLOT, |payload| superblock.emit(payload));
    }

    fn gaps(&mut self, slot: u64, gaps: &[Gap]) {
        self.control(Kind::Gaps, slot, |payload| Gap::emit(gaps, payload));
    }
}

const fn header(kind: Kind, slot: u64) -> Header {
    let (chunk, time, recording) = (CHUNK_MIN, Time { nanos: 77, source: TimeSource::Host }, [9; 16]);
    let (stream, offset, length, sequence, overwrote) = (0, 0, 0, 0, None);
    Header { kind, recording, slot, sequence, chunk, stream, offset, length, time, overwrote }
}

const fn gap(stream: u32, from: u64, bytes: u64) -> Gap {
    Gap { stream, from, bytes, packets: 1, when: 7, place: Place::Wire, cause: Cause::NeverCame }
}

/// Two streams of three chunks each, with gaps, an index and a trigger.
fn plain() -> Crafted {
    let mut made = Crafted::default();
    made.superblock(false);
    made.gaps(GAP_SLOT, &[gap(0, 300, 50), gap(1, 100, 0)]);
    for at in 0..3 {
        made.data(3 + at * 2, 0, at * 100, None);
        made.data(4 + at * 2, 1, at * 150, None);
    }
    let entry = |at: u64| Entry { slot: 3 + at * 2, stream: 0, offset: at * 100, length: 100, time: 77 };
    let index = Index { previous: 0, entries: (0..3).map(entry).collect() };
    made.control(Kind::Index, 9, |payload| index.emit(payload));
    made.control(Kind::Trigger, 10, |payload| Trigger { time: 7, before: 3 }.emit(payload));
    made.gaps(11, &[gap(1, 100, 50), gap(1, 250, 50)]);
    made
}

/// A ring whose first chunks were overwritten, with a pinned range below its floor.
fn ring() -> Crafted {
    let mut made = Crafted::default();
    made.superblock(true);
    made.gaps(GAP_SLOT, &[gap(1, 400, 20)]);
    let mut holding = Holding { floors: vec![300, 0], pins: Vec::new() };
    assert!(holding.pin(Pin { stream: 0, from: 100, end: 200 }));
    assert!(holding.pin(Pin { stream: 1, from: 50, end: 60 }));
    for slot in HOLDING_SLOTS {
        made.control(Kind::Holding, slot, |payload| holding.emit(payload));
    }
    made.data(5, 0, 100, None);
    for at in 3..6 {
        made.data(2 + at * 2, 0, at * 100, (at == 4).then_some(Overwrote { stream: 0, end: 300 }));
        made.data(3 + at * 2, 1, at * 100 - 300, (at == 5).then_some(Overwrote { stream: 1, end: 100 }));
    }
    made
}

fn digests(survey: &Survey, medium: &[u8]) -> Vec<[u8; 32]> {
    let mut digests = vec![StreamDigest::new(survey.algorithm(), survey.is_ring()); survey.streams()];
    for entry in &survey.entries {
        let start = usize::try_from(entry.slot).unwrap() * CHUNK;
        let (_, payload) = Header::parse_chunk(entry.slot, &medium[start..], engine::crc32c).unwrap();
        digests[entry.stream as usize].update(payload);
    }
    digests.iter().map(StreamDigest::finalize).collect()
}

/// Certifies the chunks made so far.
fn certified(mut made: Crafted) -> Crafted {
    let mut found = survey(&made.medium);
    let digests = digests(&found, &made.medium);
    mend(&mut found, &mut made.medium, &digests);
    made
}

/// Recovers a medium unless it proves itself, and checks that it does then. Returns whether there
/// was anything to do.
fn check(medium: &mut Vec<u8>, why: &str) -> bool {
    let mut found = survey(medium);
    let reported = digests(&found, medium);
    if found.recording.is_none() || found.doubt(&reported).is_none() {
        return false;
    }
    let (before, length) = (found.clone(), medium.len());
    mend(&mut found, medium, &reported);
    assert!(medium.len() <= length.next_multiple_of(CHUNK) + 3 * CHUNK, "{why}: it grew without bound");
    let after = survey(medium);
    assert_eq!(after.doubt(&digests(&after, medium)), None, "{why}: {after:?}");
    assert_eq!(after.entries, before.entries, "{why}: stored bytes");
    // A gap without bytes may stand behind one that is declared now.
    let mut declared = before.gaps.iter().filter(|gap| gap.bytes > 0);
    assert!(declared.all(|gap| after.gaps.contains(gap)), "{why}: declared gaps");
    true
}

/// The fields of a chunk: place and length in bytes.
fn fields(kind: Kind, payload: usize) -> Vec<(usize, usize)> {
    let head = [(10, 1), (12, 4), (16, 8), (32, 8), (40, 8), (48, 4), (52, 4), (56, 8), (64, 4), (72, 8)];
    let behind = [(80, 4), (88, 8)];
    let mut fields: Vec<_> = head.into_iter().chain(behind).collect();
    if kind != Kind::Data {
        let end = HEADER_LENGTH + payload;
        fields.extend((HEADER_LENGTH..end).step_by(8).map(|at| (at, 8)));
        fields.extend((HEADER_LENGTH..end).step_by(4).map(|at| (at, 4)));
        fields.extend((HEADER_LENGTH..end.min(HEADER_LENGTH + 4)).map(|at| (at, 1)));
    }
    fields.retain(|(at, length)| at + length <= HEADER_LENGTH + payload);
    fields
}

/// Hostile values of a field that has `value` and `length` bytes, beside one that has `next`.
fn hostile(value: u64, next: u64, length: usize) -> Vec<u64> {
    let most = u64::MAX >> (64 - length * 8);
    let values =
        [0, 1, 2, 3, 4, 7, most, most - 1, most / 2, value.wrapping_add(1), value.wrapping_sub(1), next];
    let mut values: Vec<_> = values.iter().map(|value| value & most).collect();
    values.sort_unstable();
    values.dedup();
    values.retain(|one| *one != value);
    values
}

fn read(bytes: &[u8], (at, length): (usize, usize)) -> u64 {
    let mut word = [0; 8];
    let length = length.min(bytes.len().saturating_sub(at));
    word[..length].copy_from_slice(&bytes[at..at + length]);
    u64::from_le_bytes(word)
}

/// Puts a value to a field of the chunk, and makes the digests right.
fn set(chunk: &mut [u8], (at, length): (usize, usize), value: u64) {
    chunk[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
    let most = chunk.len() - HEADER_LENGTH;
    let payload = usize::try_from(read(chunk, (64, 4))).unwrap().min(most);
    let digest = engine::crc32c(0, &chunk[HEADER_LENGTH..][..payload]);
    chunk[120..124].copy_from_slice(&digest.to_le_bytes());
    let digest = engine::crc32c(0, &chunk[..124]);
    chunk[124..128].copy_from_slice(&digest.to_le_bytes());
}

/// The chunks of a medium: slot, kind, and length of the payload.
fn chunks(medium: &[u8]) -> Vec<(usize, Kind, usize)> {
    let chunks = medium.chunks(CHUNK).enumerate();
    let parsed = chunks.filter_map(|(slot, bytes)| Some((slot, Header::parse(bytes, engine::crc32c).ok()?)));
    parsed.map(|(slot, header)| (slot, header.kind, header.length as usize)).collect()
}

fn media() -> [(&'static str, Vec<u8>); 4] {
    let mut headless = certified(plain()).medium;
    headless[..CHUNK].fill(0xa5);
    let cut = plain().medium;
    [
        ("plain", certified(plain()).medium),
        ("ring", certified(ring()).medium),
        ("cut", cut),
        ("headless", headless),
    ]
}

#[test]
fn crafted_media_are_good_before_they_are_changed() {
    for (name, mut medium) in media() {
        let found = survey(&medium);
        assert!(found.bad.len() <= 1 && found.holes.is_empty() && found.bytes() >= 600, "{name}: {found:?}");
        assert_eq!(check(&mut medium, name), matches!(name, "cut" | "headless"), "{name}");
    }
}

#[test]
fn one_wrong_value_with_right_checksums_is_recovered_to_what_proves_itself() {
    let (mut changed, mut recovered) = (0, 0);
    for (name, medium) in media() {
        for (slot, kind, payload) in chunks(&medium) {
            for field in fields(kind, payload) {
                let chunk = &medium[slot * CHUNK..][..CHUNK];
                let (value, next) = (read(chunk, field), read(chunk, (field.0 + field.1, field.1)));
                for one in hostile(value, next, field.1) {
                    let mut medium = medium.clone();
                    set(&mut medium[slot * CHUNK..][..CHUNK], field, one);
                    let why =
                        format!("{name}, slot {slot}, {kind:?}, field {field:?}: {value:#x} to {one:#x}");
                    recovered += u32::from(check(&mut medium, &why));
                    changed += 1;
                }
            }
        }
    }
    assert!(changed > 4_000 && recovered > 1_000, "{changed} were changed, {recovered} recovered");
}

#[test]
fn several_wrong_values_with_right_checksums_are_recovered_to_what_proves_itself() {
    let mut recovered = 0;
    for seed in 0..1_500 {
        let mut rng = Rng::from_seed(seed);
        let mut pick = |among: usize| usize::try_from(rng.below(among as u64)).unwrap();
        let mut media = media();
        let (name, medium) = &mut media[pick(4)];
        let chunks = chunks(medium);
        for _ in 0..2 + pick(6) {
            let (slot, kind, payload) = chunks[pick(chunks.len())];
            let fields = fields(kind, payload);
            let field = fields[pick(fields.len())];
            let chunk = &mut medium[slot * CHUNK..][..CHUNK];
            let values = hostile(read(chunk, field), read(chunk, (field.0 + field.1, field.1)), field.1);
            set(chunk, field, values[pick(values.len())]);
        }
        recovered += u32::from(check(medium, &format!("seed {seed}, {name}")));
    }
    assert!(recovered > 700, "only {recovered} were recovered");
}
