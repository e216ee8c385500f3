//! The commands that a device was given and has not completed.

use alloc::vec::Vec;

use nvme::wire::{CommandId, SubmissionQueueEntry};

use super::slab::{NONE, Slab};

/// The most commands of a function that may be outstanding.
pub(crate) const COMMANDS_MAX: u32 = 1 << 16;
/// The number of lists that commands are sorted into.
const BUCKETS: usize = 1024;
/// Maximum number of lists of a command at a time: of its data, and of its metadata.
pub(crate) const LISTS: usize = 2;

/// A command that a device was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) queue: u16,
    /// The completion queue of the command.
    pub(crate) completion: u16,
    pub(crate) entry: SubmissionQueueEntry,
    /// The latest of the parts of memory that belong to the command.
    pub(crate) parts: u32,
    pub(crate) lists: [u32; LISTS],
    next: u32,
}

impl Command {
    pub(crate) const fn new(queue: u16, completion: u16, entry: SubmissionQueueEntry) -> Self {
        Self { queue, completion, entry, parts: NONE, lists: [NONE; LISTS], next: NONE }
    }
}

/// The commands of a function.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    buckets: Vec<u32>,
    pub(crate) slab: Slab<Command>,
}

const fn bucket(queue: u16, id: CommandId) -> usize {
    (queue as usize * 61 + id.0 as usize) % BUCKETS
}

impl Commands {
    #[inline]
    pub(crate) fn find(&self, queue: u16, id: CommandId) -> Option<u32> {
        let mut at = self.buckets.get(bucket(queue, id)).copied()?;
        while let Some(command) = self.slab.get(at) {
            if command.queue == queue && command.entry.command_id == id {
                return Some(at);
            }
            at = command.next;
        }
        None
    }

    /// Keeps a new command, if there is room.
    #[inline]
    pub(crate) fn insert(&mut self, mut command: Command) -> Option<u32> {
        if self.buckets.is_empty() {
            self.buckets.resize(BUCKETS, NONE);
        }
        let head = &mut self.buckets[bucket(command.queue, command.entry.command_id)];
        command.next = *head;
        let index = self.slab.insert(command, COMMANDS_MAX)?;
        *head = index;
        Some(index)
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        let Some(command) = self.slab.remove(index) else { return };
        let (head, next) = (&mut self.buckets[bucket(command.queue, command.entry.command_id)], command.next);
        if *head == index {
            *head = next;
            return;
        }
        let mut at = *head;
        while let Some(other) = self.slab.get_mut(at) {
            if other.next == index {
                other.next = next;
                break;
            }
            at = other.next;
        }
    }
}
