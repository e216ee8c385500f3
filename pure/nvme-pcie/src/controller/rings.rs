//! The controller's view of a submission queue and of a completion queue.

use alloc::collections::VecDeque;

use nvme::wire::SubmissionQueueId;

use crate::registers::{COMPLETION_ENTRY_BYTES, SUBMISSION_ENTRY_BYTES};

/// Names a completion queue (CQID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompletionQueueId(pub u16);

impl CompletionQueueId {
    /// The Admin Completion Queue.
    pub const ADMIN: Self = Self(0);
}

/// A doorbell write whose value makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidDoorbellValue;

/// How a queue's shadow doorbell is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Look {
    /// It is not.
    #[default]
    None,
    /// A read is under way.
    Reading {
        /// Names it.
        tag: u16,
        /// EventIdx was written before.
        confirm: bool,
        /// There was a reason to look again since.
        again: bool,
    },
    /// There was no name for a read.
    Stalled,
}

/// A submission queue: the host moves the tail, the controller fetches up to it.
#[derive(Debug)]
pub(super) struct SubmissionQueue {
    pub(super) id: SubmissionQueueId,
    pub(super) completes_to: CompletionQueueId,
    base: u64,
    /// Where it is in the controller memory buffer, if it is there.
    local: Option<u32>,
    entries: u32,
    tail: u32,
    /// The next entry to ask for.
    fetched: u32,
    /// Entries before this one have arrived: what completions report as SQ Head Pointer.
    head: u32,
    /// Fetches under way, in order; a later one that is answered first waits.
    pub(super) fetches: VecDeque<u16>,
    /// Commands fetched and not yet completed to the host.
    pub(super) in_flight: u32,
    /// The slot of the Delete I/O Submission Queue command that waits for this queue to be idle.
    pub(super) deletion: Option<u16>,
    /// At its shadow tail.
    pub(super) look: Look,
}

impl SubmissionQueue {
    pub(super) fn new(
        id: SubmissionQueueId,
        base: u64,
        entries: u32,
        completes_to: CompletionQueueId,
    ) -> Self {
        Self {
            id,
            completes_to,
            base,
            local: None,
            entries,
            tail: 0,
            fetched: 0,
            head: 0,
            fetches: VecDeque::new(),
            in_flight: 0,
            deletion: None,
            look: Look::None,
        }
    }

    /// The same queue in the controller memory buffer, at `local`.
    pub(super) fn located(self, local: Option<u32>) -> Self {
        Self { local, ..self }
    }

    /// Where in the controller memory buffer the next entry is, if the queue is there.
    pub(super) const fn next_local(&self) -> Option<u32> {
        match self.local {
            Some(start) => Some(start + self.fetched * SUBMISSION_ENTRY_BYTES),
            None => None,
        }
    }

    /// Where in host memory the next entry is, if the queue is there.
    pub(super) fn next_address(&self) -> Option<u64> {
        let offset = u64::from(self.fetched) * u64::from(SUBMISSION_ENTRY_BYTES);
        self.local.is_none().then(|| self.base + offset)
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.entries - from }
    }

    /// Submission Queue Tail Doorbell.
    pub(super) fn ring(&mut self, tail: u32) -> Result<(), InvalidDoorbellValue> {
        if tail >= self.entries || self.distance(self.fetched, tail) < self.distance(self.fetched, self.tail)
        {
            return Err(InvalidDoorbellValue);
        }
        self.tail = tail;
        Ok(())
    }

    /// Whether the host's tail, as far as known, is this.
    pub(super) const fn is_at(&self, tail: u32) -> bool {
        self.tail == tail
    }

    /// Whether there is an entry to fetch.
    pub(super) const fn has_new(&self) -> bool {
        self.fetched != self.tail && self.deletion.is_none()
    }

    /// How many entries can be fetched in one read: those up to the tail or to the end of the ring.
    pub(super) const fn contiguous(&self) -> u32 {
        if self.tail >= self.fetched { self.tail - self.fetched } else { self.entries - self.fetched }
    }

    /// `index`, which is at most twice around the ring, within it. Cheaper than a division.
    const fn wrap(&self, index: u32) -> u32 {
        if index >= self.entries { index - self.entries } else { index }
    }

    /// Takes the next `count` entries, contiguous ones: their address.
    pub(super) fn fetch(&mut self, count: u32) -> u64 {
        let address = self.base + u64::from(self.fetched) * u64::from(SUBMISSION_ENTRY_BYTES);
        self.fetched = self.wrap(self.fetched + count);
        self.in_flight += count;
        address
    }

    /// The oldest fetch, of `count` entries, has arrived.
    pub(super) fn on_arrived(&mut self, count: u32) {
        self.head = self.wrap(self.head + count);
    }

    /// SQ Head Pointer (SQHD).
    pub(super) fn head(&self) -> u16 {
        u16::try_from(self.head).expect("a queue has at most 65,536 entries")
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.fetches.is_empty()
    }
}

/// A completion queue: the controller writes at the tail, the host moves the head.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    base: u64,
    entries: u32,
    head: u32,
    tail: u32,
    /// The Phase Tag of entries of this pass.
    phase: bool,
    /// The interrupt vector, if interrupts are enabled (IEN).
    pub(super) vector: Option<u16>,
    /// Slots of completed commands that are not yet in the queue.
    pub(super) pending: VecDeque<u16>,
    /// How many submission queues complete to this one.
    pub(super) submission_queues: u16,
    /// At its shadow head.
    pub(super) look: Look,
}

/// A run of entries to be written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) address: u64,
    pub(super) entries: u32,
    pub(super) phase: bool,
}

impl CompletionQueue {
    pub(super) const fn new(base: u64, entries: u32, vector: Option<u16>) -> Self {
        Self {
            base,
            entries,
            head: 0,
            tail: 0,
            phase: true,
            vector,
            pending: VecDeque::new(),
            submission_queues: 0,
            look: Look::None,
        }
    }

    /// Whether the host's head, as far as known, is this.
    pub(super) const fn is_at(&self, head: u32) -> bool {
        self.head == head
    }

    const fn used(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.tail + self.entries - self.head }
    }

    /// Completion Queue Head Doorbell.
    pub(super) const fn ring(&mut self, head: u32) -> Result<(), InvalidDoorbellValue> {
        if head >= self.entries {
            return Err(InvalidDoorbellValue);
        }
        let consumed = if head >= self.head { head - self.head } else { head + self.entries - self.head };
        if consumed > self.used() {
            return Err(InvalidDoorbellValue);
        }
        self.head = head;
        Ok(())
    }

    /// Takes room for up to `wanted` entries that are contiguous; none where the queue is full.
    pub(super) fn post(&mut self, wanted: u32) -> Option<Run> {
        let room = self.entries - 1 - self.used();
        let entries = wanted.min(room).min(self.entries - self.tail);
        if entries == 0 {
            return None;
        }
        let address = self.base + u64::from(self.tail) * u64::from(COMPLETION_ENTRY_BYTES);
        let run = Run { address, entries, phase: self.phase };
        self.tail += entries;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_queue_wraps_and_refuses_a_tail_that_goes_back() {
        let mut queue = SubmissionQueue::new(SubmissionQueueId(1), 0x1000, 4, CompletionQueueId(1));
        assert_eq!(queue.ring(4), Err(InvalidDoorbellValue));
        queue.ring(3).unwrap();
        assert_eq!(queue.ring(2), Err(InvalidDoorbellValue));
        assert_eq!((queue.contiguous(), queue.fetch(3)), (3, 0x1000));
        queue.on_arrived(3);
        queue.ring(2).unwrap();
        assert_eq!((queue.contiguous(), queue.fetch(1)), (1, 0x10c0));
        assert_eq!((queue.contiguous(), queue.fetch(2)), (2, 0x1000));
        assert!(!queue.has_new());
        queue.on_arrived(3);
        assert_eq!((queue.head(), queue.in_flight), (2, 6));
    }

    #[test]
    fn a_completion_queue_flips_its_phase_and_holds_back_when_full() {
        let mut queue = CompletionQueue::new(0x1000, 4, None);
        assert_eq!(queue.post(9), Some(Run { address: 0x1000, entries: 3, phase: true }));
        assert_eq!(queue.post(1), None);
        assert_eq!(queue.ring(4), Err(InvalidDoorbellValue));
        queue.ring(2).unwrap();
        assert_eq!(queue.ring(1), Err(InvalidDoorbellValue));
        assert_eq!(queue.post(2), Some(Run { address: 0x1030, entries: 1, phase: true }));
        assert_eq!(queue.post(2), Some(Run { address: 0x1000, entries: 1, phase: false }));
        assert_eq!(queue.post(1), None);
    }
}
