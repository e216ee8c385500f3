//! The table of pages: which page or run has the bytes of each place.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::guard::{Entry, Version};
use super::{PAGE, RUN, RUN_PAGES};

/// How many runs a chunk of the table describes.
const CHUNK_RUNS: usize = 256;
/// The most runs that one change locks at once.
pub(super) const LOCKED_MAX: usize = 32;
/// The bit of a page's name that says that the page is part of a run's block.
const IN_BLOCK: usize = 1;

/// The name of a page by itself, at `address`.
pub(super) const fn alone(address: usize) -> usize {
    address
}

/// The name of a page in the block of a run.
pub(super) const fn in_block(block: usize, page: usize) -> usize {
    (block + page * PAGE) | IN_BLOCK
}

/// Whether the name of a page says that the page is part of a run's block.
pub(super) const fn is_in_block(name: usize) -> bool {
    name & IN_BLOCK != 0
}

/// The address of a page's bytes.
pub(super) const fn address(name: usize) -> usize {
    name & !IN_BLOCK
}

/// The name of what is freed as a whole: the block of a page, or the page itself.
pub(super) const fn whole(name: usize) -> usize {
    if is_in_block(name) { name & !(RUN - 1) | IN_BLOCK } else { name }
}

/// What is known of a run beside its pages. A writer of one run writes to the cache line of its
/// head and to that of an entry, and to no other that threads share.
#[derive(Debug)]
struct Head {
    version: Version,
    /// For writers: the address of the run's block, and a bit for each page of the block that was
    /// never in the table.
    block: AtomicUsize,
}

/// A part of the table. All zero bits are a part without pages.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Chunk {
    heads: [Head; CHUNK_RUNS],
    entries: [[Entry; RUN_PAGES]; CHUNK_RUNS],
}

/// A run of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    chunk: &'a Chunk,
    index: usize,
}

impl<'a> Run<'a> {
    #[inline]
    pub(super) fn version(self) -> &'a Version {
        &self.chunk.heads[self.index].version
    }

    #[inline]
    pub(super) fn entries(self) -> &'a [Entry; RUN_PAGES] {
        &self.chunk.entries[self.index]
    }

    /// The run's block, 0 for none, and its pages that were never in the table. For the holder of
    /// the run's lock.
    pub(super) fn block(self) -> (usize, u16) {
        let block = self.chunk.heads[self.index].block.load(Ordering::Relaxed);
        (block & !(RUN - 1), u16::try_from(block & (RUN - 1)).unwrap_or_default())
    }

    pub(super) fn set_block(self, block: usize, spare: u16) {
        let block = if block == 0 { 0 } else { block | usize::from(spare) };
        self.chunk.heads[self.index].block.store(block, Ordering::Relaxed);
    }
}

/// Runs from which other writers are kept until this is dropped.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    table: &'a Table,
    first: usize,
    /// A bit for each run that is locked.
    runs: u32,
}

/// The table of a whole medium.
#[derive(Debug)]
pub(super) struct Table {
    chunks: Box<[AtomicPtr<Chunk>]>,
    /// Held while a chunk is made.
    growing: Mutex<()>,
}

impl Table {
    /// A table for up to `bytes` bytes, none of which has a page.
    pub(super) fn new(bytes: u64) -> Self {
        let runs = usize::try_from(bytes.div_ceil(RUN as u64)).unwrap_or(usize::MAX);
        let empty = vec![0_usize; runs.div_ceil(CHUNK_RUNS)].into_boxed_slice();
        // SAFETY: an `AtomicPtr` has the size and alignment of a `usize`, and null is all zero
        // bits. Memory that is zeroed from the beginning takes no space until it is written.
        let chunks = unsafe { Box::from_raw(Box::into_raw(empty) as *mut [AtomicPtr<Chunk>]) };
        Self { chunks, growing: Mutex::new(()) }
    }

    /// A run; `None` if it has no page and never had one.
    #[inline]
    pub(super) fn run(&self, run: usize) -> Option<Run<'_>> {
        let chunk = self.chunks.get(run / CHUNK_RUNS)?.load(Ordering::Acquire);
        // SAFETY: a chunk that is in the table stays there until the table is dropped. The pointer
        // was made from a chunk of this type, and all access to it is by atomics.
        let chunk = unsafe { chunk.as_ref() }?;
        Some(Run { chunk, index: run % CHUNK_RUNS })
    }

    /// A run, with the room for its entries.
    pub(super) fn make_run(&self, run: usize) -> Run<'_> {
        if self.run(run).is_none() {
            self.grow(run / CHUNK_RUNS);
        }
        self.run(run).expect("its chunk was made")
    }

    #[cold]
    fn grow(&self, chunk: usize) {
        let growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.chunks[chunk].load(Ordering::Acquire).is_null() {
            let layout = Layout::new::<Chunk>();
            // SAFETY: the layout has a size. All zero bits are a valid chunk: it consists of atomic
            // integers only.
            let made = unsafe { alloc_zeroed(layout) }.cast::<Chunk>();
            if made.is_null() {
                handle_alloc_error(layout);
            }
            self.chunks[chunk].store(made, Ordering::Release);
        }
        drop(growing);
    }

    /// Locks the runs from `first` to `last`, at most [`LOCKED_MAX`] of them, against other
    /// writers. Runs that have no room for entries are made, or are left out.
    #[inline]
    pub(super) fn lock(&self, first: usize, last: usize, makes: bool) -> Locked<'_> {
        let mut locked = Locked { table: self, first, runs: 0 };
        // All writers lock in this order, so that none waits for another in a circle.
        for run in first..=last {
            let of_table = if makes { Some(self.make_run(run)) } else { self.run(run) };
            if let Some(of_table) = of_table {
                of_table.version().lock();
                locked.runs |= 1 << (run - first);
            }
        }
        locked
    }

    /// Waits for threads that are making room for entries: what this thread has changed before is
    /// known to all that make some later.
    pub(super) fn settle(&self) {
        drop(self.growing.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<'a> Locked<'a> {
    /// A run, if it is locked.
    #[inline]
    pub(super) fn run(&self, run: usize) -> Option<Run<'a>> {
        if self.runs >> (run - self.first) & 1 == 1 { self.table.run(run) } else { None }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut runs = self.runs;
        while runs != 0 {
            let run = self.first + runs.trailing_zeros() as usize;
            runs &= runs - 1;
            if let Some(run) = self.table.run(run) {
                run.version().release();
            }
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let used = self.chunks.iter_mut().map(|chunk| *chunk.get_mut()).filter(|chunk| !chunk.is_null());
        used.for_each(|chunk: *mut Chunk| {
            // SAFETY: `grow` allocated the chunk with this layout, and the caller has the only
            // reference to the table. A chunk needs no destructor.
            unsafe { std::alloc::dealloc(ptr::from_mut(&mut *chunk).cast(), Layout::new::<Chunk>()) };
        });
    }
}
