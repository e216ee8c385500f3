//! Where a command's data are: the one SGL descriptor of an entry on this transport.

use nvme::wire::{DataTransfer, Status, StatusCode, SubmissionQueueEntry};

/// SGL Descriptor Type and Sub Type of a Data Block at an offset: data in the capsule.
const IN_CAPSULE: u8 = 0x01;
/// SGL Descriptor Type and Sub Type of a Transport Data Block: data in PDUs of their own.
const TRANSPORT: u8 = 0x5a;
/// Value of PSDT in the flags for an SGL with contiguous metadata.
const PSDT_SGL: u8 = 1 << 6;

/// Where a command's data are (SGL1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPointer {
    /// The data are in the capsule, behind the command (Data Block, Offset).
    InCapsule {
        /// Offset of the data in the capsule's data, in bytes.
        offset: u64,
        /// Length of the data in bytes.
        length: u32,
    },
    /// The data are in PDUs of their own, in either direction (Transport SGL Data Block).
    Transport {
        /// Length of the data in bytes; 0 for a command without data.
        length: u32,
    },
    /// The descriptor is not valid on this transport. Holds the status code with the reason.
    Invalid(StatusCode),
}

impl DataPointer {
    /// The data pointer of a command.
    #[inline]
    pub fn of(entry: &SubmissionQueueEntry) -> Self {
        if entry.data_transfer() == DataTransfer::Prp || entry.data_transfer() == DataTransfer::Reserved {
            return Self::Invalid(StatusCode::InvalidField);
        }
        let [a, b, c, d, _, _, _, identifier] = entry.data_pointer[1].to_le_bytes();
        let length = u32::from_le_bytes([a, b, c, d]);
        match identifier {
            IN_CAPSULE => Self::InCapsule { offset: entry.data_pointer[0], length },
            TRANSPORT => Self::Transport { length },
            _ => Self::Invalid(StatusCode::SglDescriptorTypeInvalid),
        }
    }

    /// The entry with this data pointer. A [`DataPointer::Invalid`] pointer leaves the entry
    /// unchanged.
    #[must_use]
    #[inline]
    pub fn put(self, mut entry: SubmissionQueueEntry) -> SubmissionQueueEntry {
        let (address, length, identifier) = match self {
            Self::InCapsule { offset, length } => (offset, length, IN_CAPSULE),
            Self::Transport { length } => (0, length, TRANSPORT),
            Self::Invalid(_) => return entry,
        };
        let [a, b, c, d] = length.to_le_bytes();
        entry.data_pointer = [address, u64::from_le_bytes([a, b, c, d, 0, 0, 0, identifier])];
        entry.flags = entry.flags & 0x3f | PSDT_SGL;
        entry
    }

    /// Bytes that the host offers, or has room for; 0 if the pointer is invalid.
    pub const fn length(self) -> u32 {
        match self {
            Self::InCapsule { length, .. } | Self::Transport { length } => length,
            Self::Invalid(_) => 0,
        }
    }

    /// The status of a command whose data pointer does not fit the data that the command moves.
    pub fn refusal(self) -> Status {
        match self {
            Self::Invalid(code) => code.into(),
            Self::InCapsule { .. } => StatusCode::SglDescriptorTypeInvalid.into(),
            Self::Transport { .. } => StatusCode::DataSglLengthInvalid.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_those_of_the_specification() {
        let entry = SubmissionQueueEntry::default();
        // Linux's descriptors: no data; data in the capsule; data behind an R2T.
        let none = DataPointer::Transport { length: 0 }.put(entry).emit();
        assert_eq!(none[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x5a]);
        assert_eq!(none[1], 0x40);
        let inside = DataPointer::InCapsule { offset: 0, length: 0x400 }.put(entry).emit();
        assert_eq!(inside[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0x01]);
        for pointer in
            [DataPointer::InCapsule { offset: 8, length: 512 }, DataPointer::Transport { length: 1 << 20 }]
        {
            assert_eq!(DataPointer::of(&pointer.put(entry)), pointer);
        }
        assert_eq!(DataPointer::of(&entry), DataPointer::Invalid(StatusCode::InvalidField));
    }
}
