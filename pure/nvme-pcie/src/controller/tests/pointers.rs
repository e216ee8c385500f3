//! Tests of data pointers: data lands where PRP entries and SGLs name, and nowhere else. After each
//! command, the test checks all of the host's memory, including page 0.

use std::vec;

use engine::Rng;
use pcie::memory::Ram;

use super::*;

/// Length of the host's memory: page 0, queues, lists and data.
const MEMORY: usize = 0x8_0000;
const QUEUES: u64 = 0x1_0000;
const LISTS: u64 = 0x2_0000;
const DATA: u64 = 0x4_0000;
const PAGE: u64 = 4096;
const ENTRIES: u32 = 32;
const GUARD: u8 = 0xa5;

const IDENTIFY: SubmissionQueueEntry = SubmissionQueueEntry { opcode: 0x06, cdw10: 1, ..ENTRY };
const ENTRY: SubmissionQueueEntry =
    SubmissionQueueEntry { command_id: nvme::wire::CommandId(7), ..SubmissionQueueEntry::EMPTY };

/// A Get Log Page for `bytes` of the Commands Supported and Effects log, which does not change.
fn log(bytes: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: 0x02, cdw10: 5 | (bytes / 4 - 1) << 16, ..ENTRY }
}

/// A read or write of the first `bytes` of the namespace.
fn io(opcode: u8, bytes: u32) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode, namespace: crate::test_bench::NAMESPACE, cdw12: bytes / 512 - 1, ..ENTRY }
}

/// Pieces of host memory as (address, length), in the order of the data.
type Pieces = Vec<(u64, u64)>;

struct Bench {
    bench: TestBench,
    /// Number of entries that were put on each queue.
    put: [u32; 2],
    rng: Rng,
}

impl Bench {
    fn new() -> Self {
        let mut bench = bare();
        bench.memory = Ram::new(0, MEMORY);
        bench.memory.slice_mut(0, MEMORY).unwrap().fill(GUARD);
        bench.memory.slice_mut(QUEUES, 0x4000).unwrap().fill(0);
        bench.write(AQA, &0x001f_001f_u32.to_le_bytes());
        bench.write(0x28, &QUEUES.to_le_bytes());
        bench.write(0x30, &(QUEUES + 0x1000).to_le_bytes());
        bench.write(CC, &0x0046_0001_u32.to_le_bytes());
        for (at, byte) in bench.disk.iter_mut().enumerate() {
            *byte = (at / 4 * 7 + at).to_le_bytes()[0];
        }
        let mut bench = Self { bench, put: [0; 2], rng: Rng::from_seed(1) };
        let (sq, cq) = (QUEUES + 0x2000, QUEUES + 0x3000);
        assert_eq!(bench.run(0, queue_command(0x05, 1, ENTRIES, 1, cq)), StatusCode::SuccessfulCompletion);
        assert_eq!(
            bench.run(0, queue_command(0x01, 1, ENTRIES, 1 << 16 | 1, sq)),
            StatusCode::SuccessfulCompletion
        );
        bench
    }

    fn run(&mut self, queue: u32, entry: SubmissionQueueEntry) -> StatusCode {
        let (sq, cq) = [(0, 0x1000), (0x2000, 0x3000)].map(|(sq, cq)| (QUEUES + sq, QUEUES + cq))
            [usize::from(queue == 1)];
        let count = &mut self.put[queue as usize];
        let index = *count % ENTRIES;
        *count += 1;
        let next = *count % ENTRIES;
        self.bench.memory.write(sq + u64::from(index) * 64, &entry.emit()).unwrap();
        self.bench.write(0x1000 + queue * 8, &next.to_le_bytes());
        self.bench.settle();
        let done = completion(&self.bench, cq, index);
        assert_eq!(done.command_id, entry.command_id, "the command has ended");
        self.bench.write(0x1004 + queue * 8, &next.to_le_bytes());
        done.status().code()
    }

    fn memory(&self) -> &[u8] {
        self.bench.memory.slice(0, MEMORY).unwrap()
    }

    fn list(&mut self, at: u64, entries: &[u64]) {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        self.bench.memory.write(at, &bytes).unwrap();
    }

    /// Runs a command whose data belong in `pieces`, or which fails. Checks that the rest of the
    /// host's memory does not change.
    fn check(
        &mut self,
        entry: SubmissionQueueEntry,
        data: &[u8],
        expected: Result<&Pieces, StatusCode>,
        context: &str,
    ) {
        let is_write = entry.opcode == 0x01;
        let queue = u32::from(is_write || entry.namespace.0 != 0);
        if is_write {
            self.bench.disk[..data.len()].fill(0);
            if let Ok(pieces) = expected {
                let mut rest = data;
                for &(at, length) in pieces {
                    let (piece, after) = rest.split_at(usize::try_from(length).unwrap());
                    self.bench.memory.write(at, piece).unwrap();
                    rest = after;
                }
            }
        }
        let mut after = self.memory().to_vec();
        let code = self.run(queue, entry);
        assert_eq!(code, expected.err().unwrap_or(StatusCode::SuccessfulCompletion), "{context}: {entry:x?}");
        let queues = usize::try_from(QUEUES).unwrap()..usize::try_from(QUEUES + 0x4000).unwrap();
        if let (false, Ok(pieces)) = (is_write, expected) {
            let mut rest = data;
            for &(at, length) in pieces {
                let (piece, more) = rest.split_at(usize::try_from(length).unwrap());
                let at = usize::try_from(at).unwrap();
                after[at..at + piece.len()].copy_from_slice(piece);
                rest = more;
            }
            assert!(rest.is_empty());
        }
        let now = self.memory();
        let same = now[..queues.start] == after[..queues.start] && now[queues.end..] == after[queues.end..];
        assert!(same, "{context}: bytes are missing, or in the wrong place: {entry:x?}");
        let pieces = expected.map_or(Vec::new(), Clone::clone);
        if is_write {
            let wanted = if expected.is_ok() { data.to_vec() } else { vec![0; data.len()] };
            assert!(
                self.bench.disk[..data.len()] == wanted,
                "{context}: wrong bytes were written: {entry:x?}"
            );
        }
        for (at, length) in pieces {
            let length = usize::try_from(length).unwrap();
            self.bench.memory.slice_mut(at, length).unwrap().fill(GUARD);
        }
    }

    /// Each command to try, with the data that it moves.
    fn commands(&mut self) -> Vec<(SubmissionQueueEntry, Vec<u8>)> {
        let mut commands = Vec::new();
        let wanted = [
            (IDENTIFY, 4096),
            (log(4), 4),
            (log(4096), 4096),
            (log(12_292), 12_292),
            (io(0x02, 512), 512),
            (io(0x02, 16_384), 16_384),
        ];
        for (entry, length) in wanted {
            // The PRP entries of a long, aligned buffer.
            let whole = SubmissionQueueEntry { data_pointer: [DATA, LISTS], ..entry };
            let two = length > PAGE && length <= 2 * PAGE;
            let whole =
                if two { SubmissionQueueEntry { data_pointer: [DATA, DATA + PAGE], ..entry } } else { whole };
            self.list(LISTS, &[1, 2, 3, 4].map(|page| DATA + page * PAGE));
            let queue = u32::from(entry.namespace.0 != 0);
            assert_eq!(self.run(queue, whole), StatusCode::SuccessfulCompletion);
            let data = self.bench.memory.slice(DATA, usize::try_from(length).unwrap()).unwrap().to_vec();
            self.bench.memory.slice_mut(DATA, 5 * 4096).unwrap().fill(GUARD);
            commands.push((entry, data));
        }
        let read = commands.last().unwrap().1.clone();
        commands.push((io(0x01, 512), read[..512].to_vec()));
        commands.push((io(0x01, 16_384), read));
        commands
    }

    /// Distinct pages in random order.
    fn pages(&mut self, count: usize) -> Vec<u64> {
        let mut all: Vec<u64> = (0..0x40).map(|page| DATA + page * PAGE).collect();
        (0..count)
            .map(|_| {
                let index = self.rng.below(all.len() as u64);
                all.swap_remove(usize::try_from(index).unwrap())
            })
            .collect()
    }
}

/// The pieces of `length` bytes on `pages`, from `offset` in the first page.
fn pieces_of(pages: &[u64], offset: u64, length: usize) -> Pieces {
    let mut left = length as u64;
    let mut pieces = Vec::new();
    for (index, page) in pages.iter().enumerate() {
        let skip = if index == 0 { offset } else { 0 };
        let count = left.min(PAGE - skip);
        pieces.push((page + skip, count));
        left -= count;
    }
    assert_eq!(left, 0);
    pieces
}

#[test]
fn prps_of_every_alignment_name_their_bytes_and_no_others() {
    let mut bench = Bench::new();
    for (entry, data) in bench.commands() {
        for offset in (0..PAGE).step_by(4) {
            let count = (offset + data.len() as u64).div_ceil(PAGE);
            let pages = bench.pages(usize::try_from(count).unwrap());
            let pieces = pieces_of(&pages, offset, data.len());
            // A list begins at any quad word, here with room for all of it.
            let slot = LISTS + offset / 8 * 8 % (PAGE - 64);
            let second = match count {
                // The controller ignores an entry that it does not need.
                1 => [0, 1, u64::MAX][usize::try_from(offset / 4 % 3).unwrap()],
                2 => pages[1],
                _ => slot,
            };
            if count > 2 {
                bench.list(slot, &pages[1..]);
            }
            let of = |first, second| SubmissionQueueEntry { data_pointer: [first, second], ..entry };
            let first = pages[0] + offset;
            bench.check(of(first, second), &data, Ok(&pieces), "in order");
            if !offset.is_multiple_of(64) {
                continue;
            }
            let refused = Err(StatusCode::PrpOffsetInvalid);
            for odd in 1..4 {
                bench.check(of(first + odd, second), &data, refused, "PRP1 is no double word");
            }
            if count == 1 {
                continue;
            }
            bench.check(of(first, 0), &data, Err(StatusCode::InvalidField), "PRP2 is missing");
            bench.check(of(first, second + 4), &data, refused, "PRP2 has an offset");
            if count > 2 {
                for index in 1..pages.len() {
                    let mut broken = pages[1..].to_vec();
                    broken[index - 1] = 0;
                    bench.list(slot, &broken);
                    bench.check(of(first, slot), &data, Err(StatusCode::InvalidField), "an entry of 0");
                    broken[index - 1] = pages[index] + 8;
                    bench.list(slot, &broken);
                    bench.check(of(first, slot), &data, refused, "an entry with an offset");
                }
            }
        }
    }
}

#[test]
fn prp_lists_go_on_at_the_end_of_their_page() {
    let mut bench = Bench::new();
    let commands = bench.commands();
    for (entry, data) in commands.iter().filter(|(_, data)| data.len() > 12_000) {
        for slots in 1..4 {
            let pages = bench.pages(data.len().div_ceil(4096));
            let pieces = pieces_of(&pages, 0, data.len());
            let head = LISTS + PAGE - slots * 8;
            let (near, far) = pages[1..].split_at(usize::try_from(slots).unwrap() - 1);
            let goes_on = far.len() > 1;
            let next = LISTS + 4 * PAGE;
            let last = if goes_on { next } else { far.first().copied().unwrap_or(0) };
            bench.list(head, &[near, &[last]].concat());
            bench.list(next, far);
            let entry = SubmissionQueueEntry { data_pointer: [pages[0], head], ..*entry };
            bench.check(entry, data, Ok(&pieces), "a list in two pages");
            if goes_on {
                bench.list(head, &[near, &[0]].concat());
                bench.check(entry, data, Err(StatusCode::InvalidField), "the next list is missing");
                bench.list(head, &[near, &[next + 8]].concat());
                bench.check(entry, data, Err(StatusCode::PrpOffsetInvalid), "the next list has an offset");
            }
        }
    }
}

fn descriptor(kind: u8, address: u64, length: u64) -> [u64; 2] {
    [address, length | u64::from(kind) << 56]
}

const BLOCK: u8 = 0x00;
const BUCKET: u8 = 0x10;
const SEGMENT: u8 = 0x20;
const LAST: u8 = 0x30;

/// Cuts `length` bytes into blocks at odd addresses that do not touch.
fn cut(bench: &mut Bench, length: usize) -> Pieces {
    let (mut left, mut at, mut pieces) = (length as u64, DATA + bench.rng.below(64), Vec::new());
    while left > 0 {
        let count = (1 + bench.rng.below(4999)).min(left);
        pieces.push((at, count));
        at += count + 1 + bench.rng.below(300);
        left -= count;
    }
    pieces
}

#[test]
fn sgls_of_every_form_name_their_bytes_and_no_others() {
    let mut bench = Bench::new();
    for (entry, data) in bench.commands() {
        let total = data.len() as u64;
        let of = |first: [u64; 2]| SubmissionQueueEntry { flags: 0x40, data_pointer: first, ..entry };
        if entry.namespace.0 == 0 {
            // Admin commands must have PRPs on this transport.
            let code = StatusCode::InvalidField;
            bench.check(of(descriptor(BLOCK, DATA, total)), &data, Err(code), "an SGL of an admin command");
            continue;
        }
        for round in 0..64 {
            // One block at any byte, as long as the data or longer.
            let at = DATA + bench.rng.below(PAGE);
            let one = Vec::from([(at, total)]);
            bench.check(of(descriptor(BLOCK, at, total + round % 3)), &data, Ok(&one), "one block");
            // Blocks of any length, including 0, in segments of any length.
            let pieces = cut(&mut bench, data.len());
            let mut descriptors = Vec::new();
            for &(at, length) in &pieces {
                if bench.rng.one_in(4) {
                    descriptors.push(descriptor(BLOCK, bench.rng.below(1 << 20), 0));
                }
                descriptors.push(descriptor(BLOCK, at, length));
            }
            let first = chain(&mut bench, &descriptors);
            bench.check(of(first), &data, Ok(&pieces), "segments");
            // An SGL that is one byte shorter than the data.
            let (at, length) = descriptors.pop().map(|[at, length]| (at, length & 0xffff_ffff)).unwrap();
            descriptors.push(descriptor(BLOCK, at, length - 1));
            let first = chain(&mut bench, &descriptors);
            bench.check(of(first), &data, Err(StatusCode::DataSglLengthInvalid), "a byte too short");
        }
        let mut refuse = |first, code, context: &str| bench.check(of(first), &data, Err(code), context);
        refuse(descriptor(BLOCK, DATA, 0), StatusCode::DataSglLengthInvalid, "an empty block");
        refuse([0, 0], StatusCode::DataSglLengthInvalid, "nothing");
        for kind in [0x01, 0x0f, 0x21, 0x31, 0x40, 0x4f, 0x50, 0x5a, 0xf0] {
            refuse(descriptor(kind, DATA, total), StatusCode::SglDescriptorTypeInvalid, "another type");
        }
        let invalid = StatusCode::InvalidSglSegmentDescriptor;
        for kind in [SEGMENT, LAST] {
            refuse(descriptor(kind, LISTS, 0), invalid, "an empty segment");
            refuse(descriptor(kind, LISTS, 24), invalid, "a segment of one and a half");
            refuse(descriptor(kind, LISTS + 4, 16), invalid, "a segment at a double word");
        }
        bench.list(LISTS, &[descriptor(LAST, LISTS, 16), descriptor(BLOCK, DATA, total)].concat());
        let mut refuse = |first, code, context: &str| bench.check(of(first), &data, Err(code), context);
        refuse(descriptor(LAST, LISTS, 16), invalid, "a last segment that continues");
        let count = StatusCode::InvalidSglDescriptorCount;
        refuse(descriptor(SEGMENT, LISTS, 32), count, "a segment that continues before its end");
        let reserved = SubmissionQueueEntry { flags: 0xc0, data_pointer: [DATA, DATA + PAGE], ..entry };
        bench.check(reserved, &data, Err(StatusCode::InvalidField), "a reserved PSDT");
    }
}

/// Writes descriptors in segments of one to four, each of which ends with the descriptor of the
/// next segment. Returns the descriptor of the first segment.
fn chain(bench: &mut Bench, descriptors: &[[u64; 2]]) -> [u64; 2] {
    let mut segments = Vec::new();
    let mut rest = descriptors;
    while !rest.is_empty() {
        let count = usize::try_from(1 + bench.rng.below(4)).unwrap().min(rest.len());
        let (segment, after) = rest.split_at(count);
        segments.push(segment.to_vec());
        rest = after;
    }
    let mut next: Option<[u64; 2]> = None;
    for (index, mut segment) in segments.into_iter().enumerate().rev() {
        let kind = if next.is_some() { SEGMENT } else { LAST };
        segment.extend(next);
        let at = LISTS + index as u64 * 128 + 8 * bench.rng.below(2);
        next = Some(descriptor(kind, at, segment.len() as u64 * 16));
        bench.list(at, &segment.concat());
    }
    next.unwrap()
}

#[test]
fn bit_buckets_discard_read_data_and_provide_none_for_a_write() {
    let mut bench = Bench::new();
    for (entry, data) in bench.commands().into_iter().filter(|(entry, _)| entry.namespace.0 != 0) {
        let (is_write, total) = (entry.opcode == 0x01, data.len() as u64);
        let descriptors =
            [descriptor(BLOCK, DATA, 1), descriptor(BUCKET, 0, 2), descriptor(BLOCK, DATA + 9, total)];
        bench.list(LISTS, &descriptors.concat());
        let pointer = descriptor(LAST, LISTS, 48);
        let entry = SubmissionQueueEntry { flags: 0x40, data_pointer: pointer, ..entry };
        if is_write {
            let pieces = Vec::from([(DATA, 1), (DATA + 9, total - 1)]);
            bench.check(entry, &data, Ok(&pieces), "a write");
        } else {
            let pieces = Vec::from([(DATA, 1), (DATA + 9, total - 3)]);
            let kept = [&data[..1], &data[3..]].concat();
            bench.check(entry, &kept, Ok(&pieces), "a read");
        }
    }
}
