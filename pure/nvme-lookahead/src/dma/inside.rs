//! Submission queues in a controller's own memory.
//!
//! The device reads such entries without asking the host. But the host writes them through the
//! link, so they are seen there. When the host rings, they count as given.

use alloc::vec::Vec;

use nvme::wire::SubmissionQueueEntry;

use crate::follow::controller::SubmissionQueue;

/// The most bytes of queues in a controller's memory that are kept.
const INSIDE_MAX: usize = 1 << 20;
const ENTRY: usize = SubmissionQueueEntry::LENGTH;

#[derive(Debug)]
struct Queue {
    id: u16,
    bytes: Vec<u8>,
    /// The first entry that was not given yet.
    given: u32,
}

/// The submission queues in a controller's memory, as the host has written them.
#[derive(Debug, Default)]
pub(super) struct Inside {
    queues: Vec<Queue>,
}

impl Inside {
    pub(super) const fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Forgets a queue whose number is being reused.
    pub(super) fn forget(&mut self, id: u16) {
        self.queues.retain(|queue| queue.id != id);
    }

    /// Records bytes that the host has written at `offset` in a queue.
    pub(super) fn on_write(&mut self, of: &SubmissionQueue, offset: u64, bytes: &[u8]) {
        if !self.queues.iter().any(|queue| queue.id == of.id) {
            let length = of.entries as usize * ENTRY;
            let kept: usize = self.queues.iter().map(|queue| queue.bytes.len()).sum();
            if kept + length > INSIDE_MAX {
                return;
            }
            self.queues.push(Queue { id: of.id, bytes: alloc::vec![0; length], given: of.tail });
        }
        let Some(queue) = self.queues.iter_mut().find(|queue| queue.id == of.id) else { return };
        let Some(rest) = usize::try_from(offset).ok().and_then(|at| queue.bytes.get_mut(at..)) else {
            return;
        };
        let length = rest.len().min(bytes.len());
        rest[..length].copy_from_slice(&bytes[..length]);
    }

    /// The next entry that the host has rung for, if the queue is here.
    pub(super) fn poll_entry(&mut self, of: &SubmissionQueue) -> Option<SubmissionQueueEntry> {
        let queue = self.queues.iter_mut().find(|queue| queue.id == of.id)?;
        if queue.given == of.tail {
            return None;
        }
        let entry = queue.bytes.as_chunks::<ENTRY>().0.get(queue.given as usize)?;
        queue.given = (queue.given + 1) % of.entries;
        Some(SubmissionQueueEntry::parse(entry))
    }
}
