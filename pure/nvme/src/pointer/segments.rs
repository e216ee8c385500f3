//! The pieces of one command's data, and where a byte of the data is among them.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Segment;

/// The pieces of one command's data in order, adjoining ones joined. The next command uses the same
/// storage.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Segments {
    segments: Vec<Segment>,
    /// The index of a piece and its offset within the data. Accesses are mostly in order.
    cursor: (usize, u32),
}

impl Segments {
    /// Removes all pieces.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.cursor = (0, 0);
    }

    /// Adds the next piece of the data.
    #[inline]
    pub fn push(&mut self, segment: Segment) {
        if let (Some(previous), Some(address)) = (self.segments.last_mut(), segment.address)
            && previous.address.and_then(|start| start.checked_add(u64::from(previous.length)))
                == Some(address)
            && let Some(length) = previous.length.checked_add(segment.length)
        {
            previous.length = length;
            return;
        }
        self.segments.push(segment);
    }

    /// The pieces in the order of the data.
    pub fn as_slice(&self) -> &[Segment] {
        &self.segments
    }

    /// The piece with byte `offset` of the data, and the byte's offset within the piece.
    pub fn locate(&mut self, offset: u32) -> Option<(Segment, u32)> {
        if offset < self.cursor.1 {
            self.cursor = (0, 0);
        }
        loop {
            let segment = *self.segments.get(self.cursor.0)?;
            if offset - self.cursor.1 < segment.length {
                return Some((segment, offset - self.cursor.1));
            }
            self.cursor = (self.cursor.0 + 1, self.cursor.1 + segment.length);
        }
    }
}
