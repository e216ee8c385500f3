//! Pages that are mapped into this process, and unmapped when dropped.
//!
//! Others may change the pages at any time: processes that map the same file, or a device. So no
//! reference to them is made here, only raw places.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

/// A mapping at an address of the system's choice.
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
    length: usize,
}

impl Pages {
    /// Maps `length` bytes at `offset` of `file`, shared with all other processes that map them.
    ///
    /// # Errors
    /// When the system refuses, such as for a length of 0 or an offset within a page.
    pub(crate) fn of_file(
        file: impl AsFd,
        offset: u64,
        length: usize,
        access: ProtFlags,
    ) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, file, offset)
        }?;
        Self::new(base, length)
    }

    /// Maps `length` zero bytes that may be read and written.
    ///
    /// # Errors
    /// When the system refuses, such as for a length of 0.
    pub(crate) fn anonymous(length: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // Not private: a fork would make copies, and a device would go on with the originals.
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing of ours.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::SHARED) }?;
        Self::new(base, length)
    }

    fn new(base: *mut std::ffi::c_void, length: usize) -> io::Result<Self> {
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    /// The first byte, at the start of a page.
    #[inline]
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length of the mapping in bytes.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// The place of the `length` bytes at `offset`, if all of them are mapped. The place is valid
    /// as long as the mapping.
    #[inline]
    pub(crate) fn place(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        (offset <= self.length && length <= self.length - offset)
            // SAFETY: the sum is within the mapping, or just behind it where nothing is accessed.
            .then(|| unsafe { self.base.add(offset) })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: base and length are those of a mapping that this value made and owns. Code with a
        // place in it got the place from `self` and has not kept it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mapped_has_a_place() {
        let pages = Pages::anonymous(0x2000).unwrap();
        assert_eq!((pages.len(), pages.place(0, 0x2000)), (0x2000, Some(pages.base())));
        for (offset, length) in [(0x1fff, 1), (0x2000, 0), (0, 0)] {
            assert!(pages.place(offset, length).is_some(), "{offset:#x} {length:#x}");
        }
        for (offset, length) in [(0x2000, 1), (1, 0x2000), (usize::MAX, 2), (2, usize::MAX)] {
            assert_eq!(pages.place(offset, length), None, "{offset:#x} {length:#x}");
        }
        assert!(Pages::anonymous(0).is_err());
    }
}
