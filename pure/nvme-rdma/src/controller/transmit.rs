//! Sends reads and writes of the host's memory, and responses.

use engine::Buffer;
use nvme::wire::CompletionQueueEntry;
use rdma::{Endpoint, Key, Operation, Remote};

use super::{Connection, Posted};
use crate::sender::capsule;
use crate::wire::DataPointer;
use crate::{ADMIN_CAPSULE_DATA_MAX, COMMAND_BYTES};

impl<E: Endpoint> Connection<E> {
    /// Reads data for waiting transfers as far as the limits allow.
    #[inline]
    pub(super) fn ask_waiting(&mut self) {
        while let Some(slot) = self.waiting.front().copied() {
            let full = self.pulling >= u64::from(self.config.pull_bytes_max);
            if self.reads >= self.config.reads_max || (full && self.pulling > 0) {
                return;
            }
            let Some(command) = self.commands.get(slot) else {
                self.waiting.pop_front();
                continue;
            };
            let DataPointer::Keyed { remote, .. } = command.pointer else { return };
            if command.pulled == 0 {
                if !self.permission.data {
                    return;
                }
                command.pulled = command.pull.length;
                self.pulled += u64::from(command.pulled);
            }
            let offset = command.pull.asked;
            let length = self.limits.message_bytes.min(command.pull.length - offset);
            command.pull.asked += length;
            if command.pull.asked == command.pull.length {
                self.waiting.pop_front();
            }
            self.reads += 1;
            self.pulling += u64::from(length);
            let remote = part(remote, offset, length);
            self.core.post(Operation::Read { remote }, Posted::Read { slot, offset, length }, true);
        }
    }

    /// Writes `data` at `offset` of the host's memory.
    #[inline]
    pub(super) fn write(&mut self, remote: Remote, offset: u32, data: Buffer) {
        self.unsent += data.len() as u64;
        let most = self.limits.message_bytes as usize;
        if data.len() <= most {
            return self.write_part(remote, offset, data);
        }
        let mut start = 0;
        while start < data.len() {
            let end = (start + most).min(data.len());
            let skipped = u32::try_from(start).expect("a piece has a limit");
            self.write_part(remote, offset + skipped, data.slice(start..end));
            start = end;
        }
    }

    #[inline]
    fn write_part(&mut self, remote: Remote, offset: u32, data: Buffer) {
        let length = u32::try_from(data.len()).expect("a piece has a limit");
        let remote = part(remote, offset, length);
        self.core.post(Operation::Write { data, remote }, Posted::Write(length), false);
    }

    /// Frees the slot and sends the completion of its command.
    #[inline]
    pub(super) fn respond(&mut self, slot: u16, entry: CompletionQueueEntry) {
        let Some(command) = self.commands.retire(slot) else { return };
        self.reserved -= u64::from(command.reserved);
        self.pulled -= u64::from(command.pulled);
        if self.is_over() {
            return;
        }
        let can_invalidate = self.config.remote_invalidate && self.limits.invalidate;
        let invalidate = command.pointer.key_to_invalidate().filter(|_| can_invalidate);
        self.statistics.invalidated += u64::from(invalidate.is_some());
        // The completion of a response shows that the data before it were sent, too: no data may
        // count as unsent for want of a completion.
        self.send_response(entry, invalidate, command.has_pushed);
    }

    #[inline]
    pub(super) fn send_response(
        &mut self,
        entry: CompletionQueueEntry,
        invalidate: Option<Key>,
        signal: bool,
    ) {
        // The host may send its next command as soon as it has the response.
        let capsule_data_max = self.config.capsule_data_max.max(ADMIN_CAPSULE_DATA_MAX);
        self.core.post_receive(COMMAND_BYTES + capsule_data_max);
        self.core.post(capsule(&entry.emit(), Buffer::EMPTY, invalidate), Posted::Response, signal);
    }
}

/// A part of the host's memory. An address beyond the end of the address space is the host's fault,
/// and its own end detects it.
const fn part(remote: Remote, offset: u32, length: u32) -> Remote {
    Remote { address: remote.address.wrapping_add(offset as u64), length, ..remote }
}
