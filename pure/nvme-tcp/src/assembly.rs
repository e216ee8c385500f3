//! Data of a command that arrive in one block or in parts.

use core::ops::Range;

use engine::{Buffer, BufferMut};

use crate::SharedPool;

/// Data that the other end sends for a command, and the progress of the transfer.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// Length of the transfer in bytes; 0 when there is none.
    pub(crate) length: u32,
    /// Number of bytes that have arrived.
    pub(crate) arrived: u32,
    /// A data digest did not match.
    pub(crate) broken: bool,
    /// All of the data, if they arrived in one block.
    whole: Buffer,
    /// The memory in which the data are assembled otherwise; `None` until the first of them arrive.
    place: Option<BufferMut>,
}

impl Assembly {
    pub(crate) fn new(length: u32) -> Self {
        Self { length, ..Self::default() }
    }

    /// Takes all of the data from `block`, which may be longer.
    #[inline]
    pub(crate) fn take_whole(&mut self, block: &Buffer) {
        self.whole = block.slice(0..self.length as usize);
    }

    /// Provides memory for data that arrive in parts.
    pub(crate) fn make_room(&mut self, pool: &SharedPool) {
        if self.place.is_none() {
            self.place = Some(pool.borrow_mut().take(self.length as usize));
        }
    }

    /// The room for the data in `range`.
    pub(crate) fn place(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        self.place.as_mut()?.get_mut(range)
    }

    /// The data in `range`, which have arrived in parts.
    pub(crate) fn part(&self, range: Range<usize>) -> Option<&[u8]> {
        self.place.as_ref()?.get(range)
    }

    /// Notes the arrival of the data of a PDU.
    #[inline]
    pub(crate) fn on_arrived(&mut self, count: u32, intact: bool) {
        self.arrived += count;
        self.broken |= !intact;
    }

    /// The data that have arrived.
    #[inline]
    pub(crate) fn finish(self, pool: &SharedPool) -> Buffer {
        let Some(place) = self.place else { return self.whole };
        let data = pool.borrow_mut().seal(place);
        if self.arrived == self.length { data } else { data.slice(0..self.arrived as usize) }
    }
}
