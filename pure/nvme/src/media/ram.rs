//! A medium in memory: pages of 4 KiB, allocated when first written, shared with whoever reads them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use engine::Buffer;

use super::{Completion, IoId, MediaError, Operation, Request};

/// Bytes of a page: what is allocated, shared and zeroed at once.
const PAGE: usize = 4096;
/// Replaced pages that are kept until their readers let go, to be used again.
const REPLACED_MAX: usize = 64;
/// The longest disk: its table of pages takes 1/170 of it, even before anything is written.
pub const BYTES_MAX: u64 = 1 << 44;

/// A disk in memory; what was never written, or was deallocated, reads as zeroes and takes no space.
///
/// A read hands out slices of the pages themselves. A write into a page that a reader still holds replaces the page, so
/// that what was handed out never changes; a write of a whole aligned page keeps the writer's buffer instead of copying it,
/// if that buffer is no larger than the page needs.
#[derive(Debug)]
pub struct RamDisk {
    bytes: u64,
    /// Page n holds the bytes from n * PAGE on; empty means zeroes.
    pages: Vec<Buffer>,
    zeroes: Buffer,
    /// Pages that were replaced while somebody read them, oldest first.
    replaced: VecDeque<Buffer>,
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
            zeroes: Buffer::zeroed(PAGE),
            replaced: VecDeque::with_capacity(REPLACED_MAX),
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
            let count = left.min(PAGE - start);
            let source = if self.pages[page].is_empty() { &self.zeroes } else { &self.pages[page] };
            let data = if count == PAGE { source.clone() } else { source.slice(start..start + count) };
            complete(Completion::Data { id, offset: done, data });
            done += u32::try_from(count).unwrap_or(u32::MAX);
            left -= count;
            (page, start) = (page + 1, 0);
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), MediaError> {
        self.check(offset, data.len() as u64)?;
        let (mut page, mut start) = split(offset);
        let mut rest = data;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(PAGE - start));
            self.write_page(page, start, piece);
            rest = after;
            (page, start) = (page + 1, 0);
        }
        Ok(())
    }

    /// Writes `piece` into a page, in place if nobody reads it, else into a copy.
    #[inline]
    fn write_page(&mut self, page: usize, start: usize, piece: &[u8]) {
        let place = &mut self.pages[page];
        if place.is_empty() && piece.len() == PAGE {
            *place = Buffer::copy_from_slice(piece);
            return;
        }
        if let Some(bytes) = place.try_mut().filter(|bytes| !bytes.is_empty()) {
            bytes[start..start + piece.len()].copy_from_slice(piece);
            return;
        }
        let mut fresh = self.spare_page();
        let place = &mut self.pages[page];
        if let Some(bytes) = fresh.try_mut() {
            if piece.len() < PAGE {
                bytes.copy_from_slice(if place.is_empty() { &self.zeroes } else { place });
            }
            bytes[start..start + piece.len()].copy_from_slice(piece);
        }
        let old = core::mem::replace(place, fresh);
        if !old.is_empty() && self.replaced.len() < REPLACED_MAX {
            self.replaced.push_back(old);
        }
    }

    /// A page of unspecified contents that nobody else holds.
    fn spare_page(&mut self) -> Buffer {
        if let Some(mut page) = self.replaced.pop_front() {
            if page.try_mut().is_some() {
                return page;
            }
            self.replaced.push_back(page);
        }
        Buffer::zeroed(PAGE)
    }

    /// Gives whole pages back and clears the rest.
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), MediaError> {
        self.check(offset, length)?;
        let (mut page, mut start) = split(offset);
        let mut left = length;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(PAGE - start);
            if count == PAGE {
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

    proptest! {
        #[test]
        fn it_reads_like_an_array(steps in prop::collection::vec((0..4_u8, 0..20_000_u64, 1..9_000_u32, 1..=255_u8), 1..40)) {
            let mut disk = RamDisk::new(20_000);
            let mut model = vec![0_u8; 20_000];
            let mut held = Vec::new();
            for (kind, offset, length, value) in steps {
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
