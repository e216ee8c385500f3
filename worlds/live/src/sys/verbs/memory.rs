//! Memory that a device may reach, for one queue pair.
//!
//! Memory that only this end names (messages, the data of writes) shares regions of
//! [`REGION_BYTES`]. Memory that is lent to the peer is a region for each loan, with a key of its
//! own and only the right that the loan gives: so a peer that goes on using a key finds memory that
//! was lent to it, and nothing else. Regions stay registered until the queue pair ends, because
//! registering takes longer than copying.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;

use super::abi;
use super::library::Library;
use crate::sys::pages::Pages;
use crate::sys::{machine, volatile};

/// The smallest block, in bytes. The size of each class is this times a power of two.
const SMALLEST: usize = 64;
/// Number of block sizes: 64 B, 128 B, and so on to 2 MiB.
const CLASSES: usize = 16;
/// Bytes that are registered at once for blocks that are smaller.
const REGION_BYTES: usize = 64 << 10;
/// The smallest block that is lent: the system maps whole pages.
const LENT_MIN: usize = 4096;
/// The most bytes that one queue pair has registered: more than its commands move at a time.
const BYTES_MAX: usize = 256 << 20;
/// Zeros, for places that a peer is to write.
const ZEROS: [u8; 4096] = [0; 4096];

/// The purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Messages, data that are sent, and data that are fetched: no peer names it.
    Own,
    /// The peer reads it.
    LentToRead,
    /// The peer writes it.
    LentToWrite,
}

impl Use {
    const ALL: usize = 3;

    const fn access(self) -> c_int {
        match self {
            Self::Own => abi::ACCESS_LOCAL_WRITE,
            Self::LentToRead => abi::ACCESS_REMOTE_READ,
            // An end that lets others write must be able to write itself.
            Self::LentToWrite => abi::ACCESS_LOCAL_WRITE | abi::ACCESS_REMOTE_WRITE,
        }
    }
}

/// A block of registered memory. It belongs to one [`Memory`], which must get it back.
#[derive(Debug)]
#[must_use = "a block that is not given back is lost until its queue pair ends"]
pub(crate) struct Block {
    place: NonNull<u8>,
    /// Keeps the place mapped.
    _pages: Rc<Pages>,
    purpose: Use,
    class: u8,
    pub(super) local_key: u32,
    /// The key by which the peer names the block, if it is lent.
    pub(crate) remote_key: u32,
}

impl Block {
    /// The address by which the device knows the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.place.addr().get() as u64
    }

    /// How many bytes the block holds.
    pub(crate) const fn len(&self) -> usize {
        SMALLEST << self.class
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// When the block does not hold them.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len(), "{} B at {offset} of {} B", bytes.len(), self.len());
        // SAFETY: the bytes lie within the block, which keeps its memory mapped. Its memory is
        // reached in this way only.
        unsafe { volatile::write(bytes, self.place.add(offset)) };
    }

    /// Copies the bytes at `offset` to `bytes`.
    ///
    /// # Panics
    /// When the block does not hold them.
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.len(), "{} B at {offset} of {} B", bytes.len(), self.len());
        // SAFETY: as above.
        unsafe { volatile::read(self.place.add(offset), bytes) };
    }

    /// Makes the first `length` bytes zeros.
    pub(crate) fn clear(&self, length: usize) {
        for offset in (0..length).step_by(ZEROS.len()) {
            self.write(offset, &ZEROS[..ZEROS.len().min(length - offset)]);
        }
    }
}

/// Registered pages.
#[derive(Debug)]
struct Region {
    region: NonNull<abi::MemoryRegion>,
    pages: Rc<Pages>,
}

/// The registered memory of a queue pair.
#[derive(Debug)]
pub(super) struct Memory {
    library: &'static Library,
    domain: NonNull<abi::ProtectionDomain>,
    regions: Vec<Region>,
    /// Free blocks by use and class, the longest free first: a late access of a peer then finds
    /// memory that is not used yet.
    free: [[VecDeque<Block>; CLASSES]; Use::ALL],
    bytes: usize,
}

impl Memory {
    /// No memory yet, in `domain`, which outlives it.
    pub(super) fn new(library: &'static Library, domain: NonNull<abi::ProtectionDomain>) -> Self {
        let free = std::array::from_fn(|_| std::array::from_fn(|_| VecDeque::new()));
        Self { library, domain, regions: Vec::new(), free, bytes: 0 }
    }

    /// A block of at least `length` bytes with unspecified contents.
    ///
    /// # Errors
    /// When the block would be too long, the queue pair has as much memory as it may have, or the
    /// system refuses to register more.
    pub(super) fn take(&mut self, purpose: Use, length: usize) -> io::Result<Block> {
        let least = if purpose == Use::Own { SMALLEST } else { LENT_MIN };
        let steps = length.max(least).div_ceil(SMALLEST).next_power_of_two().trailing_zeros() as usize;
        if steps >= CLASSES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if let Some(block) = self.free[purpose as usize][steps].pop_front() {
            return Ok(block);
        }
        self.add(purpose, steps)?;
        self.free[purpose as usize][steps].pop_front().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Takes a block back.
    pub(super) fn give(&mut self, block: Block) {
        self.free[block.purpose as usize][usize::from(block.class)].push_back(block);
    }

    /// Registers memory for more blocks of a class.
    #[cold]
    fn add(&mut self, purpose: Use, class: usize) -> io::Result<()> {
        let size = SMALLEST << class;
        let length = match purpose {
            Use::Own => size.max(REGION_BYTES),
            Use::LentToRead | Use::LentToWrite => size,
        };
        if self.bytes + length > BYTES_MAX {
            let why = format!("a queue pair has {BYTES_MAX} B registered, and may have no more");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
        }
        let pages = Rc::new(Pages::anonymous(length)?);
        // SAFETY: the pages are mapped until the region is deregistered, and the domain exists.
        let region = unsafe {
            (self.library.verbs.ibv_reg_mr)(
                self.domain.as_ptr(),
                pages.base().as_ptr().cast(),
                length,
                purpose.access(),
            )
        };
        let region = NonNull::new(region).ok_or_else(|| refused(length))?;
        // SAFETY: the library has just made the region, and does not change its keys.
        let (local_key, remote_key) =
            unsafe { ((*region.as_ptr()).local_key, (*region.as_ptr()).remote_key) };
        for offset in (0..=length - size).step_by(size) {
            let Some(place) = pages.place(offset, size) else { break };
            let class = u8::try_from(class).expect("there are 16 classes");
            let block = Block { place, _pages: Rc::clone(&pages), purpose, class, local_key, remote_key };
            self.free[purpose as usize][usize::from(class)].push_back(block);
        }
        self.bytes += length;
        self.regions.push(Region { region, pages });
        Ok(())
    }
}

/// Why `length` bytes could not be registered.
fn refused(length: usize) -> io::Error {
    let error = io::Error::last_os_error();
    let limit = match machine::locked_bytes_max() {
        Some(limit) => format!("; this process may lock {limit} B (ulimit -l, LimitMEMLOCK=)"),
        None => String::new(),
    };
    io::Error::new(error.kind(), format!("registering {length} B with the RDMA device: {error}{limit}"))
}

impl Drop for Memory {
    fn drop(&mut self) {
        for one in &self.regions {
            // SAFETY: the region was made above, and the queue pair that used it is gone.
            let result = unsafe { (self.library.verbs.ibv_dereg_mr)(one.region.as_ptr()) };
            if result != 0 {
                // The device may still reach the pages: they are never used for anything else.
                std::mem::forget(Rc::clone(&one.pages));
            }
        }
    }
}
