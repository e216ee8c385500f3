//! Values under small numbers, which are used again.

use alloc::vec::Vec;

/// The number of no value.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Slot<T> {
    value: T,
    /// Whether the value is in use; otherwise `next` is the next free slot.
    used: bool,
    next: u32,
}

/// Values under small numbers.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    used: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: NONE, used: 0 }
    }
}

impl<T> Slab<T> {
    pub(crate) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Keeps a value, unless there are `most` already.
    #[inline]
    pub(crate) fn insert(&mut self, value: T, most: u32) -> Option<u32> {
        if let Some(slot) = self.slots.get_mut(self.free as usize) {
            let index = self.free;
            self.free = slot.next;
            (slot.value, slot.used) = (value, true);
            self.used += 1;
            return Some(index);
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index < most)?;
        self.slots.push(Slot { value, used: true, next: NONE });
        self.used += 1;
        Some(index)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize).filter(|slot| slot.used).map(|slot| &slot.value)
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize).filter(|slot| slot.used).map(|slot| &mut slot.value)
    }
    /// All values with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.used).map(|(index, slot)| (index, &slot.value))
    }
}

impl<T> Slab<T> {
    /// Removes a value, which stays in its place until another one is kept there.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.used)?;
        (slot.used, slot.next) = (false, self.free);
        self.free = index;
        self.used -= 1;
        Some(&mut slot.value)
    }
}
