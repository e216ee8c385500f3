//! The commands of a host's end of a connection.

use alloc::vec::Vec;

use super::QUEUE_SIZE_MAX;
use nvme::wire::CommandId;

const NONE: u16 = u16::MAX;

#[derive(Debug)]
struct Entry<C> {
    /// Identifier of the command that is here, or will be next: the slot, and how often it was
    /// used.
    id: CommandId,
    next: u16,
    command: Option<C>,
}

/// The commands of a host's end, by identifier. The identifier of a place in the table changes with
/// each use, so that a late response finds no other command.
#[derive(Debug)]
pub struct HostCommands<C> {
    entries: Vec<Entry<C>>,
    free: u16,
    live: u16,
}

impl<C> HostCommands<C> {
    /// An empty table for `size` commands: 1..=[`QUEUE_SIZE_MAX`].
    ///
    /// # Panics
    /// When the size is out of this range.
    pub fn new(size: u16) -> Self {
        assert!((1..=QUEUE_SIZE_MAX).contains(&size), "1..={QUEUE_SIZE_MAX} commands");
        let entry = |index: u16| Entry {
            id: CommandId(index),
            next: if index + 1 < size { index + 1 } else { NONE },
            command: None,
        };
        Self { entries: (0..size).map(entry).collect(), free: 0, live: 0 }
    }

    /// Number of commands.
    pub const fn live(&self) -> u16 {
        self.live
    }

    /// Whether one more command fits.
    pub const fn has_room(&self) -> bool {
        self.free != NONE
    }

    /// Adds a command, and returns its identifier. `None` if the table is full.
    #[inline]
    pub fn issue(&mut self, command: C) -> Option<CommandId> {
        let index = self.free;
        let entry = self.entries.get_mut(usize::from(index))?;
        self.free = entry.next;
        entry.command = Some(command);
        self.live += 1;
        Some(entry.id)
    }

    fn entry(&mut self, id: CommandId) -> Option<&mut Entry<C>> {
        let entry = self.entries.get_mut(usize::from(id.0 % QUEUE_SIZE_MAX))?;
        (entry.id == id).then_some(entry)
    }

    /// The command with this identifier.
    #[inline]
    pub fn get(&mut self, id: CommandId) -> Option<&mut C> {
        self.entry(id)?.command.as_mut()
    }

    /// Takes the command with this identifier out of the table.
    #[inline]
    pub fn retire(&mut self, id: CommandId) -> Option<C> {
        let free = self.free;
        let entry = self.entry(id)?;
        let command = entry.command.take()?;
        entry.next = free;
        entry.id = CommandId(id.0.wrapping_add(QUEUE_SIZE_MAX));
        self.free = id.0 % QUEUE_SIZE_MAX;
        self.live -= 1;
        Some(command)
    }

    /// Takes every command out of the table.
    pub fn drain(&mut self) -> impl Iterator<Item = C> {
        let ids: Vec<CommandId> =
            self.entries.iter().filter(|entry| entry.command.is_some()).map(|entry| entry.id).collect();
        ids.into_iter().filter_map(|id| self.retire(id))
    }
}

// Identifiers have 16 bits and must lead to the same slot when they wrap around.
const _: () = assert!(QUEUE_SIZE_MAX.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_new_with_each_use() {
        let mut commands = HostCommands::new(2);
        let first = commands.issue(1).unwrap();
        let second = commands.issue(2).unwrap();
        assert!(commands.issue(3).is_none() && first != second);
        assert_eq!(commands.retire(first).unwrap(), 1);
        assert!(commands.retire(first).is_none());
        let third = commands.issue(3).unwrap();
        assert_eq!(third.0 % QUEUE_SIZE_MAX, first.0 % QUEUE_SIZE_MAX);
        assert!(commands.get(first).is_none() && commands.get(third).is_some());
        for _ in 0..1000 {
            let id = commands.entries[0].id;
            assert!(commands.retire(id).is_some());
            commands.issue(4).unwrap();
        }
        let mut all: Vec<i32> = commands.drain().collect();
        all.sort_unstable();
        assert_eq!((all, commands.live()), (Vec::from([2, 4]), 0));
    }
}
