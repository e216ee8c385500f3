//! The commands of a controller's end of a connection.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::wire::{CommandId, StatusCode};

const NONE: u16 = u16::MAX;

#[derive(Debug)]
enum Entry<C> {
    Free { next: u16 },
    Live(CommandId, C),
}

/// The commands of a controller's end, by slot, and the set of their identifiers.
#[derive(Debug)]
pub struct ControllerCommands<C> {
    entries: Vec<Entry<C>>,
    free: u16,
    live: u16,
    /// A bit for each identifier.
    identifiers: Box<[u64]>,
}

const IDENTIFIER_WORDS: usize = 1 << (16 - 6);

impl<C> ControllerCommands<C> {
    /// An empty table for `size` commands.
    pub fn new(size: u16) -> Self {
        let mut slots = Self {
            entries: Vec::new(),
            free: NONE,
            live: 0,
            identifiers: core::iter::repeat_n(0, IDENTIFIER_WORDS).collect(),
        };
        slots.grow(size);
        slots
    }

    /// Makes room for `size` commands. The new slots are used after the present free ones.
    pub fn grow(&mut self, size: u16) {
        let have = u16::try_from(self.entries.len()).expect("a queue is limited");
        if size <= have {
            return;
        }
        let mut last = self.free;
        while let Some(Entry::Free { next }) = self.entries.get(usize::from(last)) {
            match *next {
                NONE => break,
                next => last = next,
            }
        }
        match self.entries.get_mut(usize::from(last)) {
            Some(Entry::Free { next }) => *next = have,
            _ => self.free = have,
        }
        self.entries.reserve_exact(usize::from(size - have));
        let next_of = |index: u16| if index + 1 < size { index + 1 } else { NONE };
        self.entries.extend((have..size).map(|index| Entry::Free { next: next_of(index) }));
    }

    /// Number of commands.
    pub const fn live(&self) -> u16 {
        self.live
    }

    fn bit(id: CommandId) -> (usize, u64) {
        (usize::from(id.0 >> 6), 1 << (id.0 & 63))
    }

    /// Takes a slot for a command with this identifier.
    ///
    /// # Errors
    /// Command ID Conflict when a live command has the same identifier; `None` when there is no
    /// room.
    #[inline]
    pub fn issue(&mut self, id: CommandId, command: C) -> Result<u16, Option<StatusCode>> {
        let (word, bit) = Self::bit(id);
        if self.identifiers[word] & bit != 0 {
            return Err(Some(StatusCode::CommandIdConflict));
        }
        let index = self.free;
        let entry = self.entries.get_mut(usize::from(index)).ok_or(None)?;
        if let Entry::Free { next } = *entry {
            self.free = next;
        }
        *entry = Entry::Live(id, command);
        self.identifiers[word] |= bit;
        self.live += 1;
        Ok(index)
    }

    /// The command of a slot.
    #[inline]
    pub fn get(&mut self, index: u16) -> Option<&mut C> {
        match self.entries.get_mut(usize::from(index)) {
            Some(Entry::Live(_, command)) => Some(command),
            _ => None,
        }
    }

    /// Takes the command of a slot out of the table.
    #[inline]
    pub fn retire(&mut self, index: u16) -> Option<C> {
        let entry = self.entries.get_mut(usize::from(index))?;
        if matches!(entry, Entry::Free { .. }) {
            return None;
        }
        let Entry::Live(id, command) = core::mem::replace(entry, Entry::Free { next: self.free }) else {
            return None;
        };
        self.free = index;
        self.live -= 1;
        let (word, bit) = Self::bit(id);
        self.identifiers[word] &= !bit;
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_dense_grow_and_know_identifiers_in_use() {
        let mut commands = ControllerCommands::new(1);
        assert_eq!(commands.issue(CommandId(7), 7), Ok(0));
        assert_eq!(commands.issue(CommandId(7), 7), Err(Some(StatusCode::CommandIdConflict)));
        assert_eq!(commands.issue(CommandId(8), 8), Err(None));
        commands.grow(3);
        assert_eq!([commands.issue(CommandId(8), 8), commands.issue(CommandId(9), 9)], [Ok(1), Ok(2)]);
        assert_eq!(commands.issue(CommandId(10), 10), Err(None));
        assert_eq!(commands.retire(1).unwrap(), 8);
        assert!(commands.retire(1).is_none() && commands.get(1).is_none());
        assert_eq!(commands.issue(CommandId(8), 8), Ok(1));
        assert_eq!(commands.live(), 3);
    }
}
