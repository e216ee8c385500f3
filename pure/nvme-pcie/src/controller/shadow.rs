//! Shadow doorbells (Doorbell Buffer Config): tails and heads that the host leaves in its memory, and how the
//! controller asks for a real doorbell when it no longer looks.
//!
//! A real doorbell of an I/O queue is only a knock: its value may be older than what was read since. A knock, and
//! every time that the entries known of have been fetched, is a *look* at the shadow tail. When a look finds
//! nothing new, the controller writes the tail to the EventIdx buffer, so that the host will knock, and looks once
//! more, because the host may have looked at EventIdx just before. A shadow head is looked at when a completion
//! queue is full.

use engine::Buffer;
use nvme::wire::{StatusCode, SubmissionQueueEntry};
use pcie::device::Dma;

use super::dma::Purpose;
use super::rings::Look;
use super::{Controller, DoorbellFault, Output};
use crate::registers::{DOORBELL_BYTES, low_16};

/// Where the host keeps the buffers: each has an entry where the doorbell stands among the doorbells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shadow {
    doorbells: u64,
    event_indexes: u64,
    /// Distinguishes looks, so that an answer to one of a queue that is gone means nothing.
    tag: u16,
}

/// A doorbell: of the submission or the completion queue with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doorbell {
    Tail(u16),
    Head(u16),
}

impl Doorbell {
    /// Where it stands in the buffers.
    fn offset(self) -> u64 {
        let number = match self {
            Self::Tail(queue) => u64::from(queue) * 2,
            Self::Head(queue) => u64::from(queue) * 2 + 1,
        };
        number * u64::from(DOORBELL_BYTES)
    }
}

impl Controller {
    /// Doorbell Buffer Config: the buffers are each a page.
    pub(super) fn configure_shadow(&mut self, entry: &SubmissionQueueEntry) -> Result<(), StatusCode> {
        let [doorbells, event_indexes] = entry.data_pointer;
        if self.page_size.offset_of(doorbells) != 0 || self.page_size.offset_of(event_indexes) != 0 {
            return Err(StatusCode::InvalidField);
        }
        let tag = self.shadow.map_or(0, |shadow| shadow.tag);
        self.shadow = Some(Shadow { doorbells, event_indexes, tag });
        for queue in 1..=self.config.io_queues {
            self.knock(queue);
        }
        Ok(())
    }

    /// The look that the doorbell's queue is at.
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

    /// The host has rung, or there is nothing left to fetch: looks at the shadow tail.
    #[cold]
    pub(super) fn knock(&mut self, queue: u16) {
        self.look(Doorbell::Tail(queue), false);
    }

    /// Completions wait for room: looks at the shadow head.
    #[cold]
    pub(super) fn look_for_room(&mut self, queue: u16) {
        self.look(Doorbell::Head(queue), false);
    }

    /// Reads a shadow doorbell; where that is being done already, once more afterwards.
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

    /// Looks for which there was no name for a read.
    pub(super) fn resume_looks(&mut self) {
        for _ in 0..self.stalled_looks.len() {
            let Some(doorbell) = self.stalled_looks.pop_front() else { return };
            if self.look_of(doorbell).is_some_and(|look| *look == Look::Stalled) {
                self.look(doorbell, false);
            }
        }
    }

    /// A shadow doorbell has been read.
    pub(super) fn on_shadow(&mut self, doorbell: Doorbell, tag: u16, bytes: [u8; 4]) {
        let Some(look) = self.look_of(doorbell) else { return };
        let Look::Reading { tag: expected, confirm, again } = *look else { return };
        if tag != expected {
            return; // Of a queue that is gone.
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
                self.report_doorbell(fault);
                self.write_event_index(doorbell, value);
            }
        }
    }

    /// Whether the submission queue has new entries.
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

    /// Whether the completion queue has more room.
    fn head_moved(&mut self, queue: u16, head: u32) -> Result<bool, DoorbellFault> {
        let Some(found) = self.completion_queues[usize::from(queue)].as_mut() else { return Ok(true) };
        if found.is_at(head) {
            return Ok(found.pending.is_empty());
        }
        found.ring(head).map_err(|_| DoorbellFault::Value)?;
        self.dirty |= u128::from(!found.pending.is_empty()) << queue;
        Ok(true)
    }

    /// From here on the host is to ring the real doorbell; and looks again, for it may not have seen that.
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
