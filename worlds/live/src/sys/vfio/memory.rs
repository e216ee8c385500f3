//! Memory of this process that a device reaches at addresses of its own.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pcie::memory::{Memory, Unmapped};

use crate::sys::pages::Pages;

/// Bytes of a word.
const WORD: usize = 8;
/// Bytes of a completion. Its Phase Tag is in the second word and says that the first word is valid
/// too.
const COMPLETION: usize = 16;

/// Pages that a device reads and writes at any time. No reference to them is ever made; bytes are
/// copied through raw pointers. The kernel holds the pages as long as the device can reach them,
/// even when they are unmapped here.
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
    fn place(&self, address: u64, length: usize) -> Result<*mut u8, Unmapped> {
        address
            .checked_sub(self.iova)
            .and_then(|offset| usize::try_from(offset).ok())
            .and_then(|offset| self.pages.place(offset, length))
            .map(|place| place.as_ptr())
            .ok_or(Unmapped { address, length })
    }
}

impl Memory for DmaMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        let place = self.place(address, bytes.len())?;
        if bytes.len() == COMPLETION && place.addr().is_multiple_of(COMPLETION) {
            for index in [1, 0] {
                // SAFETY: the word lies within the mapping and is aligned; this side only reaches
                // it through atomics and raw copies.
                let word = unsafe { AtomicU64::from_ptr(place.add(index * WORD).cast()) };
                let word = word.load(Ordering::Acquire);
                bytes[index * WORD..][..WORD].copy_from_slice(&word.to_ne_bytes());
            }
            return Ok(());
        }
        fence(Ordering::Acquire);
        // SAFETY: `place..place + length` lies within the mapping, and `bytes` is memory that it
        // does not overlap. If the device writes meanwhile, bytes of before and after are mixed,
        // and any value is valid for a u8.
        unsafe { std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let place = self.place(address, bytes.len())?;
        // SAFETY: as for `read`, the other way. The device looks only after a register is written,
        // and that write comes behind this one.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
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
