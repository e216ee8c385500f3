//! Entries that the host writes into the controller's memory (Controller Memory Buffer), from where
//! they are not fetched.

use alloc::collections::{BTreeMap, BTreeSet};

use nvme::wire::SubmissionQueueEntry;

use super::{COMMANDS_MAX, CommandKey, Controller, ENTRY};
use crate::command::{Place, Step};
use crate::seen::Mark;

const LENGTH: usize = SubmissionQueueEntry::LENGTH;

/// The entries written by the host.
#[derive(Default)]
pub(super) struct Buffered {
    /// Incomplete entries, by address: their bytes, and a bit for each byte that has arrived.
    parts: BTreeMap<u64, ([u8; LENGTH], u64)>,
    /// Commands that are whole and not rung for, by queue and identifier.
    unrung: BTreeMap<u16, BTreeSet<u16>>,
}

impl Controller {
    /// Handles a write of `bytes` by the host at `address`. Returns whether a submission queue is
    /// there.
    pub(super) fn on_pushed(&mut self, at: Mark, address: u64, bytes: &[u8]) -> bool {
        let Some((queue, base)) = self.ring_at(address) else { return false };
        self.place = Some(Place { queue, kind: None });
        for (index, byte) in (0_u64..).zip(bytes) {
            // A capture may contain a queue that ends at the end of the address space.
            let place = address.wrapping_add(index);
            let offset = place.wrapping_sub(base) % ENTRY;
            let entry = place.wrapping_sub(offset);
            if self.buffered.parts.len() >= COMMANDS_MAX && !self.buffered.parts.contains_key(&entry) {
                self.dropped += 1;
                return true;
            }
            let (whole, there) = self.buffered.parts.entry(entry).or_insert(([0; LENGTH], 0));
            if let Some(room) = usize::try_from(offset).ok().and_then(|offset| whole.get_mut(offset)) {
                *room = *byte;
                *there |= 1 << offset;
            }
            if *there == u64::MAX
                && let Some((whole, _)) = self.buffered.parts.remove(&entry)
            {
                let id = SubmissionQueueEntry::parse(&whole).command_id.0;
                self.on_entries(queue, None, at, &whole);
                if self.under_way.contains_key(&(queue, id)) {
                    self.buffered.unrung.entry(queue).or_default().insert(id);
                }
            }
        }
        true
    }

    /// A command has ended: no ring for it is waited for.
    pub(super) fn forget_ring(&mut self, (queue, id): CommandKey) {
        if let Some(ids) = self.buffered.unrung.get_mut(&queue) {
            ids.remove(&id);
        }
    }

    /// The host has rung for all entries of a queue that it has written.
    pub(super) fn on_rung(&mut self, queue: u16, at: Mark) {
        for id in self.buffered.unrung.remove(&queue).unwrap_or_default() {
            if let Some(one) = self.under_way.get_mut(&(queue, id)) {
                one.command.step(at, Step::Doorbell);
            }
        }
    }
}
