//! The first pages of a BAR, mapped into this process.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags};

/// Registers of a device. Accesses are volatile, have 4 bytes each, and keep the order of the
/// program.
#[derive(Debug)]
pub struct Registers {
    base: NonNull<u8>,
    length: usize,
}

impl Registers {
    /// Maps `length` bytes, whole pages, at `offset` of `device`.
    pub(super) fn map(device: &File, offset: u64, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                device,
                offset,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    fn place(&self, offset: u32) -> Option<*mut u32> {
        let offset = usize::try_from(offset).ok()?;
        let inside = offset.checked_add(4).is_some_and(|end| end <= self.length);
        // SAFETY: the sum is within the mapping.
        (inside && offset.is_multiple_of(4)).then(|| unsafe { self.base.as_ptr().add(offset).cast() })
    }

    /// Reads the 4 bytes at `offset`; `None` if they are not mapped, or `offset` is no multiple of
    /// 4.
    pub fn read(&self, offset: u32) -> Option<u32> {
        let place = self.place(offset)?;
        // SAFETY: aligned and within the mapping, which this type alone accesses.
        let value = unsafe { place.read_volatile() };
        fence(Ordering::SeqCst);
        Some(u32::from_le(value))
    }

    /// Writes 4 bytes at `offset`, after all earlier writes to memory. Does nothing if they are not
    /// mapped, or `offset` is no multiple of 4.
    pub fn write(&self, offset: u32, value: u32) {
        if let Some(place) = self.place(offset) {
            fence(Ordering::SeqCst);
            // SAFETY: as for `read`.
            unsafe { place.write_volatile(value.to_le()) };
        }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and pointers into it do not leave this type's methods.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
