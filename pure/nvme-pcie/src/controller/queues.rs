//! Create and Delete I/O Submission and Completion Queue: the commands that only the transport
//! can execute.

use super::rings::{CompletionQueue, CompletionQueueId, SubmissionQueue};
use super::side::Side;
use super::slots::Ending;
use super::{Controller, Queues};
use crate::registers::{COMPLETION_ENTRY_BYTES, SUBMISSION_ENTRY_BYTES, high_16, low_16};
use nvme::wire::{AdminOpcode, Bits, DataTransfer, QueueId, Status, StatusCode, SubmissionQueueEntry};

/// Physically Contiguous (PC) in CDW11.
const PHYSICALLY_CONTIGUOUS: Bits = Bits::bit(0);
/// Interrupts Enabled (IEN) in CDW11 of Create I/O Completion Queue.
const INTERRUPTS_ENABLED: Bits = Bits::bit(1);

impl Controller {
    /// Executes a command about queues, and refuses an admin command with an SGL. Returns false for
    /// any other command.
    pub(super) fn execute_queue_command(&mut self, index: u16, entry: &SubmissionQueueEntry) -> bool {
        let result = match AdminOpcode::from(entry.opcode) {
            _ if entry.data_transfer() != DataTransfer::Prp => Err(StatusCode::InvalidField),
            AdminOpcode::CreateIoCompletionQueue => self.create_completion_queue(index, entry),
            AdminOpcode::CreateIoSubmissionQueue => self.create_submission_queue(index, entry),
            AdminOpcode::DeleteIoCompletionQueue => self.delete_completion_queue(index, entry),
            AdminOpcode::DeleteIoSubmissionQueue => self.delete_submission_queue(index, entry),
            AdminOpcode::DoorbellBufferConfig if self.side.config.doorbell_buffers => {
                self.configure_shadow(entry).map(|()| self.share_shadow(index, entry.data_pointer))
            }
            _ => return false,
        };
        let status = match result {
            Ok(Executed::Waits) => return true,
            Ok(Executed::Done) => Status::SUCCESS,
            Err(code) => self.record(0, entry, code.into()),
        };
        self.end(index, Ending { dw0: 0, dw1: 0, status });
        true
    }

    /// Number of entries of a new queue, from CDW10. Fails if the size or the base address
    /// is invalid.
    fn queue_size(&self, entry: &SubmissionQueueEntry) -> Result<u32, StatusCode> {
        let entries = u32::from(high_16(entry.cdw10)) + 1;
        if entries < 2
            || entries > self.side.config.queue_entries_max
            || !self.side.properties.has_io_entry_sizes()
        {
            return Err(StatusCode::InvalidQueueSize);
        }
        if !PHYSICALLY_CONTIGUOUS.is_set(entry.cdw11) {
            return Err(StatusCode::InvalidField);
        }
        if self.page_size.offset_of(entry.data_pointer[0]) != 0 {
            return Err(StatusCode::PrpOffsetInvalid);
        }
        Ok(entries)
    }

    fn create_completion_queue(
        &mut self,
        index: u16,
        entry: &SubmissionQueueEntry,
    ) -> Result<Executed, StatusCode> {
        let id = usize::from(low_16(entry.cdw10));
        let is_taken = self.completion_queues.get(id).is_none_or(Option::is_some);
        if id == 0 || is_taken || self.completion_queue_in_lane(id).is_some() {
            return Err(StatusCode::InvalidQueueIdentifier);
        }
        let entries = self.queue_size(entry)?;
        let length = u64::from(entries) * u64::from(COMPLETION_ENTRY_BYTES);
        if self.memory.locate(entry.data_pointer[0], length)?.is_some() {
            return Err(StatusCode::InvalidControllerMemoryBufferUse);
        }
        let vector = high_16(entry.cdw11);
        if vector >= self.side.config.interrupt_vectors {
            return Err(StatusCode::InvalidInterruptVector);
        }
        let vector = INTERRUPTS_ENABLED.is_set(entry.cdw11).then_some(vector);
        self.side.core.subsystem_mut().set_io_queues_exist(self.key, true);
        if let Some(lane) = self.lane_for_queue() {
            let (id, base) = (low_16(entry.cdw10), entry.data_pointer[0]);
            self.create_completion_queue_in(lane, index, id, (base, entries, vector));
            return Ok(Executed::Waits);
        }
        self.completion_queues[id] = Some(CompletionQueue::new(entry.data_pointer[0], entries, vector));
        Ok(Executed::Done)
    }

    fn create_submission_queue(
        &mut self,
        index: u16,
        entry: &SubmissionQueueEntry,
    ) -> Result<Executed, StatusCode> {
        let id = low_16(entry.cdw10);
        let is_taken = self.submission_queues.get(usize::from(id)).is_none_or(Option::is_some);
        if id == 0 || is_taken || self.submission_queue_in_lane(id).is_some() {
            return Err(StatusCode::InvalidQueueIdentifier);
        }
        let completes_to = CompletionQueueId(high_16(entry.cdw11));
        let completion_queue = match self.completion_queues.get(usize::from(completes_to.0)) {
            None => return Err(StatusCode::InvalidQueueIdentifier),
            Some(_) if completes_to == CompletionQueueId::ADMIN => {
                return Err(StatusCode::InvalidQueueIdentifier);
            }
            Some(None) => {
                let lane = self.completion_queue_in_lane(usize::from(completes_to.0));
                let lane = lane.ok_or(StatusCode::CompletionQueueInvalid)?;
                let place = (entry.data_pointer[0], self.queue_size(entry)?);
                self.create_submission_queue_in(lane, index, id, place, completes_to);
                return Ok(Executed::Waits);
            }
            Some(Some(_)) => usize::from(completes_to.0),
        };
        let entries = self.queue_size(entry)?;
        let length = u64::from(entries) * u64::from(SUBMISSION_ENTRY_BYTES);
        let local = self.memory.locate(entry.data_pointer[0], length)?;
        if let Some(queue) = &mut self.completion_queues[completion_queue] {
            queue.submission_queues += 1;
        }
        let queue = SubmissionQueue::new(QueueId(id), entry.data_pointer[0], entries, completes_to);
        self.submission_queues[usize::from(id)] = Some(queue.located(local));
        if let Some(classes) = &mut self.classes {
            classes.insert(id, entry);
        }
        self.side.core.subsystem_mut().set_io_queues_exist(self.key, true);
        Ok(Executed::Done)
    }

    fn delete_completion_queue(
        &mut self,
        index: u16,
        entry: &SubmissionQueueEntry,
    ) -> Result<Executed, StatusCode> {
        let id = usize::from(low_16(entry.cdw10));
        let queue = self.completion_queues.get(id).and_then(Option::as_ref).filter(|_| id != 0);
        match queue {
            None if self.completion_queue_in_lane(id).is_some() => {
                self.delete_completion_queue_in_lane(index, id)
            }
            None => Err(StatusCode::InvalidQueueIdentifier),
            Some(queue) if queue.submission_queues > 0 => Err(StatusCode::InvalidQueueDeletion),
            Some(_) => {
                self.completion_queues[id] = None;
                self.dirty &= !(1 << id);
                Ok(Executed::Done)
            }
        }
    }

    fn delete_submission_queue(
        &mut self,
        index: u16,
        entry: &SubmissionQueueEntry,
    ) -> Result<Executed, StatusCode> {
        let id = low_16(entry.cdw10);
        if self.submission_queue_in_lane(id).is_some() {
            return self.delete_submission_queue_in_lane(index, id);
        }
        let queue = self.submission_queues.get(usize::from(id)).and_then(Option::as_ref);
        let queue = queue.filter(|queue| !queue.id.is_admin() && queue.deletion.is_none());
        queue.ok_or(StatusCode::InvalidQueueIdentifier)?;
        Ok(self.begin_deletion(id, index))
    }
}

impl<S: Side> Queues<S> {
    /// Stops a queue for its deletion by `command`. Commands that cannot be aborted at once first
    /// run to their end, so that no command moves data after its queue is deleted.
    pub(super) fn begin_deletion(&mut self, id: u16, command: u16) -> Executed {
        let Some(queue) = &mut self.submission_queues[usize::from(id)] else { return Executed::Done };
        self.ready &= !(1 << id);
        if queue.is_idle() {
            self.remove_submission_queue(id);
            return Executed::Done;
        }
        queue.deletion = Some(command);
        let completes_to = queue.completes_to;
        self.side.abort_queue(self.now, self.key, QueueId(id));
        self.drain_core();
        self.dirty |= 1 << completes_to.0;
        self.post_completions();
        Executed::Waits
    }

    /// Drops completions that the full completion queue `number` holds back, of queues that are
    /// being deleted. A deletion would otherwise wait for a host that no longer reads them, and the
    /// deletion of the queue implicitly completes those commands.
    #[cold]
    pub(super) fn drop_held_completions(&mut self, number: usize) {
        for id in 0..u16::try_from(self.submission_queues.len()).unwrap_or(u16::MAX) {
            let queue = self.submission_queues[usize::from(id)].as_ref();
            let deleted = queue.filter(|queue| queue.deletion.is_some());
            if deleted.is_some_and(|queue| usize::from(queue.completes_to.0) == number) {
                self.drop_held_of(id, number);
            }
        }
    }

    fn drop_held_of(&mut self, id: u16, number: usize) {
        let Some(queue) = &mut self.completion_queues[number] else { return };
        let mut pending = core::mem::take(&mut queue.pending);
        for _ in 0..pending.len() {
            let Some(index) = pending.pop_front() else { break };
            if self.slots.slot(index).queue == id {
                self.bytes_in_flight -= u64::from(self.slots.slot(index).bytes);
                self.slots.release(index);
                if let Some(queue) = &mut self.submission_queues[usize::from(id)] {
                    queue.in_flight -= 1;
                }
            } else {
                pending.push_back(index);
            }
        }
        if let Some(queue) = &mut self.completion_queues[number] {
            queue.pending = pending;
        }
        if self.submission_queues[usize::from(id)].as_ref().is_some_and(SubmissionQueue::is_idle) {
            self.finish_deletion(id);
        }
    }

    fn remove_submission_queue(&mut self, id: u16) -> Option<SubmissionQueue> {
        let queue = self.submission_queues[usize::from(id)].take()?;
        if let Some(classes) = &mut self.classes {
            classes.remove(id);
        }
        if let Some(completion_queue) = &mut self.completion_queues[usize::from(queue.completes_to.0)] {
            completion_queue.submission_queues -= 1;
        }
        Some(queue)
    }

    /// Finishes the deletion of a queue whose last command has ended.
    pub(super) fn finish_deletion(&mut self, id: u16) {
        if let Some(command) = self.remove_submission_queue(id).and_then(|queue| queue.deletion) {
            S::on_deleted(self, id, command);
        }
    }
}

/// How far a command about queues got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Executed {
    Done,
    /// The command completes later.
    Waits,
}
