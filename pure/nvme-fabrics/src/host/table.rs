//! Outstanding commands by token.

use alloc::vec::Vec;

use engine::{DeadlineList, Instant};

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    item: Option<T>,
}

/// A limited number of items, each with a deadline. A token names an item until the item is removed
/// or renewed; the token then matches nothing. The highest bit of a token is 0.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    deadlines: DeadlineList,
}

impl<T> Table<T> {
    pub(super) fn new(size: u32) -> Self {
        let entries = (0..size).map(|_| Entry { generation: 0, item: None }).collect();
        Self { entries, free: (0..size).rev().collect(), deadlines: DeadlineList::new(size) }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn live(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Inserts an item. Returns its index; `None` if there is no room.
    pub(super) fn issue(&mut self, item: T) -> Option<u32> {
        let index = self.free.pop()?;
        self.entries[index as usize].item = Some(item);
        Some(index)
    }

    pub(super) fn get(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.item.as_mut()
    }

    /// The items, by index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0_u32..).zip(&self.entries).filter_map(|(index, entry)| Some((index, entry.item.as_ref()?)))
    }

    /// The token of the item at `index`.
    pub(super) fn token(&self, index: u32) -> u64 {
        u64::from(self.entries[index as usize].generation & 0x7fff_ffff) << 32 | u64::from(index)
    }

    /// The index of the item that a token names.
    pub(super) fn find(&self, token: u64) -> Option<u32> {
        let [a, b, c, d, e, f, g, h] = token.to_le_bytes();
        let (index, generation) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let entry = self.entries.get(index as usize)?;
        (entry.item.is_some() && entry.generation & 0x7fff_ffff == generation).then_some(index)
    }

    /// The item at `index` has ended by `deadline`, or [`Self::expire`] names it.
    pub(super) fn arm(&mut self, index: u32, deadline: Instant) {
        self.deadlines.arm(index, deadline);
    }

    /// Gives the item at `index` another token, and no deadline.
    pub(super) fn renew(&mut self, index: u32) -> Option<&mut T> {
        self.deadlines.disarm(index);
        let entry = self.entries.get_mut(index as usize)?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.item.as_mut()
    }

    /// Removes the item at `index` and returns it.
    pub(super) fn retire(&mut self, index: u32) -> Option<T> {
        self.deadlines.disarm(index);
        let entry = self.entries.get_mut(index as usize)?;
        let item = entry.item.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        Some(item)
    }

    /// The index of an item that is overdue.
    pub(super) fn expire(&mut self, now: Instant) -> Option<u32> {
        self.deadlines.expire(now)
    }

    pub(super) fn earliest(&self) -> Option<Instant> {
        self.deadlines.earliest()
    }
}
