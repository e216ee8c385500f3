//! Doorbells in memory shared with the client. The client rings by a store, without a notification.
//!
//! A value that was taken is replaced by a value that no doorbell has, so that a second store of an
//! equal value is noticed.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use assemblies::guest::Doorbells as Place;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::ProtFlags;

use crate::sys::pages::Pages;

/// Marks a doorbell that was not rung: no queue has this many entries.
const NOTHING: u32 = u32::MAX;
/// Length of a doorbell in bytes.
const BYTES: usize = 4;
/// Number of doorbells that are always looked at: those of one cache line.
const ALWAYS: usize = 16;

/// Which doorbells to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The doorbells up to the last one that was ever rung, which takes next to no time.
    Usual,
    /// All doorbells, page by page, which takes a good part of a microsecond.
    All,
}

/// The doorbells that no lane looks at belong to the home thread.
const HOME: u8 = 0;

/// Doorbells in memory shared with the client, and the file that holds them.
pub(super) struct Doorbells {
    shared: Arc<Shared>,
    /// Number of doorbells that a usual look covers.
    usual: Cell<usize>,
}

/// The part of the doorbells that all threads use.
struct Shared {
    file: OwnedFd,
    place: Place,
    pages: Pages,
    /// The thread that looks at each doorbell: lanes have numbers from 1 on. A lane takes the
    /// doorbells of a queue when it gets the queue, before the client can ring them.
    owners: Vec<AtomicU8>,
}

// SAFETY: the mapping belongs to no thread, and its double words are only reached as atomics.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

/// The doorbells of the queues that a lane has.
#[derive(Default)]
pub(super) struct LaneDoorbells {
    shared: Option<Arc<Shared>>,
    /// Number of the lane, from 1 on.
    lane: u8,
    /// Their indices.
    own: Vec<usize>,
}

/// The doorbells on their way to a lane.
#[derive(Clone)]
pub(super) struct ForLanes(Arc<Shared>);

impl LaneDoorbells {
    /// No doorbells yet, for the lane called `lane`, from 1 on.
    pub(super) const fn new(lane: u8) -> Self {
        Self { shared: None, lane, own: Vec::new() }
    }

    /// Uses the doorbells of another client, or none.
    pub(super) fn set(&mut self, doorbells: Option<ForLanes>) {
        let own = std::mem::take(&mut self.own);
        self.shared = doorbells.map(|ForLanes(shared)| shared);
        self.own(own.into_iter());
    }

    /// Looks at the doorbells at `indices` from now on, and leaves all others to the home thread.
    pub(super) fn own(&mut self, indices: impl Iterator<Item = usize>) {
        let own: Vec<_> = indices.collect();
        if let Some(shared) = &self.shared {
            let give = |index: &usize, owner| {
                if let Some(place) = shared.owners.get(*index) {
                    place.store(owner, Ordering::Release);
                }
            };
            self.own.iter().filter(|index| !own.contains(index)).for_each(|index| give(index, HOME));
            own.iter().for_each(|index| give(index, self.lane));
        }
        self.own = own;
    }

    /// Whether there are doorbells that a client may ring by stores.
    pub(super) const fn is_shared(&self) -> bool {
        self.shared.is_some() && !self.own.is_empty()
    }

    /// Takes the doorbells that were rung, as [`Doorbells::take`] does.
    #[inline]
    pub(super) fn take(&self, mut rung: impl FnMut(u64, u32)) {
        let Some(shared) = &self.shared else { return };
        for index in &self.own {
            let Some(doorbell) = shared.each().get(*index) else { continue };
            if let Some(value) = taken(doorbell) {
                rung(shared.offset(*index), value);
            }
        }
    }
}

/// Takes the value of a doorbell that was rung.
#[inline]
fn taken(doorbell: &AtomicU32) -> Option<u32> {
    if doorbell.load(Ordering::Relaxed) == NOTHING {
        return None;
    }
    // Acquire: the stores that the client made before it rang are visible from here on.
    Some(doorbell.swap(NOTHING, Ordering::AcqRel)).filter(|value| *value != NOTHING)
}

impl Shared {
    fn each(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is page-aligned and lives as long as `self`.
        // Other processes access it by stores of whole double words, as we do.
        unsafe { std::slice::from_raw_parts(self.pages.base().as_ptr().cast(), self.pages.len() / BYTES) }
    }

    /// Where a doorbell is in the region.
    const fn offset(&self, index: usize) -> u64 {
        self.place.offset + (index * BYTES) as u64
    }
}

impl Doorbells {
    /// Creates a file as long as the region that `place` is a part of, with no doorbell rung.
    pub(super) fn new(place: Place) -> io::Result<Self> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let length = usize::try_from(place.length).map_err(too_long)?;
        let file = memfd_create("farlane doorbells", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, place.region_length)?;
        // The seals keep the client from truncating the file under our mapping.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let pages = Pages::of_file(&file, place.offset, length, ProtFlags::READ | ProtFlags::WRITE)?;
        let owners = (0..place.count).map(|_| AtomicU8::new(HOME)).collect();
        let doorbells =
            Self { shared: Arc::new(Shared { file, place, pages, owners }), usual: Cell::new(ALWAYS) };
        doorbells.clear();
        Ok(doorbells)
    }

    /// The doorbells' place in the region.
    pub(super) fn place(&self) -> Place {
        self.shared.place
    }

    /// The doorbells, for lanes.
    pub(super) fn for_lanes(&self) -> ForLanes {
        ForLanes(Arc::clone(&self.shared))
    }

    /// Looks again at the doorbells of a lane that is gone.
    pub(super) fn take_over(&self, lane: u8) {
        for owner in &self.shared.owners {
            let _ = owner.compare_exchange(lane, HOME, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// A descriptor of the file, for the client.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        self.shared.file.try_clone()
    }

    /// Takes the doorbells that were rung, and calls `rung` with each one's offset in the region
    /// and its value.
    #[inline]
    pub(super) fn take(&self, look: Look, mut rung: impl FnMut(u64, u32)) {
        let shared = &*self.shared;
        let count = usize::from(shared.place.count).min(shared.pages.len() / BYTES);
        let count = if look == Look::All { count } else { count.min(self.usual.get()) };
        for (index, doorbell) in shared.each()[..count].iter().enumerate() {
            if doorbell.load(Ordering::Relaxed) == NOTHING
                || shared.owners[index].load(Ordering::Acquire) != HOME
            {
                continue;
            }
            let Some(value) = taken(doorbell) else { continue };
            self.usual.set(self.usual.get().max(index + 1));
            rung(shared.offset(index), value);
        }
    }

    /// Forgets all rings that were not taken.
    pub(super) fn clear(&self) {
        for doorbell in self.shared.each() {
            doorbell.store(NOTHING, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Doorbells({:?})", self.shared.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shared::{Mapping, SharedMemory};

    #[test]
    fn every_store_of_a_client_is_seen_once() {
        let place = Place { offset: 0x1000, length: 0x1000, region_length: 0x4000, count: 8 };
        let doorbells = Doorbells::new(place).unwrap();
        let mut client = SharedMemory::new();
        let mapping =
            Mapping { address: 0x1000, length: 0x1000, offset: 0x1000, readable: true, writable: true };
        client.map(doorbells.share().unwrap(), mapping).unwrap();
        let take = || {
            let mut rung = Vec::new();
            doorbells.take(Look::All, |offset, value| rung.push((offset, value)));
            rung
        };
        assert_eq!(take(), []);
        for _ in 0..2 {
            client.write(0x1008, &5_u32.to_le_bytes()).unwrap();
            client.write(0x1000, &0_u32.to_le_bytes()).unwrap();
            assert_eq!(take(), [(0x1000, 0), (0x1008, 5)], "the same value again is rung again");
        }
        assert_eq!(take(), []);
        // Behind the last doorbell there is none.
        client.write(0x1020, &1_u32.to_le_bytes()).unwrap();
        assert_eq!(take(), []);
        client.write(0x1004, &9_u32.to_le_bytes()).unwrap();
        doorbells.clear();
        assert_eq!(take(), []);
        assert!(rustix::fs::ftruncate(doorbells.share().unwrap(), 0).is_err());
    }

    #[test]
    fn each_doorbell_is_looked_at_by_one_thread() {
        let place = Place { offset: 0, length: 0x1000, region_length: 0x1000, count: 8 };
        let doorbells = Doorbells::new(place).unwrap();
        let mut lane = LaneDoorbells::new(1);
        lane.own([2, 3].into_iter());
        assert!(!lane.is_shared());
        lane.set(Some(doorbells.for_lanes()));
        assert!(lane.is_shared());
        let ring = || doorbells.shared.each().iter().for_each(|one| one.store(7, Ordering::Relaxed));
        let home = || {
            let mut rung = Vec::new();
            doorbells.take(Look::All, |offset, _| rung.push(offset));
            rung
        };
        let of_lane = |lane: &LaneDoorbells| {
            let mut rung = Vec::new();
            lane.take(|offset, value| rung.push((offset, value)));
            rung
        };
        ring();
        assert_eq!((home(), of_lane(&lane)), (vec![0, 4, 16, 20, 24, 28], vec![(8, 7), (12, 7)]));
        // A queue goes, another one comes.
        lane.own([3, 4].into_iter());
        ring();
        assert_eq!((home(), of_lane(&lane)), (vec![0, 4, 8, 20, 24, 28], vec![(12, 7), (16, 7)]));
        doorbells.take_over(2);
        ring();
        assert_eq!(home().len(), 6);
        doorbells.take_over(1);
        assert_eq!(home(), [12, 16], "what a lane leaves is not lost");
    }
}
