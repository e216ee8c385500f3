//! Where a command's data are: the one SGL descriptor of an entry on this transport.

use nvme::wire::{DataTransfer, Status, StatusCode, SubmissionQueueEntry};
use rdma::{Key, Remote};

/// SGL Descriptor Type and Sub Type of a Data Block at an offset: data in the capsule.
const IN_CAPSULE: u8 = 0x01;
/// SGL Descriptor Type and Sub Type of a Keyed Data Block at an address.
const KEYED: u8 = 0x40;
/// SGL Descriptor Type and Sub Type of a Keyed Data Block whose key the response invalidates.
const KEYED_INVALIDATE: u8 = 0x4f;
/// Value of PSDT in the flags for an SGL with contiguous metadata.
const PSDT_SGL: u8 = 1 << 6;
/// Longest keyed data block in bytes: its length has 24 bits.
const KEYED_LENGTH_MAX: u32 = (1 << 24) - 1;

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
    /// The data are in memory that the host lends, in either direction (Keyed SGL Data Block).
    Keyed {
        /// The memory; its length is 0 for a command without data.
        remote: Remote,
        /// Whether the response may invalidate the key (Send with Invalidate).
        invalidate: bool,
    },
    /// The descriptor is not valid on this transport. Holds the status code with the reason.
    Invalid(StatusCode),
}

impl DataPointer {
    /// The data pointer of a command without data.
    pub const NONE: Self =
        Self::Keyed { remote: Remote { key: Key(0), address: 0, length: 0 }, invalidate: false };

    /// The data pointer of a command.
    #[inline]
    pub fn of(entry: &SubmissionQueueEntry) -> Self {
        if entry.data_transfer() == DataTransfer::Prp || entry.data_transfer() == DataTransfer::Reserved {
            return Self::Invalid(StatusCode::InvalidField);
        }
        let [address, rest] = entry.data_pointer;
        let [a, b, c, d, e, f, g, identifier] = rest.to_le_bytes();
        let keyed = Remote {
            key: Key(u32::from_le_bytes([d, e, f, g])),
            address,
            length: u32::from_le_bytes([a, b, c, 0]),
        };
        match identifier {
            IN_CAPSULE => Self::InCapsule { offset: address, length: u32::from_le_bytes([a, b, c, d]) },
            KEYED => Self::Keyed { remote: keyed, invalidate: false },
            KEYED_INVALIDATE => Self::Keyed { remote: keyed, invalidate: true },
            _ => Self::Invalid(StatusCode::SglDescriptorTypeInvalid),
        }
    }

    /// The entry with this data pointer. A [`DataPointer::Invalid`] pointer leaves the entry
    /// unchanged.
    ///
    /// # Panics
    /// When a keyed data block exceeds the limit of its descriptor: 16 MiB less a byte.
    #[must_use]
    #[inline]
    pub fn put(self, mut entry: SubmissionQueueEntry) -> SubmissionQueueEntry {
        entry.data_pointer = match self {
            Self::InCapsule { offset, length } => {
                let [a, b, c, d] = length.to_le_bytes();
                [offset, u64::from_le_bytes([a, b, c, d, 0, 0, 0, IN_CAPSULE])]
            }
            Self::Keyed { remote, invalidate } => {
                assert!(remote.length <= KEYED_LENGTH_MAX, "a keyed data block of {} B", remote.length);
                let [a, b, c, _] = remote.length.to_le_bytes();
                let [d, e, f, g] = remote.key.0.to_le_bytes();
                let identifier = if invalidate { KEYED_INVALIDATE } else { KEYED };
                [remote.address, u64::from_le_bytes([a, b, c, d, e, f, g, identifier])]
            }
            Self::Invalid(_) => return entry,
        };
        entry.flags = entry.flags & 0x3f | PSDT_SGL;
        entry
    }

    /// Bytes that the host offers, or has room for; 0 if the pointer is invalid.
    pub const fn length(self) -> u32 {
        match self {
            Self::InCapsule { length, .. } | Self::Keyed { remote: Remote { length, .. }, .. } => length,
            Self::Invalid(_) => 0,
        }
    }

    /// The key that the response may invalidate, if there is one.
    pub const fn key_to_invalidate(self) -> Option<Key> {
        match self {
            Self::Keyed { remote, invalidate: true } if remote.length > 0 => Some(remote.key),
            _ => None,
        }
    }

    /// The status of a command whose data pointer does not fit the data that the command moves.
    pub fn refusal(self) -> Status {
        match self {
            Self::Invalid(code) => code.into(),
            Self::InCapsule { .. } => StatusCode::SglDescriptorTypeInvalid.into(),
            Self::Keyed { .. } => StatusCode::DataSglLengthInvalid.into(),
        }
    }
}
