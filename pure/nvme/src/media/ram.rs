//! A medium in memory: pages of 4 KiB, allocated when first written, shared with whoever reads them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use engine::Buffer;

use super::{Completion, IoId, MediaError, Operation, Request};

/// Bytes of a page: what is allocated, shared and zeroed at once.
const PAGE: usize = 4096;
/// Pages of a run: what a large write puts in one block, so that a large read is few pieces.
const RUN_PAGES: usize = 16;
/// Bytes of a run.
const RUN: usize = RUN_PAGES * PAGE;
/// Bytes of replaced pages, and of replaced runs, that are kept until their readers let go, to be used again.
const REPLACED_BYTES_MAX: usize = 1 << 20;
/// The longest disk: its table of pages takes 1/170 of it, even before anything is written.
pub const BYTES_MAX: u64 = 1 << 44;

/// A disk in memory; what was never written, or was deallocated, reads as zeroes and takes no space.
///
/// A read hands out slices of the pages themselves. A write into a page that a reader still holds replaces the page, so
/// that what was handed out never changes. The pages of a run that was written at once are slices of one block; a write
/// of less, or a deallocation, takes them apart, so that no page keeps a block of others alive.
#[derive(Debug)]
pub struct RamDisk {
    bytes: u64,
    /// Page n holds the bytes from n * PAGE on; empty means zeroes.
    pages: Vec<Buffer>,
    /// A run of them.
    zeroes: Buffer,
    replaced_pages: Replaced,
    replaced_runs: Replaced,
}

/// Buffers of one length that were replaced while somebody read them, oldest first.
#[derive(Debug)]
struct Replaced {
    length: usize,
    buffers: VecDeque<Buffer>,
}

impl Replaced {
    fn new(length: usize) -> Self {
        Self { length, buffers: VecDeque::with_capacity(REPLACED_BYTES_MAX / length) }
    }

    fn keep(&mut self, buffer: Buffer) {
        let fits = buffer.len() == self.length && !buffer.is_part();
        if fits && self.buffers.len() < REPLACED_BYTES_MAX / self.length {
            self.buffers.push_back(buffer);
        }
    }

    /// A buffer of unspecified contents that nobody else holds.
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
        let count = page_of(bytes.next_multiple_of(PAGE as u64));
        Self {
            bytes,
            pages: core::iter::repeat_n(Buffer::EMPTY, count).collect(),
            zeroes: Buffer::zeroed(RUN),
            replaced_pages: Replaced::new(PAGE),
            replaced_runs: Replaced::new(RUN),
        }
    }

    /// Its length in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it `bytes` long: what lies beyond is gone, what is new reads as zeroes.
    ///
    /// # Panics
    /// When `bytes` is more than [`BYTES_MAX`].
    pub fn resize(&mut self, bytes: u64) {
        assert!(bytes <= BYTES_MAX, "a RAM disk of {bytes} B: at most {BYTES_MAX}");
        let (page, start) = split(bytes);
        if bytes < self.bytes && start > 0 && !self.pages[page].is_empty() {
            self.write_page(page, start, &[0; PAGE][start..]);
        }
        self.pages.resize(page_of(bytes.next_multiple_of(PAGE as u64)), Buffer::EMPTY);
        self.bytes = bytes;
    }

    /// Bytes of memory that pages with contents take.
    pub fn resident_bytes(&self) -> u64 {
        let pages = self.pages.iter().filter(|page| !page.is_empty()).count();
        u64::try_from(pages * PAGE).unwrap_or(u64::MAX)
    }

    /// Carries out `request` at once and hands its completions to `complete`.
    #[inline]
    pub fn submit(&mut self, request: Request, complete: &mut impl FnMut(Completion)) {
        let id = request.id;
        let result = match request.operation {
            Operation::Read { offset, length } => self.read(id, offset, length, complete),
            Operation::Write { offset, data, durable: _ } => self.write(offset, &data),
            Operation::Flush => Ok(()),
            Operation::WriteZeroes { offset, length, .. } | Operation::Deallocate { offset, length } => {
                self.zero(offset, length)
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
        let (mut page, mut start) = split(offset);
        let (mut done, mut left) = (0, length as usize);
        while left > 0 {
            let data = self.piece(page, start, left);
            let count = data.len();
            complete(Completion::Data { id, offset: done, data });
            done += u32::try_from(count).unwrap_or(u32::MAX);
            left -= count;
            (page, start) = (page + (start + count) / PAGE, (start + count) % PAGE);
        }
        Ok(())
    }

    /// As many of the `wanted` bytes from byte `start` of a page on as are in one block.
    #[inline]
    fn piece(&self, page: usize, start: usize, wanted: usize) -> Buffer {
        let count = wanted.min(PAGE - start);
        let first = &self.pages[page];
        let following = self.pages[page + 1..].iter();
        if first.is_empty() {
            let more = following.take(RUN_PAGES - 1).take_while(|page| page.is_empty()).count();
            return self.zeroes.slice(start..(start + wanted).min((more + 1) * PAGE));
        }
        if count == wanted || !first.is_part() {
            return if count == PAGE { first.clone() } else { first.slice(start..start + count) };
        }
        let mut piece = first.slice(start..PAGE);
        for next in following {
            let count = (wanted - piece.len()).min(PAGE);
            if count == 0 || !piece.extend(next, count) {
                break;
            }
        }
        piece
    }

    #[inline]
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), MediaError> {
        self.check(offset, data.len() as u64)?;
        let (mut page, mut start) = split(offset);
        let mut rest = data;
        while !rest.is_empty() {
            if rest.len() >= RUN && start == 0 && page.is_multiple_of(RUN_PAGES) {
                let (run, after) = rest.split_at(RUN);
                self.write_run(page, run);
                (rest, page) = (after, page + RUN_PAGES);
                continue;
            }
            let (piece, after) = rest.split_at(rest.len().min(PAGE - start));
            self.write_page(page, start, piece);
            rest = after;
            (page, start) = (page + 1, 0);
        }
        Ok(())
    }

    /// Writes the whole run that begins with `first`: in place if it is one block that nobody reads, else into another.
    fn write_run(&mut self, first: usize, run: &[u8]) {
        let pages = &mut self.pages[first..first + RUN_PAGES];
        let mut whole = mem::take(&mut pages[0]);
        for page in &mut pages[1..] {
            let next = mem::take(page);
            whole.extend(&next, PAGE);
        }
        match whole.try_mut().filter(|bytes| bytes.len() == RUN) {
            Some(bytes) => bytes.copy_from_slice(run),
            None => {
                let mut fresh = self.replaced_runs.take();
                if let Some(bytes) = fresh.try_mut() {
                    bytes.copy_from_slice(run);
                }
                self.replaced_runs.keep(mem::replace(&mut whole, fresh));
            }
        }
        for (index, page) in self.pages[first..first + RUN_PAGES].iter_mut().enumerate() {
            *page = whole.slice(index * PAGE..(index + 1) * PAGE);
        }
    }

    /// Gives each page of the run that `page` is in a block of its own, if they share one.
    #[cold]
    fn take_apart(&mut self, page: usize) {
        let first = page - page % RUN_PAGES;
        let end = (first + RUN_PAGES).min(self.pages.len());
        for page in self.pages[first..end].iter_mut().filter(|page| page.is_part()) {
            *page = Buffer::copy_from_slice(page);
        }
    }

    /// Writes `piece` into a page, in place if nobody reads it, else into a copy.
    #[inline]
    fn write_page(&mut self, page: usize, start: usize, piece: &[u8]) {
        if self.pages[page].is_part() {
            self.take_apart(page);
        }
        let place = &mut self.pages[page];
        if place.is_empty() && piece.len() == PAGE {
            *place = Buffer::copy_from_slice(piece);
            return;
        }
        if let Some(bytes) = place.try_mut().filter(|bytes| !bytes.is_empty()) {
            bytes[start..start + piece.len()].copy_from_slice(piece);
            return;
        }
        let mut fresh = self.replaced_pages.take();
        let place = &mut self.pages[page];
        if let Some(bytes) = fresh.try_mut() {
            if piece.len() < PAGE {
                bytes.copy_from_slice(if place.is_empty() { &self.zeroes[..PAGE] } else { place });
            }
            bytes[start..start + piece.len()].copy_from_slice(piece);
        }
        self.replaced_pages.keep(mem::replace(place, fresh));
    }

    /// Gives whole pages back and clears the rest.
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), MediaError> {
        self.check(offset, length)?;
        let (mut page, mut start) = split(offset);
        let mut left = length;
        while left > 0 {
            if left >= RUN as u64 && start == 0 && page.is_multiple_of(RUN_PAGES) {
                self.pages[page..page + RUN_PAGES].fill(Buffer::EMPTY);
                (left, page) = (left - RUN as u64, page + RUN_PAGES);
                continue;
            }
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(PAGE - start);
            if count == PAGE {
                if self.pages[page].is_part() {
                    self.take_apart(page);
                }
                self.pages[page] = Buffer::EMPTY;
            } else if !self.pages[page].is_empty() {
                self.write_page(page, start, &[0; PAGE][..count]);
            }
            left -= count as u64;
            (page, start) = (page + 1, 0);
        }
        Ok(())
    }

    #[inline]
    fn check(&self, offset: u64, length: u64) -> Result<(), MediaError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(MediaError::OutOfRange),
        }
    }
}

/// The page that holds the byte at `offset`, and where in it.
#[inline]
fn split(offset: u64) -> (usize, usize) {
    (page_of(offset), usize::try_from(offset % PAGE as u64).unwrap_or_default())
}

#[inline]
fn page_of(offset: u64) -> usize {
    usize::try_from(offset / PAGE as u64).expect("BYTES_MAX has fewer pages than an address space")
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
    fn what_was_cut_off_reads_as_zeroes_when_it_is_back() {
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
        assert_eq!(held[0][..], [1; 4096], "a reader keeps what it has");
        assert_eq!(disk.resident_bytes(), 4096);
    }

    #[test]
    fn what_a_reader_holds_never_changes() {
        let mut disk = RamDisk::new(8192);
        run(&mut disk, write(0, &[1; 4096])).1.unwrap();
        let (held, _) = run(&mut disk, Operation::Read { offset: 0, length: 4096 });
        for value in 2..5 {
            run(&mut disk, write(512, &[value; 512])).1.unwrap();
            let (now, _) = run(&mut disk, Operation::Read { offset: 512, length: 512 });
            assert_eq!((&now[0][..], &held[0][..]), (&[value; 512][..], &[1; 4096][..]));
        }
        run(&mut disk, Operation::Deallocate { offset: 0, length: 8192 }).1.unwrap();
        assert_eq!((&held[0][..], disk.resident_bytes()), (&[1; 4096][..], 0));
    }

    #[test]
    fn a_range_beyond_the_end_is_refused_whole() {
        let mut disk = RamDisk::new(5000);
        assert_eq!(run(&mut disk, write(4096, &[1; 1024])).1, Err(MediaError::OutOfRange));
        let far = Operation::Deallocate { offset: u64::MAX, length: 2 };
        assert_eq!(run(&mut disk, far).1, Err(MediaError::OutOfRange));
        assert_eq!(run(&mut disk, write(4096, &[1; 904])).1, Ok(()));
    }

    #[test]
    fn large_writes_are_read_in_few_pieces_until_they_are_taken_apart() {
        let read = |disk: &mut RamDisk, offset, length| {
            let (pieces, result) = run(disk, Operation::Read { offset, length });
            result.unwrap();
            pieces
        };
        let lengths = |pieces: &[Buffer]| pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>();
        let run_bytes = u32::try_from(RUN).unwrap();
        let mut disk = RamDisk::new(3 * RUN as u64 + 512);
        assert_eq!(lengths(&read(&mut disk, 0, 3 * run_bytes)), [RUN; 3]);
        let content: Vec<u8> = (0..2 * RUN).map(|index| (index / 512 % 251).to_le_bytes()[0]).collect();
        run(&mut disk, write(0, &content)).1.unwrap();
        let held = read(&mut disk, 512, 2 * run_bytes - 1024);
        assert_eq!(lengths(&held), [RUN - 512, RUN - 512]);
        assert_eq!(
            held.iter().flat_map(|piece| piece.iter()).copied().collect::<Vec<_>>(),
            content[512..2 * RUN - 512]
        );
        assert_eq!(lengths(&read(&mut disk, RUN as u64 - 512, 1024)), [512, 512]);
        // A reader's run is replaced, one that nobody reads is not.
        run(&mut disk, write(0, &[9; RUN])).1.unwrap();
        let place = read(&mut disk, 0, 1)[0].as_ptr();
        run(&mut disk, write(0, &[8; RUN])).1.unwrap();
        assert_eq!(read(&mut disk, 0, 1)[0].as_ptr(), place);
        assert_eq!(held[0][..], content[512..RUN]);
        // What is written in part is in pages again.
        run(&mut disk, write(PAGE as u64, &[7; 512])).1.unwrap();
        let pieces = read(&mut disk, 0, run_bytes);
        assert_eq!((pieces.len(), pieces[1][511], pieces[1][512]), (RUN_PAGES, 7, 8));
        drop(held);
        run(&mut disk, Operation::Deallocate { offset: RUN as u64, length: PAGE as u64 }).1.unwrap();
        assert_eq!(read(&mut disk, RUN as u64, run_bytes).len(), RUN_PAGES);
        assert_eq!(disk.resident_bytes(), 2 * RUN as u64 - PAGE as u64);
        run(&mut disk, Operation::Deallocate { offset: 0, length: 3 * RUN as u64 }).1.unwrap();
        assert_eq!(disk.resident_bytes(), 0);
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
