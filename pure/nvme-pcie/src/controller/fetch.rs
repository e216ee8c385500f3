//! Arbitration between submission queues, and fetching of their entries in batches.

use alloc::vec::Vec;

use engine::Buffer;
use nvme::pointer::DataPointer;
use nvme::subsystem::{
    CommandToken, Direction as CoreDirection, Input as CoreInput, Transfer as CoreTransfer,
};
use nvme::wire::{QueueId, StatusCode, SubmissionQueueEntry};
use pcie::device::Dma;
use serde::{Deserialize, Serialize};

use super::dma::{Assembly, Piece, Purpose};
use super::side::Side;
use super::slots::Ending;
use super::{Output, Queues};
use crate::registers::SUBMISSION_ENTRY_BYTES;

/// The most entries that one read fetches: 4 KiB of entries.
pub const FETCH_ENTRIES_MAX: u32 = 64;
/// Maximum number of outstanding reads of entries.
pub const FETCHES_MAX: u16 = 128;
/// Maximum number of outstanding reads of one queue's entries.
const FETCHES_PER_QUEUE_MAX: usize = 8;
/// Command slots that only the admin queue may use, so that I/O never starves it.
const ADMIN_SLOTS: u32 = 16;

/// A read of submission queue entries.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Fetch {
    queue: u16,
    entries: u32,
    assembly: Assembly,
    /// The entries after their arrival. They are started in the order of the queue.
    arrived: Option<Buffer>,
}

/// The table of entry reads.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Fetches {
    fetches: Vec<Fetch>,
    free: Vec<u16>,
}

impl Fetches {
    pub(super) fn new() -> Self {
        Self {
            fetches: (0..FETCHES_MAX).map(|_| Fetch::default()).collect(),
            free: (0..FETCHES_MAX).rev().collect(),
        }
    }

    pub(super) fn clear(&mut self) {
        for fetch in &mut self.fetches {
            fetch.assembly.clear();
            fetch.arrived = None;
        }
        self.free.clear();
        self.free.extend((0..FETCHES_MAX).rev());
    }
}

impl<S: Side> Queues<S> {
    /// Fetches from each queue that has entries, in turn, as long as slots and reads are free.
    pub(super) fn fetch_entries(&mut self) {
        if self.throttled || !self.side.may_fetch() {
            return;
        }
        if self.classes.is_some() {
            self.fetch_by_weight();
            return;
        }
        let mut candidates = self.ready;
        while candidates != 0 {
            let queue = self.in_turn(candidates);
            let bit = 1_u128 << queue;
            if self.fetch_from(queue, FETCH_ENTRIES_MAX) == 0 {
                candidates &= !bit;
            } else if !self.submission_queues[queue as usize].as_ref().is_some_and(|queue| queue.has_new()) {
                candidates &= !bit;
                self.ready &= !bit;
            }
        }
    }

    /// Issues one read of at most `most` entries of queue `number`. Returns the number of entries;
    /// 0 if no read is possible now.
    pub(super) fn fetch_from(&mut self, number: u32, most: u32) -> u32 {
        let Some(queue) = self.submission_queues.get_mut(number as usize).and_then(Option::as_mut) else {
            self.ready &= !(1 << number);
            return 0;
        };
        if !queue.has_new() {
            self.ready &= !(1 << number);
            return 0;
        }
        let is_admin = queue.id.is_admin();
        if !is_admin && self.bytes_in_flight >= self.bytes_in_flight_max {
            return 0;
        }
        if !is_admin && self.ceiling.opens(self.now).is_some() {
            return 0;
        }
        let reserved = if is_admin { 0 } else { ADMIN_SLOTS };
        let slots = self.slots.available().saturating_sub(reserved);
        let entries = queue.contiguous().min(self.burst).min(FETCH_ENTRIES_MAX).min(most).min(slots);
        if entries == 0 || queue.fetches.len() >= FETCHES_PER_QUEUE_MAX {
            return 0;
        }
        if !is_admin {
            self.ceiling.charge_operations(self.now, entries.into());
        }
        if let Some(start) = queue.next_local() {
            queue.fetch(entries);
            self.start_from_memory(number, start, entries);
            return entries;
        }
        let Some(index) = self.fetches.free.pop() else { return 0 };
        let length = entries * SUBMISSION_ENTRY_BYTES;
        let Some(id) = self.reads.issue(Purpose::Fetch(index), length) else {
            self.fetches.free.push(index);
            return 0;
        };
        let fetch = &mut self.fetches.fetches[usize::from(index)];
        fetch.queue = queue.id.0;
        fetch.entries = entries;
        queue.fetches.push_back(index);
        let address = queue.fetch(entries);
        self.slots.reserve(u16::try_from(entries).expect("a fetch is of 64 entries at most"));
        self.statistics.fetches += 1;
        self.outputs.push_back(Output::Dma(Dma::Read { id, address, length }));
        entries
    }

    /// Handles a piece of the entries of a fetch.
    pub(super) fn on_fetched(&mut self, index: u16, piece: Piece) {
        if piece.last {
            self.reads.retire(piece.id);
        }
        let fetch = &mut self.fetches.fetches[usize::from(index)];
        let Some(whole) = fetch.assembly.on_piece(&mut self.pool, piece) else { return };
        fetch.arrived = Some(whole);
        let number = fetch.queue;
        // A read that was answered before an earlier one waits for the earlier one.
        while let Some(queue) = self.submission_queues.get_mut(usize::from(number)).and_then(Option::as_mut)
            && let Some(&front) = queue.fetches.front()
            && let Some(entries) = self.fetches.fetches[usize::from(front)].arrived.take()
        {
            queue.fetches.pop_front();
            queue.on_arrived(self.fetches.fetches[usize::from(front)].entries);
            self.fetches.free.push(front);
            // There may be more to fetch now that fewer fetches are outstanding.
            self.ready |= u128::from(queue.has_new()) << number;
            let (all_fetched, is_deleting) = (!queue.has_new(), queue.deletion.is_some());
            if all_fetched && self.shadow.is_some() && number != 0 {
                self.knock(number);
            }
            for entry in entries.as_chunks::<{ SubmissionQueueEntry::LENGTH }>().0 {
                let entry = SubmissionQueueEntry::parse(entry);
                if is_deleting { self.end_at_once(number, entry) } else { self.start(number, entry) }
            }
        }
    }

    #[inline]
    pub(super) fn start(&mut self, queue: u16, entry: SubmissionQueueEntry) {
        self.statistics.commands += 1;
        let index = self.slots.take();
        let slot = self.slots.slot(index);
        slot.queue = queue;
        slot.entry = entry;
        slot.pointer = DataPointer::of(&entry);
        if queue == 0 && S::on_queue_command(self, index, &entry) {
            return;
        }
        let token = CommandToken(u32::from(index));
        self.pass_to_core(CoreInput::Command { controller: self.key, token, queue: QueueId(queue), entry });
        if queue != 0 {
            if self.ceiling.has_bytes() {
                let moved = self.side.transfer(token).map_or(0, |transfer| transfer.length);
                self.ceiling.charge_bytes(self.now, moved.into());
            }
            self.walk_early(index, token);
        }
    }

    /// Ends a command that arrives after the deletion of its queue has begun: it might wait for one
    /// that is never fetched.
    #[cold]
    fn end_at_once(&mut self, queue: u16, entry: SubmissionQueueEntry) {
        self.statistics.commands += 1;
        let index = self.slots.take();
        let slot = self.slots.slot(index);
        (slot.queue, slot.entry) = (queue, entry);
        let status = self.record(queue, &entry, StatusCode::AbortedSubmissionQueueDeletion.into());
        self.end(index, Ending { dw0: 0, dw1: 0, status });
    }

    /// Reads the PRP lists of a command whose data goes to the host, while the medium works.
    fn walk_early(&mut self, index: u16, token: CommandToken) {
        if let Some(CoreTransfer { direction: CoreDirection::ToHost, length, metadata }) =
            self.side.transfer(token)
            && self.slots.is_busy(index)
        {
            self.bytes_in_flight += u64::from(length);
            self.slots.slot(index).bytes = length;
            self.slots.slot(index).metadata = metadata;
            self.push(index, 0, length, Buffer::EMPTY);
        }
    }
}
