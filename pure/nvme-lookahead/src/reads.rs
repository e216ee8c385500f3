//! Outstanding reads of host memory.

use alloc::vec::Vec;

use engine::{Buffer, BufferMut, Pool};

/// Maximum number of outstanding reads, for all ports together.
pub(crate) const READS_MAX: usize = 1536;

/// The purpose of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Entries of a submission queue.
    Entries,
    /// A list of the command with this number in the gathering.
    List(usize),
    /// Data of the command with this number in the gathering.
    Data(usize),
}

/// An outstanding read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) port: usize,
    pub(crate) purpose: Purpose,
    pub(crate) address: u64,
    pub(crate) length: usize,
}

#[derive(Debug)]
struct Slot {
    /// How often the slot was used, so that the answer to a dropped read is ignored.
    epoch: u32,
    read: Option<Read>,
    block: Option<BufferMut>,
}

/// The cookie of a read: the slot's epoch in the upper half, the slot's index in the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadCookie(pub(crate) u64);

impl ReadCookie {
    const fn new(epoch: u32, index: u32) -> Self {
        Self((epoch as u64) << 32 | index as u64)
    }
    const fn epoch(self) -> u32 {
        let [.., a, b, c, d] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
    const fn index(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// The outstanding reads of host memory.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Reads {
    /// A cookie for `read`, if one more read may be outstanding.
    pub(crate) fn begin(&mut self, read: Read) -> Option<ReadCookie> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < READS_MAX => {
                self.slots.push(Slot { epoch: 0, read: None, block: None });
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.epoch = slot.epoch.wrapping_add(1);
        slot.read = Some(read);
        Some(ReadCookie::new(slot.epoch, index))
    }

    fn slot(&mut self, cookie: ReadCookie) -> Option<(u32, &mut Slot)> {
        let index = cookie.index();
        let slot = self.slots.get_mut(index as usize)?;
        (slot.epoch == cookie.epoch() && slot.read.is_some()).then_some((index, slot))
    }

    /// Handles bytes that were read. Returns all bytes of the read with the last of them.
    pub(crate) fn on_data(
        &mut self,
        cookie: ReadCookie,
        offset: u32,
        data: Buffer,
        last: bool,
        pool: &mut Pool,
    ) -> Option<Buffer> {
        let (_, slot) = self.slot(cookie)?;
        let length = slot.read.as_ref()?.length;
        let offset = usize::try_from(offset).ok()?;
        if data.len() == length {
            return Some(data);
        }
        let block = slot.block.get_or_insert_with(|| pool.take(length));
        if let Some(place) = block.get_mut(offset..offset + data.len()) {
            place.copy_from_slice(&data);
        }
        if last { slot.block.take().map(|block| pool.seal(block)) } else { None }
    }

    /// Ends a read; `None` if it had been dropped.
    pub(crate) fn end(&mut self, cookie: ReadCookie) -> Option<Read> {
        let (index, slot) = self.slot(cookie)?;
        slot.block = None;
        let read = slot.read.take();
        self.free.push(index);
        read
    }

    /// Drops the reads of a port, which are no longer needed.
    pub(crate) fn drop_port(&mut self, port: usize) {
        for (index, slot) in (0..).zip(&mut self.slots) {
            if slot.read.as_ref().is_some_and(|read| read.port == port) {
                (slot.read, slot.block) = (None, None);
                self.free.push(index);
            }
        }
    }
}
