//! A queue pair as the driver sees it: rings in host memory and the commands on them.

use alloc::vec::Vec;

use engine::{DeadlineList, Instant};
use nvme::wire::{CommandId, CompletionQueueEntry, SubmissionQueueEntry};
use pcie::memory::{Memory, Unmapped};

use super::layout::{PAGE, QueueLayout};
use crate::registers::{COMPLETION_ENTRY_BYTES, SUBMISSION_ENTRY_BYTES};

/// Bits of a Command Identifier that are an index; the others tell the uses of one index apart.
const INDEX_BITS: u32 = 12;

/// Who waits for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The caller, who knows it by this.
    Caller(u64),
    /// The initialisation.
    Script,
    /// An Asynchronous Event Request.
    Event,
    /// Get Log Page, which makes the controller report that kind of event again.
    ClearEvent,
    /// An Abort of the driver's own.
    Abort,
}

/// A command that has not completed to its owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) owner: Owner,
    pub(super) entry: SubmissionQueueEntry,
    pub(super) submitted: Instant,
    /// On the ring, as opposed to waiting for the controller to come back.
    pub(super) on_ring: bool,
    /// An Abort was sent for it.
    pub(super) aborted: bool,
}

/// Data of a command: contiguous in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// First address, a multiple of 4.
    pub address: u64,
    /// Bytes, at least 1.
    pub length: u32,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct Queue {
    layout: QueueLayout,
    list_bytes: u64,
    /// Entries of each ring, where the controller supports fewer than the layout has.
    entries: u32,
    tail: u32,
    rung: u32,
    head: u32,
    phase: bool,
    /// CQ entries consumed since the head doorbell was rung.
    consumed: u32,
    rings_for_each: bool,
    commands: Vec<Option<Command>>,
    generations: Vec<u8>,
    free: Vec<u16>,
    pub(super) deadlines: DeadlineList,
    pub(super) outstanding: u32,
}

impl Queue {
    pub(super) fn new(layout: QueueLayout, list_bytes: u64, rings_for_each: bool) -> Self {
        let commands = u16::try_from(layout.entries - 1).expect("a queue has at most 4,096 entries");
        Self {
            layout,
            list_bytes,
            entries: layout.entries,
            tail: 0,
            rung: 0,
            head: 0,
            phase: true,
            consumed: 0,
            rings_for_each,
            commands: (0..commands).map(|_| None).collect(),
            generations: (0..commands).map(|_| 0).collect(),
            free: (0..commands).rev().collect(),
            deadlines: DeadlineList::new(u32::from(commands)),
            outstanding: 0,
        }
    }

    /// Uses at most `entries` of each ring from now on; only before a [`Queue::restart`].
    pub(super) fn limit(&mut self, entries: u32) {
        self.entries = self.layout.entries.min(entries);
    }

    /// Empties the rings, as the controller sees them after it was enabled. Commands stay.
    pub(super) fn restart(&mut self, memory: &mut impl Memory) -> Result<(), Unmapped> {
        self.tail = 0;
        self.rung = 0;
        self.head = 0;
        self.phase = true;
        self.consumed = 0;
        for command in self.commands.iter_mut().flatten() {
            command.on_ring = false;
        }
        // A left-over Phase Tag would look like a completion.
        let zeroes = [0; COMPLETION_ENTRY_BYTES as usize];
        for index in 0..self.layout.entries {
            let at = self.layout.completion + u64::from(index * COMPLETION_ENTRY_BYTES);
            memory.write(at, &zeroes)?;
        }
        Ok(())
    }

    /// Whether another command can be taken.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() && self.outstanding < self.entries - 1
    }

    /// Takes `command`, giving it an identifier and its PRPs, and puts it on the ring if `on_ring`.
    pub(super) fn submit(
        &mut self,
        memory: &mut impl Memory,
        mut command: Command,
        data: Option<Data>,
    ) -> Result<CommandId, Unmapped> {
        let index = *self.free.last().expect("a command is submitted only where there is room");
        let id = self.id_of(index);
        command.entry.command_id = id;
        if let Some(data) = data {
            command.entry.data_pointer = self.write_prps(memory, index, data)?;
        }
        if command.on_ring {
            self.write_entry(memory, &command.entry)?;
        }
        self.free.pop();
        self.commands[usize::from(index)] = Some(command);
        self.outstanding += 1;
        Ok(id)
    }

    fn id_of(&self, index: u16) -> CommandId {
        CommandId(u16::from(self.generations[usize::from(index)]) << INDEX_BITS | index)
    }

    fn write_entry(
        &mut self,
        memory: &mut impl Memory,
        entry: &SubmissionQueueEntry,
    ) -> Result<(), Unmapped> {
        let at = self.layout.submission + u64::from(self.tail * SUBMISSION_ENTRY_BYTES);
        memory.write(at, &entry.emit())?;
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
        Ok(())
    }

    /// PRP Entry 1 and 2 for `data`; where it touches more than two pages, through the command's own list.
    fn write_prps(&self, memory: &mut impl Memory, index: u16, data: Data) -> Result<[u64; 2], Unmapped> {
        let end = data.address + u64::from(data.length);
        let second = data.address / PAGE * PAGE + PAGE;
        if second >= end {
            return Ok([data.address, 0]);
        }
        if end <= second + PAGE {
            return Ok([data.address, second]);
        }
        let list = self.layout.lists + u64::from(index) * self.list_bytes;
        let (mut at, mut page) = (list, second);
        while page < end {
            memory.write(at, &page.to_le_bytes())?;
            at += 8;
            page += PAGE;
        }
        Ok([data.address, list])
    }

    /// Puts the command at `index` on the ring again.
    pub(super) fn resubmit(&mut self, memory: &mut impl Memory, index: u16) -> Result<(), Unmapped> {
        let Some(mut command) = self.commands[usize::from(index)] else { return Ok(()) };
        // A new identifier: a completion of the old one must not be taken for this one's.
        self.bump(index);
        command.entry.command_id = self.id_of(index);
        command.on_ring = true;
        command.aborted = false;
        self.commands[usize::from(index)] = Some(command);
        self.write_entry(memory, &command.entry)
    }

    fn bump(&mut self, index: u16) {
        let generation = &mut self.generations[usize::from(index)];
        *generation = (*generation + 1) & 0xf;
    }

    /// Rings no doorbell for what is on the rings: the controller will see them anew.
    pub(super) const fn hush(&mut self) {
        self.rung = self.tail;
        self.consumed = 0;
    }

    /// The tail to ring the doorbell with, if there is something new.
    pub(super) const fn take_tail(&mut self) -> Option<u32> {
        if self.tail == self.rung {
            return None;
        }
        self.rung = self.tail;
        Some(self.tail)
    }

    /// The head to ring the doorbell with, if it is due: each ring is a packet, and the controller only needs
    /// to know of room that it may come to use.
    pub(super) const fn take_head(&mut self) -> Option<u32> {
        let crowded = self.consumed + self.outstanding >= self.entries - 1;
        let due = crowded || self.rings_for_each || self.consumed >= self.entries / 4;
        if self.consumed == 0 || !due {
            return None;
        }
        self.consumed = 0;
        Some(self.head)
    }

    /// Whether there is a completion.
    #[inline]
    pub(super) fn has_completion(&self, memory: &impl Memory) -> bool {
        let mut bytes = [0; CompletionQueueEntry::LENGTH];
        let read = memory.read(self.completion_address(), &mut bytes);
        read.is_ok() && CompletionQueueEntry::parse(&bytes).phase() == self.phase
    }

    fn completion_address(&self) -> u64 {
        self.layout.completion + u64::from(self.head * COMPLETION_ENTRY_BYTES)
    }

    /// The next completion, if there is one.
    pub(super) fn next_completion(
        &mut self,
        memory: &impl Memory,
    ) -> Result<Option<CompletionQueueEntry>, Unmapped> {
        let mut bytes = [0; CompletionQueueEntry::LENGTH];
        memory.read(self.completion_address(), &mut bytes)?;
        let entry = CompletionQueueEntry::parse(&bytes);
        if entry.phase() != self.phase {
            return Ok(None);
        }
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        self.consumed += 1;
        Ok(Some(entry))
    }

    /// Ends the command called `id`, if there is one on the ring.
    pub(super) fn retire(&mut self, id: CommandId) -> Option<Command> {
        let index = id.0 & ((1 << INDEX_BITS) - 1);
        let command = self.commands.get(usize::from(index)).copied().flatten()?;
        if !command.on_ring || command.entry.command_id != id {
            return None;
        }
        self.remove(index)
    }

    /// Ends the command at `index`, wherever it is.
    pub(super) fn remove(&mut self, index: u16) -> Option<Command> {
        let command = self.commands[usize::from(index)].take()?;
        self.bump(index);
        self.deadlines.disarm(u32::from(index));
        self.free.push(index);
        self.outstanding -= 1;
        Some(command)
    }

    pub(super) fn command(&mut self, index: u16) -> Option<&mut Command> {
        self.commands.get_mut(usize::from(index))?.as_mut()
    }

    /// Indices that commands can have.
    pub(super) fn indices(&self) -> core::ops::Range<u16> {
        0..u16::try_from(self.commands.len()).unwrap_or(u16::MAX)
    }

    /// The index of the command called `id`.
    pub(super) fn index_of(id: CommandId) -> u32 {
        u32::from(id.0 & ((1 << INDEX_BITS) - 1))
    }
}
