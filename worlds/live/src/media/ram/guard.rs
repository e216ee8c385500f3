//! How readers and writers of the same pages keep out of each other's way without a lock on a read.
//!
//! Pages never change while an entry of the table refers to them, but for their first contents. A
//! writer puts new pages into the table, and retires the old ones. Two things follow for a reader:
//!
//! - **It must not lose a page while it uses it.** The reader writes the page's name into a slot of
//!   its own before it uses the page. A writer frees a retired page only when no slot has its name.
//! - **It must not see half of a write.** Each run has a version, which has a mark while a writer
//!   changes the run's entries. A reader takes the entries of all its runs, and then checks that no
//!   version has changed.
//!
//! One check serves both. The fence of the reader is between its slots and its check, and the
//! fence of the writer between its versions and its look at the slots. If the reader's fence comes
//! first, the writer sees the slots. Otherwise the reader sees the new version, and tries again.
//! A reader of a single page checks the page's entry in place of the version: one page is never
//! half of a write. A reader writes only to slots of its own thread, which no other thread writes.

use super::sync::{
    Arc, AtomicU64, AtomicUsize, Mutex, Ordering, Plant, PoisonError, SLOTS, fence, pause, planted,
};

/// The lock of a run's writers, and how often its entries have changed.
#[derive(Debug)]
pub(super) struct Version(AtomicU64);

/// The bit that is set while the entries change.
const CHANGING: u64 = 1;
/// The bit that is set while a thread holds the lock. Readers do not heed it.
const LOCKED: u64 = 2;
/// The number of changes is counted in these units.
const ONE: u64 = 4;

/// A page in the table: 0, or the page's name.
#[derive(Debug)]
pub(super) struct Entry(AtomicUsize);

/// Slots of one thread, each with the name of a page or block that the thread uses, or 0.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Slots([AtomicUsize; SLOTS]);

/// The slots of all threads.
#[derive(Debug)]
pub(super) struct Registry(Mutex<Vec<Arc<Slots>>>);

impl Version {
    #[allow(dead_code, reason = "of models: the table makes its versions of zeroed memory")]
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Begins to read the entries of a run: `None` while they change.
    #[inline]
    pub(super) fn begin_read(&self) -> Option<u64> {
        let version = self.0.load(Ordering::Acquire);
        (version & CHANGING == 0).then_some(version & !LOCKED)
    }

    /// Whether the entries have not changed since `begin_read`. The reader has passed
    /// [`protect`] before.
    #[inline]
    pub(super) fn is_still(&self, version: u64) -> bool {
        planted(Plant::NoCheck) || self.0.load(Ordering::Relaxed) & !LOCKED == version
    }

    /// Keeps other writers from the run until [`Version::release`].
    #[inline]
    pub(super) fn lock(&self) {
        let mut attempts = 0;
        loop {
            let version = self.0.load(Ordering::Relaxed);
            let free = version & LOCKED == 0;
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            if free && self.0.compare_exchange(version, version | LOCKED, acquire, relaxed).is_ok() {
                return;
            }
            pause(attempts);
            attempts += 1;
        }
    }

    /// Begins to change the entries of a run, whose lock the writer holds.
    #[inline]
    pub(super) fn begin_change(&self) {
        if !planted(Plant::Silent) {
            let version = self.0.load(Ordering::Relaxed);
            self.0.store(version | CHANGING, Ordering::Relaxed);
            fence(Ordering::Release);
        }
    }

    /// Ends the changes, if there were any, and lets other writers go on.
    #[inline]
    pub(super) fn release(&self) {
        let version = self.0.load(Ordering::Relaxed);
        let after = version & !(CHANGING | LOCKED);
        self.0
            .store(if version & CHANGING == 0 { after } else { after.wrapping_add(ONE) }, Ordering::Release);
    }
}

impl Entry {
    #[allow(dead_code, reason = "of models: the table makes its entries of zeroed memory")]
    pub(super) fn new(name: usize) -> Self {
        Self(AtomicUsize::new(name))
    }

    /// The page's name. Its contents are those that the writer gave to the page.
    #[inline]
    pub(super) fn load(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the entry has not changed since it was loaded. The reader has passed [`protect`]
    /// before. This is the check of a reader that takes a single page.
    #[inline]
    pub(super) fn is_still(&self, name: usize) -> bool {
        planted(Plant::NoCheck) || self.load() == name
    }

    pub(super) fn store(&self, name: usize) {
        self.0.store(name, Ordering::Release);
    }
}

/// Makes the slots of this thread visible to all writers that free something later.
#[inline]
pub(super) fn protect() {
    if !planted(Plant::NoFence) {
        fence(Ordering::SeqCst);
    }
}

impl Slots {
    /// Protects a page or block. It may be used once a version was checked after [`protect`].
    #[inline]
    pub(super) fn set(&self, slot: usize, name: usize) {
        // A thread that sees this name, or a later one, sees all reads under an earlier one ended.
        self.0[slot].store(name, Ordering::Release);
    }

    /// Ends the protection: the reads before have ended.
    #[inline]
    pub(super) fn clear(&self, slot: usize) {
        self.0[slot].store(0, Ordering::Release);
    }
}

impl Registry {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Slots for the calling thread, all of them empty.
    pub(super) fn register(&self) -> Arc<Slots> {
        let slots = Arc::new(Slots(std::array::from_fn(|_| AtomicUsize::new(0))));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Slots that only this list refers to belonged to a thread that has ended.
        all.retain(|slots| Arc::strong_count(slots) > 1);
        all.push(Arc::clone(&slots));
        slots
    }

    /// The names of all pages and blocks that readers use, in order. What was taken out of the
    /// table before, and is not among them, has no reader. Returns how many slots there are.
    pub(super) fn held(&self, held: &mut Vec<usize>) -> usize {
        held.clear();
        if planted(Plant::NoScan) {
            return 0;
        }
        fence(Ordering::SeqCst);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for slots in all.iter() {
            let names = slots.0.iter().map(|slot| slot.load(Ordering::Acquire));
            held.extend(names.filter(|name| *name != 0));
        }
        let slots = all.len() * SLOTS;
        drop(all);
        held.sort_unstable();
        slots
    }
}
