//! The commands that the controller has fetched and not yet completed to the host.

use alloc::vec::Vec;

use engine::{Buffer, BufferMut};
use nvme::wire::{StatusCode, SubmissionQueueEntry};

use super::dma::Assembly;
use super::pointer::{DataPointer, Walk};

/// Where a command's data is.
#[derive(Debug, Default)]
pub(super) enum Transfer {
    /// The command has moved none so far.
    #[default]
    None,
    /// The data pointer's lists are being read, for data that goes to the host.
    WalkingToHost,
    /// The pieces of host memory are known; data goes out as it comes.
    Pushing,
    /// The command waits until fewer bytes are in flight.
    Waiting {
        /// Bytes that it wants.
        length: u32,
    },
    /// The data pointer's lists are being read, for data that comes from the host.
    WalkingToController {
        /// Where the data will go.
        buffer: BufferMut,
    },
    /// Data is being read from the host.
    Pulling {
        /// Where it goes.
        buffer: BufferMut,
        /// The next piece of host memory to ask for.
        segment: usize,
        /// Where that piece starts in the data.
        base: u32,
    },
    /// The data could not be moved; the command fails with this.
    Failed(StatusCode),
}

/// What the core said of a command that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) dw0: u32,
    pub(super) dw1: u32,
    pub(super) status: nvme::wire::Status,
}

/// A command between its fetch and its completion.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) busy: bool,
    /// Index of the submission queue.
    pub(super) queue: u16,
    pub(super) entry: SubmissionQueueEntry,
    pub(super) pointer: DataPointer,
    pub(super) walk: Walk,
    pub(super) transfer: Transfer,
    /// The list that is being read.
    pub(super) list: Assembly,
    /// A list to read as soon as a read can be issued: address and length.
    pub(super) next_list: Option<(u64, u32)>,
    /// Data that came before the data pointer's lists.
    pub(super) held: Vec<(u32, Buffer)>,
    /// Reads of data that are under way.
    pub(super) reads: u32,
    /// A read of data failed; told when the others have ended.
    pub(super) read_failed: bool,
    /// Bytes that count as in flight.
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
            transfer: Transfer::None,
            list: Assembly::default(),
            next_list: None,
            held: Vec::new(),
            reads: 0,
            read_failed: false,
            bytes: 0,
            ending: None,
        }
    }

    fn clear(&mut self) {
        self.busy = false;
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
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Slots that are promised to fetches under way.
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

    /// How many slots are neither taken nor promised.
    pub(super) fn available(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX).saturating_sub(u32::from(self.reserved))
    }

    /// Promises `count` slots, which are available.
    pub(super) fn reserve(&mut self, count: u16) {
        self.reserved += count;
    }

    /// Takes a slot that was promised.
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

    /// Forgets every command and promise.
    pub(super) fn clear(&mut self) {
        self.reserved = 0;
        for index in 0..u16::try_from(self.slots.len()).unwrap_or(u16::MAX) {
            if self.slots[usize::from(index)].busy {
                self.release(index);
            }
        }
    }
}
