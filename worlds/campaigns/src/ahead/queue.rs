//! A host's submission queue, and the completion queue that no other submission queue shares.

use engine::Instant;

/// The largest number of outstanding commands of a queue. May exceed the number of entries, because
/// an entry is free again once it is fetched.
pub(super) const COMMANDS: u16 = 20;

/// A submission queue with its own completion queue, as the host sees them.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) id: u16,
    pub(super) base: u64,
    pub(super) completions: u64,
    pub(super) entries: u32,
    pub(super) completion_entries: u32,
    pub(super) tail: u32,
    pub(super) rung: u32,
    /// The entry after the last one that is known to be fetched.
    pub(super) head: u32,
    pub(super) completion_head: u32,
    pub(super) completion_rung: u32,
    pub(super) phase: bool,
    pub(super) free: Vec<u16>,
    /// Whether the host puts no entries into the queue.
    pub(super) closed: bool,
    pub(super) ring_at: Option<Instant>,
}

impl Queue {
    pub(super) fn new(id: u16, base: u64, entries: u32, completions: u64, completion_entries: u32) -> Self {
        Self {
            id,
            base,
            completions,
            entries,
            completion_entries,
            tail: 0,
            rung: 0,
            head: 0,
            completion_head: 0,
            completion_rung: 0,
            phase: true,
            free: (0..COMMANDS).collect(),
            closed: id != 0,
            ring_at: None,
        }
    }
    pub(super) fn room(&self) -> bool {
        !self.closed && !self.free.is_empty() && (self.tail + 1) % self.entries != self.head
    }
}
