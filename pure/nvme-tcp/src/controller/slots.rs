//! The commands of a connection.

use alloc::boxed::Box;
use alloc::vec::Vec;

use engine::Buffer;
use nvme::wire::{CommandId, CompletionQueueEntry, StatusCode};

use crate::assembly::Assembly;
use crate::{DataPointer, R2TS_PER_COMMAND_MAX};

const NONE: u16 = u16::MAX;

/// A part of a transfer that an R2T asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// Offset of the next data of the part in the transfer.
    pub(super) next: u32,
    /// Offset of the end of the part; equal to `next` when all of its data have come.
    pub(super) end: u32,
}

impl Window {
    pub(super) const fn is_open(self) -> bool {
        self.next < self.end
    }
}

/// Data that are fetched from the host.
#[derive(Debug, Default)]
pub(super) struct Pull {
    pub(super) data: Assembly,
    /// Bytes that were asked for.
    pub(super) asked: u32,
    pub(super) windows: [Window; R2TS_PER_COMMAND_MAX],
}

impl Pull {
    pub(super) const fn is_active(&self) -> bool {
        self.data.length > 0
    }
}

/// A command between its arrival and its response.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) id: CommandId,
    pub(super) pointer: DataPointer,
    /// The data that came in the capsule.
    pub(super) capsule: Buffer,
    pub(super) pull: Pull,
    /// Bytes that were pushed to the host, in order.
    pub(super) pushed: u32,
    /// Bytes that the command counts in the connection's backlog.
    pub(super) reserved: u32,
    /// Bytes that the host was asked for.
    pub(super) pulled: u32,
    /// The completion of a command that was given up while its data were coming.
    pub(super) response: Option<CompletionQueueEntry>,
}

#[derive(Debug)]
enum Entry {
    Free { next: u16 },
    Live(Command),
}

/// Commands by slot, and the set of their identifiers.
#[derive(Debug)]
pub(crate) struct Slots {
    entries: Vec<Entry>,
    free: u16,
    live: u16,
    /// A bit for each identifier.
    identifiers: Box<[u64]>,
}

const IDENTIFIER_WORDS: usize = 1 << (16 - 6);

impl Slots {
    pub(super) fn new(size: u16) -> Self {
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
    pub(super) fn grow(&mut self, size: u16) {
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

    pub(super) const fn live(&self) -> u16 {
        self.live
    }

    fn bit(id: CommandId) -> (usize, u64) {
        (usize::from(id.0 >> 6), 1 << (id.0 & 63))
    }

    /// Takes a slot for a command.
    ///
    /// # Errors
    /// Command ID Conflict when a live command has the same identifier; `None` when there is no
    /// room.
    #[inline]
    pub(super) fn issue(&mut self, command: Command) -> Result<u16, Option<StatusCode>> {
        let (word, bit) = Self::bit(command.id);
        if self.identifiers[word] & bit != 0 {
            return Err(Some(StatusCode::CommandIdConflict));
        }
        let index = self.free;
        let entry = self.entries.get_mut(usize::from(index)).ok_or(None)?;
        if let Entry::Free { next } = *entry {
            self.free = next;
        }
        *entry = Entry::Live(command);
        self.identifiers[word] |= bit;
        self.live += 1;
        Ok(index)
    }

    #[inline]
    pub(super) fn get(&mut self, index: u16) -> Option<&mut Command> {
        match self.entries.get_mut(usize::from(index)) {
            Some(Entry::Live(command)) => Some(command),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn retire(&mut self, index: u16) -> Option<Command> {
        let entry = self.entries.get_mut(usize::from(index))?;
        if matches!(entry, Entry::Free { .. }) {
            return None;
        }
        let Entry::Live(command) = core::mem::replace(entry, Entry::Free { next: self.free }) else {
            return None;
        };
        self.free = index;
        self.live -= 1;
        let (word, bit) = Self::bit(command.id);
        self.identifiers[word] &= !bit;
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(id: u16) -> Command {
        Command {
            id: CommandId(id),
            pointer: DataPointer::Transport { length: 0 },
            capsule: Buffer::EMPTY,
            pull: Pull::default(),
            pushed: 0,
            reserved: 0,
            pulled: 0,
            response: None,
        }
    }

    #[test]
    fn slots_are_dense_grow_and_know_identifiers_in_use() {
        let mut slots = Slots::new(1);
        assert_eq!(slots.issue(command(7)), Ok(0));
        assert_eq!(slots.issue(command(7)), Err(Some(StatusCode::CommandIdConflict)));
        assert_eq!(slots.issue(command(8)), Err(None));
        slots.grow(3);
        assert_eq!([slots.issue(command(8)), slots.issue(command(9))], [Ok(1), Ok(2)]);
        assert_eq!(slots.issue(command(10)), Err(None));
        assert_eq!(slots.retire(1).unwrap().id, CommandId(8));
        assert!(slots.retire(1).is_none() && slots.get(1).is_none());
        assert_eq!(slots.issue(command(8)), Ok(1));
        assert_eq!(slots.live(), 3);
    }
}
