//! The memory that one function may reach.

use alloc::vec::Vec;

use nvme::pointer::{self, DataPointer, Direction, Segment, Step};
use nvme::wire::{AdminOpcode, CompletionQueueEntry, SubmissionQueueEntry};

use super::commands::{Command, Commands};
use super::extent::{Extent, Length, has_metadata_segment};
use super::grants::{Grants, Owner, READ, WRITE};
use super::inside::Inside;
use super::list::{Kind, LIST_MAX, List, Partial};
use super::slab::{NONE, Slab};
use super::special::{ENABLE, is_buffer};
use crate::follow::controller::Controller;

/// The most lists that a device may have been given in part, and the most entries.
const PARTIAL_MAX: usize = 256;
/// The most lists of all commands.
const LISTS_MAX: u32 = 1 << 16;
/// The most lists that one piece of memory may belong to.
const LISTS_AT_ONCE: usize = 8;
/// Owners of pieces that are no commands.
pub(super) const SHADOW: u32 = NONE - 1;
pub(super) const BUFFER: u32 = NONE - 2;
pub(super) const ENTRY: usize = SubmissionQueueEntry::LENGTH;
pub(super) const COMPLETION: usize = CompletionQueueEntry::LENGTH;
pub(super) const PRP: usize = 8;
/// Bytes of a host memory buffer descriptor.
pub(super) const DESCRIPTOR: usize = 16;
/// Type and length of an SGL descriptor that names a last segment of one descriptor.
const LAST_SEGMENT: u64 = 0x30 << 56 | 16;
/// Bytes that end a partially received list: no valid entry of any list.
const STOP: [u8; 16] = [0; 16];

/// The purpose of a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is not permitted.
    Refused,
    /// It moves the data of a command.
    Data,
    /// Entries, lists or other structures that name further memory.
    Naming,
}

/// An entry that a device was given in part.
#[derive(Debug)]
struct PartialEntry {
    queue: u16,
    slot: u32,
    bytes: [u8; ENTRY],
    /// A bit for each byte that has arrived.
    have: u64,
}

/// The memory that one function may reach.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    commands: Commands,
    pub(super) grants: Grants,
    lists: Slab<List>,
    partial: Vec<Partial>,
    entries: Vec<PartialEntry>,
    /// Address of the shadow doorbells, if the controller knows it.
    pub(super) shadow: Option<u64>,
    pub(super) inside: Inside,
    /// The memory that the present list names.
    found: Vec<(u64, u64)>,
}

/// A device's access to the memory that a pointer names.
#[derive(Clone, Copy, Debug)]
struct Right {
    flags: u8,
    /// Whether the pointer may name less than it is believed to.
    guessed: bool,
}

impl Rule {
    /// Forgets everything that the host has named.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether the device may read from `start` to `end`, which are in one page.
    pub(crate) fn on_read(&mut self, controller: &mut Controller, start: u64, end: u64) -> Access {
        if let Some((index, offset)) = controller.submission_at(start) {
            let queue = &controller.submission[index];
            let (first, last) = (offset / ENTRY as u64, (offset + (end - start) - 1) / ENTRY as u64);
            let rung = (first..=last).all(|slot| u32::try_from(slot).is_ok_and(|slot| queue.is_rung(slot)));
            let inside = offset + (end - start) <= u64::from(queue.entries) * ENTRY as u64;
            if rung && inside {
                return Access::Naming;
            }
        }
        if !self.grants.covers(start, end, READ) {
            self.follow_partial(controller);
            if !self.grants.covers(start, end, READ) {
                return Access::Refused;
            }
        }
        let page = u64::from(controller.page.bytes());
        let shadow = self.shadow.is_some_and(|at| at < end && start < at.saturating_add(page));
        let is_naming = shadow || self.has_lists() && self.grants.lists_at(start, end).next().is_some();
        if is_naming { Access::Naming } else { Access::Data }
    }

    /// Whether the device may write `bytes` at `start`. If they are completions, their commands
    /// have ended.
    #[inline]
    pub(crate) fn on_write(&mut self, controller: &mut Controller, start: u64, bytes: &[u8]) -> Access {
        if let Some((index, offset)) = controller.completion_at(start) {
            return self.on_completions(controller, index, offset, bytes);
        }
        let Some(end) = start.checked_add(bytes.len() as u64) else { return Access::Refused };
        if !self.grants.covers(start, end, WRITE) {
            self.follow_partial(controller);
            if !self.grants.covers(start, end, WRITE) {
                return Access::Refused;
            }
        }
        Access::Data
    }

    fn on_completions(
        &mut self,
        controller: &mut Controller,
        index: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Access {
        let queue = controller.completion[index];
        let (entries, rest) = bytes.as_chunks::<COMPLETION>();
        let next = u64::from(queue.next) * COMPLETION as u64;
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let free = (queue.head + queue.entries - queue.next - 1) % queue.entries;
        let fits = u64::from(queue.next) + u64::from(count) <= u64::from(queue.entries);
        if !rest.is_empty() || offset != next || count > free || !fits {
            return Access::Refused;
        }
        let mut last = NONE;
        for (position, entry) in entries.iter().enumerate() {
            let entry = CompletionQueueEntry::parse(entry);
            let (of, id) = (entry.submission_queue.0, entry.command_id);
            last = self.commands.find(of, id).unwrap_or(NONE);
            let known = self.commands.slab.get(last);
            let twice = entries[..position].iter().map(CompletionQueueEntry::parse);
            if known.is_none_or(|command| command.completion != queue.id)
                || twice
                    .into_iter()
                    .any(|earlier| (earlier.submission_queue.0, earlier.command_id) == (of, id))
            {
                return Access::Refused;
            }
        }
        for entry in entries {
            let entry = CompletionQueueEntry::parse(entry);
            let of = entry.submission_queue.0;
            // Most completions are alone.
            let ended =
                if entries.len() == 1 { Some(last) } else { self.commands.find(of, entry.command_id) };
            if let Some(index) = ended {
                self.end(of, index, entry.status().is_success());
            }
            if let Some(from) = controller.submission.iter_mut().find(|queue| queue.id == of) {
                from.advance(entry.submission_queue_head.into());
                if !self.entries.is_empty() {
                    let from = *from;
                    // The host may write other entries there now.
                    self.entries.retain(|part| part.queue != of || from.is_rung(part.slot));
                }
            }
        }
        controller.completion[index].next = (queue.next + count) % queue.entries;
        Access::Naming
    }

    /// Handles the end of a command.
    fn end(&mut self, queue: u16, index: u32, success: bool) {
        let known = self.commands.slab.get(index).filter(|_| queue == 0);
        let Some(entry) = &known.map(|command| command.entry) else { return self.forget(index) };
        self.forget(index);
        match AdminOpcode::from(entry.opcode) {
            AdminOpcode::DoorbellBufferConfig if !success => {
                self.shadow = None;
                self.grants.remove_long(SHADOW);
            }
            AdminOpcode::SetFeatures if is_buffer(entry) && (entry.cdw11 & ENABLE == 0) == success => {
                self.grants.remove_long(BUFFER);
            }
            AdminOpcode::DeleteIoSubmissionQueue if success => {
                let gone = entry.cdw10 & 0xffff;
                let of_queue =
                    self.commands.slab.iter().filter(|(_, command)| u32::from(command.queue) == gone);
                let all: Vec<u32> = of_queue.map(|(index, _)| index).collect();
                for index in all {
                    self.forget(index);
                }
            }
            _ => {}
        }
    }

    /// Takes back all memory that a command has named.
    fn forget(&mut self, index: u32) {
        let Some(command) = self.commands.slab.get_mut(index) else { return };
        self.grants.remove(&mut Owner { number: index, parts: &mut command.parts });
        for list in command.lists {
            if list != NONE {
                self.lists.remove(list);
                self.partial.retain(|partial| partial.list != list);
            }
        }
        self.commands.remove(index);
    }

    /// Handles bytes of host memory that the device is given, which may be entries, lists or
    /// shadow doorbells.
    pub(crate) fn on_given(&mut self, controller: &mut Controller, address: u64, bytes: &[u8]) {
        if let Some((index, offset)) = controller.submission_at(address) {
            self.on_entries(controller, index, offset, bytes);
        }
        if self.has_lists() {
            self.on_lists(controller, address, bytes);
        }
        if let Some(at) = self.shadow {
            self.on_shadow(controller, at, address, bytes);
        }
    }

    /// Whether there may be lists that a device has not been given.
    const fn has_lists(&self) -> bool {
        !self.lists.is_empty()
    }

    fn on_lists(&mut self, controller: &mut Controller, address: u64, bytes: &[u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        let mut lists = [NONE; LISTS_AT_ONCE];
        for (place, list) in lists.iter_mut().zip(self.grants.lists_at(address, end)) {
            *place = list;
        }
        for (index, list) in lists.into_iter().enumerate() {
            if list == NONE {
                break;
            }
            if !lists[..index].contains(&list) {
                self.on_list(controller, list, address, bytes);
            }
        }
    }

    fn on_entries(&mut self, controller: &mut Controller, index: usize, offset: u64, mut bytes: &[u8]) {
        let queue = controller.submission[index];
        let mut offset = usize::try_from(offset).unwrap_or(usize::MAX);
        while !bytes.is_empty() {
            let (slot, within) = (offset / ENTRY, offset % ENTRY);
            let (piece, rest) = bytes.split_at(bytes.len().min(ENTRY - within));
            let slot = u32::try_from(slot).unwrap_or(u32::MAX);
            if queue.is_rung(slot) {
                if let Ok(entry) = piece.try_into() {
                    self.on_entry(
                        controller,
                        queue.id,
                        queue.completion,
                        &SubmissionQueueEntry::parse(entry),
                    );
                } else {
                    self.on_entry_part(controller, index, (slot, within), piece);
                }
            }
            (offset, bytes) = (offset + piece.len(), rest);
        }
    }

    fn on_entry_part(
        &mut self,
        controller: &mut Controller,
        index: usize,
        (slot, within): (u32, usize),
        piece: &[u8],
    ) {
        let queue = controller.submission[index];
        let found = self.entries.iter().position(|part| (part.queue, part.slot) == (queue.id, slot));
        let at = found.unwrap_or_else(|| {
            if self.entries.len() == PARTIAL_MAX {
                self.entries.remove(0);
            }
            self.entries.push(PartialEntry { queue: queue.id, slot, bytes: [0; ENTRY], have: 0 });
            self.entries.len() - 1
        });
        let part = &mut self.entries[at];
        part.bytes[within..within + piece.len()].copy_from_slice(piece);
        part.have |= (u64::MAX >> (ENTRY - piece.len())) << within;
        if part.have == u64::MAX {
            let entry = SubmissionQueueEntry::parse(&part.bytes);
            self.entries.swap_remove(at);
            self.on_entry(controller, queue.id, queue.completion, &entry);
        }
    }

    /// Handles an entry that the device receives: the memory that it names may be reached from now
    /// on.
    pub(crate) fn on_entry(
        &mut self,
        controller: &mut Controller,
        queue: u16,
        completion: u16,
        entry: &SubmissionQueueEntry,
    ) {
        if let Some(index) = self.commands.find(queue, entry.command_id) {
            let same = self.commands.slab.get(index).is_some_and(|command| command.entry == *entry);
            if same {
                return;
            }
            // The host has changed the entry. The version that the device received last counts.
            self.forget(index);
        }
        let Some(index) = self.commands.insert(Command::new(queue, completion, *entry)) else { return };
        let extent = if queue == 0 {
            controller.on_admin(entry);
            if AdminOpcode::from(entry.opcode) == AdminOpcode::CreateIoSubmissionQueue {
                let [low, high, ..] = entry.cdw10.to_le_bytes();
                self.inside.forget(u16::from_le_bytes([low, high]));
            }
            self.name_special(controller, index, entry);
            Extent::of_admin(entry)
        } else {
            Extent::of_io(entry, controller.format(entry.namespace))
        };
        if queue != 0 || !is_buffer(entry) {
            self.name(controller, index, entry, extent);
        }
    }

    /// Grants data and metadata of a command.
    fn name(&mut self, controller: &Controller, index: u32, entry: &SubmissionQueueEntry, extent: Extent) {
        let (page, flags) = (controller.page, extent.flags);
        let pointer = DataPointer::of(entry);
        let total = match extent.length {
            Length::Exact(0) => 0,
            Length::Exact(total) if is_one_page(pointer, total, page) => {
                self.grant(index, (entry.data_pointer[0], total), flags, NONE);
                total
            }
            Length::Exact(total) => {
                self.walk(index, 0, pointer, total, page, Right { flags, guessed: false });
                total
            }
            Length::AtMost(total) => {
                // The second PRP entry is a page if there are two pages, and a list if there are
                // more, which is unknown here.
                if let DataPointer::Prp(first, second) = pointer
                    && second != 0
                {
                    let two = u64::from(page.bytes()) * 2 - u64::from(page.offset_of(first));
                    let stop = u64::from(page.bytes() - page.offset_of(second));
                    self.walk(index, 0, pointer, two, page, Right { flags, guessed: true });
                    self.grant(index, (second, stop), flags, NONE);
                }
                let only = matches!(pointer, DataPointer::Prp(_, 0));
                let total = if only { page_rest(page, entry) } else { total };
                let guessed = matches!(pointer, DataPointer::Prp(..));
                self.walk(index, 0, pointer, total, page, Right { flags, guessed });
                total
            }
        };
        if total == 0 || extent.metadata == 0 || entry.metadata_pointer == 0 {
            return;
        }
        if has_metadata_segment(entry) {
            let segment = [entry.metadata_pointer, LAST_SEGMENT];
            let pointing = SubmissionQueueEntry { data_pointer: segment, ..*entry };
            self.walk(
                index,
                1,
                DataPointer::of(&pointing),
                extent.metadata,
                page,
                Right { flags, guessed: false },
            );
        } else {
            self.grant(index, (entry.metadata_pointer, extent.metadata), flags, NONE);
        }
    }

    /// Follows a pointer of a command, and grants the memory that it names.
    fn walk(
        &mut self,
        index: u32,
        which: usize,
        pointer: DataPointer,
        total: u64,
        page: pointer::PageSize,
        right: Right,
    ) {
        let Right { flags, guessed } = right;
        let direction = if flags & WRITE == 0 { Direction::ToController } else { Direction::ToHost };
        let Self { grants, commands, .. } = self;
        let Some(command) = commands.slab.get_mut(index) else { return };
        let mut owner = Owner { number: index, parts: &mut command.parts };
        let (walk, step) = pointer::Walk::start(pointer, total, page, direction, &mut |piece: Segment| {
            if let Some(address) = piece.address {
                grants.add(&mut owner, (address, piece.length.into()), flags, NONE);
            }
        });
        if let Step::ReadList { address, length } = step {
            self.name_list(
                which,
                List { kind: Kind::Data(walk), command: index, address, length, flags, guessed },
            );
        }
    }

    fn grant(&mut self, index: u32, piece: (u64, u64), flags: u8, list: u32) {
        if let Some(command) = self.commands.slab.get_mut(index) {
            self.grants.add(&mut Owner { number: index, parts: &mut command.parts }, piece, flags, list);
        }
    }

    /// Grants a list of a command, in place of the one before.
    pub(super) fn name_list(&mut self, which: usize, list: List) {
        // There is no memory at the end of the address space.
        if list.length > LIST_MAX || list.address.checked_add(list.length.into()).is_none() {
            return;
        }
        let Some(command) = self.commands.slab.get_mut(list.command) else { return };
        let piece = (list.address, u64::from(list.length));
        let place = &mut command.lists[which];
        if let Some(before) = self.lists.get_mut(*place) {
            // Lists that were followed may be read again, and name no new memory.
            *before = list;
        } else {
            let Some(index) = self.lists.insert(list, LISTS_MAX) else { return };
            *place = index;
        }
        let number = *place;
        self.grant(list.command, piece, READ, number);
    }

    /// Handles bytes of a list that the device is given.
    fn on_list(&mut self, controller: &mut Controller, number: u32, address: u64, bytes: &[u8]) {
        let Some(list) = self.lists.get(number).copied() else { return };
        let (start, end) = (list.address, list.address.saturating_add(list.length.into()));
        let (from, to) = (address.max(start), address.saturating_add(bytes.len() as u64).min(end));
        if from >= to {
            return;
        }
        let within = |at: u64, of: u64| usize::try_from(at - of).unwrap_or(usize::MAX);
        let piece = &bytes[within(from, address)..within(to, address)];
        if from == start && to == end {
            return self.on_whole_list(controller, number, &list, piece);
        }
        let found = self.partial.iter().position(|partial| partial.list == number);
        let at = found.unwrap_or_else(|| {
            if self.partial.len() == PARTIAL_MAX {
                self.partial.remove(0);
            }
            self.partial.push(Partial::new(number, list.length));
            self.partial.len() - 1
        });
        let partial = &mut self.partial[at];
        partial.on_bytes(within(from, start), piece);
        if partial.prefix() == partial.bytes.len() {
            let partial = self.partial.swap_remove(at);
            self.on_whole_list(controller, number, &list, &partial.bytes);
        }
    }

    fn on_whole_list(&mut self, controller: &mut Controller, number: u32, list: &List, bytes: &[u8]) {
        self.partial.retain(|partial| partial.list != number);
        let which = self
            .commands
            .slab
            .get(list.command)
            .and_then(|command| command.lists.iter().position(|known| *known == number));
        let Some(which) = which else { return };
        let next = self.follow(controller, list, bytes);
        // A list that is read again names no new memory.
        if let Some(list) = self.lists.get_mut(number) {
            list.length = 0;
        }
        if let (Kind::Data(walk), Some((address, length))) = (next.0, next.1) {
            if list.guessed {
                // The last entry of a PRP list names a page if the data ends there.
                self.grant(list.command, (address, u64::from(controller.page.bytes())), list.flags, NONE);
            }
            self.name_list(which, List { kind: Kind::Data(walk), address, length, ..*list });
        }
    }

    /// Grants the memory that a list names, and returns its continuation.
    fn follow(
        &mut self,
        controller: &mut Controller,
        list: &List,
        bytes: &[u8],
    ) -> (Kind, Option<(u64, u32)>) {
        let mut found = core::mem::take(&mut self.found);
        found.clear();
        let mut find = |piece: Segment| {
            if let Some(address) = piece.address {
                found.push((address, u64::from(piece.length)));
            }
        };
        let mut kind = list.kind;
        let step = match &mut kind {
            Kind::Data(walk) => walk.on_list(bytes, &mut find),
            // A walk has at least two entries in a list; a queue may have one page.
            Kind::Queue(walk) => match bytes.first_chunk::<PRP>() {
                Some(only) if bytes.len() == only.len() => {
                    let mut padded = STOP;
                    padded[..only.len()].copy_from_slice(only);
                    walk.on_list(&padded, &mut find)
                }
                _ => walk.on_list(bytes, &mut find),
            },
            Kind::Buffer => {
                let page = u64::from(controller.page.bytes());
                for descriptor in bytes.as_chunks::<DESCRIPTOR>().0 {
                    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *descriptor;
                    let address = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                    let pages = u32::from_le_bytes([i, j, k, l]);
                    self.grants.add_long(BUFFER, (address, u64::from(pages) * page), READ | WRITE, NONE);
                }
                Step::Done
            }
        };
        if let Kind::Queue(_) = kind {
            let pages: Vec<u64> = found.iter().map(|(address, _)| *address).collect();
            if let Some(command) = self.commands.slab.get(list.command) {
                controller.scatter(command.entry.command_id, pages);
            }
        } else {
            for piece in found.drain(..) {
                self.grant(list.command, piece, list.flags, NONE);
            }
        }
        self.found = found;
        match step {
            Step::ReadList { address, length } => (kind, Some((address, length))),
            Step::Done | Step::Failed(_) => (kind, None),
        }
    }

    /// Follows lists as far as they have arrived: the device may use the beginning of a list before
    /// it reads the rest.
    fn follow_partial(&mut self, controller: &mut Controller) {
        for at in 0..self.partial.len() {
            let partial = &mut self.partial[at];
            let prefix = partial.prefix();
            if prefix <= partial.followed {
                continue;
            }
            partial.followed = prefix;
            let mut bytes = partial.bytes[..prefix].to_vec();
            bytes.extend_from_slice(&STOP);
            let Some(list) = self.lists.get(partial.list).copied() else { continue };
            if let Kind::Data(_) = list.kind {
                self.follow(controller, &list, &bytes);
            }
        }
    }
}

/// Whether a pointer names nothing but `total` bytes in the page of its first PRP entry.
fn is_one_page(pointer: DataPointer, total: u64, page: pointer::PageSize) -> bool {
    let DataPointer::Prp(first, _) = pointer else { return false };
    let offset = page.offset_of(first);
    offset.is_multiple_of(4) && total <= u64::from(page.bytes() - offset)
}

/// How many bytes the first PRP entry's page has.
fn page_rest(page: pointer::PageSize, entry: &SubmissionQueueEntry) -> u64 {
    u64::from(page.bytes() - page.offset_of(entry.data_pointer[0]))
}
