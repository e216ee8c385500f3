//! The first pages of a BAR, mapped into this process.

use std::fs::File;
use std::io;
use std::sync::atomic::{Ordering, fence};

use rustix::mm::ProtFlags;

use crate::sys::pages::Pages;

/// Registers of a device. Accesses are volatile, have 4 bytes each, and keep the order of the
/// program.
#[derive(Debug)]
pub struct Registers {
    pages: Pages,
}

impl Registers {
    /// Maps `length` bytes, whole pages, at `offset` of `device`.
    pub(super) fn map(device: &File, offset: u64, length: usize) -> io::Result<Self> {
        let pages = Pages::of_file(device, offset, length, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { pages })
    }

    fn place(&self, offset: u32) -> Option<*mut u32> {
        let offset = usize::try_from(offset).ok()?;
        let place = self.pages.place(offset, 4).filter(|_| offset.is_multiple_of(4))?;
        Some(place.as_ptr().cast())
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
