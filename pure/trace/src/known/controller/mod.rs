//! A controller whose queues are known from the capture.

mod buffer;
mod sgl;
mod under_way;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use nvme::wire::{AdminOpcode, CompletionQueueEntry, SubmissionQueueEntry};
use pcie::wire::Bdf;

use buffer::Buffered;
use sgl::Descriptor;
use under_way::{UnderWay, block_of, under_way};

use super::knowledge::{self, Knowledge};
use crate::command::{Command, Place, Step};
use crate::seen::{Direction, Mark, Seen};
use crate::transaction::Transaction;

/// Bytes of a memory page, in which PRP entries count.
const PAGE: u64 = 4096;
/// Controller registers: Controller Capabilities (CAP), Controller Configuration (CC), Admin
/// Queue Attributes (AQA), Admin Submission and Completion Queue Base Address (ASQ, ACQ), and the
/// first doorbell.
const CAP: u64 = 0x00;
const CC: u64 = 0x14;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;
/// Bytes of BAR0 that belong to registers and doorbells of all queues, at the least stride.
const REGISTERS: u64 = DOORBELLS + 65_536 * 8;
/// Length of a block in bytes, if the capture does not contain it.
const BLOCK: u64 = 512;
/// The most queues of each kind.
const QUEUES_MAX: usize = 4096;
/// Maximum number of commands in progress.
const COMMANDS_MAX: usize = 65_536;
/// Maximum number of completed commands whose completion the host has not taken.
const COMPLETED_MAX: usize = 4096;
/// The most bytes of lists and entries that are kept until a read of them is whole.
const READ_MAX: usize = 4096;
/// The most pages that one command's data have.
const PAGES_MAX: usize = 65_536;

const ENTRY: u64 = SubmissionQueueEntry::LENGTH as u64;
const COMPLETION: u64 = CompletionQueueEntry::LENGTH as u64;

/// A queue in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ring {
    base: u64,
    entries: u64,
}

impl Ring {
    fn holds(&self, address: u64, size: u64) -> bool {
        address >= self.base && address - self.base < self.entries * size
    }
}

/// The purpose of a device's memory read.
#[derive(Clone, Debug)]
enum Purpose {
    /// Entries of this submission queue.
    Entries(u16),
    /// The list of pages of this command.
    List(CommandKey),
}

/// A submission queue and a command identifier.
type CommandKey = (u16, u16);

/// A controller, as known from the capture.
pub(super) struct Controller {
    function: Bdf,
    bar: u64,
    /// Bytes between doorbells.
    stride: u64,
    /// Admin Queue Attributes, Admin Submission and Completion Queue Base Address.
    admin: (u32, u64, u64),
    submissions: BTreeMap<u16, Ring>,
    completions: BTreeMap<u16, Ring>,
    /// Length of a block in bytes, by namespace, from Identify data.
    blocks: BTreeMap<u32, u64>,
    /// When the doorbell of a submission queue was last rung.
    rung: BTreeMap<u16, Mark>,
    under_way: BTreeMap<CommandKey, UnderWay>,
    /// The command whose data are in each page.
    pages: BTreeMap<u64, CommandKey>,
    /// The command whose SGL has data at each address, and the end of these data.
    extents: BTreeMap<u64, (u64, CommandKey)>,
    /// The entries that the host writes into the controller's memory.
    buffered: Buffered,
    /// The command whose list of pages is at each address.
    lists: BTreeMap<u64, CommandKey>,
    /// Reads of entries and lists that are not whole yet, by address, with their bytes so far and
    /// the time of the request.
    reads: BTreeMap<u64, (Purpose, Mark, Vec<u8>)>,
    /// Commands whose completions the host has not taken yet, by completion queue.
    completed: VecDeque<(u16, Command)>,
    /// The completion queue that each interrupt message, its address and data, is of.
    messages: BTreeMap<(u64, u32), u16>,
    ended: Vec<Command>,
    /// The place of the packet that was seen last, if it has one.
    place: Option<Place>,
    /// Whether commands remember their packets.
    remembers: bool,
    /// How often queues and blocks have changed.
    changes: u64,
    unexpected: u64,
    unfinished: u64,
    /// Event requests that waited when a life of the controller ended.
    waiting: u64,
    dropped: u64,
}

impl Controller {
    pub(super) fn new(function: Bdf, bar: u64, remembers: bool) -> Self {
        Self {
            function,
            bar,
            stride: 4,
            admin: (0, 0, 0),
            submissions: BTreeMap::new(),
            completions: BTreeMap::new(),
            blocks: BTreeMap::new(),
            rung: BTreeMap::new(),
            under_way: BTreeMap::new(),
            pages: BTreeMap::new(),
            extents: BTreeMap::new(),
            buffered: Buffered::default(),
            lists: BTreeMap::new(),
            reads: BTreeMap::new(),
            completed: VecDeque::new(),
            messages: BTreeMap::new(),
            ended: Vec::new(),
            place: None,
            remembers,
            changes: 0,
            unexpected: 0,
            unfinished: 0,
            waiting: 0,
            dropped: 0,
        }
    }

    pub(super) const fn function(&self) -> Bdf {
        self.function
    }

    pub(super) const fn move_to(&mut self, bar: u64) {
        self.bar = bar;
    }

    /// Adopts external knowledge of the controller.
    pub(super) fn learn_from(&mut self, knowledge: &Knowledge) {
        self.changes += 1;
        self.stride = u64::from(knowledge.stride).max(4);
        let rings = |of: &[knowledge::Ring]| -> BTreeMap<u16, Ring> {
            let ring = |one: &knowledge::Ring| Ring { base: one.base, entries: one.entries.into() };
            of.iter().take(QUEUES_MAX).map(|one| (one.id, ring(one))).collect()
        };
        (self.submissions, self.completions) = (rings(&knowledge.submissions), rings(&knowledge.completions));
        for (id, block) in &knowledge.blocks {
            self.learn_block(*id, u64::from(*block));
        }
    }

    /// The knowledge of the controller.
    pub(super) fn knowledge(&self) -> Knowledge {
        let ring = |(id, ring): (&u16, &Ring)| knowledge::Ring {
            id: *id,
            base: ring.base,
            entries: u32::try_from(ring.entries).unwrap_or(u32::MAX),
        };
        let block = |(id, bytes): (&u32, &u64)| (*id, u32::try_from(*bytes).unwrap_or(u32::MAX));
        Knowledge {
            function: self.function,
            bar: self.bar,
            stride: u32::try_from(self.stride).unwrap_or(u32::MAX),
            submissions: self.submissions.iter().map(ring).collect(),
            completions: self.completions.iter().map(ring).collect(),
            blocks: self.blocks.iter().map(block).collect(),
        }
    }

    /// A number that changes with each change of the result of [`Self::knowledge`].
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) const fn take_place(&mut self) -> Option<Place> {
        self.place.take()
    }

    pub(super) fn has_queues(&self) -> bool {
        !self.submissions.is_empty()
    }

    pub(super) fn take_ended(&mut self) -> Vec<Command> {
        core::mem::take(&mut self.ended)
    }

    pub(super) const fn take_unexpected(&mut self) -> u64 {
        core::mem::replace(&mut self.unexpected, 0)
    }

    pub(super) const fn take_unfinished(&mut self) -> u64 {
        core::mem::replace(&mut self.unfinished, 0)
    }

    pub(super) const fn take_waiting(&mut self) -> u64 {
        core::mem::replace(&mut self.waiting, 0)
    }

    pub(super) const fn take_dropped(&mut self) -> u64 {
        core::mem::replace(&mut self.dropped, 0)
    }

    /// Ends the controller's life and its queues.
    pub(super) fn reset(&mut self) {
        self.changes += 1;
        let waiting = self.under_way.values().filter(|one| one.command.kind.waits_for_events()).count();
        self.waiting += waiting as u64;
        self.unfinished += (self.under_way.len() - waiting) as u64;
        self.under_way.clear();
        self.pages.clear();
        self.lists.clear();
        self.extents.clear();
        self.buffered = Buffered::default();
        self.reads.clear();
        self.rung.clear();
        self.submissions.clear();
        self.completions.clear();
        self.messages.clear();
        self.ended.extend(core::mem::take(&mut self.completed).into_iter().map(|(_, command)| command));
    }

    /// Handles a packet of the host that is not an answer: a write of a register.
    pub(super) fn on_host(&mut self, seen: &Seen<'_>) -> bool {
        let Some((address, _)) = seen.write().filter(|(address, _)| self.is_register(*address)) else {
            if let Some((address, _)) = seen.write()
                && self.on_pushed(seen.mark(), address, seen.payload)
            {
                return true;
            }
            return seen.read().is_some_and(|(address, _)| self.is_register(address));
        };
        let offset = address - self.bar;
        if offset >= DOORBELLS {
            self.on_doorbell(seen, (offset - DOORBELLS) / self.stride);
            return true;
        }
        let word = seen.bytes().map_or(0, u32::from_le_bytes);
        let long = seen.bytes().map_or(u64::from(word), u64::from_le_bytes);
        let set = |old: u64, half: u64| match half {
            0 if seen.payload.len() >= 8 => long,
            0 => old >> 32 << 32 | u64::from(word),
            _ => u64::from(word) << 32 | old & u64::from(u32::MAX),
        };
        match offset {
            AQA => self.admin.0 = word,
            ASQ | 0x2c => self.admin.1 = set(self.admin.1, offset - ASQ),
            ACQ | 0x34 => self.admin.2 = set(self.admin.2, offset - ACQ),
            CC if word & 1 == 0 => self.reset(),
            CC => self.enable(),
            _ => {}
        }
        true
    }

    fn is_register(&self, address: u64) -> bool {
        address >= self.bar && address - self.bar < REGISTERS
    }

    fn enable(&mut self) {
        self.changes += 1;
        let (attributes, submission, completion) = self.admin;
        let ring = |base: u64, entries: u32| Ring {
            base: base & !(PAGE - 1),
            entries: u64::from(entries & 0xfff) + 1,
        };
        self.submissions.insert(0, ring(submission, attributes));
        self.completions.insert(0, ring(completion, attributes >> 16));
    }

    fn on_doorbell(&mut self, seen: &Seen<'_>, index: u64) {
        let Ok(queue) = u16::try_from(index / 2) else { return };
        self.place = Some(Place { queue, kind: None });
        if index.is_multiple_of(2) {
            if self.submissions.contains_key(&queue) {
                self.rung.insert(queue, seen.mark());
                self.on_rung(queue, seen.mark());
            }
            return;
        }
        // The host has taken all completions of this queue up to here. Those after it wait for the
        // next doorbell, which covers them.
        for _ in 0..self.completed.len() {
            let Some((of, mut command)) = self.completed.pop_front() else { break };
            if of == queue {
                command.step(seen.mark(), Step::HeadDoorbell);
                self.ended.push(command);
            } else {
                self.completed.push_back((of, command));
            }
        }
    }

    /// A request of the device.
    pub(super) fn on_device(&mut self, seen: &Seen<'_>) -> bool {
        if let Some((address, bytes)) = seen.read() {
            return self.on_read(seen, address, bytes);
        }
        let Some((address, bytes)) = seen.write() else { return false };
        if let Some((queue, _)) = self.completions.iter().find(|(_, ring)| ring.holds(address, COMPLETION)) {
            let queue = *queue;
            for entry in seen.payload.as_chunks::<{ CompletionQueueEntry::LENGTH }>().0 {
                self.on_completion(seen.mark(), queue, &CompletionQueueEntry::parse(entry));
            }
            return true;
        }
        if let Some(under_way) = self.owner_of(address) {
            let place = under_way.command.place();
            under_way.command.step(seen.mark(), Step::Data);
            under_way.command.bytes += u64::from(bytes);
            let identified = under_way.command.namespace.filter(|_| under_way.identifies);
            if let Some((id, block)) =
                identified.zip(block_of(seen.payload)).filter(|_| address.is_multiple_of(PAGE))
            {
                self.learn_block(id, block);
            }
            self.place = place;
            return true;
        }
        // The remaining short writes of a device are interrupts.
        bytes == 4 && self.on_interrupt(seen, address)
    }

    /// Handles another short write of the device after a completion: an interrupt. Each completion
    /// queue has a message of its own (MSI-X), identified by its address and data; the first of a
    /// kind belongs to the queue that was written to last.
    fn on_interrupt(&mut self, seen: &Seen<'_>, address: u64) -> bool {
        let message = (address, seen.bytes().map_or(0, u32::from_le_bytes));
        let waits = |one: &Command| one.hops.iter().all(|hop| hop.step != Step::Interrupt);
        let has_any = |queue: &u16| self.completed.iter().any(|(of, one)| of == queue && waits(one));
        let known = self.messages.get(&message).copied().filter(has_any);
        let Some(queue) = known.or(self.completed.back().map(|(queue, _)| *queue)) else { return false };
        if self.messages.len() < QUEUES_MAX {
            self.messages.insert(message, queue);
        }
        self.place = Some(Place { queue, kind: None });
        for (_, command) in self.completed.iter_mut().filter(|(of, _)| *of == queue) {
            if waits(command) {
                command.step(seen.mark(), Step::Interrupt);
            }
        }
        true
    }

    fn learn_block(&mut self, namespace: u32, block: u64) {
        if self.blocks.get(&namespace) == Some(&block) {
            return;
        }
        if self.blocks.len() >= QUEUES_MAX {
            self.dropped += 1;
            return;
        }
        self.blocks.insert(namespace, block);
        self.changes += 1;
    }

    fn owner_of(&mut self, address: u64) -> Option<&mut UnderWay> {
        let key = self.extent_at(address).or_else(|| self.pages.get(&(address / PAGE)).copied())?;
        self.under_way.get_mut(&key)
    }

    /// The submission queue that has an entry at this address, and its base address.
    fn ring_at(&self, address: u64) -> Option<(u16, u64)> {
        let found = self.submissions.iter().find(|(_, ring)| ring.holds(address, ENTRY));
        found.map(|(queue, ring)| (*queue, ring.base))
    }

    fn on_read(&mut self, seen: &Seen<'_>, address: u64, bytes: u32) -> bool {
        let purpose = match self.ring_at(address) {
            Some((queue, _)) => {
                self.place = Some(Place { queue, kind: None });
                Some(Purpose::Entries(queue))
            }
            None => {
                // Lists of several commands may share a page: the nearest one before it is meant.
                let list = self.lists.range(..=address).next_back();
                let key = list.filter(|(list, _)| **list / PAGE == address / PAGE).map(|(_, key)| *key);
                let one = key.and_then(|key| self.under_way.get_mut(&key).map(|one| (key, one)));
                one.map(|(key, one)| {
                    one.command.step(seen.mark(), Step::List);
                    self.place = one.command.place();
                    Purpose::List(key)
                })
            }
        };
        if let Some(purpose) = purpose {
            match bytes as usize <= READ_MAX && self.reads.len() < COMMANDS_MAX {
                true => drop(self.reads.insert(address, (purpose, seen.mark(), Vec::new()))),
                false => self.dropped += 1,
            }
            return true;
        }
        let Some(under_way) = self.owner_of(address) else { return false };
        under_way.command.step(seen.mark(), Step::Data);
        under_way.command.bytes += u64::from(bytes);
        self.place = under_way.command.place();
        true
    }

    /// Handles a completion of `transaction`; `is_last` says whether it is the last one.
    pub(super) fn on_answer(&mut self, seen: &Seen<'_>, transaction: &Transaction, is_last: bool) -> bool {
        if transaction.direction == Direction::Down {
            let is_cap = transaction.address == self.bar + CAP;
            if let Some(bytes) = seen.bytes::<8>().filter(|_| is_cap) {
                // Doorbell Stride (DSTRD), in bits 35:32.
                self.stride = 4 << (u64::from_le_bytes(bytes) >> 32 & 0xf);
            }
            return self.is_register(transaction.address);
        }
        if let Some((purpose, _, bytes)) = self.reads.get_mut(&transaction.address) {
            self.place = match purpose {
                Purpose::Entries(queue) => Some(Place { queue: *queue, kind: None }),
                Purpose::List(key) => self.under_way.get(key).and_then(|one| one.command.place()),
            };
            if bytes.len() + seen.payload.len() <= READ_MAX {
                bytes.extend_from_slice(seen.payload);
            }
            if is_last && let Some((purpose, asked, bytes)) = self.reads.remove(&transaction.address) {
                match purpose {
                    Purpose::Entries(queue) => self.on_entries(queue, Some(asked), seen.mark(), &bytes),
                    Purpose::List(key) => self.on_list(key, seen.mark(), &bytes),
                }
            }
            return true;
        }
        let Some(under_way) = self.owner_of(transaction.address) else { return false };
        under_way.command.step(seen.mark(), Step::DataArrived);
        self.place = under_way.command.place();
        true
    }

    /// Handles entries that the device has requested in `asked`, unless they are in its own memory.
    fn on_entries(&mut self, queue: u16, asked: Option<Mark>, at: Mark, bytes: &[u8]) {
        for entry in bytes.as_chunks::<{ SubmissionQueueEntry::LENGTH }>().0 {
            let entry = SubmissionQueueEntry::parse(entry);
            if self.under_way.len() >= COMMANDS_MAX {
                self.dropped += 1;
                return;
            }
            let key = (queue, entry.command_id.0);
            let block = self.blocks.get(&entry.namespace.0).copied().unwrap_or(BLOCK);
            let mut one = under_way(queue, &entry, block);
            one.command = one.command.remembering(self.remembers);
            if let Some(asked) = asked {
                if let Some(rung) = self.rung.get(&queue).filter(|rung| rung.at <= asked.at) {
                    one.command.step(*rung, Step::Doorbell);
                }
                one.command.step(asked, Step::Fetch);
            }
            one.command.step(at, Step::Entry);
            for page in &one.pages {
                self.pages.insert(*page, key);
            }
            self.lists.extend(one.lists.iter().map(|list| (*list, key)));
            if queue == 0 {
                self.learn(&entry);
            }
            if let Some(lost) = self.under_way.insert(key, one) {
                // The same identifier again: the end of the first one is not in the capture.
                self.unfinished += 1;
                self.forget_places(key, &lost);
            }
            if let Some(descriptor) = Descriptor::of(&entry) {
                self.describe(key, descriptor);
            }
        }
    }

    /// Forgets where the data and the list of a command are that has ended, but for places that a
    /// later command of the same name has.
    fn forget_places(&mut self, key: CommandKey, ended: &UnderWay) {
        let later = self.under_way.get(&key);
        for page in &ended.pages {
            let is_later = later.is_some_and(|one| one.pages.contains(page));
            if self.pages.get(page) == Some(&key) && !is_later {
                self.pages.remove(page);
            }
        }
        for list in &ended.lists {
            let is_later = later.is_some_and(|one| one.lists.contains(list));
            if self.lists.get(list) == Some(&key) && !is_later {
                self.lists.remove(list);
            }
        }
        self.forget_extents(key, &ended.extents);
    }

    /// Adds queues from an admin command.
    fn learn(&mut self, entry: &SubmissionQueueEntry) {
        let [queue, size] =
            [entry.cdw10 & 0xffff, entry.cdw10 >> 16].map(|half| u16::try_from(half).unwrap_or(0));
        let ring = Ring { base: entry.data_pointer[0], entries: u64::from(size) + 1 };
        let rings = match AdminOpcode::from(entry.opcode) {
            AdminOpcode::CreateIoSubmissionQueue => &mut self.submissions,
            AdminOpcode::CreateIoCompletionQueue => &mut self.completions,
            AdminOpcode::DeleteIoSubmissionQueue => {
                self.changes += u64::from(self.submissions.remove(&queue).is_some());
                return;
            }
            AdminOpcode::DeleteIoCompletionQueue => {
                self.changes += u64::from(self.completions.remove(&queue).is_some());
                return;
            }
            _ => return,
        };
        if rings.len() < QUEUES_MAX {
            self.changes += u64::from(rings.insert(queue, ring) != Some(ring));
        } else {
            self.dropped += 1;
        }
    }

    fn on_list(&mut self, key: CommandKey, at: Mark, bytes: &[u8]) {
        let Some(one) = self.under_way.get_mut(&key) else { return };
        one.command.step(at, Step::Listed);
        if one.is_described {
            return self.on_segment(key, bytes);
        }
        let pages = bytes.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry) / PAGE);
        for page in pages.filter(|page| *page != 0) {
            if one.pages.len() >= PAGES_MAX {
                self.dropped += 1;
                return;
            }
            one.pages.push(page);
            self.pages.insert(page, key);
        }
    }

    fn on_completion(&mut self, at: Mark, queue: u16, entry: &CompletionQueueEntry) {
        let key = (entry.submission_queue.0, entry.command_id.0);
        let Some(mut one) = self.under_way.remove(&key) else {
            self.unexpected += 1;
            return;
        };
        self.forget_places(key, &one);
        self.forget_ring(key);
        one.command.step(at, Step::Completion);
        one.command.status = Some(entry.status().raw());
        self.place = one.command.place();
        if self.completed.len() >= COMPLETED_MAX
            && let Some((_, oldest)) = self.completed.pop_front()
        {
            self.ended.push(oldest);
        }
        self.completed.push_back((queue, one.command));
    }
}
