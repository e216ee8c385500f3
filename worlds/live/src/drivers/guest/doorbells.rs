//! Doorbells in memory shared with the client. The client rings by a store, without a notification.
//!
//! A value that was taken is replaced by a value that no doorbell has, so that a second store of an
//! equal value is noticed.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// Doorbells in memory shared with the client, and the file that holds them.
pub(super) struct Doorbells {
    file: OwnedFd,
    place: Place,
    pages: Pages,
    /// Number of doorbells that a usual look covers.
    usual: Cell<usize>,
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
        let doorbells = Self { file, place, pages, usual: Cell::new(ALWAYS) };
        doorbells.clear();
        Ok(doorbells)
    }

    /// The doorbells' place in the region.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// A descriptor of the file, for the client.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    fn each(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is page-aligned and lives as long as `self`.
        // Other processes access it by stores of whole double words, as we do.
        unsafe { std::slice::from_raw_parts(self.pages.base().as_ptr().cast(), self.pages.len() / BYTES) }
    }

    /// Takes the doorbells that were rung, and calls `rung` with each one's offset in the region
    /// and its value.
    #[inline]
    pub(super) fn take(&self, look: Look, mut rung: impl FnMut(u64, u32)) {
        let count = usize::from(self.place.count).min(self.pages.len() / BYTES);
        let count = if look == Look::All { count } else { count.min(self.usual.get()) };
        for (index, doorbell) in self.each()[..count].iter().enumerate() {
            if doorbell.load(Ordering::Relaxed) == NOTHING {
                continue;
            }
            // Acquire: the stores that the client made before it rang are visible from here on.
            let value = doorbell.swap(NOTHING, Ordering::AcqRel);
            self.usual.set(self.usual.get().max(index + 1));
            rung(self.place.offset + (index * BYTES) as u64, value);
        }
    }

    /// Forgets all rings that were not taken.
    pub(super) fn clear(&self) {
        for doorbell in self.each() {
            doorbell.store(NOTHING, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Doorbells({:?})", self.place)
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
}
