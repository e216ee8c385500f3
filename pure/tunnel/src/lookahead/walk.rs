//! Finds where a command's data is by following its PRP entries or its SGL through host memory.
//!
//! The walk touches no memory: it tells which list to read next, and is given the list's bytes. The
//! walk ends at anything that a controller would refuse, and leaves the refusal to the controller.

use nvme::wire::{DataTransfer, IoOpcode, SubmissionQueueEntry};

/// The longest list that is read at once, in bytes. A list does not cross a multiple of this
/// length.
const LIST_MAX: u32 = 4096;
/// The most lists that a command may have.
const LISTS_MAX: u32 = 64;
const PRP_BYTES: u64 = 8;
const DESCRIPTOR_BYTES: u32 = 16;
/// Alignment of an SGL segment: a quad word.
const SGL_SEGMENT_ALIGNMENT: u64 = 8;
/// SGL descriptor types with an address, subtype 0.
const SGL_DATA_BLOCK: u8 = 0x00;
const SGL_SEGMENT: u8 = 0x20;
const SGL_LAST_SEGMENT: u8 = 0x30;

/// Bytes of a Dataset Management range, of a Copy source range of format 0, and of reservation
/// data.
const DATASET_RANGE: u64 = 16;
const COPY_RANGE: u64 = 32;
const RESERVATION_KEYS: u64 = 16;
const RESERVATION_KEY: u64 = 8;

/// How much data a command moves, and in which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Length of the data in bytes, not 0.
    pub(super) length: u64,
    /// Whether the data moves from host memory to the controller.
    pub(super) to_controller: bool,
}

impl Transfer {
    /// The transfer of an I/O command of the NVM Command Set, if the command is known to move data.
    /// `block` is the number of bytes of a logical block with all that travels with it.
    pub(super) fn of(entry: &SubmissionQueueEntry, block: u64) -> Option<Self> {
        let [count, format, ..] = entry.cdw12.to_le_bytes();
        // Number of Logical Blocks (NLB) and similar fields are 0's based.
        let blocks = u64::from(u16::from_le_bytes([count, format])) + 1;
        let [ranges, ..] = entry.cdw10.to_le_bytes();
        let (length, to_controller) = match IoOpcode::from(entry.opcode) {
            IoOpcode::Write | IoOpcode::Compare => (blocks * block, true),
            IoOpcode::Read => (blocks * block, false),
            IoOpcode::DatasetManagement => ((u64::from(ranges) + 1) * DATASET_RANGE, true),
            IoOpcode::Copy if format & 0xf == 0 => ((u64::from(count) + 1) * COPY_RANGE, true),
            IoOpcode::ReservationRegister | IoOpcode::ReservationAcquire => (RESERVATION_KEYS, true),
            IoOpcode::ReservationRelease => (RESERVATION_KEY, true),
            _ => return None,
        };
        Some(Self { length, to_controller })
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read this list, for [`Walk::on_list`].
    List { address: u64, length: u32 },
    /// All data is found, or the rest cannot be found.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Prp,
    Sgl,
}

/// The progress of following one command's data pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    page: u64,
    /// Bytes whose place is not known yet.
    left: u64,
    list: List,
    lists: u32,
}

impl Walk {
    /// Begins with `entry`, which moves `length` bytes. `data` is called with the address and
    /// length of each piece found.
    pub(super) fn start(
        entry: &SubmissionQueueEntry,
        length: u64,
        page: u64,
        data: &mut impl FnMut(u64, u64),
    ) -> (Self, Next) {
        let [first, second] = entry.data_pointer;
        let mut walk = Self { page, left: length, list: List::Prp, lists: 0 };
        let next = match entry.data_transfer() {
            DataTransfer::Prp => walk.start_prp(first, second, data),
            DataTransfer::SglContiguousMetadata | DataTransfer::SglSegmentMetadata => {
                walk.list = List::Sgl;
                walk.on_descriptor(first, second, data)
            }
            DataTransfer::Reserved => Next::Done,
        };
        (walk, next)
    }

    /// Continues with the bytes of the list that was asked for last.
    pub(super) fn on_list(&mut self, bytes: &[u8], data: &mut impl FnMut(u64, u64)) -> Next {
        match self.list {
            List::Prp => self.on_prp_list(bytes, data),
            List::Sgl => {
                for descriptor in bytes.as_chunks::<16>().0 {
                    let [first, second] = [0, 8].map(|at| quad(descriptor, at));
                    let next = self.on_descriptor(first, second, data);
                    if self.left == 0 || next != Next::Done {
                        return next;
                    }
                }
                Next::Done
            }
        }
    }

    fn found(&mut self, address: u64, most: u64, data: &mut impl FnMut(u64, u64)) {
        let length = self.left.min(most);
        if length > 0 && address.checked_add(length).is_some() {
            data(address, length);
        }
        self.left -= length;
    }

    fn read_list(&mut self, address: u64, length: u32) -> Next {
        self.lists += 1;
        // A list that crosses the end of a 4 KiB page would come in two parts, in any order.
        let whole = address % u64::from(LIST_MAX) + u64::from(length) <= u64::from(LIST_MAX);
        let fits = self.lists <= LISTS_MAX && length > 0 && whole;
        if fits { Next::List { address, length } } else { Next::Done }
    }

    fn start_prp(&mut self, first: u64, second: u64, data: &mut impl FnMut(u64, u64)) -> Next {
        self.found(first, self.page - first % self.page, data);
        if self.left > self.page {
            return self.read_prp_list(second);
        }
        if self.left > 0 && self.is_page(second) {
            self.found(second, self.page, data);
        }
        Next::Done
    }

    /// Whether a PRP entry after the first one names a page. 0 stands for none.
    const fn is_page(&self, entry: u64) -> bool {
        entry != 0 && entry.is_multiple_of(self.page)
    }

    fn read_prp_list(&mut self, list: u64) -> Next {
        if list == 0 || !list.is_multiple_of(PRP_BYTES) {
            return Next::Done;
        }
        let room = (self.page - list % self.page) / PRP_BYTES;
        let entries = self.left.div_ceil(self.page).min(room);
        self.read_list(list, u32::try_from(entries * PRP_BYTES).unwrap_or(u32::MAX))
    }

    fn on_prp_list(&mut self, bytes: &[u8], data: &mut impl FnMut(u64, u64)) -> Next {
        let entries = bytes.as_chunks::<8>().0;
        for (index, entry) in entries.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            if index + 1 == entries.len() && self.left > self.page {
                // The last entry of a full list points to the next list.
                return self.read_prp_list(entry);
            }
            if !self.is_page(entry) {
                return Next::Done;
            }
            self.found(entry, self.page, data);
        }
        Next::Done
    }

    fn on_descriptor(&mut self, address: u64, second: u64, data: &mut impl FnMut(u64, u64)) -> Next {
        let [l0, l1, l2, l3, .., kind] = second.to_le_bytes();
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        match kind {
            SGL_DATA_BLOCK => self.found(address, u64::from(length), data),
            SGL_SEGMENT | SGL_LAST_SEGMENT
                if length.is_multiple_of(DESCRIPTOR_BYTES)
                    && address.is_multiple_of(SGL_SEGMENT_ALIGNMENT) =>
            {
                return self.read_list(address, length);
            }
            _ => {}
        }
        Next::Done
    }
}

fn quad(bytes: &[u8; 16], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
