//! Data that an SGL describes (NVM Express Base 2.0, 4.3.2): blocks of any length and place.

use alloc::vec::Vec;

use nvme::wire::{DataTransfer, SubmissionQueueEntry};

use super::{CommandKey, Controller};

/// Length of a descriptor, whose last byte has the type in its upper half.
const DESCRIPTOR: usize = 16;
const DATA_BLOCK: u8 = 0;
const SEGMENT: u8 = 2;
const LAST_SEGMENT: u8 = 3;
/// Maximum number of data blocks and segments of one command, as in Farlane's controller.
const DESCRIPTORS_MAX: usize = 2048;

/// The most data blocks and lists of all commands of a controller.
const ALL_MAX: usize = 1 << 20;

/// A piece of a command's data, or of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// Data in host memory: the address, and the length in bytes.
    Data(u64, u64),
    /// Further descriptors are at this address.
    Segment(u64),
    /// No host memory, or an unknown descriptor.
    Other,
}

impl Descriptor {
    fn parse(bytes: &[u8; DESCRIPTOR]) -> Self {
        let (first, second) = bytes.split_at(8);
        let address = first.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let length = second.first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)));
        match bytes[DESCRIPTOR - 1] >> 4 {
            DATA_BLOCK => Self::Data(address, length),
            SEGMENT | LAST_SEGMENT => Self::Segment(address),
            _ => Self::Other,
        }
    }

    /// The descriptor in an entry that has one.
    pub(super) fn of(entry: &SubmissionQueueEntry) -> Option<Self> {
        if entry.data_transfer() == DataTransfer::Prp {
            return None;
        }
        let mut bytes = [0; DESCRIPTOR];
        let halves = entry.data_pointer.map(u64::to_le_bytes).concat();
        bytes.copy_from_slice(&halves);
        Some(Self::parse(&bytes))
    }
}

impl Controller {
    /// Records a descriptor of the data of a command in progress.
    pub(super) fn describe(&mut self, key: CommandKey, descriptor: Descriptor) {
        let Some(one) = self.under_way.get_mut(&key) else { return };
        let all = self.extents.len() + self.lists.len();
        if one.extents.len() + one.lists.len() >= DESCRIPTORS_MAX || all >= ALL_MAX {
            self.dropped += 1;
            return;
        }
        match descriptor {
            Descriptor::Data(address, length) if length > 0 => {
                one.extents.push(address);
                self.extents.insert(address, (address.saturating_add(length), key));
            }
            Descriptor::Segment(address) => {
                one.lists.push(address);
                self.lists.insert(address, key);
            }
            Descriptor::Data(..) | Descriptor::Other => {}
        }
    }

    /// A segment of descriptors has arrived.
    pub(super) fn on_segment(&mut self, key: CommandKey, bytes: &[u8]) {
        let descriptors: Vec<_> = bytes.as_chunks().0.iter().map(Descriptor::parse).collect();
        descriptors.into_iter().for_each(|descriptor| self.describe(key, descriptor));
    }

    /// The command with an SGL whose data are at this address.
    pub(super) fn extent_at(&self, address: u64) -> Option<CommandKey> {
        let (_, (end, key)) = self.extents.range(..=address).next_back()?;
        (address < *end).then_some(*key)
    }

    /// Forgets where the data of a command are that has ended.
    pub(super) fn forget_extents(&mut self, key: CommandKey, starts: &[u64]) {
        for start in starts {
            if self.extents.get(start).is_some_and(|(_, of)| *of == key) {
                self.extents.remove(start);
            }
        }
    }
}
