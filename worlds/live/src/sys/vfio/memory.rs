//! Memory of this process that a device reaches at addresses of its own.

use std::io;
use std::ptr::NonNull;

use pcie::memory::{Memory, Unmapped};

use crate::sys::pages::Pages;
use crate::sys::volatile;

/// Pages that a device reads and writes at any time. No reference to them is ever made; bytes are
/// copied as memory that others write. The kernel holds the pages as long as the device can reach
/// them, even when they are unmapped here.
#[derive(Debug)]
pub struct DmaMemory {
    pages: Pages,
    iova: u64,
}

impl DmaMemory {
    /// Allocates `length` zero bytes, whole pages, that a device will know by `iova` or by an
    /// address that is set later.
    pub(super) fn new(length: usize, iova: u64) -> io::Result<Self> {
        Ok(Self { pages: Pages::anonymous(length)?, iova })
    }

    pub(super) const fn base(&self) -> *mut u8 {
        self.pages.base().as_ptr()
    }

    /// The first address, as the device sees it.
    pub const fn iova(&self) -> u64 {
        self.iova
    }

    pub(super) const fn set_iova(&mut self, iova: u64) {
        self.iova = iova;
    }

    /// The place where the access begins, if all of it is in this memory.
    fn place(&self, address: u64, length: usize) -> Result<NonNull<u8>, Unmapped> {
        address
            .checked_sub(self.iova)
            .and_then(|offset| usize::try_from(offset).ok())
            .and_then(|offset| self.pages.place(offset, length))
            .ok_or(Unmapped { address, length })
    }
}

impl Memory for DmaMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        let place = self.place(address, bytes.len())?;
        // SAFETY: `place..place + length` lies within the mapping, which is only reached through
        // raw copies and atomics on this side.
        unsafe { volatile::read(place, bytes) };
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let place = self.place(address, bytes.len())?;
        // SAFETY: as for `read`. The device looks only after a register is written, and that write
        // comes behind this one.
        unsafe { volatile::write(bytes, place) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_where_they_were_put_and_nowhere_else() {
        let mut memory = DmaMemory::new(0x2000, 0x1_0000).unwrap();
        let bytes: Vec<u8> = (0..16).collect();
        for address in [0x1_0000, 0x1_0008, 0x1_1ff0] {
            memory.write(address, &bytes).unwrap();
            let mut back = [0; 16];
            memory.read(address, &mut back).unwrap();
            assert_eq!(back, *bytes, "{address:#x}");
        }
        memory.read(0x1_2000, &mut []).unwrap();
        for address in [0, 0xffff, 0x1_1ff1, 0x1_2000, u64::MAX] {
            assert!(memory.read(address, &mut [0; 16]).is_err(), "{address:#x}");
            assert!(memory.write(address, &bytes).is_err(), "{address:#x}");
        }
    }
}
