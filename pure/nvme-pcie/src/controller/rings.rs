//! The controller's view of a submission queue and of a completion queue.

use alloc::collections::VecDeque;

use nvme::wire::QueueId;
use serde::{Deserialize, Serialize};

use crate::registers::{COMPLETION_ENTRY_BYTES, SUBMISSION_ENTRY_BYTES};

/// Completion Queue Identifier (CQID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CompletionQueueId(pub u16);

impl CompletionQueueId {
    /// The identifier of the Admin Completion Queue.
    pub const ADMIN: Self = Self(0);
}

/// The location of a queue, for observers of packets to host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// The queue's identifier (SQID or CQID).
    pub id: u16,
    /// Address of the first entry in host memory.
    pub base: u64,
    /// Size of the queue in entries.
    pub entries: u32,
}

/// The error that a doorbell was written with an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidDoorbellValue;

/// The state of reading a queue's shadow doorbell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Look {
    /// No read is outstanding.
    #[default]
    None,
    /// A read is outstanding.
    Reading {
        /// Identifies the read.
        tag: u16,
        /// Whether EventIdx was written before the read.
        confirm: bool,
        /// Whether another read is needed after this one.
        again: bool,
    },
    /// The read waits for a free identifier.
    Stalled,
}

/// A submission queue: the host moves the tail, and the controller fetches entries up to it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SubmissionQueue {
    pub(super) id: QueueId,
    pub(super) completes_to: CompletionQueueId,
    base: u64,
    /// Offset of the queue in the controller memory buffer, if it is there.
    local: Option<u32>,
    entries: u32,
    tail: u32,
    /// The next entry to fetch.
    fetched: u32,
    /// The first entry that has not arrived, which completions report as SQ Head Pointer.
    head: u32,
    /// Outstanding fetches, in order. A fetch that is answered before an earlier one waits.
    pub(super) fetches: VecDeque<u16>,
    /// Number of commands that were fetched and not yet completed to the host.
    pub(super) in_flight: u32,
    /// The slot of the Delete I/O Submission Queue command that waits until this queue is idle.
    pub(super) deletion: Option<u16>,
    /// The state of reading the shadow tail.
    pub(super) look: Look,
}

impl SubmissionQueue {
    pub(super) fn new(id: QueueId, base: u64, entries: u32, completes_to: CompletionQueueId) -> Self {
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

    /// The queue with its entries in the controller memory buffer at `local`, if given.
    pub(super) fn located(self, local: Option<u32>) -> Self {
        Self { local, ..self }
    }

    /// Offset of the next entry in the controller memory buffer, if the queue is there.
    pub(super) const fn next_local(&self) -> Option<u32> {
        match self.local {
            Some(start) => Some(start + self.fetched * SUBMISSION_ENTRY_BYTES),
            None => None,
        }
    }

    /// Host memory address of the next entry, if the queue is in host memory.
    pub(super) fn next_address(&self) -> Option<u64> {
        let offset = u64::from(self.fetched) * u64::from(SUBMISSION_ENTRY_BYTES);
        self.local.is_none().then(|| self.base.wrapping_add(offset))
    }

    /// Where the queue is, unless it is in the controller memory buffer.
    pub(super) fn place(&self) -> Option<QueuePlace> {
        let place = QueuePlace { id: self.id.0, base: self.base, entries: self.entries };
        self.local.is_none().then_some(place)
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.entries - from }
    }

    /// Handles a write to the Submission Queue Tail Doorbell.
    pub(super) fn ring(&mut self, tail: u32) -> Result<(), InvalidDoorbellValue> {
        if tail >= self.entries || self.distance(self.fetched, tail) < self.distance(self.fetched, self.tail)
        {
            return Err(InvalidDoorbellValue);
        }
        self.tail = tail;
        Ok(())
    }

    /// Whether `tail` is the host's tail, as far as known.
    pub(super) const fn is_at(&self, tail: u32) -> bool {
        self.tail == tail
    }

    /// Whether there is an entry to fetch.
    pub(super) const fn has_new(&self) -> bool {
        self.fetched != self.tail && self.deletion.is_none()
    }

    /// Number of entries that one read can fetch: up to the tail or to the end of the ring.
    pub(super) const fn contiguous(&self) -> u32 {
        if self.tail >= self.fetched { self.tail - self.fetched } else { self.entries - self.fetched }
    }

    /// The ring position of `index`, which is less than twice the ring's length. This is cheaper
    /// than a division.
    const fn wrap(&self, index: u32) -> u32 {
        if index >= self.entries { index - self.entries } else { index }
    }

    /// Takes the next `count` contiguous entries and returns their address.
    pub(super) fn fetch(&mut self, count: u32) -> u64 {
        let offset = u64::from(self.fetched) * u64::from(SUBMISSION_ENTRY_BYTES);
        let address = self.base.wrapping_add(offset);
        self.fetched = self.wrap(self.fetched + count);
        self.in_flight += count;
        address
    }

    /// Notes that the oldest fetch, of `count` entries, has arrived.
    pub(super) fn on_arrived(&mut self, count: u32) {
        self.head = self.wrap(self.head + count);
    }

    /// The value of SQ Head Pointer (SQHD) for completions.
    pub(super) fn head(&self) -> u16 {
        u16::try_from(self.head).expect("a queue has at most 65,536 entries")
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.fetches.is_empty()
    }
}

/// A completion queue: the controller writes at the tail, and the host moves the head.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CompletionQueue {
    base: u64,
    entries: u32,
    head: u32,
    tail: u32,
    /// The Phase Tag of entries in this pass through the ring.
    phase: bool,
    /// The interrupt vector, if interrupts are enabled (IEN).
    pub(super) vector: Option<u16>,
    /// Slots of ended commands whose completions are not yet in the queue.
    pub(super) pending: VecDeque<u16>,
    /// Number of submission queues that complete to this queue.
    pub(super) submission_queues: u16,
    /// The state of reading the shadow head.
    pub(super) look: Look,
}

/// A run of entries to write at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) address: u64,
    pub(super) entries: u32,
    pub(super) phase: bool,
}

impl CompletionQueue {
    /// Where the queue is, which has the identifier `id`.
    pub(super) const fn place(&self, id: u16) -> QueuePlace {
        QueuePlace { id, base: self.base, entries: self.entries }
    }

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

    /// Whether `head` is the host's head, as far as known.
    pub(super) const fn is_at(&self, head: u32) -> bool {
        self.head == head
    }

    const fn used(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.tail + self.entries - self.head }
    }

    /// Handles a write to the Completion Queue Head Doorbell.
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

    /// Takes room for at most `wanted` contiguous entries; `None` if the queue is full.
    pub(super) fn post(&mut self, wanted: u32) -> Option<Run> {
        let room = self.entries - 1 - self.used();
        let entries = wanted.min(room).min(self.entries - self.tail);
        if entries == 0 {
            return None;
        }
        let address = self.base.wrapping_add(u64::from(self.tail) * u64::from(COMPLETION_ENTRY_BYTES));
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
        let mut queue = SubmissionQueue::new(QueueId(1), 0x1000, 4, CompletionQueueId(1));
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

    #[test]
    fn queues_may_be_at_the_end_of_the_address_space() {
        let base = u64::MAX - 0xfff;
        let mut queue = SubmissionQueue::new(QueueId(1), base, 128, CompletionQueueId(1));
        queue.ring(65).unwrap();
        assert_eq!(queue.fetch(64), base);
        assert_eq!((queue.next_address(), queue.fetch(1)), (Some(0), 0));
        let mut queue = CompletionQueue::new(base, 512, None);
        assert_eq!(queue.post(256), Some(Run { address: base, entries: 256, phase: true }));
        assert_eq!(queue.post(1), Some(Run { address: 0, entries: 1, phase: true }));
    }
}
