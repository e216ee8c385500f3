//! Moves a command's data: pulls it from host memory into one buffer, or pushes it to host memory
//! in slices.

use engine::Buffer;
use nvme::pointer::{Direction, Segment, Step};
use nvme::wire::{FusedOperation, StatusCode};
use pcie::device::{Dma, DmaId};

use super::dma::{Piece, Purpose, copy_into};
use super::side::Side;
use super::slots::{Slot, Transfer};
use super::{Output, Queues};

impl<S: Side> Queues<S> {
    /// Pulls `length` bytes from the host for the command in slot `index`.
    pub(super) fn pull(&mut self, index: u16, length: u32) {
        let busy = self.bytes_in_flight > 0;
        // A fused pair is alone with the media, and those that hold the bytes wait for its end.
        let is_alone = |slot: &Slot| slot.entry.fused() != FusedOperation::Normal;
        if busy
            && self.bytes_in_flight + u64::from(length) > self.bytes_in_flight_max
            && !is_alone(self.slots.slot(index))
        {
            self.slots.slot(index).transfer = Transfer::Waiting { length };
            self.waiting.push_back(index);
            return;
        }
        self.start_pull(index, length);
    }

    fn start_pull(&mut self, index: u16, length: u32) {
        self.bytes_in_flight += u64::from(length);
        let buffer = self.pool.take(length as usize);
        let page = self.page_size;
        let slot = self.slots.slot(index);
        slot.bytes = length;
        slot.transfer = Transfer::WalkingToController { buffer };
        let step = slot.start_walk(length, page, Direction::ToController);
        self.on_step(index, step);
    }

    /// Starts pulls that wait for fewer bytes in flight.
    pub(super) fn start_waiting(&mut self) {
        while let Some(&index) = self.waiting.front() {
            let Transfer::Waiting { length } = self.slots.slot(index).transfer else {
                self.waiting.pop_front();
                continue;
            };
            if self.bytes_in_flight > 0 && self.bytes_in_flight + u64::from(length) > self.bytes_in_flight_max
            {
                return;
            }
            self.waiting.pop_front();
            self.start_pull(index, length);
        }
    }

    /// Pushes `data` to the host, at `offset` of the command's `total` bytes.
    pub(super) fn push(&mut self, index: u16, offset: u32, total: u32, data: Buffer) {
        let page = self.page_size;
        let slot = self.slots.slot(index);
        if matches!(slot.transfer, Transfer::None) {
            slot.transfer = Transfer::WalkingToHost;
            let step = slot.start_walk(total, page, Direction::ToHost);
            self.on_step(index, step);
        }
        let slot = self.slots.slot(index);
        match slot.transfer {
            Transfer::Pushing => self.write_out(index, offset, data),
            Transfer::WalkingToHost if !data.is_empty() => slot.held.push((offset, data)),
            _ => {}
        }
    }

    fn write_out(&mut self, index: u16, mut offset: u32, data: Buffer) {
        self.unposted_bytes += data.len();
        let slot = self.slots.slot(index);
        let mut start = 0;
        while start < data.len() {
            let Some((Segment { address, length }, skip)) = slot.segments.locate(offset) else { return };
            let count = (data.len() - start).min((length - skip) as usize);
            if let Some(address) = address {
                let address = address.wrapping_add(u64::from(skip));
                if start == 0 && count == data.len() {
                    // The common case passes the buffer on without touching its reference count.
                    self.outputs.push_back(Output::Dma(Dma::Write { address, data }));
                    return;
                }
                let data = data.slice(start..start + count);
                self.outputs.push_back(Output::Dma(Dma::Write { address, data }));
            }
            start += count;
            offset = offset.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    fn on_step(&mut self, index: u16, step: Step) {
        match step {
            Step::ReadList { address, length } => {
                self.slots.slot(index).next_list = Some((address, length));
                self.issue_reads(index);
            }
            Step::Failed(fault) => self.fail_transfer(index, fault.status()),
            Step::Done => self.on_walked(index),
        }
    }

    fn on_walked(&mut self, index: u16) {
        let slot = self.slots.slot(index);
        slot.add_metadata();
        match core::mem::take(&mut slot.transfer) {
            Transfer::WalkingToController { buffer } => {
                slot.transfer = Transfer::Pulling { buffer, segment: 0, base: 0 };
                self.issue_reads(index);
            }
            Transfer::WalkingToHost => {
                slot.transfer = Transfer::Pushing;
                let mut held = core::mem::take(&mut slot.held);
                for (offset, data) in held.drain(..) {
                    self.write_out(index, offset, data);
                }
                let slot = self.slots.slot(index);
                slot.held = held;
                if slot.ending.is_some() {
                    self.finish(index);
                }
            }
            other => slot.transfer = other,
        }
    }

    /// Issues the next reads of the command in slot `index`, as long as identifiers for reads are
    /// free.
    fn issue_reads(&mut self, index: u16) {
        let slot = self.slots.slot(index);
        if let Some((address, length)) = slot.next_list {
            let Some(id) = self.reads.issue(Purpose::List(index), length) else {
                self.stalled.push_back(index);
                return;
            };
            slot.next_list = None;
            self.outputs.push_back(Output::Dma(Dma::Read { id, address, length }));
            return;
        }
        let Transfer::Pulling { segment, base, .. } = &mut slot.transfer else { return };
        while let Some(piece) = slot.segments.as_slice().get(*segment) {
            // The walk leaves out a write's bit buckets, so that every piece has an address.
            let Some(address) = piece.address else { break };
            let purpose = Purpose::Data { slot: index, base: *base };
            let Some(id) = self.reads.issue(purpose, piece.length) else {
                self.stalled.push_back(index);
                return;
            };
            *segment += 1;
            *base += piece.length;
            slot.reads += 1;
            self.outputs.push_back(Output::Dma(Dma::Read { id, address, length: piece.length }));
        }
    }

    /// Lets commands continue that waited for a free identifier of a read.
    pub(super) fn resume_stalled(&mut self) {
        for _ in 0..self.stalled.len() {
            let Some(index) = self.stalled.pop_front() else { return };
            self.issue_reads(index);
        }
        if !self.stalled_looks.is_empty() {
            self.resume_looks();
        }
    }

    /// Handles a piece of a PRP list or SGL segment.
    pub(super) fn on_list(&mut self, index: u16, piece: Piece) {
        if piece.last {
            self.reads.retire(piece.id);
        }
        let slot = self.slots.slot(index);
        if let Some(list) = slot.list.on_piece(&mut self.pool, piece) {
            let step = slot.walk.on_list(&list, &mut |segment| slot.segments.push(segment));
            self.on_step(index, step);
        }
    }

    /// Handles a piece of a command's data.
    pub(super) fn on_data(&mut self, id: DmaId, index: u16, offset: u32, data: &[u8], last: bool) {
        let slot = self.slots.slot(index);
        if let Transfer::Pulling { buffer, .. } = &mut slot.transfer {
            copy_into(buffer, offset, data);
        }
        if last {
            self.on_data_read(id, index);
        }
    }

    /// Handles the failure of a data read.
    pub(super) fn on_read_failed(&mut self, id: DmaId, index: u16) {
        self.slots.slot(index).read_failed = true;
        self.on_data_read(id, index);
    }

    /// Handles the failure of a list read.
    pub(super) fn on_list_failed(&mut self, id: DmaId, index: u16) {
        self.reads.retire(id);
        self.slots.slot(index).list.clear();
        self.fail_transfer(index, StatusCode::DataTransferError);
    }

    fn on_data_read(&mut self, id: DmaId, index: u16) {
        self.reads.retire(id);
        let slot = self.slots.slot(index);
        slot.reads -= 1;
        let Transfer::Pulling { segment, .. } = &slot.transfer else { return };
        let asked = *segment == slot.segments.as_slice().len();
        if slot.reads > 0 || !(asked || slot.read_failed) {
            return;
        }
        if slot.read_failed {
            self.fail_transfer(index, StatusCode::DataTransferError);
            return;
        }
        if let Transfer::Pulling { buffer, .. } = core::mem::take(&mut slot.transfer) {
            let data = self.pool.seal(buffer);
            self.give_host_data(index, data);
        }
    }

    fn fail_transfer(&mut self, index: u16, code: StatusCode) {
        let slot = self.slots.slot(index);
        let pulling = match core::mem::replace(&mut slot.transfer, Transfer::Failed(code)) {
            Transfer::WalkingToController { .. } | Transfer::Pulling { .. } => true,
            Transfer::WalkingToHost | Transfer::Pushing | Transfer::None => false,
            Transfer::Waiting { .. } | Transfer::Failed(_) => return,
        };
        slot.held.clear();
        if pulling {
            self.fail_host_data(index, code);
        } else if slot.ending.is_some() {
            self.finish(index);
        }
    }
}
