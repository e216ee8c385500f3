//! Records of the state that outlives a power loss: the world keeps them, and the next start
//! receives them in [`Config`](super::Config).

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use engine::Nanos;
use serde::{Deserialize, Serialize};

use crate::wire::NamespaceId;
use crate::wire::feature::FeatureId;
use crate::wire::log::PersistentEventHeader;

/// The write protection state (WPS) of a namespace, which hosts set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WriteProtection {
    /// No Write Protect: writes are allowed.
    #[default]
    None,
    /// Write Protect: the namespace is read-only until a host lifts the protection.
    Protected,
}

impl WriteProtection {
    pub(super) const fn parse(value: u32) -> Option<Self> {
        match value {
            0 => Some(Self::None),
            1 => Some(Self::Protected),
            _ => None,
        }
    }

    /// The value of the Write Protection State (WPS) field.
    pub const fn value(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Protected => 1,
        }
    }
}

/// A run of logical blocks that Write Uncorrectable made unreadable, or that are readable again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableBlocks {
    /// The namespace of the blocks.
    pub namespace: NamespaceId,
    /// The first block of the run.
    pub lba: u64,
    /// Number of blocks in the run.
    pub blocks: u64,
}

/// The key of a feature value: the feature and the selected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FeatureKey {
    /// The feature identifier.
    pub feature: FeatureId,
    /// The namespace, for a feature with one value each; otherwise [`NamespaceId::NONE`].
    pub namespace: NamespaceId,
    /// Index among several values: the interrupt vector, or 0 for the over and 1 for the under
    /// temperature threshold; otherwise 0.
    pub index: u16,
}

/// A feature value that persists through resets and power cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFeature {
    /// The key of the value.
    pub key: FeatureKey,
    /// The value: CDW11 of the Set Features command that saved it.
    pub value: u32,
}

/// The type of a reservation: which accesses it denies to which hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReservationType {
    /// Write Exclusive: only the holder may write.
    WriteExclusive,
    /// Exclusive Access: only the holder may read and write.
    ExclusiveAccess,
    /// Write Exclusive - Registrants Only: only registrants may write.
    WriteExclusiveRegistrantsOnly,
    /// Exclusive Access - Registrants Only: only registrants may read and write.
    ExclusiveAccessRegistrantsOnly,
    /// Write Exclusive - All Registrants: only registrants may write; each is a holder.
    WriteExclusiveAllRegistrants,
    /// Exclusive Access - All Registrants: only registrants may read and write; each is a holder.
    ExclusiveAccessAllRegistrants,
}

impl ReservationType {
    const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    pub(super) fn parse(value: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| u32::from(kind.value()) == value)
    }

    /// The type with this Reservation Type (RTYPE) value, if there is one.
    pub fn from_value(value: u8) -> Option<Self> {
        Self::parse(value.into())
    }

    /// The value of the Reservation Type (RTYPE) field.
    pub const fn value(self) -> u8 {
        match self {
            Self::WriteExclusive => 1,
            Self::ExclusiveAccess => 2,
            Self::WriteExclusiveRegistrantsOnly => 3,
            Self::ExclusiveAccessRegistrantsOnly => 4,
            Self::WriteExclusiveAllRegistrants => 5,
            Self::ExclusiveAccessAllRegistrants => 6,
        }
    }

    pub(super) const fn lets_others_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants
        )
    }

    pub(super) const fn lets_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    pub(super) const fn is_of_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }
}

/// A host that is registered with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Registrant {
    /// Host Identifier (HOSTID).
    pub host: [u8; 16],
    /// Reservation Key (RKEY).
    pub key: u64,
}

/// The registrants and the reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationRecord {
    /// The namespace that the record describes.
    pub namespace: NamespaceId,
    /// Persist Through Power Loss State (PTPLS): whether registrants and reservation persist
    /// through a power loss.
    pub persistent: bool,
    /// Generation (GEN): the number of changes to the registrants, modulo 2^32.
    pub generation: u32,
    /// The registered hosts, at most [`REGISTRANTS_MAX`](super::REGISTRANTS_MAX).
    pub registrants: Vec<Registrant>,
    /// The type of the reservation and the host that acquired it.
    pub reservation: Option<(ReservationType, [u8; 16])>,
}

/// The status of the most recent sanitize operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SanitizeStatus {
    /// There was never a sanitize operation.
    #[default]
    Never,
    /// The operation is in progress, and is started again after a power loss.
    InProgress,
    /// The operation succeeded.
    Completed,
    /// The operation failed. Most commands fail until another operation succeeds or the host leaves
    /// the failure mode.
    Failed,
    /// The operation failed, and the host has left the failure mode.
    FailureExited,
}

/// The state of sanitize operations that the next start needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SanitizeRecord {
    /// The status of the most recent operation.
    pub status: SanitizeStatus,
    /// CDW10 of the Sanitize command that began the operation.
    pub cdw10: u32,
    /// CDW11 of the Sanitize command that began the operation: the Overwrite Pattern.
    pub cdw11: u32,
    /// Number of completed overwrite passes.
    pub passes: u8,
    /// Global Data Erased: whether the operation succeeded and there was no write since.
    pub data_erased: bool,
}

/// The totals of a device's life so far, as in [`Config::counters`](super::Config::counters). A new
/// device has zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Bytes read by Read, Compare, Verify and Copy.
    pub bytes_read: u64,
    /// Bytes written by Write and Copy.
    pub bytes_written: u64,
    /// Number of Read and Compare commands that succeeded.
    pub host_reads: u64,
    /// Number of Write commands that succeeded.
    pub host_writes: u64,
    /// Time during which I/O commands were in flight.
    pub busy: Nanos,
    /// Number of power cycles, including the present one.
    pub power_cycles: u64,
    /// Time under power.
    pub power_on: Nanos,
    /// Number of power losses without a shutdown.
    pub unsafe_shutdowns: u64,
    /// Number of Media and Data Integrity Errors.
    pub media_errors: u64,
    /// Number of writes that found no space on their medium since the start.
    pub space_errors: u64,
    /// Number of Error Information Log Entries over the device's life.
    pub error_entries: u64,
    /// Time at or above the warning temperature and below the critical one.
    pub warning_temperature: Nanos,
    /// Time at or above the critical temperature.
    pub critical_temperature: Nanos,
}

/// An event of the Persistent Event log: its header and data in the log's format.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentEvent(Vec<u8>);

impl fmt::Debug for PersistentEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0.first().copied().unwrap_or_default();
        write!(f, "PersistentEvent(type {kind:02x}h, {} B)", self.0.len())
    }
}

impl PersistentEvent {
    pub(super) fn new(header: &PersistentEventHeader, data: &[u8]) -> Self {
        let mut event = vec![0; PersistentEventHeader::LENGTH + data.len()];
        let (front, rest) = event.split_at_mut(PersistentEventHeader::LENGTH);
        header.emit(front.first_chunk_mut().expect("as long as the header"));
        rest.copy_from_slice(data);
        Self(event)
    }

    /// The event in `bytes`, if they are exactly one whole event.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = PersistentEventHeader::parse(bytes.first_chunk()?);
        let whole = header.header_length == HEADER_LENGTH
            && bytes.len() == PersistentEventHeader::LENGTH + usize::from(header.length);
        whole.then(|| Self(Vec::from(bytes)))
    }

    /// The bytes of the event: header and data.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Event Header Length: bytes of an event's header after this field.
pub(super) const HEADER_LENGTH: u8 = 21;
