//! Create and Delete I/O Submission and Completion Queue: the commands that only the transport
//! can execute.

use super::Controller;
use super::rings::{CompletionQueue, CompletionQueueId, QueuePlace, SubmissionQueue};
use super::slots::Ending;
use crate::registers::{COMPLETION_ENTRY_BYTES, SUBMISSION_ENTRY_BYTES, high_16, low_16};
use nvme::wire::{AdminOpcode, Bits, DataTransfer, QueueId, Status, StatusCode, SubmissionQueueEntry};

/// Physically Contiguous (PC) in CDW11.
const PHYSICALLY_CONTIGUOUS: Bits = Bits::bit(0);
/// Interrupts Enabled (IEN) in CDW11 of Create I/O Completion Queue.
const INTERRUPTS_ENABLED: Bits = Bits::bit(1);

impl Controller {
    /// The submission queues in host memory, the Admin Queue first.
    pub fn submission_queues(&self) -> impl Iterator<Item = QueuePlace> {
        self.submission_queues.iter().flatten().filter_map(SubmissionQueue::place)
    }

    /// The completion queues, the Admin Queue first.
    pub fn completion_queues(&self) -> impl Iterator<Item = QueuePlace> {
        (0..).zip(&self.completion_queues).filter_map(|(id, queue)| Some(queue.as_ref()?.place(id)))
    }

    /// Executes a command about queues, and refuses an admin command with an SGL. Returns false for
    /// any other command.
    pub(super) fn on_queue_command(&mut self, index: u16, entry: &SubmissionQueueEntry) -> bool {
        let result = match AdminOpcode::from(entry.opcode) {
            _ if entry.data_transfer() != DataTransfer::Prp => Err(StatusCode::InvalidField),
            AdminOpcode::CreateIoCompletionQueue => self.create_completion_queue(entry),
            AdminOpcode::CreateIoSubmissionQueue => self.create_submission_queue(entry),
            AdminOpcode::DeleteIoCompletionQueue => self.delete_completion_queue(entry),
            AdminOpcode::DoorbellBufferConfig if self.config.doorbell_buffers => self.configure_shadow(entry),
            AdminOpcode::DeleteIoSubmissionQueue => match self.delete_submission_queue(index, entry) {
                Ok(Deletion::Waits) => return true,
                Ok(Deletion::Done) => Ok(()),
                Err(code) => Err(code),
            },
            _ => return false,
        };
        let mut status = result.map_or_else(Status::from, |()| Status::SUCCESS);
        if !status.is_success() {
            status = self.record(0, entry, status);
        }
        self.end(index, Ending { dw0: 0, dw1: 0, status });
        true
    }

    /// Number of entries of a new queue, from CDW10. Fails if the size or the base address
    /// is invalid.
    fn queue_size(&self, entry: &SubmissionQueueEntry) -> Result<u32, StatusCode> {
        let entries = u32::from(high_16(entry.cdw10)) + 1;
        if entries < 2 || entries > self.config.queue_entries_max || !self.properties.has_io_entry_sizes() {
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

    fn create_completion_queue(&mut self, entry: &SubmissionQueueEntry) -> Result<(), StatusCode> {
        let id = usize::from(low_16(entry.cdw10));
        if id == 0 || self.completion_queues.get(id).is_none_or(Option::is_some) {
            return Err(StatusCode::InvalidQueueIdentifier);
        }
        let entries = self.queue_size(entry)?;
        let length = u64::from(entries) * u64::from(COMPLETION_ENTRY_BYTES);
        if self.memory.locate(entry.data_pointer[0], length)?.is_some() {
            return Err(StatusCode::InvalidControllerMemoryBufferUse);
        }
        let vector = high_16(entry.cdw11);
        if vector >= self.config.interrupt_vectors {
            return Err(StatusCode::InvalidInterruptVector);
        }
        let vector = INTERRUPTS_ENABLED.is_set(entry.cdw11).then_some(vector);
        self.completion_queues[id] = Some(CompletionQueue::new(entry.data_pointer[0], entries, vector));
        self.core.set_io_queues_exist(self.key, true);
        Ok(())
    }

    fn create_submission_queue(&mut self, entry: &SubmissionQueueEntry) -> Result<(), StatusCode> {
        let id = low_16(entry.cdw10);
        if id == 0 || self.submission_queues.get(usize::from(id)).is_none_or(Option::is_some) {
            return Err(StatusCode::InvalidQueueIdentifier);
        }
        let completes_to = CompletionQueueId(high_16(entry.cdw11));
        let completion_queue = match self.completion_queues.get(usize::from(completes_to.0)) {
            None => return Err(StatusCode::InvalidQueueIdentifier),
            Some(_) if completes_to == CompletionQueueId::ADMIN => {
                return Err(StatusCode::InvalidQueueIdentifier);
            }
            Some(None) => return Err(StatusCode::CompletionQueueInvalid),
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
        self.core.set_io_queues_exist(self.key, true);
        Ok(())
    }

    fn delete_completion_queue(&mut self, entry: &SubmissionQueueEntry) -> Result<(), StatusCode> {
        let id = usize::from(low_16(entry.cdw10));
        let queue = self.completion_queues.get(id).and_then(Option::as_ref).filter(|_| id != 0);
        match queue {
            None => Err(StatusCode::InvalidQueueIdentifier),
            Some(queue) if queue.submission_queues > 0 => Err(StatusCode::InvalidQueueDeletion),
            Some(_) => {
                self.completion_queues[id] = None;
                self.dirty &= !(1 << id);
                Ok(())
            }
        }
    }

    /// Stops a queue for its deletion. Commands that cannot be aborted at once first run to their
    /// end, so that no command moves data after its queue is deleted.
    fn delete_submission_queue(
        &mut self,
        index: u16,
        entry: &SubmissionQueueEntry,
    ) -> Result<Deletion, StatusCode> {
        let id = low_16(entry.cdw10);
        let queue = self.submission_queues.get_mut(usize::from(id)).and_then(Option::as_mut);
        let queue = queue.filter(|queue| !queue.id.is_admin() && queue.deletion.is_none());
        let queue = queue.ok_or(StatusCode::InvalidQueueIdentifier)?;
        self.ready &= !(1 << id);
        if queue.is_idle() {
            self.remove_submission_queue(id);
            return Ok(Deletion::Done);
        }
        queue.deletion = Some(index);
        let completes_to = queue.completes_to;
        self.core.abort_queue(self.now, self.key, QueueId(id));
        self.drain_core();
        self.dirty |= 1 << completes_to.0;
        self.post_completions();
        Ok(Deletion::Waits)
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
        if let Some(index) = self.remove_submission_queue(id).and_then(|queue| queue.deletion) {
            self.end(index, Ending { dw0: 0, dw1: 0, status: Status::SUCCESS });
        }
    }
}

enum Deletion {
    Done,
    Waits,
}
