//! Shadow doorbells (Doorbell Buffer Config): tails and heads that the host leaves in its memory,
//! and the request for a real doorbell when the controller stops reading them.
//!
//! A real doorbell of an I/O queue is only a knock: its value may be older than a shadow value that
//! was read since. The controller *looks* at the shadow tail after a knock, and whenever it has
//! fetched all the entries it knows of. When a look finds no change, the controller writes the tail
//! to the EventIdx buffer, so that the host will knock. It then looks once more, because the host
//! may have read EventIdx just before. The controller looks at a shadow head when a completion
//! queue is full.

use engine::Buffer;
use nvme::wire::{StatusCode, SubmissionQueueEntry};
use pcie::device::Dma;
use serde::{Deserialize, Serialize};

use super::dma::Purpose;
use super::rings::Look;
use super::side::Side;
use super::{DoorbellFault, Output, Queues};
use crate::registers::{DOORBELL_BYTES, low_16};

/// The addresses of the host's buffers. Each buffer has an entry for every doorbell, in the
/// doorbells' order.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Shadow {
    doorbells: u64,
    event_indexes: u64,
    /// Distinguishes looks, so that an answer for a deleted queue is ignored.
    tag: u16,
}

/// The doorbell of the submission or completion queue with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Doorbell {
    Tail(u16),
    Head(u16),
}

impl Doorbell {
    /// Offset in bytes of the doorbell's entry in both buffers.
    fn offset(self) -> u64 {
        let number = match self {
            Self::Tail(queue) => u64::from(queue) * 2,
            Self::Head(queue) => u64::from(queue) * 2 + 1,
        };
        number * u64::from(DOORBELL_BYTES)
    }
}

impl<S: Side> Queues<S> {
    /// Executes Doorbell Buffer Config. Each buffer is one page.
    pub(super) fn configure_shadow(&mut self, entry: &SubmissionQueueEntry) -> Result<(), StatusCode> {
        let [doorbells, event_indexes] = entry.data_pointer;
        if self.page_size.offset_of(doorbells) != 0 || self.page_size.offset_of(event_indexes) != 0 {
            return Err(StatusCode::InvalidField);
        }
        self.set_shadow(entry.data_pointer);
        Ok(())
    }

    /// Reads doorbells from the buffer at the first address from now on; the second one is that of
    /// EventIdx.
    pub(super) fn set_shadow(&mut self, [doorbells, event_indexes]: [u64; 2]) {
        let tag = self.shadow.map_or(0, |shadow| shadow.tag);
        self.shadow = Some(Shadow { doorbells, event_indexes, tag });
        for queue in 1..u16::try_from(self.submission_queues.len()).unwrap_or(u16::MAX) {
            self.knock(queue);
        }
    }

    /// The state of the look at the doorbell.
    fn look_of(&mut self, doorbell: Doorbell) -> Option<&mut Look> {
        match doorbell {
            Doorbell::Tail(queue) => {
                Some(&mut self.submission_queues.get_mut(usize::from(queue))?.as_mut()?.look)
            }
            Doorbell::Head(queue) => {
                Some(&mut self.completion_queues.get_mut(usize::from(queue))?.as_mut()?.look)
            }
        }
    }

    /// Looks at the shadow tail, after a ring of the host or when all known entries are fetched.
    #[cold]
    pub(super) fn knock(&mut self, queue: u16) {
        self.look(Doorbell::Tail(queue), false);
    }

    /// Looks at the shadow head, because completions wait for room.
    #[cold]
    pub(super) fn look_for_room(&mut self, queue: u16) {
        self.look(Doorbell::Head(queue), false);
    }

    /// Reads a shadow doorbell. If a read is already outstanding, another one follows it.
    fn look(&mut self, doorbell: Doorbell, confirm: bool) {
        let Some(shadow) = &mut self.shadow else { return };
        let (tag, address) = (shadow.tag, shadow.doorbells.wrapping_add(doorbell.offset()));
        shadow.tag = shadow.tag.wrapping_add(1);
        let Some(look) = self.look_of(doorbell) else { return };
        if let Look::Reading { again, .. } = look {
            *again = true;
            return;
        }
        *look = Look::Reading { tag, confirm, again: false };
        match self.reads.issue(Purpose::Shadow { doorbell, tag }, DOORBELL_BYTES) {
            Some(id) => {
                self.outputs.push_back(Output::Dma(Dma::Read { id, address, length: DOORBELL_BYTES }));
            }
            None => {
                if let Some(look) = self.look_of(doorbell) {
                    *look = Look::Stalled;
                }
                self.stalled_looks.push_back(doorbell);
            }
        }
    }

    /// Resumes looks that had to wait for a free identifier of a read.
    pub(super) fn resume_looks(&mut self) {
        for _ in 0..self.stalled_looks.len() {
            let Some(doorbell) = self.stalled_looks.pop_front() else { return };
            if self.look_of(doorbell).is_some_and(|look| *look == Look::Stalled) {
                self.look(doorbell, false);
            }
        }
    }

    /// Handles the value of a shadow doorbell that was read.
    pub(super) fn on_shadow(&mut self, doorbell: Doorbell, tag: u16, bytes: [u8; 4]) {
        let Some(look) = self.look_of(doorbell) else { return };
        let Look::Reading { tag: expected, confirm, again } = *look else { return };
        if tag != expected {
            return; // The look belongs to a deleted queue.
        }
        *look = Look::None;
        let value = u32::from(low_16(u32::from_le_bytes(bytes)));
        let rung = match doorbell {
            Doorbell::Tail(queue) => self.tail_moved(queue, value),
            Doorbell::Head(queue) => self.head_moved(queue, value),
        };
        match rung {
            Ok(true) => (),
            Ok(false) if confirm && !again => (),
            Ok(false) if confirm => self.look(doorbell, false),
            Ok(false) => self.ask_for_knock(doorbell, value),
            Err(fault) => {
                S::on_doorbell_fault(self, fault);
                self.write_event_index(doorbell, value);
            }
        }
    }

    /// Handles the shadow tail. Returns whether there are new entries, or no further look is
    /// needed.
    fn tail_moved(&mut self, queue: u16, tail: u32) -> Result<bool, DoorbellFault> {
        let Some(found) = self.submission_queues[usize::from(queue)].as_mut() else { return Ok(true) };
        if found.deletion.is_some() {
            return Ok(true);
        }
        if !found.has_new() && found.is_at(tail) {
            return Ok(false);
        }
        found.ring(tail).map_err(|_| DoorbellFault::Value)?;
        self.ready |= u128::from(found.has_new()) << queue;
        Ok(true)
    }

    /// Handles the shadow head. Returns whether there is more room, or no further look is needed.
    fn head_moved(&mut self, queue: u16, head: u32) -> Result<bool, DoorbellFault> {
        let Some(found) = self.completion_queues[usize::from(queue)].as_mut() else { return Ok(true) };
        if found.is_at(head) {
            return Ok(found.pending.is_empty());
        }
        found.ring(head).map_err(|_| DoorbellFault::Value)?;
        self.dirty |= u128::from(!found.pending.is_empty()) << queue;
        Ok(true)
    }

    /// Asks the host to ring the real doorbell from now on. Looks once more, because the host may
    /// not have seen the request.
    fn ask_for_knock(&mut self, doorbell: Doorbell, value: u32) {
        self.write_event_index(doorbell, value);
        self.look(doorbell, true);
    }

    fn write_event_index(&mut self, doorbell: Doorbell, value: u32) {
        let Some(shadow) = self.shadow else { return };
        let address = shadow.event_indexes.wrapping_add(doorbell.offset());
        let data: Buffer = self.pool.copy(&value.to_le_bytes());
        self.outputs.push_back(Output::Dma(Dma::Write { address, data }));
    }
}
