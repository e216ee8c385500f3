//! Data that are fetched from the host.

use engine::{Buffer, BufferMut};

use crate::SharedPool;

/// Data that a command fetches from the host, and the progress of the transfer.
#[derive(Debug, Default)]
pub(super) struct Pull {
    /// Length of the transfer in bytes; 0 when there is none.
    pub(super) length: u32,
    /// Number of requested bytes.
    pub(super) asked: u32,
    /// Number of bytes that have arrived.
    pub(super) arrived: u32,
    /// All of the data, if they arrived in one piece.
    whole: Buffer,
    /// The memory in which the data are assembled otherwise; `None` until the first of them arrive.
    place: Option<BufferMut>,
}

impl Pull {
    pub(super) fn new(length: u32) -> Self {
        Self { length, ..Self::default() }
    }

    pub(super) const fn is_active(&self) -> bool {
        self.length > 0
    }

    /// Whether data are on their way.
    pub(super) const fn is_coming(&self) -> bool {
        self.asked > self.arrived
    }

    /// Takes the data at `offset`, which lie within the transfer.
    pub(super) fn take(&mut self, offset: u32, data: Buffer, pool: &SharedPool) {
        self.arrived += u32::try_from(data.len()).expect("a read has a limit");
        if data.len() == self.length as usize {
            self.whole = data;
            return;
        }
        let length = self.length as usize;
        let place = self.place.get_or_insert_with(|| pool.borrow_mut().take(length));
        place[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
    }

    /// The data, all of which have arrived.
    pub(super) fn finish(self, pool: &SharedPool) -> Buffer {
        match self.place {
            Some(place) => pool.borrow_mut().seal(place),
            None => self.whole,
        }
    }
}
