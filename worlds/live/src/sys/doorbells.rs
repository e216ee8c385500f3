//! A page of doorbells that two processes share: one stores, and the other looks.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::ProtFlags;

use crate::sys::faults::Guard;
use crate::sys::pages::Pages;
use crate::sys::shared::{MapError, check_size};

/// Bytes of a doorbell.
const DOORBELL: usize = 4;

/// A mapping of a file that holds doorbells, unmapped when dropped.
pub struct Doorbells {
    /// Dropped before the pages that it guards.
    _guard: Guard,
    pages: Pages,
}

impl Doorbells {
    /// Maps `length` bytes at `offset` of the file behind `descriptor`.
    ///
    /// # Errors
    /// When the file is too short, is no file of memory, or can't be mapped.
    pub fn map(descriptor: &OwnedFd, offset: u64, length: u64) -> Result<Self, MapError> {
        let length = usize::try_from(length).ok().filter(|length| *length > 0).ok_or(MapError::Range)?;
        let needed = offset.checked_add(length as u64).ok_or(MapError::Range)?;
        check_size(descriptor, needed)?;
        let pages = Pages::of_file(descriptor, offset, length, ProtFlags::READ | ProtFlags::WRITE);
        let pages = pages.map_err(MapError::Io)?;
        let guard = Guard::new(pages.base(), pages.len()).map_err(MapError::Io)?;
        Ok(Self { _guard: guard, pages })
    }

    /// The doorbell `offset` bytes from the beginning, if it is within the mapping and `offset` a
    /// multiple of 4.
    fn at(&self, offset: usize) -> Option<&AtomicU32> {
        let place = self.pages.place(offset, DOORBELL).filter(|_| offset.is_multiple_of(DOORBELL))?;
        // SAFETY: the doorbell lies within the mapping, which lives as long as `self`. The mapping
        // begins at the start of a page, so the doorbell is aligned. This side reaches it only
        // through atomics.
        Some(unsafe { AtomicU32::from_ptr(place.as_ptr().cast()) })
    }

    /// Stores `value` into a doorbell, after all earlier writes to memory. Returns whether the
    /// doorbell exists.
    pub fn ring(&self, offset: u64, value: u32) -> bool {
        let doorbell = usize::try_from(offset).ok().and_then(|offset| self.at(offset));
        doorbell.map(|doorbell| doorbell.store(value, Ordering::Release)).is_some()
    }

    /// Reads a doorbell, before all later reads of memory; `None` if the doorbell does not exist.
    pub fn look(&self, offset: usize) -> Option<u32> {
        self.at(offset).map(|doorbell| doorbell.load(Ordering::Acquire))
    }

    /// Sets all doorbells to 0.
    pub fn clear(&self) {
        for offset in (0..self.pages.len()).step_by(DOORBELL) {
            if let Some(doorbell) = self.at(offset) {
                doorbell.store(0, Ordering::Release);
            }
        }
    }
}

impl fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Doorbells({} B)", self.pages.len())
    }
}

/// Makes a file in memory of `length` zero bytes, whose length is fixed.
///
/// # Errors
/// When the system has no memory or no descriptors left.
pub fn memory_file(name: &str, length: u64) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(file.as_fd(), length)?;
    fcntl_add_seals(file.as_fd(), SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_stores_another_sees() {
        let file = memory_file("doorbells", 0x3000).unwrap();
        let (near, far) =
            (Doorbells::map(&file, 0x1000, 0x1000).unwrap(), Doorbells::map(&file, 0x1000, 0x1000).unwrap());
        assert_eq!(far.look(0xffc), Some(0));
        assert!(near.ring(0xffc, 7) && near.ring(8, 0xdead_beef));
        assert_eq!((far.look(0xffc), far.look(8)), (Some(7), Some(0xdead_beef)));
        far.clear();
        assert_eq!((near.look(0xffc), near.look(8)), (Some(0), Some(0)));
    }

    #[test]
    fn there_are_no_doorbells_outside_or_between() {
        let file = memory_file("doorbells", 0x1000).unwrap();
        let doorbells = Doorbells::map(&file, 0, 0x1000).unwrap();
        for offset in [1, 2, 0x1000, 0xfff, u64::MAX, u64::MAX - 3] {
            assert!(!doorbells.ring(offset, 1), "{offset:#x}");
        }
        assert!(matches!(Doorbells::map(&file, 0, 0x2000), Err(MapError::BeyondEnd { .. })));
        assert!(matches!(Doorbells::map(&file, u64::MAX, 0x1000), Err(MapError::Range)));
        assert!(matches!(Doorbells::map(&file, 0, 0), Err(MapError::Range)));
    }
}
