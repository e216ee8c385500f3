//! Memory that is lent to peers: regions, keys, bounds and rights.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

use engine::{Buffer, BufferMut, Entropy, Pool};

use crate::{QueuePairId, SharedPool};

/// A protection domain that several queue pairs share.
pub type SharedDomain = Rc<RefCell<ProtectionDomain>>;

/// Bits of a key that say which region it names; the others are random.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The key by which a peer names a region (R_Key, STag).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u32);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:#010x})", self.0)
    }
}

/// Memory of a peer, or memory lent to a peer: the content of a keyed SGL data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The key of the region.
    pub key: Key,
    /// The address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: u32,
}

/// The access that a peer gets to a region.
#[derive(Clone, Debug)]
pub enum Exposure {
    /// The peer may read these bytes.
    Read(Buffer),
    /// The peer may write this many bytes.
    Write(u32),
}

/// Why an access of a peer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// The key names no region that is lent to this queue pair.
    Key,
    /// The region may not be accessed in this way.
    Right,
    /// The bytes do not lie within the region.
    Bounds,
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "the key names no memory that is lent to this queue pair",
            Self::Right => "the memory may not be accessed in this way",
            Self::Bounds => "the bytes do not lie within the memory that the key names",
        })
    }
}

impl core::error::Error for AccessError {}

/// Why a region was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// The protection domain has its maximum number of regions.
    TooMany,
    /// A region to write is longer than a block of the pool ([`Pool::LENGTH_MAX`]).
    TooLong,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => f.write_str("the protection domain has no room for another region"),
            Self::TooLong => write!(f, "a region to write has at most {} bytes", Pool::LENGTH_MAX),
        }
    }
}

impl core::error::Error for RegisterError {}

#[derive(Debug)]
enum Memory {
    Read(Buffer),
    /// Memory to write, of this many bytes.
    Write(u32, Contents),
}

impl Memory {
    fn len(&self) -> usize {
        match self {
            Self::Read(data) => data.len(),
            Self::Write(length, _) => *length as usize,
        }
    }
}

/// The bytes that a peer has written to a region. The region takes a block from the pool when the
/// first part of it is written, and none if one write brings all of it.
#[derive(Debug)]
enum Contents {
    Nothing,
    /// All of the region, brought by one write: the bytes stay in the buffer in which they arrived.
    Whole(Buffer),
    /// Parts, and the number of bytes from the beginning that have contents. Bytes behind them are
    /// those of an earlier user of the block.
    Parts {
        place: BufferMut,
        filled: usize,
    },
    /// The block is lifted out while bytes arrive in it; this many bytes from the beginning have
    /// contents.
    Lifted {
        filled: usize,
    },
}

impl Contents {
    /// The memory of a region of `length` bytes, and the number of bytes that have contents.
    fn place(&mut self, length: usize, pool: &SharedPool) -> (&mut BufferMut, &mut usize) {
        if !matches!(self, Self::Parts { .. }) {
            let mut place = pool.borrow_mut().take(length);
            let mut filled = 0;
            if let Self::Whole(data) = self {
                place.copy_from_slice(data);
                filled = length;
            }
            *self = Self::Parts { place, filled };
        }
        match self {
            Self::Parts { place, filled } => (place, filled),
            _ => unreachable!("the contents were just made parts"),
        }
    }
}

#[derive(Debug)]
struct Region {
    key: Key,
    owner: QueuePairId,
    /// A peer has invalidated the key: only the owner may still use it, to get the memory back.
    is_invalid: bool,
    memory: Memory,
}

impl Region {
    /// Whether `key` names the region.
    const fn is_named(&self) -> bool {
        !self.is_invalid && !matches!(self.memory, Memory::Write(_, Contents::Lifted { .. }))
    }
}

/// Random bytes for future keys. They come from the system's source in batches: one call for each
/// key took a tenth of the time of a reading host.
struct Random {
    bytes: [u8; 256],
    /// Number of used bytes.
    used: usize,
}

impl Random {
    /// The random bits of the next key.
    fn next(&mut self, entropy: &mut Entropy) -> u32 {
        if self.used == self.bytes.len() {
            entropy.fill(&mut self.bytes);
            self.used = 0;
        }
        let at = self.used;
        self.used += 2;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]).into()
    }
}

impl fmt::Debug for Random {
    /// Hides the bytes, which would reveal future keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

/// Regions of memory and the keys that name them.
///
/// A region belongs to the queue pair that it was registered for. A key is not reused soon after
/// its region was released.
#[derive(Debug)]
pub struct ProtectionDomain {
    regions: Vec<Option<Region>>,
    /// Free indices of `regions`. The one that has been free for the longest time is used next.
    free: alloc::collections::VecDeque<u32>,
    regions_max: usize,
    pool: SharedPool,
    entropy: Entropy,
    random: Random,
}

impl ProtectionDomain {
    /// The maximum number of regions of a protection domain.
    pub const REGIONS_MAX: usize = 1 << INDEX_BITS;

    /// An empty domain of at most `regions_max` regions. Memory to write comes from `pool`, keys
    /// from `entropy`.
    ///
    /// # Panics
    /// When `regions_max` is more than [`Self::REGIONS_MAX`].
    pub fn new(regions_max: usize, pool: SharedPool, entropy: Entropy) -> Self {
        assert!(regions_max <= Self::REGIONS_MAX, "at most {} regions", Self::REGIONS_MAX);
        let (regions, free) = (Vec::new(), alloc::collections::VecDeque::new());
        let random = Random { bytes: [0; 256], used: 256 };
        Self { regions, free, regions_max, pool, entropy, random }
    }

    /// Lends memory to the peer of `owner`.
    ///
    /// # Errors
    /// When there are too many regions, or the region is too long.
    #[expect(clippy::cast_possible_truncation, reason = "an index has 20 bits, a buffer less than 4 GiB")]
    pub fn register(&mut self, owner: QueuePairId, exposure: Exposure) -> Result<Remote, RegisterError> {
        if self.free.is_empty() && self.regions.len() >= self.regions_max {
            return Err(RegisterError::TooMany);
        }
        let memory = match exposure {
            Exposure::Read(data) => Memory::Read(data),
            Exposure::Write(length) if length as usize > Pool::LENGTH_MAX => {
                return Err(RegisterError::TooLong);
            }
            Exposure::Write(length) => Memory::Write(length, Contents::Nothing),
        };
        let index = self.free.pop_front().unwrap_or_else(|| {
            self.regions.push(None);
            self.regions.len() as u32 - 1
        });
        let key = Key(self.random.next(&mut self.entropy) << INDEX_BITS | index);
        let remote = Remote { key, address: Self::base(key), length: memory.len() as u32 };
        self.regions[index as usize] = Some(Region { key, owner, is_invalid: false, memory });
        Ok(remote)
    }

    /// The address of the first byte of a region. Two regions have no address in common.
    const fn base(key: Key) -> u64 {
        (key.0 as u64) << 32
    }

    fn find(&mut self, owner: QueuePairId, key: Key) -> Option<&mut Region> {
        let region = self.regions.get_mut((key.0 & INDEX_MASK) as usize)?.as_mut()?;
        (region.key == key && region.owner == owner).then_some(region)
    }

    /// The region that the peer of `owner` names, and the range of the bytes in it.
    fn access(
        &mut self,
        owner: QueuePairId,
        remote: Remote,
    ) -> Result<(&mut Region, core::ops::Range<usize>), AccessError> {
        let region = self.find(owner, remote.key).filter(|region| region.is_named());
        let region = region.ok_or(AccessError::Key)?;
        let start = remote.address.checked_sub(Self::base(remote.key)).ok_or(AccessError::Bounds)?;
        let end = start.checked_add(u64::from(remote.length)).ok_or(AccessError::Bounds)?;
        let length = region.memory.len() as u64;
        match (usize::try_from(start), usize::try_from(end)) {
            (Ok(start), Ok(end)) if end as u64 <= length => Ok((region, start..end)),
            _ => Err(AccessError::Bounds),
        }
    }

    /// The bytes of a read by the peer of `owner`.
    ///
    /// # Errors
    /// When the peer has no permission for this access.
    pub fn read(&mut self, owner: QueuePairId, remote: Remote) -> Result<Buffer, AccessError> {
        let (region, range) = self.access(owner, remote)?;
        match &region.memory {
            Memory::Read(data) => Ok(data.slice(range)),
            Memory::Write(..) => Err(AccessError::Right),
        }
    }

    /// Writes `data` for the peer of `owner`. If they are the whole region, nothing is copied: the
    /// region keeps the buffer and returns it unchanged.
    ///
    /// # Errors
    /// When the peer has no permission for this access.
    pub fn write(&mut self, owner: QueuePairId, remote: Remote, data: &Buffer) -> Result<(), AccessError> {
        let length = u32::try_from(data.len()).map_err(|_| AccessError::Bounds)?;
        let remote = Remote { length, ..remote };
        let (region, range) = self.access(owner, remote)?;
        match &mut region.memory {
            Memory::Read(_) => return Err(AccessError::Right),
            Memory::Write(all, contents) if range == (0..*all as usize) && !range.is_empty() => {
                *contents = Contents::Whole(data.clone());
                return Ok(());
            }
            Memory::Write(..) => {}
        }
        self.place(owner, remote)?.copy_from_slice(data);
        Ok(())
    }

    /// The memory for a write by the peer of `owner`. The caller must fill all of it at once. Bytes
    /// before it that were never written become zero.
    ///
    /// # Errors
    /// When the peer has no permission for this access.
    pub fn place(&mut self, owner: QueuePairId, remote: Remote) -> Result<&mut [u8], AccessError> {
        let pool = SharedPool::clone(&self.pool);
        let (region, range) = self.access(owner, remote)?;
        let Memory::Write(length, contents) = &mut region.memory else {
            return Err(AccessError::Right);
        };
        if range.is_empty() {
            return Ok(&mut []);
        }
        let (place, filled) = contents.place(*length as usize, &pool);
        if range.start > *filled {
            place[*filled..range.start].fill(0);
        }
        *filled = range.end.max(*filled);
        Ok(&mut place[range])
    }

    /// Lifts out the block of a region for arriving bytes of the peer of `owner`, and returns the
    /// range that they belong to. Until [`Self::put_back`], the key names nothing, and the region
    /// returns no bytes.
    ///
    /// # Errors
    /// When the peer has no permission to write there.
    pub fn lift(
        &mut self,
        owner: QueuePairId,
        remote: Remote,
    ) -> Result<(BufferMut, core::ops::Range<usize>), AccessError> {
        let pool = SharedPool::clone(&self.pool);
        let (region, range) = self.access(owner, remote)?;
        let Memory::Write(length, contents) = &mut region.memory else {
            return Err(AccessError::Right);
        };
        let (_, filled) = contents.place(*length as usize, &pool);
        let lifted = Contents::Lifted { filled: *filled };
        match core::mem::replace(contents, lifted) {
            Contents::Parts { place, .. } => Ok((place, range)),
            _ => unreachable!("the contents were just made parts"),
        }
    }

    /// Puts back the block that [`Self::lift`] has lifted out. The bytes in `written` have arrived.
    ///
    /// # Errors
    /// When the key no longer names the region. The block is then dropped.
    pub fn put_back(
        &mut self,
        owner: QueuePairId,
        key: Key,
        mut place: BufferMut,
        written: core::ops::Range<usize>,
    ) -> Result<(), AccessError> {
        let region = self.find(owner, key).ok_or(AccessError::Key)?;
        let is_named = !region.is_invalid || written.is_empty();
        let Memory::Write(_, contents @ Contents::Lifted { .. }) = &mut region.memory else {
            return Err(AccessError::Key);
        };
        let Contents::Lifted { filled } = *contents else { return Err(AccessError::Key) };
        let mut filled = filled;
        if is_named && !written.is_empty() {
            if written.start > filled {
                place[filled..written.start].fill(0);
            }
            filled = written.end.max(filled);
        }
        *contents = Contents::Parts { place, filled };
        if is_named { Ok(()) } else { Err(AccessError::Key) }
    }

    /// Copies the bytes at `offset` of memory that is lent to the peer of `owner` for writing.
    /// Bytes that the peer has not written are zeros. Returns false if `key` names no such memory,
    /// the range does not lie within it, or a write to it is in progress.
    pub fn peek(&mut self, owner: QueuePairId, key: Key, offset: u32, into: &mut [u8]) -> bool {
        let Some(Region { memory: Memory::Write(length, contents), .. }) = self.find(owner, key) else {
            return false;
        };
        let written = match contents {
            Contents::Nothing => &[],
            Contents::Whole(data) => &data[..],
            Contents::Parts { place, filled } => &place[..*filled],
            Contents::Lifted { .. } => return false,
        };
        let start = offset as usize;
        let end = start.saturating_add(into.len());
        if end > *length as usize {
            return false;
        }
        let known = &written[start.min(written.len())..end.min(written.len())];
        let (seen, rest) = into.split_at_mut(known.len());
        seen.copy_from_slice(known);
        rest.fill(0);
        true
    }

    /// Checks whether the peer of `owner` may write to `remote`, before the bytes arrive.
    ///
    /// # Errors
    /// When the peer has no permission to write there.
    pub fn check_write(&mut self, owner: QueuePairId, remote: Remote) -> Result<(), AccessError> {
        match &self.access(owner, remote)?.0.memory {
            Memory::Write(..) => Ok(()),
            Memory::Read(_) => Err(AccessError::Right),
        }
    }

    /// Invalidates a key for the peer of `owner` (Send with Invalidate). The key names nothing from
    /// now on. The memory stays until [`Self::deregister`].
    ///
    /// # Errors
    /// When the key names no region that is lent to this queue pair.
    pub fn invalidate(&mut self, owner: QueuePairId, key: Key) -> Result<(), AccessError> {
        let region = self.find(owner, key).filter(|region| !region.is_invalid).ok_or(AccessError::Key)?;
        region.is_invalid = true;
        Ok(())
    }

    /// Ends a loan and returns the memory. For a region to write, these are the bytes from its
    /// beginning up to the last one written. `None` if the key names no region of `owner`.
    pub fn deregister(&mut self, owner: QueuePairId, key: Key) -> Option<Buffer> {
        self.find(owner, key)?;
        let index = key.0 & INDEX_MASK;
        let region = self.regions[index as usize].take()?;
        self.free.push_back(index);
        Some(match region.memory {
            Memory::Read(data) => data,
            Memory::Write(_, Contents::Nothing | Contents::Lifted { .. }) => Buffer::EMPTY,
            Memory::Write(_, Contents::Whole(data)) => data,
            Memory::Write(_, Contents::Parts { mut place, filled }) => {
                place.truncate(filled);
                self.pool.borrow_mut().seal(place)
            }
        })
    }

    /// Releases all regions of `owner`, whose queue pair is over.
    pub fn release(&mut self, owner: QueuePairId) {
        for (index, slot) in (0_u32..).zip(&mut self.regions) {
            if slot.as_ref().is_some_and(|region| region.owner == owner) {
                *slot = None;
                self.free.push_back(index);
            }
        }
    }

    /// The number of regions that are lent.
    pub fn len(&self) -> usize {
        self.regions.len() - self.free.len()
    }

    /// Whether nothing is lent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Rng;
    use proptest::prelude::*;

    const OURS: QueuePairId = QueuePairId(1);
    const OTHER: QueuePairId = QueuePairId(2);

    fn domain() -> ProtectionDomain {
        ProtectionDomain::new(4, SharedPool::default(), Entropy::Seeded(Rng::from_seed(1)))
    }

    fn part(remote: Remote, offset: u64, length: u32) -> Remote {
        Remote { address: remote.address.wrapping_add(offset), length, ..remote }
    }

    #[test]
    fn a_peer_reads_lent_memory_and_nothing_else() {
        let mut domain = domain();
        let lent = domain.register(OURS, Exposure::Read(Buffer::copy_from_slice(b"lent"))).unwrap();
        assert_eq!(domain.read(OURS, part(lent, 1, 2)).unwrap()[..], *b"en");
        assert_eq!(domain.read(OURS, part(lent, 4, 0)).unwrap()[..], *b"");
        for outside in [part(lent, 1, 4), part(lent, 5, 0), part(lent, u64::MAX, 2), part(lent, 0, u32::MAX)]
        {
            assert_eq!(domain.read(OURS, outside), Err(AccessError::Bounds), "{outside:?}");
        }
        assert_eq!(domain.read(OTHER, lent), Err(AccessError::Key));
        assert_eq!(domain.place(OURS, lent), Err(AccessError::Right));
        let guessed = Remote { key: Key(lent.key.0 ^ 1 << INDEX_BITS), ..lent };
        assert_eq!(domain.read(OURS, guessed), Err(AccessError::Key));
    }

    #[test]
    fn a_key_names_nothing_once_it_was_invalidated_or_given_up() {
        let mut domain = domain();
        let lent = domain.register(OURS, Exposure::Write(8)).unwrap();
        domain.place(OURS, part(lent, 0, 4)).unwrap().copy_from_slice(b"data");
        assert_eq!(domain.invalidate(OTHER, lent.key), Err(AccessError::Key));
        domain.invalidate(OURS, lent.key).unwrap();
        assert_eq!(domain.invalidate(OURS, lent.key), Err(AccessError::Key));
        assert_eq!(domain.place(OURS, lent), Err(AccessError::Key));
        assert_eq!(domain.deregister(OTHER, lent.key), None);
        assert_eq!(domain.deregister(OURS, lent.key).unwrap()[..], *b"data");
        assert_eq!(domain.deregister(OURS, lent.key), None);
        let next = domain.register(OURS, Exposure::Write(8)).unwrap();
        assert_eq!(domain.check_write(OURS, lent), Err(AccessError::Key), "{next:?}");
    }

    #[test]
    fn an_owner_sees_written_bytes_and_zeros_elsewhere() {
        let mut domain = domain();
        let earlier = domain.register(OURS, Exposure::Write(8)).unwrap();
        domain.place(OURS, earlier).unwrap().fill(0xee);
        drop(domain.deregister(OURS, earlier.key));
        let lent = domain.register(OURS, Exposure::Write(8)).unwrap();
        domain.place(OURS, part(lent, 2, 2)).unwrap().copy_from_slice(b"ab");
        let mut seen = [1; 8];
        assert!(domain.peek(OURS, lent.key, 0, &mut seen));
        assert_eq!(seen, *b"\0\0ab\0\0\0\0");
        assert!(domain.peek(OURS, lent.key, 3, &mut seen[..2]) && seen[..2] == *b"b\0");
        assert!(domain.peek(OURS, lent.key, 7, &mut seen[..1]) && seen[0] == 0);
        assert!(!domain.peek(OURS, lent.key, 7, &mut seen[..2]), "beyond the end");
        assert!(!domain.peek(OURS, lent.key, u32::MAX, &mut seen), "far beyond");
        assert!(!domain.peek(OTHER, lent.key, 0, &mut seen), "of another");
        let read = domain.register(OURS, Exposure::Read(Buffer::copy_from_slice(b"read"))).unwrap();
        assert!(!domain.peek(OURS, read.key, 0, &mut seen[..1]), "not for writing");
    }

    #[test]
    fn regions_are_limited_and_return_with_their_queue_pair() {
        let mut domain = domain();
        for _ in 0..4 {
            domain.register(OURS, Exposure::Write(1)).unwrap();
        }
        assert_eq!(domain.register(OTHER, Exposure::Write(1)), Err(RegisterError::TooMany));
        domain.release(OURS);
        assert!(domain.is_empty());
        let too_long = u32::try_from(Pool::LENGTH_MAX).unwrap() + 1;
        assert_eq!(domain.register(OTHER, Exposure::Write(too_long)), Err(RegisterError::TooLong));
        assert!(domain.register(OTHER, Exposure::Write(1)).is_ok());
    }

    /// Parts of a region of 400 bytes, and often all of it.
    fn parts() -> impl Strategy<Value = (u32, u32)> {
        prop_oneof![4 => (0_u32..300, 0_u32..100), 1 => Just((0, 400))]
    }

    #[test]
    fn a_write_of_a_whole_region_is_not_copied() {
        let mut domain = domain();
        let lent = domain.register(OURS, Exposure::Write(4)).unwrap();
        let read = domain.register(OURS, Exposure::Read(Buffer::copy_from_slice(b"read"))).unwrap();
        let came = Buffer::copy_from_slice(b"--data--").slice(2..6);
        domain.write(OURS, lent, &came).unwrap();
        assert_eq!(domain.write(OURS, read, &came), Err(AccessError::Right));
        assert_eq!(domain.write(OURS, part(lent, 1, 4), &came), Err(AccessError::Bounds));
        assert_eq!(domain.write(OTHER, lent, &came), Err(AccessError::Key));
        assert_eq!(domain.deregister(OURS, lent.key).unwrap().as_ptr(), came.as_ptr());
    }

    #[test]
    fn a_block_that_is_out_returns_to_its_region_or_nowhere() {
        let mut domain = domain();
        let lent = domain.register(OURS, Exposure::Write(8)).unwrap();
        domain.write(OURS, part(lent, 0, 2), &Buffer::copy_from_slice(b"ab")).unwrap();
        let (mut block, range) = domain.lift(OURS, part(lent, 4, 4)).unwrap();
        assert_eq!(range, 4..8);
        assert_eq!(domain.check_write(OURS, lent), Err(AccessError::Key));
        block[range].fill(0xff);
        // The arrived bytes were invalid.
        domain.put_back(OURS, lent.key, block, 0..0).unwrap();
        let (block, range) = domain.lift(OURS, part(lent, 4, 4)).unwrap();
        domain.invalidate(OURS, lent.key).unwrap();
        assert_eq!(domain.put_back(OURS, lent.key, block, range), Err(AccessError::Key));
        assert_eq!(domain.deregister(OURS, lent.key).unwrap()[..], *b"ab");
        let lent = domain.register(OURS, Exposure::Write(8)).unwrap();
        let (block, range) = domain.lift(OURS, lent).unwrap();
        assert_eq!(domain.deregister(OURS, lent.key).unwrap()[..], *b"");
        assert_eq!(domain.put_back(OURS, lent.key, block, range), Err(AccessError::Key));
    }

    proptest! {
        /// For any writes in any order, the memory has the written bytes, and zeros between them:
        /// never the bytes of an earlier user of the block.
        #[test]
        fn memory_has_the_written_bytes(
            writes in prop::collection::vec((parts(), 0_usize..3), 0..12),
        ) {
            let mut domain = domain();
            let earlier = domain.register(OTHER, Exposure::Write(400)).unwrap();
            domain.place(OTHER, earlier).unwrap().fill(0xee);
            drop(domain.deregister(OTHER, earlier.key));
            let lent = domain.register(OURS, Exposure::Write(400)).unwrap();
            let mut expected = Vec::new();
            for (number, ((offset, length), way)) in (1_u8..).zip(writes) {
                let place = part(lent, offset.into(), length);
                match way {
                    0 => domain.place(OURS, place).unwrap().fill(number),
                    1 => {
                        let data = Buffer::from(vec![number; length as usize]);
                        domain.write(OURS, place, &data).unwrap();
                    }
                    _ => {
                        let (mut block, range) = domain.lift(OURS, place).unwrap();
                        prop_assert_eq!(domain.write(OURS, lent, &Buffer::EMPTY), Err(AccessError::Key));
                        block[range.clone()].fill(number);
                        domain.put_back(OURS, lent.key, block, range).unwrap();
                    }
                }
                let end = (offset + length) as usize;
                if length > 0 && expected.len() < end {
                    expected.resize(end, 0);
                }
                if length > 0 {
                    expected[offset as usize..end].fill(number);
                }
            }
            prop_assert_eq!(&domain.deregister(OURS, lent.key).unwrap()[..], &expected[..]);
        }
    }
}
