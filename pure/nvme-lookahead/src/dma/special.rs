//! Admin commands that name memory in ways of their own.

use nvme::pointer::{self, DataPointer, Direction, Step};
use nvme::wire::{AdminOpcode, SubmissionQueueEntry};

use super::grants::{READ, WRITE};
use super::list::{Kind, LIST_MAX, List};
use super::rule::{BUFFER, COMPLETION, DESCRIPTOR, ENTRY, PRP, Rule, SHADOW};
use super::slab::NONE;
use crate::follow::controller::Controller;

/// Set Features: Host Memory Buffer, and Enable Host Memory (EHM) in CDW11.
const HOST_MEMORY_BUFFER: u32 = 0x0d;
pub(super) const ENABLE: u32 = 1;
/// Create I/O Queue, CDW11: Physically Contiguous.
const CONTIGUOUS: u32 = 1;

impl Rule {
    /// Grants the memory that an admin command names in ways of its own.
    pub(super) fn name_special(
        &mut self,
        controller: &mut Controller,
        index: u32,
        entry: &SubmissionQueueEntry,
    ) {
        let page = controller.page;
        let [first, second] = entry.data_pointer;
        match AdminOpcode::from(entry.opcode) {
            AdminOpcode::DoorbellBufferConfig => {
                let bytes = u64::from(page.bytes());
                self.shadow = Some(first);
                self.grants.remove_long(SHADOW);
                self.grants.add_long(SHADOW, (first, bytes), READ, NONE);
                self.grants.add_long(SHADOW, (second, bytes), READ | WRITE, NONE);
            }
            AdminOpcode::SetFeatures if is_buffer(entry) && entry.cdw11 & ENABLE != 0 => {
                let address = u64::from(entry.cdw14) << 32 | u64::from(entry.cdw13 & !0xf);
                let length = u64::from(entry.cdw15) * DESCRIPTOR as u64;
                let Ok(length) = u32::try_from(length) else { return };
                if length > LIST_MAX || address.checked_add(length.into()).is_none() {
                    return;
                }
                self.grants.remove_long(BUFFER);
                self.name_list(
                    0,
                    List { kind: Kind::Buffer, command: index, address, length, flags: 0, guessed: false },
                );
                self.grants.add_long(BUFFER, (address, length.into()), READ, NONE);
            }
            opcode @ (AdminOpcode::CreateIoSubmissionQueue | AdminOpcode::CreateIoCompletionQueue)
                if entry.cdw11 & CONTIGUOUS == 0 =>
            {
                let of = if opcode == AdminOpcode::CreateIoSubmissionQueue { ENTRY } else { COMPLETION };
                let bytes = (u64::from(entry.cdw10 >> 16) + 1) * of as u64;
                let pages = bytes.div_ceil(u64::from(page.bytes()));
                // A pointer to data whose first page is elsewhere, and which has at least two more.
                let total = u64::from(page.bytes()) * (pages.max(2) + 1);
                let pointer = DataPointer::Prp(0, first);
                let (walk, step) =
                    pointer::Walk::start(pointer, total, page, Direction::ToController, &mut |_| ());
                if let Step::ReadList { address, length } = step {
                    let length = u64::from(length).min(pages * PRP as u64);
                    let length = u32::try_from(length).unwrap_or(0);
                    let kind = Kind::Queue(walk);
                    self.name_list(
                        0,
                        List { kind, command: index, address, length, flags: 0, guessed: false },
                    );
                }
            }
            _ => {}
        }
    }

    /// Handles shadow doorbells that the device receives: it may fetch entries up to these values.
    pub(super) fn on_shadow(&mut self, controller: &mut Controller, at: u64, address: u64, bytes: &[u8]) {
        let Some(offset) = address.checked_sub(at).filter(|offset| *offset < controller.page.bytes().into())
        else {
            return;
        };
        let stride = controller.stride;
        for (index, value) in (0_u64..).zip(bytes.as_chunks::<4>().0) {
            let offset = offset + index * 4;
            let Ok(queue) = u16::try_from(offset / stride / 2) else { return };
            let value = u32::from_le_bytes(*value) & 0xffff;
            match (offset.is_multiple_of(stride), (offset / stride).is_multiple_of(2)) {
                (true, true) if queue != 0 => _ = controller.ring(queue, value),
                (true, false) => controller.consume(queue, value),
                _ => {}
            }
        }
    }
}

/// Whether Set Features is about the host memory buffer.
pub(super) fn is_buffer(entry: &SubmissionQueueEntry) -> bool {
    AdminOpcode::from(entry.opcode) == AdminOpcode::SetFeatures && entry.cdw10 & 0xff == HOST_MEMORY_BUFFER
}
