//! Payload bytes that are copied once and can have many holders.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::ops::{Deref, DerefMut, Range};

use super::loan::Lent;

/// Blocks start at a multiple of this many bytes, as direct I/O requires.
const ALIGNMENT: usize = 4096;

/// Immutable bytes, shared by reference count. Cloning and slicing copy nothing.
#[derive(Clone, Default)]
pub struct Buffer {
    block: Block,
    start: u32,
    length: u32,
}

/// The bytes that a buffer refers to.
#[derive(Clone)]
enum Block {
    Own(Rc<[u8]>),
    /// Bytes that were lent, or none.
    Other(Option<Lent>),
}

// A buffer with two kinds of blocks is as short as one with the first kind alone.
const _: () = assert!(size_of::<Block>() == size_of::<Rc<[u8]>>());

impl Default for Block {
    fn default() -> Self {
        Self::Other(None)
    }
}

impl Block {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(block) => block,
            Self::Other(None) => &[],
            Self::Other(Some(lent)) => lent.bytes(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(one), Self::Own(other)) => Rc::ptr_eq(one, other),
            (Self::Other(Some(one)), Self::Other(Some(other))) => one.is_same(other),
            _ => false,
        }
    }
}

impl Buffer {
    /// An empty buffer, which allocates nothing.
    pub const EMPTY: Self = Self { block: Block::Other(None), start: 0, length: 0 };

    /// A buffer of all bytes of a loan.
    ///
    /// # Panics
    /// When there are 4 GiB or more.
    #[inline]
    pub(crate) fn of_loan(lent: Lent) -> Self {
        let length = length_u32(lent.bytes().len());
        Self { block: Block::Other(Some(lent)), start: 0, length }
    }

    /// Copies `bytes` into a block of their own. Steady-state code takes blocks from a [`Pool`]
    /// instead.
    ///
    /// # Panics
    /// When `bytes` is 4 GiB or longer.
    pub fn copy_from_slice(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::EMPTY;
        }
        Self { block: Block::Own(Rc::from(bytes)), start: 0, length: length_u32(bytes.len()) }
    }

    /// Creates a buffer of `length` zero bytes in a block of its own.
    ///
    /// # Panics
    /// When `length` is 4 GiB or more.
    pub fn zeroed(length: usize) -> Self {
        let block = core::iter::repeat_n(0, length).collect();
        Self { block: Block::Own(block), start: 0, length: length_u32(length) }
    }

    /// Length of the buffer in bytes.
    pub const fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether the buffer has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The part of the buffer in `range`, which shares the same block.
    ///
    /// # Panics
    /// When `range` does not lie within the buffer.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.length as usize, "{range:?} of {self:?}");
        if range.is_empty() {
            return Self::EMPTY;
        }
        Self {
            block: self.block.clone(),
            start: self.start + length_u32(range.start),
            length: length_u32(range.len()),
        }
    }

    /// Appends the first `bytes` of `next`, if they follow directly in the same block. Returns
    /// whether they did.
    pub fn extend(&mut self, next: &Self, bytes: usize) -> bool {
        let follows = self.block.is_same(&next.block) && self.start + self.length == next.start;
        if !follows || bytes > next.length as usize {
            return false;
        }
        self.length += length_u32(bytes);
        true
    }

    /// Whether this buffer covers only part of its block. The block is freed when the last buffer
    /// that shares it is dropped.
    pub fn is_part(&self) -> bool {
        self.block.bytes().len() > self.length as usize
    }

    /// The bytes for writing; `None` if another buffer shares the block, or if the bytes were lent.
    pub fn try_mut(&mut self) -> Option<&mut [u8]> {
        let range = self.start as usize..self.start as usize + self.length as usize;
        match &mut self.block {
            Block::Own(block) => Rc::get_mut(block)?.get_mut(range),
            Block::Other(None) => Some(&mut []),
            Block::Other(Some(_)) => None,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.block.bytes()[self.start as usize..self.start as usize + self.length as usize]
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buffer {}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::copy_from_slice(&bytes)
    }
}

impl fmt::Debug for Buffer {
    /// Formats only the length and the first 16 bytes: whole payloads would flood a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self[..self.len().min(16)];
        write!(f, "Buffer({} B: {shown:02x?}{})", self.len(), if self.len() > 16 { "…" } else { "" })
    }
}

/// Bytes with one owner, being filled. A buffer from a [`Pool`] has unspecified contents at first.
pub struct BufferMut {
    /// Never cloned while the buffer is mutable, so the bytes are always writable.
    block: Rc<[u8]>,
    start: u32,
    length: u32,
}

impl BufferMut {
    fn over(block: Rc<[u8]>, length: usize, slack: usize) -> Self {
        let start = block.as_ptr().align_offset(ALIGNMENT).min(slack);
        Self { block, start: length_u32(start), length: length_u32(length) }
    }

    /// Shortens the buffer to its first `length` bytes.
    ///
    /// # Panics
    /// When the buffer has fewer bytes.
    pub fn truncate(&mut self, length: usize) {
        assert!(length <= self.length as usize, "a buffer can't be truncated to more than it holds");
        self.length = length_u32(length);
    }

    /// Makes the bytes immutable. The block is freed with its last holder; [`Pool::seal`] reuses it
    /// instead.
    pub fn freeze(self) -> Buffer {
        Buffer { block: Block::Own(self.block), start: self.start, length: self.length }
    }
}

impl Deref for BufferMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block[self.start as usize..self.start as usize + self.length as usize]
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let block = Rc::get_mut(&mut self.block).expect("a BufferMut is its block's only holder");
        &mut block[self.start as usize..self.start as usize + self.length as usize]
    }
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferMut({} B)", self.length)
    }
}

/// The smallest block of a pool, in bytes. The size of each class is this times a power of two.
const SMALLEST: usize = 256;
/// Number of block sizes: 256 B, 512 B, and so on to 2 MiB.
const CLASSES: usize = 14;
/// Number of most recently sealed blocks that a search for a free block tries first: these are
/// likely still in the cache.
const RECENT_MAX: usize = 4;
/// Number of other blocks that a search tries next, before the pool allocates a block.
const SEARCH_MAX: usize = 8;

/// Blocks that are reused when their last holder drops them, so that steady state allocates
/// nothing.
///
/// A pool keeps a reference to every block that it has sealed, and reuses a block that has no other
/// holder. It remembers at most `retain` bytes in total, or a single block if that is longer. To
/// make room, it forgets blocks of the length that occupies the most bytes.
#[derive(Debug)]
pub struct Pool {
    classes: [Class; CLASSES],
    retain: usize,
    /// Bytes of all blocks that the pool remembers.
    retained: usize,
}

/// A pool of blocks that several connections share.
pub type SharedPool = Rc<RefCell<Pool>>;

/// The remembered blocks of one size.
#[derive(Debug, Default)]
struct Class {
    /// Blocks, roughly in the order in which they were sealed.
    blocks: Vec<Rc<[u8]>>,
    /// Where the search among older blocks continues.
    turn: usize,
}

impl Class {
    /// Returns a block that has no other holder, if the search finds one.
    #[inline]
    fn take(&mut self) -> Option<Rc<[u8]>> {
        let recent = self.blocks.iter().enumerate().rev().take(RECENT_MAX);
        let free = recent.into_iter().find(|(_, block)| Rc::strong_count(block) == 1);
        match free.map(|(index, _)| index) {
            Some(index) => Some(self.blocks.swap_remove(index)),
            None => self.search(),
        }
    }

    /// Like [`Class::take`], but searches at most [`SEARCH_MAX`] of all blocks.
    #[cold]
    fn search(&mut self) -> Option<Rc<[u8]>> {
        for _ in 0..self.blocks.len().min(SEARCH_MAX) {
            self.turn = if self.turn + 1 < self.blocks.len() { self.turn + 1 } else { 0 };
            if Rc::strong_count(&self.blocks[self.turn]) == 1 {
                return Some(self.blocks.swap_remove(self.turn));
            }
        }
        None
    }

    #[cold]
    fn forget_one(&mut self) {
        self.turn = if self.turn + 1 < self.blocks.len() { self.turn + 1 } else { 0 };
        self.blocks.swap_remove(self.turn);
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new(16 << 20)
    }
}

impl Pool {
    /// The longest buffer that can be taken, in bytes: 2 MiB.
    pub const LENGTH_MAX: usize = size_of_class(CLASSES - 1);

    /// Creates an empty pool that remembers at most `retain` bytes.
    pub fn new(retain: usize) -> Self {
        Self { classes: core::array::from_fn(|_| Class::default()), retain, retained: 0 }
    }

    /// The most bytes that the pool remembers.
    pub(crate) const fn retain(&self) -> usize {
        self.retain
    }

    /// Takes a buffer of `length` bytes with unspecified contents. Buffers longer than 2 KiB are
    /// aligned to 4 KiB.
    ///
    /// # Panics
    /// When `length` is more than [`Pool::LENGTH_MAX`].
    pub fn take(&mut self, length: usize) -> BufferMut {
        assert!(
            length <= Self::LENGTH_MAX,
            "cannot take {length} B from a pool: the limit is {} B",
            Self::LENGTH_MAX
        );
        let class = class_of(length);
        let block = match self.classes[class].take() {
            Some(block) => {
                self.retained -= block_bytes(class);
                block
            }
            None => new_block(class),
        };
        BufferMut::over(block, length, slack_of(class))
    }

    /// Makes `buffer` immutable. Its block returns to this pool when the last holder drops it.
    pub fn seal(&mut self, buffer: BufferMut) -> Buffer {
        // A block keeps the length of its class and slack, even if the buffer was truncated.
        let length = buffer.block.len();
        let class = class_of(if length > ALIGNMENT { length - ALIGNMENT } else { length });
        while self.retained + block_bytes(class) > self.retain && self.forget_one() {}
        self.retained += block_bytes(class);
        self.classes[class].blocks.push(Rc::clone(&buffer.block));
        buffer.freeze()
    }

    /// Forgets a block of the length that occupies the most bytes. Returns whether there was one.
    #[cold]
    fn forget_one(&mut self) -> bool {
        let bytes = |class: usize| self.classes[class].blocks.len() * block_bytes(class);
        let Some(class) = (0..CLASSES).max_by_key(|class| bytes(*class)).filter(|class| bytes(*class) > 0)
        else {
            return false;
        };
        self.classes[class].forget_one();
        self.retained -= block_bytes(class);
        true
    }

    /// Copies `bytes` into a sealed buffer.
    pub fn copy(&mut self, bytes: &[u8]) -> Buffer {
        if bytes.is_empty() {
            return Buffer::EMPTY;
        }
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        self.seal(buffer)
    }
}

#[cold]
fn new_block(class: usize) -> Rc<[u8]> {
    core::iter::repeat_n(0, block_bytes(class)).collect()
}

/// The class of the smallest blocks that hold `length` bytes.
const fn class_of(length: usize) -> usize {
    let bits = usize::BITS - length.saturating_sub(1).leading_zeros();
    bits.saturating_sub(SMALLEST.trailing_zeros()) as usize
}

const fn size_of_class(class: usize) -> usize {
    SMALLEST << class
}

/// Bytes of a block of `class` beyond its size, which allow an aligned start.
const fn slack_of(class: usize) -> usize {
    if size_of_class(class) < ALIGNMENT { 0 } else { ALIGNMENT }
}

/// Bytes of a block of `class`, slack included.
const fn block_bytes(class: usize) -> usize {
    size_of_class(class) + slack_of(class)
}

fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("a buffer is smaller than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_one_block() {
        let whole = Buffer::copy_from_slice(b"0123456789");
        let part = whole.slice(2..8).slice(1..3);
        assert_eq!(&*part, b"34");
        assert_eq!(whole.clone().slice(4..4).len(), 0);
    }

    #[test]
    fn neighbours_in_a_block_join() {
        let whole = Buffer::copy_from_slice(b"0123456789");
        let mut part = whole.slice(2..4);
        assert!(part.is_part() && !whole.is_part() && !Buffer::EMPTY.is_part());
        assert!(part.extend(&whole.slice(4..9), 3));
        assert_eq!(&*part, b"23456");
        assert!(!part.extend(&whole.slice(8..9), 1), "a gap");
        assert!(!part.extend(&whole.slice(7..9), 3), "more than there is");
        assert!(!part.extend(&Buffer::copy_from_slice(b"789"), 3), "another block");
        let mut nothing = Buffer::EMPTY;
        assert!(!nothing.extend(&whole, 0) && !part.extend(&nothing, 0));
    }

    #[test]
    fn a_block_comes_back_when_its_last_holder_lets_go() {
        let mut pool = Pool::new(1 << 20);
        let first = pool.copy(&[1; 4096]);
        let address = first.as_ptr();
        assert_eq!(address.align_offset(ALIGNMENT), 0);
        let held = first.slice(0..1);
        drop(first);
        assert_ne!(pool.take(4096).as_ptr(), address);
        drop(held);
        assert_eq!(pool.take(4096).as_ptr(), address);
    }

    #[test]
    fn a_pool_forgets_blocks_beyond_its_limit() {
        let mut pool = Pool::new(16 << 10);
        let blocks = |pool: &Pool| pool.classes.iter().map(|class| class.blocks.len()).sum::<usize>();
        let held: Vec<_> = (0..5).map(|_| pool.copy(&[0; 4096])).collect();
        assert_eq!((blocks(&pool), pool.retained), (2, 2 * block_bytes(class_of(4096))));
        drop(held);
        // New blocks replace the earlier ones.
        pool.copy(&[0; 300]);
        assert_eq!((blocks(&pool), pool.retained), (2, block_bytes(class_of(4096)) + 512));
        pool.copy(&[0; 1 << 16]);
        assert_eq!((blocks(&pool), pool.retained), (1, block_bytes(class_of(1 << 16))));
        pool.copy(&[0; 512]);
        assert_eq!((blocks(&pool), pool.retained), (1, 512));
    }

    #[test]
    fn all_lengths_share_the_limit_of_a_pool() {
        let mut pool = Pool::new(1 << 20);
        for length in [512, 4096, 16 << 10, 64 << 10, 256 << 10, 512, 4096] {
            let held: Vec<_> =
                (0..(2 << 20) / length).map(|_| pool.copy(&[7; 256 << 10][..length])).collect();
            drop(held);
            let blocks = pool.classes.iter().flat_map(|class| &class.blocks);
            let retained: usize = blocks.map(|block| block.len()).sum();
            assert!(retained <= 1 << 20, "{retained} B after blocks of {length} B");
        }
    }

    #[test]
    fn only_a_sole_holder_may_write() {
        let mut one = Buffer::zeroed(4);
        one.try_mut().unwrap()[0] = 9;
        let other = one.clone();
        assert!(one.try_mut().is_none());
        drop(other);
        assert!(one.try_mut().is_some());
    }
}
