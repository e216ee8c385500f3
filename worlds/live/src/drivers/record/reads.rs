//! Many reads of a recording under way at once, handed over in order.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{ControlFlow, Deref};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use record::format::ALIGNMENT;
use rustix::fs::OFlags;

use super::reading::Store;
use super::source;
use crate::media::file::kernel::{Call, Kernel};

/// The most reads under way at once.
const READS_MAX: usize = 64;
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

/// What is to be read: a place in bytes and a length, multiples of [`ALIGNMENT`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// Where blocks come from and go.
pub(super) struct Ends<'a> {
    /// Gives a block with enough room.
    pub(super) spare: &'a mut dyn FnMut() -> Block,
    /// Takes what was read of the next piece, as much as there is. The end of the medium may
    /// cut it.
    pub(super) take: &'a mut dyn FnMut(io::Result<Block>) -> ControlFlow<()>,
}

/// Reads `pieces` and hands them over in their order, until `take` has enough.
pub(super) fn read(store: &Store, pieces: impl Iterator<Item = Piece>, ends: &mut Ends<'_>) {
    match store {
        Store::File(file) => match Reads::of(file) {
            Ok(reads) => reads.run(store, pieces, ends),
            Err(error) => {
                let _ = (ends.take)(Err(error));
            }
        },
        Store::Far(_) | Store::Striped(_) => {
            for piece in pieces {
                let block = again(store, piece, (ends.spare)());
                if (ends.take)(block).is_break() {
                    return;
                }
            }
        }
    }
}

/// Reads a piece and waits for it.
fn again(store: &Store, piece: Piece, mut block: Block) -> io::Result<Block> {
    let place = block.start..block.start + piece.length;
    block.length = store.read_at(&mut block.bytes[place], piece.offset)?;
    Ok(block)
}

struct Reads {
    kernel: Kernel,
    /// The pieces under way, the oldest first; a read's name is its number modulo [`READS_MAX`].
    pieces: VecDeque<Piece>,
    first: usize,
    ended: Vec<Option<(Block, io::Result<usize>)>>,
}

impl Reads {
    /// Reads past the page cache where the file system can: who reads a recording reads it once.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    fn of(file: &File) -> io::Result<Self> {
        let direct = OFlags::DIRECT.bits().cast_signed();
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = OpenOptions::new().read(true).custom_flags(direct).open(own);
        // A file that can be read here, but not by another descriptor, is read one by one.
        let ring = direct.is_ok();
        let file = direct.or_else(|_| file.try_clone())?;
        let ended = (0..READS_MAX).map(|_| None).collect();
        Ok(Self { kernel: Kernel::new(file, ring).0, pieces: VecDeque::new(), first: 0, ended })
    }

    fn run(mut self, store: &Store, mut pieces: impl Iterator<Item = Piece>, ends: &mut Ends<'_>) {
        loop {
            while self.pieces.len() < READS_MAX {
                let Some(piece) = pieces.next() else { break };
                self.start(piece, (ends.spare)());
            }
            // A refusal leaves the read without an end, and it is carried out below.
            let submitted = self.kernel.submit();
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
                Ok(length) if length == piece.length => Ok(Block { length, ..block }),
                _ => again(store, piece, block),
            };
            if (ends.take)(block).is_break() {
                return;
            }
        }
    }

    fn start(&mut self, piece: Piece, block: Block) {
        let name = (self.first + self.pieces.len()) % READS_MAX;
        let Block { bytes: block, start, .. } = block;
        let call = Call::Fill { offset: piece.offset, block, start, length: piece.length };
        self.kernel.start(u32::try_from(name).unwrap_or(u32::MAX), call);
        self.pieces.push_back(piece);
    }

    /// Waits for the oldest read.
    fn wait(&mut self) -> io::Result<(Block, io::Result<usize>)> {
        loop {
            if let Some(ended) = self.ended[self.first % READS_MAX].take() {
                return Ok(ended);
            }
            let mut has_ended = false;
            while let Some((name, call, result)) = self.kernel.next_ended() {
                let Call::Fill { block: bytes, start, .. } = call else { continue };
                self.ended[name as usize] = Some((Block { bytes, start, length: 0 }, result));
                has_ended = true;
            }
            if !has_ended {
                source::sleep(&mut [], &[self.kernel.poll_fd()], SLEEP_MAX)?;
                self.kernel.submit()?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

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
}
