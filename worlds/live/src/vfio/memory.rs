//! Memory of this process that a device reaches at addresses of its own.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use pcie::memory::{Memory, Unmapped};
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of a word.
const WORD: usize = 8;
/// Bytes of a completion. Its Phase Tag is in the second word and says that the first word is valid
/// too.
const COMPLETION: usize = 16;

/// Pages that a device reads and writes at any time. No reference to them is ever made; bytes are
/// copied through raw pointers.
#[derive(Debug)]
pub struct DmaMemory {
    base: NonNull<u8>,
    length: usize,
    iova: u64,
}

impl DmaMemory {
    /// Allocates `length` zero bytes, whole pages, that a device will know by `iova` or by an
    /// address that is set later.
    pub(super) fn new(length: usize, iova: u64) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing of ours.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                // Not private: a fork would make copies, and the device would go on with the
                // originals.
                MapFlags::SHARED,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length, iova })
    }

    pub(super) const fn base(&self) -> *mut u8 {
        self.base.as_ptr()
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
            .filter(|offset| offset.checked_add(length).is_some_and(|end| end <= self.length))
            // SAFETY: the sum is within the mapping, or just behind it where nothing is accessed.
            .map(|offset| unsafe { self.base.as_ptr().add(offset) })
            .ok_or(Unmapped { address, length })
    }
}

impl Drop for DmaMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever has a pointer into it got it from `self` and has
        // not kept it. The kernel holds the pages themselves as long as the device can reach them.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
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
