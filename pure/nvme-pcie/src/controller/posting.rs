//! Posting of completions: batches, Phase Tags, full queues and interrupts.

use nvme::wire::{CompletionQueueEntry, QueueId, Status};
use pcie::device::Dma;

use super::side::Side;
use super::slots::{Ending, Transfer};
use super::{Output, Queues};

/// The most entries that one write posts: a page of entries.
const POST_ENTRIES_MAX: usize = 256;
/// Bytes of data that may go to the host before the completions of their commands are posted. Over
/// a slow link each batch takes its time, and the host submits its next commands only after it has
/// seen completions.
const POST_BYTES: usize = 16 << 10;

impl<S: Side> Queues<S> {
    /// Puts the command in slot `index` on its completion queue, once it has ended and its data has
    /// moved.
    pub(super) fn finish(&mut self, index: u16) {
        let slot = self.slots.slot(index);
        if let (Transfer::Failed(code), Some(ending)) = (&slot.transfer, slot.ending)
            && ending.status.is_success()
        {
            let (number, entry, status) = (slot.queue, slot.entry, Status::from(*code));
            let status = self.record(number, &entry, status);
            self.slots.slot(index).ending = Some(Ending { dw0: 0, dw1: 0, status });
        }
        let slot = self.slots.slot(index);
        let queue = self.submission_queues[usize::from(slot.queue)].as_ref();
        let completes_to = queue.expect("a submission queue outlives its commands").completes_to;
        let queue = self.completion_queues[usize::from(completes_to.0)].as_mut();
        queue.expect("a completion queue outlives its submission queues").pending.push_back(index);
        self.dirty |= 1 << completes_to.0;
    }

    /// Posts pending completions if much data has gone to the host since the last posting.
    pub(super) fn post_behind_data(&mut self) {
        if self.unposted_bytes >= POST_BYTES && self.dirty != 0 {
            self.post_completions();
        }
    }

    /// Posts the pending completions of each queue, as far as there is room.
    pub(super) fn post_completions(&mut self) {
        self.unposted_bytes = 0;
        // Commands that end because of a posting (a deletion that waited) make a queue dirty again.
        while self.dirty != 0 {
            let number = self.dirty.trailing_zeros();
            self.dirty &= !(1 << number);
            self.post_to(number as usize);
        }
        if !self.waiting.is_empty() {
            self.start_waiting();
        }
    }

    fn post_to(&mut self, number: usize) {
        let mut posted = 0;
        while let Some(queue) = self.completion_queues[number].as_mut()
            && !queue.pending.is_empty()
        {
            let wanted = queue.pending.len().min(POST_ENTRIES_MAX);
            let Some(run) = queue.post(u32::try_from(wanted).unwrap_or(1)) else { break };
            let mut bytes = self.pool.take(run.entries as usize * CompletionQueueEntry::LENGTH);
            let (places, _) = bytes.as_chunks_mut::<{ CompletionQueueEntry::LENGTH }>();
            for place in places {
                let pending =
                    self.completion_queues[number].as_mut().and_then(|queue| queue.pending.pop_front());
                let index = pending.expect("no more room is taken than completions are pending");
                *place = self.retire(index, run.phase);
            }
            let data = self.pool.seal(bytes);
            self.outputs.push_back(Output::Dma(Dma::Write { address: run.address, data }));
            posted += run.entries;
            self.statistics.postings += 1;
        }
        let queue = self.completion_queues[number].as_ref();
        if number != 0 && queue.is_some_and(|queue| !queue.pending.is_empty()) {
            self.on_full(number);
        }
        self.statistics.completions += u64::from(posted);
        let vector = self.completion_queues[number].as_ref().and_then(|queue| queue.vector);
        if let Some(vector) = vector
            && posted > 0
            && self.interrupts.on_posted(self.now, vector, posted, number == 0)
        {
            self.raise(vector);
        }
    }

    /// Handles completions that are left over because their queue is full. With shadow doorbells,
    /// looks for room at once, because no doorbell may ever report the room.
    #[cold]
    fn on_full(&mut self, number: usize) {
        self.drop_held_completions(number);
        let left = self.completion_queues[number].as_ref().is_some_and(|queue| !queue.pending.is_empty());
        if left && let Ok(number) = u16::try_from(number) {
            self.look_for_room(number);
        }
    }

    /// Ends the command in slot `index` for good, and returns its completion queue entry.
    fn retire(&mut self, index: u16, phase: bool) -> [u8; CompletionQueueEntry::LENGTH] {
        let slot = self.slots.slot(index);
        let ending = slot.ending.expect("only commands that have ended are pending");
        let (number, command_id) = (slot.queue, slot.entry.command_id);
        self.bytes_in_flight -= u64::from(slot.bytes);
        self.slots.release(index);
        let queue = self.submission_queues[usize::from(number)].as_mut();
        let queue = queue.expect("a submission queue outlives its commands");
        queue.in_flight -= 1;
        let entry = CompletionQueueEntry {
            dw0: ending.dw0,
            dw1: ending.dw1,
            submission_queue_head: queue.head(),
            submission_queue: QueueId(number),
            command_id,
            status_and_phase: 0,
        };
        if queue.deletion.is_some() && queue.is_idle() {
            self.finish_deletion(number);
        }
        entry.with_status(ending.status, phase).emit()
    }

    pub(super) fn raise(&mut self, vector: u16) {
        self.statistics.interrupts += 1;
        self.outputs.push_back(Output::Dma(Dma::Interrupt { vector }));
    }
}
