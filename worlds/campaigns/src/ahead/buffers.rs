//! Pages for data, and the lists that point to the pages.

use engine::Rng;
use nvme::wire::SubmissionQueueEntry;

use super::memory::{HostMemory, Shared};

pub(super) const PAGE: u64 = 4096;
/// Submission flags: SGLs for the data, contiguous metadata.
const SGL: u8 = 1 << 6;
const LAST_SEGMENT: u64 = 0x30 << 56;

/// A piece of data within one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) length: u64,
}

/// Free pages; the pages that were given back last are taken first.
#[derive(Debug)]
pub(super) struct Buffers {
    free: Vec<u64>,
}

impl Buffers {
    pub(super) fn new(base: u64, pages: u64) -> Self {
        Self { free: (0..pages).map(|page| base + page * PAGE).collect() }
    }

    /// Pages for `length` bytes, and the segments of the data in them; `None` if too few pages are
    /// free. The data may begin anywhere in the first page.
    pub(super) fn take(&mut self, length: u64, rng: &mut Rng) -> Option<(Vec<u64>, Vec<Segment>)> {
        if length == 0 {
            return Some((Vec::new(), Vec::new()));
        }
        let offset = if rng.one_in(2) { 0 } else { rng.below(PAGE / 4) * 4 };
        let count = usize::try_from((offset + length).div_ceil(PAGE)).expect("few pages");
        // Two more pages are left for lists.
        let start = self.free.len().checked_sub(count + 2)?;
        let pages = self.free.split_off(start + 2);
        let (mut at, mut left) = (offset, length);
        let mut segments = Vec::new();
        for page in &pages {
            let part = left.min(PAGE - at);
            segments.push(Segment { address: page + at, length: part });
            (at, left) = (0, left - part);
        }
        Some((pages, segments))
    }

    pub(super) fn give(&mut self, pages: &[u64]) {
        self.free.extend_from_slice(pages);
    }

    /// Overwrites some pages of a command that has ended, as another user of the memory would.
    pub(super) fn reuse(&self, pages: &[u64], memory: &Shared, rng: &mut Rng) {
        let mut memory = memory.borrow_mut();
        for page in pages {
            if rng.one_in(2) {
                let fill = rng.below(1 << 62).to_le_bytes();
                memory.write(*page, &fill.repeat(4096 / fill.len()));
            }
        }
    }

    pub(super) fn scatter(&self, segments: &[Segment], mut bytes: &[u8], memory: &Shared) {
        let mut memory = memory.borrow_mut();
        for segment in segments {
            let (part, rest) = bytes.split_at(usize::try_from(segment.length).expect("within a page"));
            memory.write(segment.address, part);
            bytes = rest;
        }
    }

    pub(super) fn gather(&self, segments: &[Segment], memory: &HostMemory) -> Vec<u8> {
        let part = |segment: &Segment| {
            let length = usize::try_from(segment.length).expect("within a page");
            memory.slice(segment.address, length).expect("a page of memory")
        };
        segments.iter().map(part).collect::<Vec<_>>().concat()
    }

    /// Points `entry` to the segments by PRPs or an SGL, with lists in pages of their own.
    pub(super) fn point(
        &mut self,
        entry: &mut SubmissionQueueEntry,
        segments: &[Segment],
        pages: &mut Vec<u64>,
        memory: &Shared,
        rng: &mut Rng,
    ) {
        let mut page = || {
            let page = self.free.pop().expect("pages were left for lists");
            pages.push(page);
            page
        };
        let mut memory = memory.borrow_mut();
        if rng.one_in(3) {
            entry.flags |= SGL;
            entry.data_pointer = match segments {
                [one] => [one.address, one.length],
                _ => {
                    let words = segments.iter().flat_map(|one| [one.address, one.length]);
                    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                    // The list may be anywhere, even across the end of a page.
                    let room = (PAGE - bytes.len() as u64) / 16;
                    let at = page() + 16 * rng.below(room + 1);
                    memory.write(at, &bytes);
                    [at, bytes.len() as u64 | LAST_SEGMENT]
                }
            };
            return;
        }
        let list: Vec<u64> = segments[1..].iter().map(|one| one.address).collect();
        let second = match list[..] {
            [] => 0,
            [one] => one,
            _ => {
                // The list often begins near the end of its page, so that it continues in another
                // page.
                let room = 1 + if rng.one_in(2) { rng.below(list.len() as u64) } else { PAGE / 8 - 1 };
                let at = page() + PAGE - 8 * room;
                let here = usize::try_from(room).expect("few").min(list.len());
                let (mut first, rest) = list.split_at(here);
                let mut bytes: Vec<u8> = Vec::new();
                let mut next = None;
                if !rest.is_empty() {
                    let on = page();
                    next = Some(on);
                    first = &list[..here - 1];
                    let more: Vec<u8> = list[here - 1..].iter().flat_map(|one| one.to_le_bytes()).collect();
                    memory.write(on, &more);
                }
                bytes.extend(first.iter().chain(&next).flat_map(|one| one.to_le_bytes()));
                memory.write(at, &bytes);
                at
            }
        };
        entry.data_pointer = [segments[0].address, second];
    }
}
