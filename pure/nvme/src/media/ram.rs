//! A medium in memory, in runs of 64 KiB that are allocated at the first write and shared with
//! their readers.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use engine::Buffer;
use serde::{Deserialize, Serialize};

use super::{Completion, IoId, MediaError, Operation, Request};

/// Length of a page in bytes: the unit that is zeroed, and copied for a reader's sake.
const PAGE: usize = 4096;
/// Number of pages in a run.
const RUN_PAGES: usize = 16;
/// Length of a run in bytes. A run is allocated and shared as a whole, so that a large read has few
/// pieces.
const RUN: usize = RUN_PAGES * PAGE;
/// Maximum number of pages beside their runs. A page is stored beside its run when a reader holds
/// the run during a write.
const MOVED_MAX: usize = 128;
/// Maximum number of pages that one write stores beside their run. A larger write copies the run.
const MOVED_AT_ONCE: u32 = 4;
/// The most bytes of replaced pages, and of replaced runs, that are kept to be reused once their
/// readers release them.
const REPLACED_BYTES_MAX: usize = 1 << 20;
/// The greatest length of a disk in bytes. The table of runs takes 1/2048 of the length even before
/// the first write.
pub const BYTES_MAX: u64 = 1 << 44;

/// A disk in memory. Bytes that were never written or that were deallocated read as zeroes and take
/// no space.
///
/// A read hands out slices of the runs themselves. A write to a run that a reader still holds puts
/// its pages beside the run, so that the reader's bytes never change. The pages move into the run
/// once the readers have released it. Apart from these few pages, all memory is in blocks of one
/// size: freed memory fits the next allocation after writes of any length, and the disk takes no
/// more memory than its length.
#[derive(Debug, Serialize, Deserialize)]
pub struct RamDisk {
    bytes: u64,
    /// Run n holds the bytes from n * RUN on.
    runs: Vec<Run>,
    /// A run of zeroes for reads.
    zeroes: Buffer,
    /// Pages beside their runs, each once with its number, oldest first.
    moved: VecDeque<(usize, Buffer)>,
    replaced_pages: Replaced,
    replaced_runs: Replaced,
}

/// A run of adjacent pages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Run {
    /// The bytes of the run; empty if no page was written.
    block: Buffer,
    /// A bit for each page that has contents, starting with bit 0 for the first page. The other
    /// pages read as zeroes.
    written: u16,
    /// A bit for each page whose contents are beside the run.
    moved: u16,
}

/// Buffers of one length that were replaced while they had readers, oldest first.
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    length: usize,
    buffers: VecDeque<Buffer>,
}

impl Replaced {
    fn new(length: usize) -> Self {
        Self { length, buffers: VecDeque::with_capacity(REPLACED_BYTES_MAX / length) }
    }

    fn keep(&mut self, buffer: Buffer) {
        if buffer.len() == self.length && self.buffers.len() < REPLACED_BYTES_MAX / self.length {
            self.buffers.push_back(buffer);
        }
    }

    /// Takes a buffer of unspecified contents that has no other holder.
    fn take(&mut self) -> Buffer {
        if let Some(mut oldest) = self.buffers.pop_front() {
            if oldest.try_mut().is_some() {
                return oldest;
            }
            self.buffers.push_back(oldest);
        }
        Buffer::zeroed(self.length)
    }
}

impl RamDisk {
    /// A disk of `bytes` zero bytes.
    ///
    /// # Panics
    /// When `bytes` is more than [`BYTES_MAX`].
    pub fn new(bytes: u64) -> Self {
        assert!(bytes <= BYTES_MAX, "a RAM disk of {bytes} B: at most {BYTES_MAX}");
        Self {
            bytes,
            runs: core::iter::repeat_n(Run::default(), runs_of(bytes)).collect(),
            zeroes: Buffer::zeroed(RUN),
            moved: VecDeque::with_capacity(MOVED_MAX),
            replaced_pages: Replaced::new(PAGE),
            replaced_runs: Replaced::new(RUN),
        }
    }

    /// The length of the disk in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the length of the disk to `bytes`. Contents beyond a new end are lost, and added bytes
    /// read as zeroes.
    ///
    /// # Panics
    /// When `bytes` is more than [`BYTES_MAX`].
    pub fn resize(&mut self, bytes: u64) {
        assert!(bytes <= BYTES_MAX, "a RAM disk of {bytes} B: at most {BYTES_MAX}");
        if bytes < self.bytes {
            self.clear(bytes, self.bytes - bytes);
        }
        self.runs.resize(runs_of(bytes), Run::default());
        self.moved.retain(|(page, _)| page / RUN_PAGES < self.runs.len());
        self.bytes = bytes;
    }

    /// Bytes of memory that the disk occupies: runs with contents, and buffers kept beside them.
    pub fn resident_bytes(&self) -> u64 {
        let runs = self.runs.iter().filter(|run| !run.block.is_empty()).count();
        let kept = |replaced: &Replaced| replaced.buffers.len() * replaced.length;
        let beside = self.moved.len() * PAGE + kept(&self.replaced_pages) + kept(&self.replaced_runs);
        u64::try_from(runs * RUN + beside).unwrap_or(u64::MAX)
    }

    /// Executes `request` at once and passes its completions to `complete`.
    #[inline]
    pub fn submit(&mut self, request: Request, complete: &mut impl FnMut(Completion)) {
        let id = request.id;
        let result = match request.operation {
            Operation::Read { offset, length } => self.read(id, offset, length, complete),
            Operation::Write { offset, data, durable: _ } => self.write(offset, &data),
            Operation::Flush => Ok(()),
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                self.check(offset, length).map(|()| self.clear(offset, length))
            }
        };
        complete(Completion::Done { id, result });
    }

    #[inline]
    fn read(
        &self,
        id: IoId,
        offset: u64,
        length: u32,
        complete: &mut impl FnMut(Completion),
    ) -> Result<(), MediaError> {
        self.check(offset, u64::from(length))?;
        let (mut run, mut start) = split(offset);
        let (mut done, mut left) = (0, length as usize);
        while left > 0 {
            let data = self.piece(run, start, left.min(RUN - start));
            let count = data.len();
            complete(Completion::Data { id, offset: done, data });
            done += u32::try_from(count).unwrap_or(u32::MAX);
            left -= count;
            start += count;
            if start == RUN {
                (run, start) = (run + 1, 0);
            }
        }
        Ok(())
    }

    /// The longest contiguous piece of the `wanted` bytes from byte `start` of a run.
    #[inline]
    fn piece(&self, index: usize, start: usize, wanted: usize) -> Buffer {
        let run = &self.runs[index];
        if run.written == u16::MAX && run.moved == 0 {
            return run.block.slice(start..start + wanted);
        }
        let page = start / PAGE;
        if run.moved >> page & 1 == 1
            && let Some(moved) = self.find_moved(index * RUN_PAGES + page)
        {
            let start = start % PAGE;
            return self.moved[moved].1.slice(start..PAGE.min(start + wanted));
        }
        let in_block = run.written & !run.moved;
        let (source, alike) =
            if in_block >> page & 1 == 1 { (&run.block, in_block) } else { (&self.zeroes, !run.written) };
        let pages = (alike >> page).trailing_ones() as usize;
        source.slice(start..((page + pages) * PAGE).min(start + wanted))
    }

    fn find_moved(&self, page: usize) -> Option<usize> {
        self.moved.iter().position(|(of, _)| *of == page)
    }

    #[inline]
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), MediaError> {
        self.check(offset, data.len() as u64)?;
        if !self.moved.is_empty() {
            self.bring_back_oldest();
        }
        let (mut run, mut start) = split(offset);
        let mut rest = data;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(RUN - start));
            self.write_run(run, start, piece);
            rest = after;
            (run, start) = (run + 1, 0);
        }
        Ok(())
    }

    /// Writes `piece` into a run: in place if the run has no readers, otherwise beside the run or
    /// into a copy.
    #[inline]
    fn write_run(&mut self, index: usize, start: usize, piece: &[u8]) {
        let pages = pages_of(start, start + piece.len());
        let run = &mut self.runs[index];
        if run.block.is_empty() {
            run.block = self.replaced_runs.take();
        } else if run.block.try_mut().is_none() {
            let count = pages.count_ones();
            if count <= MOVED_AT_ONCE && self.moved.len() + count as usize <= MOVED_MAX {
                return self.write_beside(index, start, piece);
            }
            self.replace(index, pages == u16::MAX && piece.len() == RUN);
        }
        if self.runs[index].moved != 0 {
            self.bring_back(index);
        }
        let run = &mut self.runs[index];
        let new = pages & !run.written;
        run.written |= pages;
        // The block has no other owner at this point.
        let Some(bytes) = run.block.try_mut() else { return };
        let end = start + piece.len();
        if new != 0 {
            // The rest of a page that had no contents must be zeroes.
            let (first, last) = (start / PAGE, (end - 1) / PAGE);
            if new >> first & 1 == 1 {
                bytes[first * PAGE..start].fill(0);
            }
            if new >> last & 1 == 1 {
                bytes[end..(last + 1) * PAGE].fill(0);
            }
        }
        bytes[start..end].copy_from_slice(piece);
    }

    /// Replaces the block of a run that has readers. The new block has the same contents, unless
    /// all of it is written next.
    #[cold]
    fn replace(&mut self, index: usize, is_whole: bool) {
        let mut fresh = self.replaced_runs.take();
        let run = &mut self.runs[index];
        if let Some(bytes) = fresh.try_mut().filter(|_| !is_whole) {
            bytes.copy_from_slice(&run.block);
        }
        self.replaced_runs.keep(mem::replace(&mut run.block, fresh));
    }

    /// Writes `piece`, which covers few pages, into pages beside a run that has readers.
    #[cold]
    fn write_beside(&mut self, index: usize, mut start: usize, mut piece: &[u8]) {
        while !piece.is_empty() {
            let (page, within) = (start / PAGE, start % PAGE);
            let (now, rest) = piece.split_at(piece.len().min(PAGE - within));
            let (number, bit) = (index * RUN_PAGES + page, 1 << page);
            let there = self.find_moved(number);
            let mut fresh = match there {
                Some(there) if self.moved[there].1.try_mut().is_some() => mem::take(&mut self.moved[there].1),
                _ => {
                    let mut fresh = self.replaced_pages.take();
                    let run = &self.runs[index];
                    let before = match there {
                        Some(there) => &self.moved[there].1[..],
                        None if run.written & bit != 0 => &run.block[page * PAGE..(page + 1) * PAGE],
                        None => &self.zeroes[..PAGE],
                    };
                    if let Some(bytes) = fresh.try_mut() {
                        bytes.copy_from_slice(before);
                    }
                    fresh
                }
            };
            if let Some(bytes) = fresh.try_mut() {
                bytes[within..within + now.len()].copy_from_slice(now);
            }
            match there {
                Some(there) => self.replaced_pages.keep(mem::replace(&mut self.moved[there].1, fresh)),
                None => self.moved.push_back((number, fresh)),
            }
            let run = &mut self.runs[index];
            run.moved |= bit;
            run.written |= bit;
            (start, piece) = (start + now.len(), rest);
        }
    }

    /// Moves the pages beside a run into the run, if it has no readers.
    #[cold]
    fn bring_back(&mut self, index: usize) {
        let Self { runs, moved, replaced_pages, .. } = self;
        let run = &mut runs[index];
        let Some(bytes) = run.block.try_mut() else { return };
        run.moved = 0;
        moved.retain_mut(|(number, page)| {
            if *number / RUN_PAGES != index {
                return true;
            }
            bytes[*number % RUN_PAGES * PAGE..][..PAGE].copy_from_slice(page);
            replaced_pages.keep(mem::take(page));
            false
        });
    }

    /// Moves the oldest page beside its run into the run, or to the end of the queue if the run
    /// still has readers.
    #[cold]
    fn bring_back_oldest(&mut self) {
        let Some((number, page)) = self.moved.pop_front() else { return };
        let index = number / RUN_PAGES;
        self.moved.push_back((number, page));
        self.bring_back(index);
    }

    /// Frees the whole runs of a range and zeroes the rest.
    fn clear(&mut self, offset: u64, length: u64) {
        let (mut index, mut start) = split(offset);
        let mut left = length;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(RUN - start);
            let end = start + count;
            // Pages that the range covers only in part are overwritten with zeroes.
            for (from, to) in edges(start, end).into_iter().flatten() {
                if self.runs[index].written >> (from / PAGE) & 1 == 1 {
                    self.write_run(index, from, &[0; PAGE][..to - from]);
                }
            }
            let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
            let whole = if first < last { pages_of(first, last) } else { 0 };
            let run = &mut self.runs[index];
            if run.moved & whole != 0 {
                self.moved
                    .retain(|(page, _)| page / RUN_PAGES != index || whole >> (page % RUN_PAGES) & 1 == 0);
            }
            run.moved &= !whole;
            run.written &= !whole;
            if run.written == 0 {
                run.block = Buffer::EMPTY;
            }
            left -= count as u64;
            (index, start) = (index + 1, 0);
        }
    }

    #[inline]
    fn check(&self, offset: u64, length: u64) -> Result<(), MediaError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(MediaError::OutOfRange),
        }
    }
}

/// The run with the byte at `offset`, and the byte's offset within the run.
#[inline]
fn split(offset: u64) -> (usize, usize) {
    let run = usize::try_from(offset / RUN as u64).expect("BYTES_MAX has fewer runs than an address space");
    (run, usize::try_from(offset % RUN as u64).unwrap_or_default())
}

/// Number of runs in a disk of `bytes` bytes.
fn runs_of(bytes: u64) -> usize {
    split(bytes.next_multiple_of(RUN as u64)).0
}

/// A bit for each page of a run that the bytes `start..end` touch.
#[inline]
const fn pages_of(start: usize, end: usize) -> u16 {
    let (first, last) = (start / PAGE, (end - 1) / PAGE);
    (u16::MAX << first) & (u16::MAX >> (RUN_PAGES - 1 - last))
}

/// The parts of the bytes `start..end` of a run that cover less than a page, at either end.
fn edges(start: usize, end: usize) -> [Option<(usize, usize)>; 2] {
    let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
    if first > last {
        return [Some((start, end)), None];
    }
    [(start < first).then_some((start, first)), (last < end).then_some((last, end))]
}

#[cfg(test)]
mod tests {
    use super::super::MediumId;
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn run(disk: &mut RamDisk, operation: Operation) -> (Vec<Buffer>, Result<(), MediaError>) {
        let (mut pieces, mut end) = (Vec::new(), None);
        disk.submit(Request { id: IoId(7), medium: MediumId(0), operation }, &mut |completion| {
            match completion {
                Completion::Data { id, data, .. } => {
                    assert_eq!((id, end), (IoId(7), None));
                    pieces.push(data);
                }
                Completion::Done { id, result } => {
                    assert_eq!((id, end), (IoId(7), None));
                    end = Some(result);
                }
            }
        });
        (pieces, end.unwrap())
    }

    fn write(offset: u64, bytes: &[u8]) -> Operation {
        Operation::Write { offset, data: Buffer::copy_from_slice(bytes), durable: false }
    }

    #[test]
    fn a_truncated_part_reads_as_zeros_when_it_is_back() {
        let mut disk = RamDisk::new(8192);
        run(&mut disk, write(0, &[1; 8192])).1.unwrap();
        let (held, _) = run(&mut disk, Operation::Read { offset: 0, length: 4096 });
        disk.resize(512);
        assert_eq!(
            run(&mut disk, Operation::Read { offset: 512, length: 512 }).1,
            Err(MediaError::OutOfRange)
        );
        disk.resize(12288);
        for (offset, expected) in [(0, 1), (512, 0), (4096, 0), (11776, 0)] {
            let (pieces, result) = run(&mut disk, Operation::Read { offset, length: 512 });
            assert_eq!((&pieces[0][..], result), (&[expected; 512][..], Ok(())), "at {offset}");
        }
        assert_eq!(held[0][..], [1; 4096], "the bytes of a reader do not change");
        run(&mut disk, Operation::Deallocate { offset: 0, length: 512 }).1.unwrap();
        run(&mut disk, Operation::Deallocate { offset: 0, length: 12288 }).1.unwrap();
        assert!(disk.runs[0].block.is_empty());
    }

    #[test]
    fn the_bytes_of_a_reader_never_change() {
        let mut disk = RamDisk::new(8192);
        run(&mut disk, write(0, &[1; 4096])).1.unwrap();
        let (held, _) = run(&mut disk, Operation::Read { offset: 0, length: 4096 });
        for value in 2..5 {
            run(&mut disk, write(512, &[value; 512])).1.unwrap();
            let (now, _) = run(&mut disk, Operation::Read { offset: 512, length: 512 });
            assert_eq!((&now[0][..], &held[0][..]), (&[value; 512][..], &[1; 4096][..]));
        }
        run(&mut disk, Operation::Deallocate { offset: 0, length: 8192 }).1.unwrap();
        assert_eq!((&held[0][..], disk.runs[0].block.is_empty()), (&[1; 4096][..], true));
    }

    #[test]
    fn a_range_beyond_the_end_is_refused_whole() {
        let mut disk = RamDisk::new(5000);
        assert_eq!(run(&mut disk, write(4096, &[1; 1024])).1, Err(MediaError::OutOfRange));
        let far = Operation::Deallocate { offset: u64::MAX, length: 2 };
        assert_eq!(run(&mut disk, far).1, Err(MediaError::OutOfRange));
        assert_eq!(run(&mut disk, write(4096, &[1; 904])).1, Ok(()));
    }

    fn read(disk: &mut RamDisk, offset: u64, length: usize) -> Vec<Buffer> {
        let length = u32::try_from(length).unwrap();
        let (pieces, result) = run(disk, Operation::Read { offset, length });
        result.unwrap();
        pieces
    }

    fn joined(pieces: &[Buffer]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    fn lengths(pieces: &[Buffer]) -> Vec<usize> {
        pieces.iter().map(|piece| piece.len()).collect()
    }

    #[test]
    fn large_reads_are_few_pieces_however_small_the_writes_were() {
        let mut disk = RamDisk::new(3 * RUN as u64 + 512);
        assert_eq!(lengths(&read(&mut disk, 0, 3 * RUN)), [RUN; 3]);
        let content: Vec<u8> = (0..2 * RUN).map(|index| (index / 512 % 251).to_le_bytes()[0]).collect();
        for (index, sector) in content.chunks(512).enumerate().rev() {
            run(&mut disk, write(index as u64 * 512, sector)).1.unwrap();
        }
        let held = read(&mut disk, 512, 2 * RUN - 1024);
        assert_eq!(lengths(&held), [RUN - 512, RUN - 512]);
        assert_eq!(joined(&held), content[512..2 * RUN - 512]);
        assert_eq!(lengths(&read(&mut disk, RUN as u64 - 512, 1024)), [512, 512]);
        // A run with a reader is replaced, and a run without readers is not.
        run(&mut disk, write(0, &[9; RUN])).1.unwrap();
        let place = read(&mut disk, 0, 1)[0].as_ptr();
        run(&mut disk, write(0, &[8; RUN])).1.unwrap();
        assert_eq!(read(&mut disk, 0, 1)[0].as_ptr(), place);
        assert_eq!(held[0][..], content[512..RUN]);
        run(&mut disk, Operation::Deallocate { offset: RUN as u64, length: PAGE as u64 }).1.unwrap();
        assert_eq!(lengths(&read(&mut disk, RUN as u64, RUN)), [PAGE, RUN - PAGE]);
        run(&mut disk, Operation::Deallocate { offset: 0, length: 3 * RUN as u64 }).1.unwrap();
        assert!(disk.runs.iter().all(|run| run.block.is_empty()));
    }

    #[test]
    fn a_page_beside_its_run_goes_back_when_the_readers_have_gone() {
        let mut disk = RamDisk::new(RUN as u64);
        run(&mut disk, write(0, &[1; RUN])).1.unwrap();
        let held = read(&mut disk, 0, RUN);
        run(&mut disk, write(PAGE as u64 + 512, &[2; 512])).1.unwrap();
        let pieces = read(&mut disk, 0, RUN);
        assert_eq!(lengths(&pieces), [PAGE, PAGE, RUN - 2 * PAGE]);
        assert_eq!((pieces[1][511], pieces[1][512], pieces[1][1024]), (1, 2, 1));
        // The reader keeps its bytes here, too.
        run(&mut disk, write(PAGE as u64, &[3; 512])).1.unwrap();
        assert_eq!((pieces[1][0], held[0][PAGE], disk.moved.len()), (1, 1, 1));
        drop((held, pieces));
        run(&mut disk, write(0, &[4; 512])).1.unwrap();
        let pieces = read(&mut disk, 0, RUN);
        assert_eq!((lengths(&pieces), disk.moved.len()), (vec![RUN], 0));
        let at = |index: usize| pieces[0][index];
        assert_eq!([at(0), at(512), at(PAGE), at(PAGE + 512), at(PAGE + 1024)], [4, 1, 3, 2, 1]);
    }

    #[test]
    fn readers_that_keep_buffers_have_runs_replaced_and_the_disk_stays_within_its_bounds() {
        let runs = 2 * MOVED_MAX;
        let mut disk = RamDisk::new((runs * RUN) as u64);
        let mut held = Vec::new();
        for round in 1..=3 {
            for index in 0..runs {
                run(&mut disk, write((index * RUN) as u64, &[round; 512])).1.unwrap();
                held.push((round, read(&mut disk, (index * RUN) as u64, PAGE)));
                let most = runs * RUN + MOVED_MAX * PAGE + 2 * REPLACED_BYTES_MAX;
                assert!(disk.resident_bytes() <= most as u64, "{} B", disk.resident_bytes());
            }
        }
        assert!(disk.moved.len() <= MOVED_MAX);
        assert!(held.iter().all(|(round, pieces)| joined(pieces)[..512] == [*round; 512]));
        disk.resize(100);
        assert_eq!(joined(&read(&mut disk, 0, 100)), [3; 100]);
        disk.resize(RUN as u64);
        assert_eq!(joined(&read(&mut disk, 96, 8)), [3, 3, 3, 3, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn it_reads_like_an_array(steps in prop::collection::vec((0..4_u8, 0..200_000_u64, 1..150_000_u32, 1..=255_u8), 1..40)) {
            let mut disk = RamDisk::new(200_000);
            let mut model = vec![0_u8; 200_000];
            let mut held = Vec::new();
            for (kind, mut offset, length, value) in steps {
                if value % 3 == 0 {
                    offset -= offset % RUN as u64;
                }
                let range = usize::try_from(offset).unwrap()..usize::try_from(offset + u64::from(length)).unwrap();
                let fits = range.end <= model.len();
                let length_64 = u64::from(length);
                let operation = match kind {
                    0 => write(offset, &vec![value; range.len()]),
                    1 => Operation::WriteZeroes { offset, length: length_64, deallocate: false, durable: true },
                    2 => Operation::Deallocate { offset, length: length_64 },
                    _ => Operation::Read { offset, length },
                };
                let (pieces, result) = run(&mut disk, operation);
                prop_assert_eq!(result.is_ok(), fits);
                if !fits {
                    continue;
                }
                match kind {
                    0 => model[range].fill(value),
                    1 | 2 => model[range].fill(0),
                    _ => {
                        let read: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
                        prop_assert_eq!(&read[..], &model[range]);
                        held.extend(pieces.into_iter().take(1));
                    }
                }
            }
        }
    }
}
