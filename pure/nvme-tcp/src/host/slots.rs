//! The commands of a connection.

use alloc::vec::Vec;

use engine::Buffer;
use nvme::wire::CommandId;

use crate::assembly::Assembly;
use crate::{QUEUE_SIZE_MAX, R2TS_PER_COMMAND_MAX};

const NONE: u16 = u16::MAX;

/// The data that a command moves, and how far they have come.
#[derive(Debug)]
pub(super) enum Moving {
    Nothing,
    /// Data that the controller asks for by R2T.
    Out {
        data: Buffer,
        /// Bytes that the controller has asked for.
        asked: u32,
        /// Where in the outbox's stream the data of the latest R2Ts end. An R2T is outstanding
        /// until that point was sent.
        ends: [u64; R2TS_PER_COMMAND_MAX],
    },
    /// Data that the controller sends.
    In(Incoming),
}

/// Data that the controller sends.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) data: Assembly,
    /// The data have ended (LAST_PDU).
    pub(super) ended: bool,
}

#[derive(Debug)]
pub(super) struct Command {
    pub(super) cookie: u64,
    pub(super) moving: Moving,
}

#[derive(Debug)]
struct Entry {
    /// Identifier of the command that is here, or will be next: the slot, and how often it was
    /// used.
    id: CommandId,
    next: u16,
    command: Option<Command>,
}

/// Commands by slot. The identifier of a slot changes with each use, so that a late response finds
/// no other command.
#[derive(Debug)]
pub(crate) struct Slots {
    entries: Vec<Entry>,
    free: u16,
    live: u16,
}

impl Slots {
    pub(super) fn new(size: u16) -> Self {
        let entry = |index: u16| Entry {
            id: CommandId(index),
            next: if index + 1 < size { index + 1 } else { NONE },
            command: None,
        };
        Self { entries: (0..size).map(entry).collect(), free: 0, live: 0 }
    }

    pub(super) const fn live(&self) -> u16 {
        self.live
    }

    pub(super) fn has_room(&self) -> bool {
        self.free != NONE
    }

    #[inline]
    pub(super) fn issue(&mut self, command: Command) -> Option<CommandId> {
        let index = self.free;
        let entry = self.entries.get_mut(usize::from(index))?;
        self.free = entry.next;
        entry.command = Some(command);
        self.live += 1;
        Some(entry.id)
    }

    fn entry(&mut self, id: CommandId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(usize::from(id.0 % QUEUE_SIZE_MAX))?;
        (entry.id == id).then_some(entry)
    }

    #[inline]
    pub(super) fn get(&mut self, id: CommandId) -> Option<&mut Command> {
        self.entry(id)?.command.as_mut()
    }

    #[inline]
    pub(super) fn retire(&mut self, id: CommandId) -> Option<Command> {
        let free = self.free;
        let entry = self.entry(id)?;
        let command = entry.command.take()?;
        entry.next = free;
        entry.id = CommandId(id.0.wrapping_add(QUEUE_SIZE_MAX));
        self.free = id.0 % QUEUE_SIZE_MAX;
        self.live -= 1;
        Some(command)
    }
}

// Identifiers have 16 bits and must lead to the same slot when they wrap around.
const _: () = assert!(QUEUE_SIZE_MAX.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_new_with_each_use() {
        let mut slots = Slots::new(2);
        let command = |cookie| Command { cookie, moving: Moving::Nothing };
        let first = slots.issue(command(1)).unwrap();
        let second = slots.issue(command(2)).unwrap();
        assert!(slots.issue(command(3)).is_none() && first != second);
        assert_eq!(slots.retire(first).unwrap().cookie, 1);
        assert!(slots.retire(first).is_none());
        let third = slots.issue(command(3)).unwrap();
        assert_eq!(third.0 % QUEUE_SIZE_MAX, first.0 % QUEUE_SIZE_MAX);
        assert!(slots.get(first).is_none() && slots.get(third).is_some());
        for _ in 0..1000 {
            let id = slots.entries[0].id;
            assert!(slots.retire(id).is_some());
            slots.issue(command(4)).unwrap();
        }
    }
}
