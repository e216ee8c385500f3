//! The commands of a controller's end of a connection.

use alloc::boxed::Box;
use alloc::vec::Vec;

use nvme::wire::{AdminOpcode, CommandId, StatusCode, SubmissionQueueEntry};

const NONE: u16 = u16::MAX;

#[derive(Debug)]
enum Entry<C> {
    Free {
        next: u16,
    },
    /// A command, and its identifier if no other command may have the same.
    Live(Option<CommandId>, C),
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

    /// Takes a slot for the command of `entry`.
    ///
    /// Asynchronous Event Requests, which may stay outstanding without limit, occupy no identifier:
    /// hosts such as SPDK's reuse theirs for the last commands of a connection. (Verify has the
    /// same opcode, and moves no data either.)
    ///
    /// # Errors
    /// Command ID Conflict when a live command has the same identifier; `None` when the table is
    /// full.
    #[inline]
    pub fn issue(&mut self, entry: &SubmissionQueueEntry, command: C) -> Result<u16, Option<StatusCode>> {
        let waits = AdminOpcode::from(entry.opcode) == AdminOpcode::AsynchronousEventRequest;
        let id = (!waits).then_some(entry.command_id);
        let (word, bit) = id.map_or((0, 0), Self::bit);
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
        if let Some((word, bit)) = id.map(Self::bit) {
            self.identifiers[word] &= !bit;
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Flush, or an Asynchronous Event Request, with this identifier.
    fn entry(id: u16, waits: bool) -> SubmissionQueueEntry {
        let opcode = if waits { u8::from(AdminOpcode::AsynchronousEventRequest) } else { 0 };
        SubmissionQueueEntry { opcode, command_id: CommandId(id), ..SubmissionQueueEntry::default() }
    }

    #[test]
    fn slots_are_dense_grow_and_know_identifiers_in_use() {
        let mut commands = ControllerCommands::new(1);
        let issue = |commands: &mut ControllerCommands<u16>, id| commands.issue(&entry(id, false), id);
        assert_eq!(issue(&mut commands, 7), Ok(0));
        assert_eq!(issue(&mut commands, 7), Err(Some(StatusCode::CommandIdConflict)));
        assert_eq!(issue(&mut commands, 8), Err(None));
        commands.grow(3);
        assert_eq!([issue(&mut commands, 8), issue(&mut commands, 9)], [Ok(1), Ok(2)]);
        assert_eq!(issue(&mut commands, 10), Err(None));
        assert_eq!(commands.retire(1).unwrap(), 8);
        assert!(commands.retire(1).is_none() && commands.get(1).is_none());
        assert_eq!(issue(&mut commands, 8), Ok(1));
        assert_eq!(commands.live(), 3);
    }

    #[test]
    fn event_requests_occupy_no_identifier() {
        let mut commands = ControllerCommands::new(4);
        assert_eq!(commands.issue(&entry(7, true), 1), Ok(0));
        assert_eq!(commands.issue(&entry(7, true), 2), Ok(1));
        assert_eq!(commands.issue(&entry(7, false), 3), Ok(2));
        // The end of the requests does not free the other command.
        assert_eq!((commands.retire(0), commands.retire(1)), (Some(1), Some(2)));
        assert_eq!(commands.issue(&entry(7, false), 4), Err(Some(StatusCode::CommandIdConflict)));
        assert_eq!(commands.retire(2), Some(3));
        assert_eq!(commands.issue(&entry(7, false), 5), Ok(2));
    }
}
