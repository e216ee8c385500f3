//! Memory that another process shares with us: a guest's memory, mapped by the function's
//! addresses.
//!
//! The other process changes this memory at any time, so no reference to it is ever made. Bytes are
//! copied out of it and into it as memory that others write.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::faults::Guard;
use crate::sys::pages::Pages;
use crate::sys::volatile;
use pcie::memory::{Memory, Unmapped};
use rustix::fs::{FileType, SealFlags};
use rustix::mm::ProtFlags;

/// Number of bytes that a prefetch names; a whole line comes.
const WORD: usize = 8;

/// Why memory can't be mapped.
#[derive(Debug)]
pub enum MapError {
    /// The range overlaps memory that is mapped already.
    Overlap,
    /// The range is empty, or does not fit the address space.
    Range,
    /// The descriptor is not that of a file of memory.
    NotMemory,
    /// The file ends before the range does; an access would end this process.
    BeyondEnd {
        /// The number of bytes that the file would have to have.
        needed: u64,
        /// The number of bytes that the file has.
        size: u64,
    },
    /// The system refuses the mapping.
    Io(io::Error),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap => f.write_str("it overlaps memory that is mapped already"),
            Self::Range => f.write_str("it is empty, or does not fit the address space"),
            Self::NotMemory => f.write_str("its descriptor is not that of a file of memory"),
            Self::BeyondEnd { needed, size } => {
                write!(f, "its file would have to have {needed} bytes and has {size}")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MapError {}

impl From<rustix::io::Errno> for MapError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Which part of a file is mapped, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address, as the function sees it.
    pub address: u64,
    /// The length of the mapping in bytes.
    pub length: u64,
    /// The offset in the file at which the mapping begins.
    pub offset: u64,
    /// Whether the memory may be read.
    pub readable: bool,
    /// Whether the memory may be written.
    pub writable: bool,
}

/// One mapping of this process, unmapped when dropped.
struct Region {
    mapping: Mapping,
    /// Dropped before the pages that it guards.
    guard: Guard,
    pages: Pages,
}

// SAFETY: the mapping belongs to no thread. Its bytes are only reached by volatile copies and
// atomics, since another process changes them at any time.
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

/// A mapping that several threads use. The last of them to forget it unmaps it.
#[derive(Clone)]
pub(crate) struct SharedRegion(Arc<Region>);

impl fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.mapping.fmt(f)
    }
}

impl Region {
    /// Whether the file behind the mapping was cut short, so that reads do not show the other
    /// process's memory.
    #[inline]
    fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    #[inline]
    fn unless_lost(&self, address: u64, length: usize) -> Result<(), Unmapped> {
        if self.is_lost() { Err(Unmapped { address, length }) } else { Ok(()) }
    }

    const fn last(&self) -> u64 {
        self.mapping.address + (self.mapping.length - 1)
    }

    /// The place where the access begins, if all of it is in this region.
    #[inline]
    fn place(&self, address: u64, length: usize) -> Option<NonNull<u8>> {
        let offset = address.checked_sub(self.mapping.address)?;
        let offset = usize::try_from(offset).ok()?;
        // An access without a byte has no place at the end.
        self.pages.place(offset, length).filter(|_| offset < self.pages.len())
    }
}

/// The memory of a guest: parts of files, mapped by the function's addresses.
#[derive(Default)]
pub struct SharedMemory {
    /// The mappings, in rising order of address and without overlap.
    regions: Vec<Arc<Region>>,
    /// The index of the latest region accessed, where the next access probably is too.
    latest: Cell<usize>,
}

impl SharedMemory {
    /// Creates a memory without mappings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The address of a mapping whose file was cut short after it was mapped, if there is one.
    pub fn lost(&self) -> Option<u64> {
        self.regions.iter().find(|region| region.is_lost()).map(|region| region.mapping.address)
    }

    /// The number of mappings.
    pub const fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Maps a part of the file behind `descriptor`, and closes the descriptor.
    ///
    /// # Errors
    /// When the part can't be mapped; nothing has changed then.
    pub fn map(&mut self, descriptor: OwnedFd, mapping: Mapping) -> Result<(), MapError> {
        self.map_for_all(descriptor, mapping).map(|_| ())
    }

    /// As [`SharedMemory::map`]. Returns the mapping, which other threads may use by
    /// [`SharedMemory::adopt`].
    ///
    /// # Errors
    /// When the part can't be mapped; nothing has changed then.
    pub(crate) fn map_for_all(
        &mut self,
        descriptor: OwnedFd,
        mapping: Mapping,
    ) -> Result<SharedRegion, MapError> {
        let length = usize::try_from(mapping.length).map_err(|_| MapError::Range)?;
        let last = mapping.length.checked_sub(1).and_then(|length| mapping.address.checked_add(length));
        let last = last.ok_or(MapError::Range)?;
        let at = self.regions.partition_point(|region| region.last() < mapping.address);
        if self.regions.get(at).is_some_and(|region| region.mapping.address <= last) {
            return Err(MapError::Overlap);
        }
        let needed = mapping.offset.checked_add(mapping.length).ok_or(MapError::Range)?;
        check_size(&descriptor, needed)?;
        let mut protection = ProtFlags::empty();
        protection.set(ProtFlags::READ, mapping.readable);
        protection.set(ProtFlags::WRITE, mapping.writable);
        let pages = Pages::of_file(&descriptor, mapping.offset, length, protection);
        let pages = pages.map_err(MapError::Io)?;
        let guard = Guard::new(pages.base(), pages.len()).map_err(MapError::Io)?;
        let region = Arc::new(Region { mapping, guard, pages });
        self.regions.insert(at, Arc::clone(&region));
        Ok(SharedRegion(region))
    }

    /// Uses a mapping of another thread, which overlaps none that is known here.
    pub(crate) fn adopt(&mut self, SharedRegion(region): SharedRegion) {
        let at = self.regions.partition_point(|one| one.last() < region.mapping.address);
        self.regions.insert(at, region);
    }

    /// Removes the mapping of `length` bytes at `address`. Does nothing if there is no such
    /// mapping.
    pub fn unmap(&mut self, address: u64, length: u64) {
        let of = |region: &Arc<Region>| region.mapping.address;
        if let Ok(at) = self.regions.binary_search_by_key(&address, of)
            && self.regions[at].mapping.length == length
        {
            self.regions.remove(at);
        }
    }

    /// Removes all mappings.
    pub fn clear(&mut self) {
        self.regions.clear();
    }

    #[inline]
    fn find(&self, address: u64, length: usize) -> Option<(&Region, NonNull<u8>)> {
        if let Some(region) = self.regions.get(self.latest.get())
            && let Some(place) = region.place(address, length)
        {
            return Some((region, place));
        }
        let at = self.regions.partition_point(|region| region.mapping.address <= address).checked_sub(1)?;
        let region = &self.regions[at];
        let place = region.place(address, length)?;
        self.latest.set(at);
        Some((region, place))
    }

    /// Makes the processor fetch the cache line at `address`, without waiting for it.
    #[inline]
    pub fn prefetch(&self, address: u64) {
        #[cfg(target_arch = "x86_64")]
        if let Some((_, place)) = self.find(address, WORD) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: fetching a line has no effect that a program could see, for any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.as_ptr().cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }

    /// Copies the bytes at `address` into `bytes`.
    ///
    /// # Errors
    /// When the bytes do not all lie in one mapping that may be read, or its file was cut short.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        let found = self.find(address, bytes.len()).filter(|(region, _)| region.mapping.readable);
        let (region, place) = found.ok_or(Unmapped { address, length: bytes.len() })?;
        // SAFETY: `place..place + length` lies within a readable mapping, which is only reached
        // through raw copies and atomics on this side.
        unsafe { volatile::read(place, bytes) };
        region.unless_lost(address, bytes.len())
    }

    /// Copies `bytes` to `address`, after everything that was written before.
    ///
    /// # Errors
    /// When the bytes do not all lie in one mapping that may be written, or its file was cut short.
    /// No visible byte is written then.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let (region, place) = self.find_writable(address, bytes.len())?;
        // SAFETY: as for `read`, in a writable mapping.
        unsafe { volatile::write(bytes, place) };
        region.unless_lost(address, bytes.len())
    }

    /// Copies `bytes` to `address`, past the caches if they are many: for memory whose earlier
    /// bytes another processor has read. What is written afterwards is seen after them.
    ///
    /// # Errors
    /// As for [`SharedMemory::write`].
    pub fn stream(&self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let (region, place) = self.find_writable(address, bytes.len())?;
        // SAFETY: as for `write`.
        unsafe { volatile::stream(bytes, place) };
        region.unless_lost(address, bytes.len())
    }

    #[inline]
    fn find_writable(&self, address: u64, length: usize) -> Result<(&Region, NonNull<u8>), Unmapped> {
        let found = self.find(address, length).filter(|(region, _)| region.mapping.writable);
        found.ok_or(Unmapped { address, length })
    }
}

impl Memory for SharedMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Unmapped> {
        Self::read(self, address, bytes)
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        Self::write(self, address, bytes)
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.regions.iter().map(|region| region.mapping)).finish()
    }
}

/// Checks that the file has `needed` bytes, and makes it keep them if possible. An access beyond
/// the end of a file raises SIGBUS, which ends the session to which the memory belongs.
pub(crate) fn check_size(descriptor: &OwnedFd, needed: u64) -> Result<(), MapError> {
    let status = rustix::fs::fstat(descriptor)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(MapError::NotMemory);
    }
    // Seals before looking at the size. Files in a file system, and memory made without seals,
    // can't be sealed.
    let _ = rustix::fs::fcntl_add_seals(descriptor, SealFlags::SHRINK);
    let size = rustix::fs::fstat(descriptor)?.st_size;
    let size = u64::try_from(size).unwrap_or(0);
    if size < needed {
        return Err(MapError::BeyondEnd { needed, size });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn memory(length: u64) -> OwnedFd {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, length).unwrap();
        file
    }

    fn at(address: u64, length: u64) -> Mapping {
        Mapping { address, length, offset: 0, readable: true, writable: true }
    }

    #[test]
    fn what_one_mapping_writes_another_of_the_same_file_reads() {
        let file = memory(0x4000);
        let mut shared = SharedMemory::new();
        let mapping = Mapping { offset: 0x1000, ..at(0x10_0000, 0x3000) };
        shared.map(file.try_clone().unwrap(), mapping).unwrap();
        shared.map(file, at(0, 0x4000)).unwrap();
        let text: Vec<u8> = (0..=255).cycle().take(0x1234).collect();
        shared.write(0x10_0001, &text).unwrap();
        let mut back = vec![0; text.len()];
        shared.read(0x1001, &mut back).unwrap();
        assert_eq!(back, text);
        // Ranges of whole words, and ranges that are too long or not aligned for words.
        for (address, length) in [(0x10_0010, 16), (0x10_0010, 64), (0x10_0014, 16), (0x10_0010, 72)] {
            let bytes: Vec<u8> = (1..=length).collect();
            shared.write(address, &bytes).unwrap();
            let mut back = vec![0; bytes.len()];
            shared.read(address - 0x10_0000 + 0x1000, &mut back).unwrap();
            assert_eq!(back, bytes, "{address:#x}");
        }
    }

    #[test]
    fn an_access_must_lie_in_one_mapping_and_be_allowed() {
        let mut shared = SharedMemory::new();
        shared.map(memory(0x2000), at(0x1000, 0x2000)).unwrap();
        shared.map(memory(0x1000), Mapping { writable: false, ..at(0x3000, 0x1000) }).unwrap();
        shared.map(memory(0x1000), at(u64::MAX - 0xfff, 0x1000)).unwrap();
        let mut bytes = [0; 4];
        for (address, reads) in [
            (0xffd, false),
            (0x1000, true),
            (0x2ffc, true),
            (0x2ffd, false),
            (0x3ffc, true),
            (0x4000, false),
            (u64::MAX - 3, true),
            (u64::MAX - 2, false),
        ] {
            assert_eq!(shared.read(address, &mut bytes).is_ok(), reads, "{address:#x}");
            let writes = reads && address / 0x1000 != 3;
            assert_eq!(shared.write(address, &bytes).is_ok(), writes, "{address:#x}");
        }
        shared.unmap(0x1000, 0x1000);
        assert_eq!(shared.regions(), 3, "there is no such mapping");
        shared.unmap(0x1000, 0x2000);
        assert!(shared.read(0x1000, &mut bytes).is_err());
        shared.clear();
        assert!(shared.read(0x3000, &mut bytes).is_err());
    }

    #[test]
    fn what_could_not_be_accessed_is_not_mapped() {
        let mut shared = SharedMemory::new();
        assert!(matches!(
            shared.map(memory(0x1000), at(0, 0x2000)),
            Err(MapError::BeyondEnd { needed: 0x2000, size: 0x1000 })
        ));
        assert!(matches!(shared.map(memory(0x1000), at(0, 0)), Err(MapError::Range)));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(matches!(shared.map(pipe, at(0, 0x1000)), Err(MapError::NotMemory)));
        shared.map(memory(0x1000), at(0x1000, 0x1000)).unwrap();
        assert!(matches!(shared.map(memory(0x3000), at(0, 0x3000)), Err(MapError::Overlap)));
        let beyond = Mapping { offset: u64::MAX, ..at(0x8000, 0x1000) };
        assert!(matches!(shared.map(memory(0x1000), beyond), Err(MapError::Range)));
        assert_eq!(shared.regions(), 1);
    }

    /// A file in a file system: other processes can cut it short.
    #[test]
    fn memory_that_is_taken_away_is_lost_and_nothing_else() {
        let unsealed = || {
            let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, 0x4000).unwrap();
            file
        };
        let (taken, other) = (unsealed(), unsealed());
        let mut shared = SharedMemory::new();
        shared.map(taken.try_clone().unwrap(), at(0, 0x4000)).unwrap();
        shared.map(other, at(0x1_0000, 0x4000)).unwrap();
        shared.write(0x2000, &[7; 0x1000]).unwrap();
        shared.write(0x1_2000, &[8; 0x1000]).unwrap();
        ftruncate(&taken, 0x1000).unwrap();
        assert_eq!(shared.lost(), None, "no access was made yet");
        // Once in whole words, and once in one piece whose beginning still exists.
        let mut bytes = [0; 0x1800];
        for (address, length) in [(0x2000, 8), (0x800, 0x1800), (0, 1)] {
            assert!(shared.read(address, &mut bytes[..length]).is_err(), "{address:#x}");
            assert!(shared.write(address, &bytes[..length]).is_err(), "{address:#x}");
            assert_eq!(shared.lost(), Some(0));
        }
        shared.read(0x1_2000, &mut bytes[..0x1000]).unwrap();
        assert_eq!(bytes[..0x1000], [8; 0x1000]);
        // Another mapping takes its place.
        shared.unmap(0, 0x4000);
        assert_eq!(shared.lost(), None);
        shared.map(unsealed(), at(0, 0x4000)).unwrap();
        shared.write(0x2000, &[9; 8]).unwrap();
    }

    /// Not a test by itself: the process whose end the next test sees.
    #[test]
    fn child_that_is_broken() {
        if std::env::var_os("FARLANE_LIVE_TEST_SHARED_CHILD").is_none() {
            return;
        }
        let mut shared = SharedMemory::new();
        shared.map(memory(0x1000), at(0, 0x1000)).unwrap();
        // A bad access is repeated, so the earlier actions of the signal happen one after the
        // other.
        for _ in 0..4 {
            // SAFETY: raises a signal in this process, as an access to bad memory of our own would.
            unsafe { libc::raise(libc::SIGBUS) };
        }
    }

    #[test]
    fn a_fault_of_our_own_still_ends_the_process() {
        use std::os::unix::process::ExitStatusExt;
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["sys::shared::tests::child_that_is_broken", "--exact"])
            .env("FARLANE_LIVE_TEST_SHARED_CHILD", "1")
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }

    #[test]
    fn memory_that_is_mapped_can_not_be_taken_away_any_more() {
        let file = memory(0x2000);
        let mut shared = SharedMemory::new();
        shared.map(file.try_clone().unwrap(), at(0, 0x2000)).unwrap();
        assert!(ftruncate(&file, 0).is_err());
        shared.write(0x1000, &[1; 100]).unwrap();
    }
}
