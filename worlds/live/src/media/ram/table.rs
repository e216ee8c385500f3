//! The table of pages: which page or run has the bytes of each place.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::guard::{Entry, Version};
use super::{PAGE, RUN, RUN_PAGES};

/// How many runs a chunk of the table describes.
const CHUNK_RUNS: usize = 256;
/// How many locks writers share: those of runs whose numbers differ by a multiple of this are the
/// same.
const LOCKS: usize = 256;
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

/// A part of the table. All zero bits are a part without pages.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Chunk {
    versions: [Version; CHUNK_RUNS],
    /// For writers: the address of each run's block, and a bit for each page of the block that was
    /// never in the table.
    blocks: [AtomicUsize; CHUNK_RUNS],
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
        &self.chunk.versions[self.index]
    }

    #[inline]
    pub(super) fn entries(self) -> &'a [Entry; RUN_PAGES] {
        &self.chunk.entries[self.index]
    }

    /// The run's block, 0 for none, and its pages that were never in the table. For the holder of
    /// the run's lock.
    pub(super) fn block(self) -> (usize, u16) {
        let block = self.chunk.blocks[self.index].load(Ordering::Relaxed);
        (block & !(RUN - 1), u16::try_from(block & (RUN - 1)).unwrap_or_default())
    }

    pub(super) fn set_block(self, block: usize, spare: u16) {
        let block = if block == 0 { 0 } else { block | usize::from(spare) };
        self.chunk.blocks[self.index].store(block, Ordering::Relaxed);
    }
}

/// A lock with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lock(Mutex<()>);

/// The table of a whole medium.
#[derive(Debug)]
pub(super) struct Table {
    chunks: Box<[AtomicPtr<Chunk>]>,
    locks: Box<[Lock]>,
    /// Held while a chunk is made.
    growing: Mutex<()>,
}

impl Table {
    /// A table for up to `bytes` bytes, none of which has a page.
    pub(super) fn new(bytes: u64) -> Self {
        let runs = usize::try_from(bytes.div_ceil(RUN as u64)).unwrap_or(usize::MAX);
        let empty = vec![0_usize; runs.div_ceil(CHUNK_RUNS)].into_boxed_slice();
        // SAFETY: an `AtomicPtr` has the size and alignment of a `usize`, and null is all zero bits.
        // Memory that is zeroed from the beginning takes no space until it is written.
        let chunks = unsafe { Box::from_raw(Box::into_raw(empty) as *mut [AtomicPtr<Chunk>]) };
        let locks = (0..LOCKS).map(|_| Lock::default()).collect();
        Self { chunks, locks, growing: Mutex::new(()) }
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

    /// Locks the runs from `first` to `last`, at most [`LOCKED_MAX`] of them, against other writers.
    pub(super) fn lock(&self, first: usize, last: usize) -> [Option<MutexGuard<'_, ()>>; LOCKED_MAX] {
        let mut guards = [const { None }; LOCKED_MAX];
        let lock =
            |run: usize| Some(self.locks[run % LOCKS].0.lock().unwrap_or_else(PoisonError::into_inner));
        // All writers lock in the order of the locks, so that none waits for another in a circle.
        let wraps = (first..=last).find(|run| run.is_multiple_of(LOCKS)).unwrap_or(first);
        for (guard, run) in guards.iter_mut().zip((wraps..=last).chain(first..wraps)) {
            *guard = lock(run);
        }
        guards
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
