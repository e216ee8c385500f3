//! The commands that the controller has fetched and not yet completed to the host.

use alloc::vec::Vec;

use engine::{Buffer, BufferMut};
use nvme::pointer::{DataPointer, Direction, PageSize, Segment, Segments, Step, Walk};
use nvme::wire::{StatusCode, SubmissionQueueEntry};
use serde::{Deserialize, Serialize};

use super::dma::Assembly;

/// The state of a command's data transfer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) enum Transfer {
    /// The command has not transferred any data.
    #[default]
    None,
    /// The lists of the data pointer are being read, for data that goes to the host.
    WalkingToHost,
    /// The pieces of host memory are known, and data are sent as they arrive.
    Pushing,
    /// The command waits until fewer bytes are in flight.
    Waiting {
        /// Length of the transfer in bytes.
        length: u32,
    },
    /// The lists of the data pointer are being read, for data that comes from the host.
    WalkingToController {
        /// The buffer for the data.
        buffer: BufferMut,
    },
    /// Data is being read from the host.
    Pulling {
        /// The buffer for the data.
        buffer: BufferMut,
        /// The index of the next piece of host memory to read.
        segment: usize,
        /// Offset of the next piece within the data.
        base: u32,
    },
    /// The transfer failed, and the command fails with this status.
    Failed(StatusCode),
}

/// The core's result of a command that has ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Ending {
    pub(super) dw0: u32,
    pub(super) dw1: u32,
    pub(super) status: nvme::wire::Status,
}

/// A command between its fetch and its completion.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) busy: bool,
    /// The number of the submission queue.
    pub(super) queue: u16,
    pub(super) entry: SubmissionQueueEntry,
    pub(super) pointer: DataPointer,
    pub(super) walk: Walk,
    /// The pieces that the walk has found.
    pub(super) segments: Segments,
    pub(super) transfer: Transfer,
    /// The list that is being read.
    pub(super) list: Assembly,
    /// The next list to read, as its address and length, once a read can be issued.
    pub(super) next_list: Option<(u64, u32)>,
    /// Data for the host that arrived before the lists of the data pointer.
    pub(super) held: Vec<(u32, Buffer)>,
    /// Number of outstanding data reads.
    pub(super) reads: u32,
    /// Whether a data read failed. The failure is reported to the core when all reads have ended.
    pub(super) read_failed: bool,
    /// How many of the command's last bytes are metadata, which lie at the Metadata Pointer.
    pub(super) metadata: u32,
    /// Bytes of the command that count as in flight.
    pub(super) bytes: u32,
    pub(super) ending: Option<Ending>,
}

impl Slot {
    fn new() -> Self {
        Self {
            busy: false,
            queue: 0,
            entry: SubmissionQueueEntry::default(),
            pointer: DataPointer::Prp(0, 0),
            walk: Walk::default(),
            segments: Segments::default(),
            transfer: Transfer::None,
            list: Assembly::default(),
            next_list: None,
            held: Vec::new(),
            reads: 0,
            read_failed: false,
            metadata: 0,
            bytes: 0,
            ending: None,
        }
    }

    /// Starts to follow the data pointer of the command, which moves `total` bytes.
    #[inline]
    pub(super) fn start_walk(&mut self, total: u32, page: PageSize, direction: Direction) -> Step {
        self.segments.clear();
        let found = &mut |segment| self.segments.push(segment);
        let data = total.saturating_sub(self.metadata);
        let (walk, step) = Walk::start(self.pointer, data.into(), page, direction, found);
        self.walk = walk;
        step
    }

    /// Adds the buffer of the metadata (MPTR) behind the segments of the data.
    pub(super) fn add_metadata(&mut self) {
        if self.metadata > 0 {
            let address = Some(self.entry.metadata_pointer);
            self.segments.push(Segment { address, length: self.metadata });
        }
    }

    fn clear(&mut self) {
        self.busy = false;
        self.metadata = 0;
        self.transfer = Transfer::None;
        self.list.clear();
        self.next_list = None;
        self.held.clear();
        self.reads = 0;
        self.read_failed = false;
        self.bytes = 0;
        self.ending = None;
    }
}

/// The table of slots.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Number of slots that are reserved for outstanding fetches.
    reserved: u16,
}

impl Slots {
    pub(super) fn new(count: u16) -> Self {
        Self {
            slots: (0..count).map(|_| Slot::new()).collect(),
            free: (0..count).rev().collect(),
            reserved: 0,
        }
    }

    /// Number of slots that are neither taken nor reserved.
    pub(super) fn available(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX).saturating_sub(u32::from(self.reserved))
    }

    /// Number of slots that are taken or reserved.
    pub(super) fn taken(&self) -> usize {
        self.slots.len() - self.free.len() + usize::from(self.reserved)
    }

    /// Reserves `count` slots, which must be available.
    pub(super) fn reserve(&mut self, count: u16) {
        self.reserved += count;
    }

    /// Takes a reserved slot.
    pub(super) fn take(&mut self) -> u16 {
        self.reserved -= 1;
        let index = self.free.pop().expect("a slot was reserved for each entry fetched");
        self.slots[usize::from(index)].busy = true;
        index
    }

    pub(super) fn release(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        assert!(slot.busy, "slot {index} released twice");
        slot.clear();
        self.free.push(index);
    }

    pub(super) fn slot(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// Whether slot `index` exists and has a command.
    pub(super) fn is_busy(&self, index: u16) -> bool {
        self.slots.get(usize::from(index)).is_some_and(|slot| slot.busy)
    }

    /// Drops every command and reservation.
    pub(super) fn clear(&mut self) {
        self.reserved = 0;
        for index in 0..u16::try_from(self.slots.len()).unwrap_or(u16::MAX) {
            if self.slots[usize::from(index)].busy {
                self.release(index);
            }
        }
    }
}
