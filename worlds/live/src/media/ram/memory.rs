//! Memory for pages and blocks of pages, which threads take from and give back to.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::{PAGE, RUN, RUN_PAGES};

/// How many blocks are mapped at once.
const AREA_BLOCKS: usize = 256;
/// Length of a mapping: its blocks are aligned to their length.
const AREA: usize = (AREA_BLOCKS + 1) * RUN;
/// How many free blocks keep their memory for the next writes. The others give it back.
const WARM_MAX: usize = 64;

/// All memory of a medium.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Free>);

/// What is free, by address.
#[derive(Debug, Default)]
struct Free {
    areas: Vec<usize>,
    /// Free blocks, the last ones of which have memory.
    blocks: Vec<usize>,
    /// How many of the free blocks have memory.
    warm: usize,
    /// Blocks that were divided into pages and have free ones, with a bit for each free page.
    divided: BTreeMap<usize, u16>,
    /// Blocks that are not free.
    used: usize,
}

impl Memory {
    /// Takes a block of [`RUN`] bytes with unspecified contents; `None` if the machine has no more
    /// memory.
    pub(super) fn take_block(&self) -> Option<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take_block()
    }

    /// Gives a block back.
    pub(super) fn give_block(&self, block: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).give_block(block);
    }

    /// Takes pages of [`PAGE`] bytes with unspecified contents, up to 16 at once. Takes none if the
    /// machine has no more memory.
    pub(super) fn take_pages(&self, pages: &mut Vec<usize>) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (block, mask) = match free.divided.pop_first() {
            Some(divided) => divided,
            None => match free.take_block() {
                Some(block) => (block, u16::MAX),
                None => return,
            },
        };
        drop(free);
        pages.extend((0..RUN_PAGES).filter(|page| mask >> page & 1 == 1).map(|page| block + page * PAGE));
    }

    /// Gives pages back.
    pub(super) fn give_pages(&self, pages: impl Iterator<Item = usize>) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for page in pages {
            let block = page & !(RUN - 1);
            let mask = free.divided.entry(block).or_default();
            *mask |= 1 << ((page - block) / PAGE);
            if *mask == u16::MAX {
                free.divided.remove(&block);
                free.give_block(block);
            }
        }
    }

    /// Bytes of blocks that are used or divided into pages.
    pub(super) fn used_bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).used * RUN
    }
}

impl Free {
    fn take_block(&mut self) -> Option<usize> {
        if self.blocks.is_empty() {
            self.map();
        }
        let block = self.blocks.pop()?;
        self.warm = self.warm.saturating_sub(1);
        self.used += 1;
        Some(block)
    }

    fn give_block(&mut self, block: usize) {
        self.used -= 1;
        if self.warm < WARM_MAX {
            self.warm += 1;
            return self.blocks.push(block);
        }
        let start = ptr::with_exposed_provenance_mut(block);
        // SAFETY: the block is a part of a mapping of ours, and is free: no reference leads to it.
        // Without its memory, it reads as zeroes. A refusal costs memory only.
        let _ = unsafe { madvise(start, RUN, Advice::LinuxDontNeed) };
        let cold = self.blocks.len() - self.warm;
        self.blocks.push(block);
        let last = self.blocks.len() - 1;
        self.blocks.swap(cold, last);
    }

    #[cold]
    fn map(&mut self) {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let Ok(area) = (unsafe { mmap_anonymous(ptr::null_mut(), AREA, access, kind) }) else { return };
        let area = area.expose_provenance();
        self.areas.push(area);
        let first = area.next_multiple_of(RUN);
        self.blocks.extend((0..AREA_BLOCKS).rev().map(|block| first + block * RUN));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for area in &self.0.get_mut().unwrap_or_else(PoisonError::into_inner).areas {
            // SAFETY: the area is a mapping of this length. Everything that refers to it, buffers
            // included, holds the `Memory`.
            let _ = unsafe { munmap(ptr::with_exposed_provenance_mut(*area), AREA) };
        }
    }
}
