//! Follows a command's data pointer (PRP entries or an SGL) to the pieces of host memory that it
//! names.
//!
//! A [`Walk`] accesses no memory: it requests the list that it needs next, and the caller passes
//! the list's bytes. It names each piece as soon as it is known, and ends with the specification's
//! error where the pointer breaks a rule. A controller fails the command with that error. An
//! observer leaves the error to the controller.

mod page_size;
mod prp;
mod segments;
mod sgl;
#[cfg(test)]
mod tests;

pub use page_size::PageSize;
pub use segments::Segments;
pub use sgl::SGL_DESCRIPTORS_MAX;

use crate::wire::{DataTransfer, StatusCode, SubmissionQueueEntry};
use serde::{Deserialize, Serialize};
use sgl::DESCRIPTOR_BYTES;

/// The direction of a command's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// From host memory to the controller.
    #[default]
    ToController,
    /// From the controller to host memory.
    ToHost,
}

/// A contiguous piece of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The address in host memory; `None` for an SGL bit bucket, whose data is discarded.
    pub address: Option<u64>,
    /// Length of the piece in bytes, at least 1.
    pub length: u32,
}

/// The data pointer of a submission queue entry (DPTR), decoded by PSDT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataPointer {
    /// PRP Entry 1 and PRP Entry 2.
    Prp(u64, u64),
    /// The first SGL descriptor.
    Sgl([u8; DESCRIPTOR_BYTES]),
    /// PSDT has a reserved value.
    Reserved,
}

impl DataPointer {
    /// The data pointer of `entry`.
    #[inline]
    pub fn of(entry: &SubmissionQueueEntry) -> Self {
        let [first, second] = entry.data_pointer;
        match entry.data_transfer() {
            DataTransfer::Prp => Self::Prp(first, second),
            DataTransfer::Reserved => Self::Reserved,
            DataTransfer::SglContiguousMetadata | DataTransfer::SglSegmentMetadata => {
                let mut descriptor = [0; DESCRIPTOR_BYTES];
                descriptor[..8].copy_from_slice(&first.to_le_bytes());
                descriptor[8..].copy_from_slice(&second.to_le_bytes());
                Self::Sgl(descriptor)
            }
        }
    }
}

/// The reason why a data pointer can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerFault {
    /// The offset of a PRP entry is not 0 where it must be, or is not a multiple of 4 (of 8 for a
    /// list).
    PrpOffset,
    /// A PRP entry that is needed is 0, which means that the host did not set it.
    PrpMissing,
    /// A segment descriptor is malformed or in the last segment, or another segment ends without
    /// one.
    SglSegment,
    /// There are more descriptors than [`SGL_DESCRIPTORS_MAX`], or a segment descriptor is not the
    /// last of its segment.
    SglDescriptorCount,
    /// The SGL describes fewer bytes than the command transfers.
    SglLength,
    /// The type or subtype of a descriptor is not supported.
    SglType,
    /// PSDT has a reserved value.
    Transfer,
}

impl PointerFault {
    /// The status with which a controller ends the command.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::PrpOffset => StatusCode::PrpOffsetInvalid,
            Self::PrpMissing | Self::Transfer => StatusCode::InvalidField,
            Self::SglSegment => StatusCode::InvalidSglSegmentDescriptor,
            Self::SglDescriptorCount => StatusCode::InvalidSglDescriptorCount,
            Self::SglLength => StatusCode::DataSglLengthInvalid,
            Self::SglType => StatusCode::SglDescriptorTypeInvalid,
        }
    }
}

/// The result of a step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The walk needs the bytes of a list, for [`Walk::on_list`].
    ReadList {
        /// Host memory address of the list.
        address: u64,
        /// Length of the list in bytes: at least 1, at most a page of entries or 4 KiB of SGL
        /// descriptors, and never more than the data needs.
        length: u32,
    },
    /// Every piece is known.
    Done,
    /// The walk has failed.
    Failed(PointerFault),
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
enum List {
    #[default]
    None,
    Prp,
    Sgl {
        last: bool,
    },
}

/// The walk along one command's data pointer.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Walk {
    /// Bytes of the data that no piece covers yet.
    left: u64,
    page: PageSize,
    direction: Direction,
    /// The kind of the requested list.
    list: List,
    /// Number of SGL descriptors so far.
    descriptors: u32,
}

impl Walk {
    /// Starts a walk for `total` bytes (at least 1) at `pointer`. `found` is called with each piece
    /// of the data, in order.
    #[inline]
    pub fn start(
        pointer: DataPointer,
        total: u64,
        page: PageSize,
        direction: Direction,
        found: &mut impl FnMut(Segment),
    ) -> (Self, Step) {
        let mut walk = Self { left: total, page, direction, ..Self::default() };
        let step = match pointer {
            DataPointer::Prp(first, second) => walk.start_prp(first, second, found),
            DataPointer::Sgl(descriptor) => walk.on_descriptors(&descriptor, true, found),
            DataPointer::Reserved => Step::Failed(PointerFault::Transfer),
        };
        (walk, step)
    }

    /// Continues with the bytes of the list that the last step requested. Calls `found` with each
    /// further piece of the data, in order.
    pub fn on_list(&mut self, bytes: &[u8], found: &mut impl FnMut(Segment)) -> Step {
        match self.list {
            List::None => Step::Done,
            List::Prp => self.on_prp_list(bytes, found),
            List::Sgl { last } => self.on_descriptors(bytes, last, found),
        }
    }

    /// The length of the next piece, which has at most `most` bytes and no more than are left.
    fn length(&self, most: u32) -> u32 {
        u32::try_from(self.left).map_or(most, |left| left.min(most))
    }

    fn find(&mut self, address: Option<u64>, length: u32, found: &mut impl FnMut(Segment)) {
        self.left -= u64::from(length);
        found(Segment { address, length });
    }
}
