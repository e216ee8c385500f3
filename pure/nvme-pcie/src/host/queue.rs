//! The driver's side of a queue pair: the rings in host memory and their commands.

use alloc::vec::Vec;

use engine::{DeadlineList, Instant};
use nvme::wire::{CommandId, CompletionQueueEntry, SubmissionQueueEntry};
use pcie::memory::{Memory, Unmapped};

use super::layout::{PAGE, QueueLayout};
use crate::controller::QueuePlace;
use crate::registers::{COMPLETION_ENTRY_BYTES, SUBMISSION_ENTRY_BYTES};

/// Bits of a Command Identifier that are an index. The other bits distinguish successive uses of
/// the same index.
const INDEX_BITS: u32 = 12;

/// The owner of a command, which waits for its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The caller, whose cookie this is.
    Caller(u64),
    /// The initialisation script.
    Script,
    /// The driver, for an Asynchronous Event Request.
    Event,
    /// The driver, for a Get Log Page after which the controller reports events of that kind again.
    ClearEvent,
    /// The driver, for an Abort.
    Abort,
}

/// A command whose owner has not received its completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) owner: Owner,
    pub(super) entry: SubmissionQueueEntry,
    pub(super) submitted: Instant,
    /// Whether the command is on the ring. Otherwise it waits for the controller to return.
    pub(super) on_ring: bool,
    /// Whether an Abort was sent for the command.
    pub(super) aborted: bool,
}

/// The data of a command, contiguous in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// First address of the data, a multiple of 4.
    pub address: u64,
    /// Length of the data in bytes, at least 1.
    pub length: u32,
}

impl Data {
    /// The first page boundary behind the beginning of the data.
    const fn second_page(self) -> u64 {
        self.address / PAGE * PAGE + PAGE
    }

    /// Whether the data touch more than two pages, so that PRP entries need a list.
    pub(super) const fn needs_list(self) -> bool {
        self.address + self.length as u64 > self.second_page() + PAGE
    }
}

/// The state of a queue pair.
#[derive(Debug)]
pub(super) struct Queue {
    layout: QueueLayout,
    list_bytes: u64,
    /// Number of ring entries in use, which is less than in the layout if the controller does not
    /// support that many.
    entries: u32,
    tail: u32,
    rung: u32,
    head: u32,
    phase: bool,
    /// Completion queue entries consumed since the head doorbell was last rung.
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

    /// Limits each ring to `entries` entries. A [`Queue::restart`] must follow.
    pub(super) fn limit(&mut self, entries: u32) {
        self.entries = self.layout.entries.min(entries);
    }

    /// Empties the rings and keeps the commands, for a controller that was just enabled.
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

    /// Whether the queue can accept another command.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() && self.outstanding < self.entries - 1
    }

    /// Whether there are more commands than the ring can hold, which may have become shorter.
    pub(super) const fn is_overfull(&self) -> bool {
        self.outstanding > self.entries - 1
    }

    /// Accepts `command` and gives it an identifier and a data pointer: PRP entries, or where these
    /// would need a list and `takes_sgls` allows it, one SGL descriptor. Puts the command on the
    /// ring if `on_ring` is set.
    pub(super) fn submit(
        &mut self,
        memory: &mut impl Memory,
        mut command: Command,
        data: Option<Data>,
        takes_sgls: bool,
    ) -> Result<CommandId, Unmapped> {
        let index = *self.free.last().expect("a command is submitted only if the queue has room");
        let id = self.id_of(index);
        command.entry.command_id = id;
        if let Some(data) = data {
            if takes_sgls && data.needs_list() {
                command.entry = command.entry.with_data_block(data.address, data.length);
            } else {
                command.entry.data_pointer = self.write_prps(memory, index, data)?;
            }
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

    /// PRP Entry 1 and 2 for `data`. Data that touches more than two pages uses the command's own
    /// PRP list.
    fn write_prps(&self, memory: &mut impl Memory, index: u16, data: Data) -> Result<[u64; 2], Unmapped> {
        let end = data.address + u64::from(data.length);
        let second = data.second_page();
        if second >= end {
            return Ok([data.address, 0]);
        }
        if !data.needs_list() {
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
        // The command gets a new identifier, so that a completion of the old one cannot be mistaken
        // for its own.
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

    /// Treats the rings' present contents as announced, because the controller will start anew.
    pub(super) const fn hush(&mut self) {
        self.rung = self.tail;
        self.consumed = 0;
    }

    /// Where the submission queue and the completion queue are, which have this identifier.
    pub(super) const fn places(&self, id: u16) -> [QueuePlace; 2] {
        let QueueLayout { submission, completion, .. } = self.layout;
        let entries = self.entries;
        [QueuePlace { id, base: submission, entries }, QueuePlace { id, base: completion, entries }]
    }

    /// The tail for the submission queue's doorbell, if there are new entries.
    pub(super) const fn take_tail(&mut self) -> Option<u32> {
        if self.tail == self.rung {
            return None;
        }
        self.rung = self.tail;
        Some(self.tail)
    }

    /// The head for the completion queue's doorbell, if a ring is due. Each ring is a packet, and
    /// the controller needs to know only of room that it may use soon.
    pub(super) const fn take_head(&mut self) -> Option<u32> {
        let crowded = self.consumed + self.outstanding >= self.entries - 1;
        let due = crowded || self.rings_for_each || self.consumed >= self.entries / 4;
        if self.consumed == 0 || !due {
            return None;
        }
        self.consumed = 0;
        Some(self.head)
    }

    fn completion_address(&self) -> u64 {
        self.layout.completion + u64::from(self.head * COMPLETION_ENTRY_BYTES)
    }

    /// The next completion, if there is one.
    #[inline]
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

    /// Ends the command called `id`, if it is on the ring. Returns its owner and the time when it
    /// was submitted.
    #[inline]
    pub(super) fn retire(&mut self, id: CommandId) -> Option<(Owner, Instant)> {
        let index = id.0 & ((1 << INDEX_BITS) - 1);
        let command = self.commands.get(usize::from(index))?.as_ref()?;
        if !command.on_ring || command.entry.command_id != id {
            return None;
        }
        let (owner, submitted) = (command.owner, command.submitted);
        self.commands[usize::from(index)] = None;
        self.release(index);
        Some((owner, submitted))
    }

    /// Ends the command at `index`, on the ring or not.
    pub(super) fn remove(&mut self, index: u16) -> Option<Command> {
        let command = self.commands[usize::from(index)].take()?;
        self.release(index);
        Some(command)
    }

    /// Makes the identifiers at `index` free for another command.
    fn release(&mut self, index: u16) {
        self.bump(index);
        self.deadlines.disarm(u32::from(index));
        self.free.push(index);
        self.outstanding -= 1;
    }

    pub(super) fn command(&mut self, index: u16) -> Option<&mut Command> {
        self.commands.get_mut(usize::from(index))?.as_mut()
    }

    /// The range of command indices.
    pub(super) fn indices(&self) -> core::ops::Range<u16> {
        0..u16::try_from(self.commands.len()).unwrap_or(u16::MAX)
    }

    /// The index in the command identifier `id`.
    pub(super) fn index_of(id: CommandId) -> u32 {
        u32::from(id.0 & ((1 << INDEX_BITS) - 1))
    }
}
