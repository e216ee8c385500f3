//! Many reads of a recording under way at once, handed over in order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use record::format::ALIGNMENT;
use rustix::fs::OFlags;

use super::far::Far;
use super::reading::{Store, UNREADABLE, is_unreadable};
use super::wait;
use crate::media::file::kernel::{Call, Kernel};

/// The most reads under way at once.
const READS_MAX: usize = 64;
/// After this many reads in a row that returned nothing, a medium counts as failed.
const UNREAD_MAX: usize = 16;
/// The longest sleep until a read ends.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// Bytes that were read, at an address that transfers past the page cache can use.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Block {
    /// A block with room for `room` bytes.
    pub fn of(room: usize) -> Self {
        let bytes = vec![0; room + ALIGNMENT as usize];
        let start = bytes.as_ptr().align_offset(ALIGNMENT as usize).min(ALIGNMENT as usize);
        Self { bytes, start, length: 0 }
    }

    /// Puts bytes to a place among the first `length`, as many as lie there.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8], length: usize) {
        let place = self.start + at..self.start + at.saturating_add(bytes.len()).min(length);
        if let Some(place) = self.bytes.get_mut(place) {
            place.copy_from_slice(&bytes[..place.len()]);
        }
    }

    /// How many bytes it can take.
    pub const fn room(&self) -> usize {
        self.bytes.len() - ALIGNMENT as usize
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }
}

/// The piece to read: a place in bytes and a length, multiples of [`ALIGNMENT`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// Where blocks come from and go.
pub(super) struct Ends<'a> {
    /// Gives a block with enough room.
    pub(super) spare: &'a mut dyn FnMut() -> Block,
    /// Takes the bytes read of the next piece, as many as there are. The end of the medium may cut
    /// it.
    pub(super) take: &'a mut dyn FnMut(io::Result<Block>) -> ControlFlow<()>,
}

/// Reads `pieces` and hands them over in their order, until `take` has enough.
pub(super) fn read(store: &Store, pieces: impl Iterator<Item = Piece>, ends: &mut Ends<'_>) {
    match Reads::of(store) {
        Ok(reads) => reads.run(pieces, ends),
        Err(error) => {
            let _ = (ends.take)(Err(error));
        }
    }
}

/// A medium that carries out many reads at once.
enum Lane<'a> {
    File(Box<Kernel>),
    Far(&'a RefCell<Box<Far>>),
}

impl<'a> Lane<'a> {
    /// The lane of a medium that is not striped.
    ///
    /// Files are read past the page cache where the file system can: a recording is usually read
    /// once.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    fn of(store: &'a Store) -> io::Result<Option<Self>> {
        let file = match store {
            Store::File(file) => file,
            Store::Far(far) => return Ok(Some(Self::Far(far))),
            Store::Striped(_) => return Ok(None),
        };
        let direct = OFlags::DIRECT.bits().cast_signed();
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = OpenOptions::new().read(true).custom_flags(direct).open(own);
        // A file that can be read here, but not by another descriptor, is read one by one.
        let ring = direct.is_ok();
        let file = direct.or_else(|_| file.try_clone())?;
        Ok(Some(Self::File(Box::new(Kernel::new(file.into(), ring).0))))
    }

    /// Begins a read. Gives the block back if the medium can't do it at once with others.
    fn start(&mut self, name: usize, offset: u64, block: Block, length: usize) -> Result<(), Block> {
        match self {
            Self::File(kernel) => {
                let Block { bytes: block, start, .. } = block;
                let call = Call::Fill { offset, block, start, length };
                kernel.start(u32::try_from(name).unwrap_or(u32::MAX), call);
                Ok(())
            }
            Self::Far(far) => far.borrow_mut().read(name as u64, offset, block, length),
        }
    }

    /// Submits the reads that were begun to the system or the device.
    fn submit(&mut self) -> io::Result<()> {
        match self {
            Self::File(kernel) => kernel.submit(),
            Self::Far(far) => {
                far.borrow_mut().submit();
                Ok(())
            }
        }
    }

    /// A read that has ended: its name, its block, and the number of bytes there.
    fn next_ended(&mut self) -> Option<(usize, Block, io::Result<usize>)> {
        match self {
            Self::File(kernel) => loop {
                let (name, call, result) = kernel.next_ended()?;
                if let Call::Fill { block: bytes, start, .. } = call {
                    return Some((name as usize, Block { bytes, start, length: 0 }, result));
                }
            },
            Self::Far(far) => {
                let (name, block, result) = far.borrow_mut().next_read()?;
                Some((usize::try_from(name).unwrap_or(usize::MAX), block, result))
            }
        }
    }

    fn poll_fd(&self) -> Option<RawFd> {
        match self {
            Self::File(kernel) => kernel.poll_fd(),
            Self::Far(far) => Some(far.borrow().poll_fd()),
        }
    }

    /// How long it may be left alone.
    fn patience(&self) -> Duration {
        match self {
            Self::File(_) => SLEEP_MAX,
            Self::Far(far) => far.borrow().patience().min(SLEEP_MAX),
        }
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        if let Self::Far(far) = self {
            far.borrow_mut().forget_reads();
        }
    }
}

/// The reads of a medium, or of all members of a set: together [`READS_MAX`] at most.
struct Reads<'a> {
    store: &'a Store,
    /// One for each member of a set, or for the only medium.
    lanes: Vec<Option<Lane<'a>>>,
    /// The pieces under way, the oldest first; a read's name is its number modulo [`READS_MAX`].
    pieces: VecDeque<Piece>,
    first: usize,
    ended: Vec<Option<(Block, io::Result<usize>)>>,
    /// How many pieces in a row could not be read.
    unread: usize,
}

impl<'a> Reads<'a> {
    /// # Errors
    /// When the system has no descriptor left.
    fn of(store: &'a Store) -> io::Result<Self> {
        let lanes = match store {
            Store::Striped(all) => all.members().iter().map(Lane::of).collect::<io::Result<_>>()?,
            only => vec![Lane::of(only)?],
        };
        let ended = (0..READS_MAX).map(|_| None).collect();
        Ok(Self { store, lanes, pieces: VecDeque::new(), first: 0, ended, unread: 0 })
    }

    fn run(mut self, mut pieces: impl Iterator<Item = Piece>, ends: &mut Ends<'_>) {
        loop {
            while self.pieces.len() < READS_MAX {
                let Some(piece) = pieces.next() else { break };
                self.start(piece, (ends.spare)());
            }
            // A refusal leaves the read without an end, and it is carried out below.
            let submitted = self.submit();
            let Some(piece) = self.pieces.front().copied() else { return };
            let (block, result) = match submitted.and_then(|()| self.wait()) {
                Ok(ended) => ended,
                Err(error) => {
                    let _ = (ends.take)(Err(error));
                    return;
                }
            };
            self.pieces.pop_front();
            self.first += 1;
            // A read that failed or was cut is carried out again, and then counts.
            let block = match result {
                Ok(length) if length == piece.length => {
                    self.unread = 0;
                    Ok(Block { length, ..block })
                }
                _ => self.again(piece, block),
            };
            if (ends.take)(block).is_break() {
                return;
            }
        }
    }

    /// Reads a piece and waits for it. Bytes that a disk can't read cost the chunks that need them,
    /// and no others, unless their number shows that the disk has failed.
    fn again(&mut self, piece: Piece, mut block: Block) -> io::Result<Block> {
        let place = block.start..block.start + piece.length;
        let bytes = &mut block.bytes[place];
        block.length = match self.store.read_around(bytes, piece.offset) {
            Err(error) if is_unreadable(&error) && self.unread < UNREAD_MAX => {
                self.unread += 1;
                bytes.fill(UNREADABLE);
                piece.length
            }
            result => {
                self.unread = 0;
                result?
            }
        };
        Ok(block)
    }

    fn start(&mut self, piece: Piece, block: Block) {
        let name = (self.first + self.pieces.len()) % READS_MAX;
        self.pieces.push_back(piece);
        let place = match self.store {
            Store::Striped(all) => all.place(piece.offset, piece.length),
            Store::File(_) | Store::Far(_) => Some((0, piece.offset)),
        };
        let lane = place.and_then(|(member, offset)| Some((self.lanes.get_mut(member)?.as_mut()?, offset)));
        let refused = match lane {
            Some((lane, offset)) => lane.start(name, offset, block, piece.length).err(),
            None => Some(block),
        };
        // It is read alone, once it is the oldest.
        self.ended[name] = refused.map(|block| (block, Err(io::ErrorKind::WouldBlock.into())));
    }

    fn submit(&mut self) -> io::Result<()> {
        self.lanes.iter_mut().flatten().try_for_each(Lane::submit)
    }

    /// Waits for the oldest read.
    fn wait(&mut self) -> io::Result<(Block, io::Result<usize>)> {
        loop {
            if let Some(ended) = self.ended[self.first % READS_MAX].take() {
                return Ok(ended);
            }
            let mut has_ended = false;
            for lane in self.lanes.iter_mut().flatten() {
                while let Some((name, block, result)) = lane.next_ended() {
                    self.ended[name] = Some((block, result));
                    has_ended = true;
                }
            }
            if !has_ended {
                let lanes = || self.lanes.iter().flatten();
                let patience = lanes().map(Lane::patience).min().unwrap_or(SLEEP_MAX);
                wait::until_readable(lanes().filter_map(Lane::poll_fd), patience)?;
                self.submit()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::drivers::record::striped::Stripes;

    #[test]
    fn pieces_come_in_order_and_the_last_is_cut() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..1_000_003_u32).flat_map(|word| word.to_le_bytes()).collect();
        file.write_all(&bytes).unwrap();
        let store = Store::File(file);
        let piece = |at: u64| Piece { offset: at * 20_480, length: 20_480 };
        let mut read_bytes = Vec::new();
        let take = &mut |block: io::Result<Block>| {
            let block = block.unwrap();
            read_bytes.extend_from_slice(&block);
            if block.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        read(&store, (0..).map(piece), &mut Ends { spare: &mut || Block::of(20_480), take });
        assert!(read_bytes == bytes, "{} of {} bytes", read_bytes.len(), bytes.len());
    }

    /// The memory of a process is a file, which can't be read where there is no memory.
    #[test]
    fn what_cannot_be_read_costs_its_own_piece_until_it_is_too_much() {
        const LENGTH: usize = 4 * 4096;
        let store = Store::File(std::fs::File::open("/proc/self/mem").unwrap());
        let known = Block::of(LENGTH);
        let place = known.bytes[known.start..].as_ptr().addr() as u64;
        let piece = |offset: u64| Piece { offset, length: LENGTH };
        let bad = std::iter::repeat_n(piece(0), UNREAD_MAX);
        let pieces = bad.clone().chain([piece(place)]).chain(bad).chain([piece(0), piece(place)]);
        let (mut bad, mut good, mut failed) = (0, 0, 0);
        let take = &mut |block: io::Result<Block>| {
            match block {
                Ok(block) if block.iter().all(|byte| *byte == UNREADABLE) => bad += 1,
                Ok(block) => good += usize::from(*block == [0_u8; LENGTH]),
                Err(_) => {
                    failed += 1;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        read(&store, pieces, &mut Ends { spare: &mut || Block::of(LENGTH), take });
        assert_eq!((bad, good, failed), (2 * UNREAD_MAX, 1, 1));
        assert_eq!(known.bytes.len(), LENGTH + ALIGNMENT as usize, "it is there until here");
    }

    /// Members that are not equally long, and pieces of any place and length: the result is that of
    /// one read after the other, and the reads under way are many, and no more than allowed.
    #[test]
    fn members_of_a_set_are_read_at_once_and_in_order() {
        const CHUNK: u32 = 16 << 10;
        let mut fill = engine::Rng::from_seed(7);
        let mut member = |index: u32, chunks: usize| {
            let mut bytes = vec![0; chunks * CHUNK as usize + 4096 * index as usize];
            fill.fill(&mut bytes);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bytes).unwrap();
            Store::open(file.path(), false).unwrap().0
        };
        let members = vec![member(0, 60), member(1, 64), member(2, 58)];
        let store = Store::Striped(Stripes::of(members, CHUNK));
        let mut rng = engine::Rng::from_seed(8);
        let pieces: Vec<_> = (0..400)
            .map(|_| {
                let length = usize::try_from(1 + rng.below(6)).unwrap() * 4096;
                Piece { offset: rng.below(200 * 4) * 4096, length }
            })
            .collect();
        let (under_way, most) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let mut spare = || {
            under_way.set(under_way.get() + 1);
            most.set(most.get().max(under_way.get()));
            Block::of(6 * 4096)
        };
        let mut asked = pieces.iter();
        let mut take = |block: io::Result<Block>| {
            under_way.set(under_way.get() - 1);
            let (piece, block) = (asked.next().unwrap(), block.unwrap());
            let mut expected = vec![0; piece.length];
            let length = store.read_at(&mut expected, piece.offset).unwrap();
            assert!(*block == expected[..length], "{piece:?} has other bytes");
            ControlFlow::Continue(())
        };
        read(&store, pieces.iter().copied(), &mut Ends { spare: &mut spare, take: &mut take });
        assert!(asked.next().is_none(), "all pieces come");
        assert_eq!((most.get(), under_way.get()), (READS_MAX, 0));
    }
}
