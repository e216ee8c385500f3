//! Sends a controller's R2Ts, data and responses.

use engine::Buffer;
use nvme::wire::{CommandId, CompletionQueueEntry};

use super::slots::Window;
use super::{Connection, Slot};
use crate::QUEUE_SIZE_MAX;
use crate::wire::{DataHeader, Flags, PduKind, ResponseCapsule};

/// Consecutive data of a command that were not sent yet. Data that follow directly go in the same
/// PDU, and the completion of the command may go with it (the SUCCESS flag).
#[derive(Debug)]
pub(super) struct HeldData {
    slot: u16,
    command: CommandId,
    offset: u32,
    length: u32,
    /// The data are complete: only the completion follows.
    is_last: bool,
}

/// Data that were pushed before the data in front of them. Hosts take data in order only.
#[derive(Debug)]
pub(super) struct Early {
    slot: u16,
    offset: u32,
    total: u32,
    data: Buffer,
}

impl Connection {
    /// The tag of an R2T, made of the command's slot and the number of its window.
    pub(super) fn tag(slot: u16, window: usize) -> u16 {
        slot + QUEUE_SIZE_MAX * u16::try_from(window).expect("R2Ts of a command are few")
    }

    /// The slot and the number of the window that [`Self::tag`] has encoded.
    pub(super) fn untag(tag: u16) -> (u16, usize) {
        (tag % QUEUE_SIZE_MAX, usize::from(tag / QUEUE_SIZE_MAX))
    }

    /// Sends R2Ts for waiting transfers as far as the limits allow.
    pub(super) fn ask_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let full = self.pulling >= u64::from(self.config.pull_bytes_max);
            if (full && self.pulling > 0) || (!self.permission.data && !self.is_next_asked()) {
                return;
            }
            let Some(slot) = self.waiting.pop_front() else { return };
            if !self.ask(slot) {
                // All windows of the transfer are open. The next data make room, and R2Ts are sent
                // again then.
                self.waiting.push_back(slot);
            }
        }
    }

    /// Whether the next waiting transfer has begun, so that its memory is counted already.
    fn is_next_asked(&mut self) -> bool {
        let next = self.waiting.front().copied();
        next.and_then(|slot| self.slots.get(slot)).is_some_and(|command| command.pulled > 0)
    }

    /// Sends R2Ts for the transfer of `slot`. Returns whether all of it was requested.
    fn ask(&mut self, slot: u16) -> bool {
        let limit = self.config.ready_to_transfer_bytes_max;
        let windows_max = self.ready_to_transfer_max;
        let Some(command) = self.slots.get(slot) else { return true };
        if command.pulled == 0 {
            command.pulled = command.pull.data.length;
            self.pulled += u64::from(command.pulled);
        }
        let (id, pull) = (command.id, &mut command.pull);
        while pull.asked < pull.data.length {
            let open = pull.windows[..windows_max].iter().position(|window| !window.is_open());
            let Some(window) = open else { return false };
            let length = limit.min(pull.data.length - pull.asked);
            let offset = pull.asked;
            pull.windows[window] = Window { next: offset, end: offset + length };
            pull.asked += length;
            self.pulling += u64::from(length);
            let tag = Self::tag(slot, window);
            let pdu = DataHeader { command: id, tag, offset, length };
            self.core.send(PduKind::ReadyToTransfer, Flags::NONE, Buffer::EMPTY, |common| pdu.emit(common));
        }
        true
    }

    pub(super) fn push_in_order(&mut self, slot: Slot, offset: u32, total: u32, data: Buffer) {
        let length = u32::try_from(data.len()).expect("a buffer is smaller than 4 GiB");
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= total), "a piece lies within its transfer");
        let Some(command) = self.slots.get(slot.0) else { return };
        if command.pushed != offset {
            assert!(offset > command.pushed, "a piece is pushed once");
            self.early.push(Early { slot: slot.0, offset, total, data });
            return;
        }
        self.push_next(slot.0, offset, total, data);
        if !self.early.is_empty() {
            self.push_early(slot.0);
        }
    }

    fn push_early(&mut self, slot: u16) {
        while let Some(command) = self.slots.get(slot) {
            let pushed = command.pushed;
            let next = self.early.iter().position(|early| early.slot == slot && early.offset == pushed);
            let Some(index) = next else { return };
            let Early { offset, total, data, .. } = self.early.swap_remove(index);
            self.push_next(slot, offset, total, data);
        }
    }

    fn push_next(&mut self, slot: u16, offset: u32, total: u32, data: Buffer) {
        let length = u32::try_from(data.len()).expect("a buffer is smaller than 4 GiB");
        let Some(command) = self.slots.get(slot) else { return };
        command.pushed += length;
        let (id, is_last) = (command.id, command.pushed == total);
        match &mut self.held {
            Some(held) if held.slot == slot => {
                held.length += length;
                held.is_last = is_last;
            }
            _ => {
                self.release_held();
                self.held = Some(HeldData { slot, command: id, offset, length, is_last });
            }
        }
        self.pieces.push(data);
    }

    /// Sends the held data without their completion.
    #[inline]
    pub(super) fn release_held(&mut self) {
        if let Some(held) = self.held.take() {
            self.send_held(&held, Flags::NONE);
        }
    }

    fn send_held(&mut self, held: &HeldData, flags: Flags) {
        let HeldData { command, offset, length, is_last, .. } = *held;
        let pdu = DataHeader { command, tag: 0, offset, length };
        let flags = flags.with(Flags::LAST_PDU, is_last);
        let data = (length, self.pieces.drain(..));
        let header = |common: &_| pdu.emit(common);
        self.core.send_pieces(PduKind::ControllerData, flags, data, header);
    }

    /// Frees the slot and sends the completion of its command.
    pub(super) fn respond(&mut self, slot: Slot, entry: CompletionQueueEntry) {
        let Some(command) = self.slots.retire(slot.0) else { return };
        self.reserved -= u64::from(command.reserved);
        self.pulled -= u64::from(command.pulled);
        if self.is_over() {
            return;
        }
        if !self.early.is_empty() {
            self.early.retain(|early| early.slot != slot.0);
        }
        let silent = self.queue.success_flag
            && entry.dw0 == 0
            && entry.dw1 == 0
            && entry.status() == nvme::wire::Status::SUCCESS;
        if let Some(held) = self.held.take_if(|held| held.slot == slot.0) {
            let silent = silent && held.is_last;
            self.send_held(&held, Flags::NONE.with(Flags::SUCCESS, silent));
            if silent {
                return;
            }
        }
        self.send_response(entry);
    }

    pub(super) fn send_response(&mut self, entry: CompletionQueueEntry) {
        let pdu = ResponseCapsule { entry };
        self.core.send(PduKind::ResponseCapsule, Flags::NONE, Buffer::EMPTY, |common| pdu.emit(common));
    }
}
