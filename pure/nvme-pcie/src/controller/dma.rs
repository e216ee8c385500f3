//! Outstanding reads of host memory, and the assembly of their pieces.

use alloc::vec::Vec;

use engine::{Buffer, BufferMut, Pool};
use pcie::device::DmaId;
use serde::{Deserialize, Serialize};

use super::shadow::Doorbell;
use crate::registers::{high_16, low_16};

/// The most reads of host memory that a controller has outstanding. Further reads wait.
pub const READS_MAX: u16 = 1024;

/// The purpose of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// Submission queue entries, for the fetch with this index.
    Fetch(u16),
    /// A PRP list or an SGL segment, for the command in this slot.
    List(u16),
    /// Data of a command.
    Data {
        /// The slot of the command.
        slot: u16,
        /// Offset of the read within the command's data.
        base: u32,
    },
    /// A shadow doorbell.
    Shadow {
        /// The doorbell that is read.
        doorbell: Doorbell,
        /// Identifies the look.
        tag: u16,
    },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Read {
    generation: u16,
    purpose: Option<Purpose>,
    length: u32,
}

/// The table of outstanding reads. A read's identifier is an index and a generation, so that a late
/// answer to a read from before a reset matches nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reads {
    reads: Vec<Read>,
    free: Vec<u16>,
}

impl Reads {
    pub(super) fn new() -> Self {
        let read = Read { generation: 0, purpose: None, length: 0 };
        Self { reads: (0..READS_MAX).map(|_| read).collect(), free: (0..READS_MAX).rev().collect() }
    }

    /// Issues an identifier for a read of `length` bytes; `None` if [`READS_MAX`] reads are
    /// outstanding.
    pub(super) fn issue(&mut self, purpose: Purpose, length: u32) -> Option<DmaId> {
        let index = self.free.pop()?;
        let read = &mut self.reads[usize::from(index)];
        read.purpose = Some(purpose);
        read.length = length;
        Some(DmaId(u32::from(read.generation) << 16 | u32::from(index)))
    }

    /// The purpose and the length of the read called `id`, if it is outstanding.
    pub(super) fn find(&self, id: DmaId) -> Option<(Purpose, u32)> {
        let read = self.reads.get(usize::from(low_16(id.0)))?;
        let purpose = read.purpose.filter(|_| read.generation == high_16(id.0))?;
        Some((purpose, read.length))
    }

    /// Ends the read called `id`, which must be outstanding.
    pub(super) fn retire(&mut self, id: DmaId) {
        let index = low_16(id.0);
        let read = &mut self.reads[usize::from(index)];
        assert!(read.purpose.take().is_some(), "{id:?} retired twice");
        read.generation = read.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Ends every read. Late answers match nothing.
    pub(super) fn clear(&mut self) {
        for (index, read) in (0..).zip(&mut self.reads) {
            if read.purpose.take().is_some() {
                read.generation = read.generation.wrapping_add(1);
                self.free.push(index);
            }
        }
    }
}

/// Some of the bytes of a read.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) id: DmaId,
    /// Length of the whole read in bytes.
    pub(super) length: u32,
    /// Offset in bytes of this piece within the read.
    pub(super) offset: u32,
    pub(super) data: Buffer,
    /// Whether this piece completes the read.
    pub(super) last: bool,
}

/// Assembles the pieces of one read. A read that is answered in one piece is not copied.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Assembly(Option<BufferMut>);

impl Assembly {
    /// Adds a piece of a read. Returns all the bytes with the last piece.
    pub(super) fn on_piece(&mut self, pool: &mut Pool, piece: Piece) -> Option<Buffer> {
        let Piece { offset, data, last, .. } = piece;
        let length = piece.length as usize;
        if self.0.is_none() && last && data.len() == length {
            return Some(data);
        }
        let whole = self.0.get_or_insert_with(|| pool.take(length));
        copy_into(whole, offset, &data);
        if last { self.0.take().map(|whole| pool.seal(whole)) } else { None }
    }

    /// Drops the pieces so far.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

/// Copies `data` to `offset` of `whole`, and drops the bytes that do not fit.
pub(super) fn copy_into(whole: &mut BufferMut, offset: u32, data: &[u8]) {
    let start = (offset as usize).min(whole.len());
    let length = data.len().min(whole.len() - start);
    whole[start..start + length].copy_from_slice(&data[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_names_nothing() {
        let mut reads = Reads::new();
        let id = reads.issue(Purpose::List(3), 8).unwrap();
        assert_eq!(reads.find(id), Some((Purpose::List(3), 8)));
        reads.clear();
        assert_eq!(reads.find(id), None);
        let again = reads.issue(Purpose::List(4), 8).unwrap();
        assert_ne!(again, id);
        assert_eq!(reads.find(id), None);
        for _ in 1..READS_MAX {
            reads.issue(Purpose::List(0), 1).unwrap();
        }
        assert_eq!(reads.issue(Purpose::List(0), 1), None);
        reads.retire(again);
        assert!(reads.issue(Purpose::List(0), 1).is_some());
    }

    #[test]
    fn pieces_in_any_order_make_the_whole() {
        let mut pool = Pool::default();
        let mut assembly = Assembly::default();
        let bytes = |bytes: &[u8]| Buffer::copy_from_slice(bytes);
        let piece = |length, offset, data: &[u8], last| Piece {
            id: DmaId(0),
            length,
            offset,
            data: bytes(data),
            last,
        };
        assert_eq!(assembly.on_piece(&mut pool, piece(4, 2, b"cd", false)), None);
        assert_eq!(assembly.on_piece(&mut pool, piece(4, 0, b"ab", true)), Some(bytes(b"abcd")));
        assert_eq!(assembly.on_piece(&mut pool, piece(2, 0, b"xy", true)), Some(bytes(b"xy")));
    }
}
