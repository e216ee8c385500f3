//! The memory that a function may reach now, piece by piece.
//!
//! Packets do not cross the end of a 4 KiB page. So a piece is kept once for each page that it
//! touches, and a check looks at one page.

use alloc::vec::Vec;

use super::slab::{NONE, Slab};

/// The device's access to a piece: read, write.
pub(crate) const READ: u8 = 1;
pub(crate) const WRITE: u8 = 2;

/// The most pages that pieces of all commands may touch together: 1 GiB of data.
const PAGES_MAX: u32 = 1 << 18;
/// The longest piece that is kept by page, in bytes.
const BY_PAGE_MAX: u64 = 2 << 20;
/// The most longer pieces, and pieces that belong to no command.
const LONG_MAX: usize = 8192;
/// The number of lists that pages are sorted into, a power of two.
const BUCKETS: usize = 1024;
const PAGE_SHIFT: u32 = 12;
const PAGE: u64 = 1 << PAGE_SHIFT;

/// The part of a piece in one page.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: u64,
    end: u64,
    flags: u8,
    /// The list in this slot, or [`NONE`].
    list: u32,
    /// The next part in the same bucket, and the next part of the same owner.
    next: u32,
    sibling: u32,
}

/// A piece that is not kept by page.
#[derive(Clone, Copy, Debug)]
struct Long {
    start: u64,
    end: u64,
    flags: u8,
    owner: u32,
    list: u32,
}

/// The owner of a piece: a command by its number, with the number of its latest part.
#[derive(Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) number: u32,
    pub(crate) parts: &'a mut u32,
}

/// The memory that a function may reach now.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    buckets: Vec<u32>,
    parts: Slab<Part>,
    long: Vec<Long>,
}

#[inline]
fn bucket(address: u64) -> usize {
    let page = address >> PAGE_SHIFT;
    // Buffers often begin at multiples of larger powers of two.
    let mixed = (page ^ page >> 10 ^ page >> 20) & (BUCKETS as u64 - 1);
    usize::try_from(mixed).unwrap_or(0)
}

impl Grants {
    /// Grants `length` bytes at `address`. False if there is no room, or no such memory.
    #[inline]
    pub(crate) fn add(&mut self, owner: &mut Owner<'_>, piece: (u64, u64), flags: u8, list: u32) -> bool {
        let (mut start, length) = piece;
        let Some(end) = start.checked_add(length) else { return false };
        if length > BY_PAGE_MAX {
            return self.add_long(owner.number, piece, flags, list);
        }
        if self.buckets.is_empty() {
            self.buckets.resize(BUCKETS, NONE);
        }
        while start < end {
            let stop = end.min((start | (PAGE - 1)).saturating_add(1));
            let head = &mut self.buckets[bucket(start)];
            let part = Part { start, end: stop, flags, list, next: *head, sibling: *owner.parts };
            let Some(index) = self.parts.insert(part, PAGES_MAX) else { return false };
            (*head, *owner.parts) = (index, index);
            start = stop;
        }
        true
    }

    /// Grants a piece without looking at pages.
    pub(crate) fn add_long(&mut self, owner: u32, (start, length): (u64, u64), flags: u8, list: u32) -> bool {
        let Some(end) = start.checked_add(length) else { return false };
        if self.long.len() == LONG_MAX {
            return false;
        }
        self.long.push(Long { start, end, flags, owner, list });
        true
    }

    /// Takes back all pieces of an owner.
    #[inline]
    pub(crate) fn remove(&mut self, owner: &mut Owner<'_>) {
        while let Some(part) = self.parts.remove(*owner.parts).copied() {
            let head = &mut self.buckets[bucket(part.start)];
            if *head == *owner.parts {
                *head = part.next;
            } else {
                let mut at = *head;
                while let Some(other) = self.parts.get_mut(at) {
                    if other.next == *owner.parts {
                        other.next = part.next;
                        break;
                    }
                    at = other.next;
                }
            }
            *owner.parts = part.sibling;
        }
        if !self.long.is_empty() {
            self.remove_long(owner.number);
        }
    }

    /// Takes back the pieces of an owner that were granted without looking at pages.
    pub(crate) fn remove_long(&mut self, owner: u32) {
        self.long.retain(|long| long.owner != owner);
    }

    /// Whether all bytes from `start` to `end` may be reached in this way.
    #[inline]
    pub(crate) fn covers(&self, mut start: u64, end: u64, flag: u8) -> bool {
        while start < end {
            let reached = self.reach(start, flag);
            if reached == start {
                return false;
            }
            start = reached;
        }
        true
    }

    /// The end of the contiguous memory from `start`; `start` itself if there is none.
    #[inline]
    fn reach(&self, start: u64, flag: u8) -> u64 {
        let mut at = self.buckets.get(bucket(start)).copied().unwrap_or(NONE);
        while let Some(part) = self.parts.get(at) {
            if part.start <= start && start < part.end && part.flags & flag != 0 {
                return part.end;
            }
            at = part.next;
        }
        let long =
            self.long.iter().find(|long| long.start <= start && start < long.end && long.flags & flag != 0);
        long.map_or(start, |long| long.end)
    }

    /// The lists of which some bytes are between `start` and `end`, which are in one page.
    pub(crate) fn lists_at(&self, start: u64, end: u64) -> impl Iterator<Item = u32> {
        let mut at = self.buckets.get(bucket(start)).copied().unwrap_or(NONE);
        let parts = core::iter::from_fn(move || {
            let part = self.parts.get(at)?;
            at = part.next;
            Some((part.start, part.end, part.list))
        });
        let long = self.long.iter().map(|long| (long.start, long.end, long.list));
        let here = move |(from, to, list): &(u64, u64, u32)| *list != NONE && *from < end && start < *to;
        parts.chain(long).filter(here).map(|(_, _, list)| list)
    }
}
