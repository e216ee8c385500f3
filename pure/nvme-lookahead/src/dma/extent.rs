//! The amount of memory that a command names, and the device's access to it.

use nvme::wire::{AdminOpcode, DataTransfer, IoOpcode, SubmissionQueueEntry};

use super::grants::{READ, WRITE};
use crate::follow::controller::Format;
use crate::transfer::Transfer;

/// Opcodes of the Zoned Namespace Command Set.
const ZONE_MANAGEMENT_RECEIVE: u8 = 0x7a;
const ZONE_APPEND: u8 = 0x7d;
/// Opcode bits 1:0: the direction of the data.
const DIRECTION: u8 = 3;
/// CDW12 of reads and writes: Protection Information Action (PRACT).
const PROTECTION_ACTION: u32 = 1 << 29;
/// Bytes of protection information with a 16-bit guard. Controllers may insert and strip it.
const PROTECTION: u64 = 8;
/// Bytes of the data structures of Identify and of the commands about namespaces.
const STRUCTURE: u64 = 4096;
/// Maximum transfer of a command of unknown length, in bytes.
const UNKNOWN_MAX: u64 = 4 << 20;

/// Feature identifiers whose data is shorter than a structure, with its length in bytes.
const FEATURES: [(u8, u64); 6] = [(0x0c, 256), (0x0e, 8), (0x13, 512), (0x16, 512), (0x81, 16), (0x82, 8)];

/// How long the data of a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// This many bytes, perhaps 0.
    Exact(u64),
    /// At most this many bytes; only the host and the device know the length.
    AtMost(u64),
}

/// The memory that a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) length: Length,
    /// The device's access to data and metadata.
    pub(crate) flags: u8,
    /// Length of separate metadata in bytes.
    pub(crate) metadata: u64,
}

impl Extent {
    /// The memory of an admin command. Excludes memory that commands name in other ways.
    pub(crate) fn of_admin(entry: &SubmissionQueueEntry) -> Self {
        let dwords = |count: u32| Length::Exact((u64::from(count) + 1) * 4);
        let length = match AdminOpcode::from(entry.opcode) {
            AdminOpcode::CreateIoSubmissionQueue
            | AdminOpcode::CreateIoCompletionQueue
            | AdminOpcode::DoorbellBufferConfig => Length::Exact(0),
            AdminOpcode::Identify | AdminOpcode::NamespaceManagement | AdminOpcode::NamespaceAttachment => {
                Length::Exact(STRUCTURE)
            }
            AdminOpcode::GetLogPage => {
                let [low, high] = [entry.cdw10 >> 16, entry.cdw11 & 0xffff];
                Length::Exact((u64::from(high << 16 | low) + 1) * 4)
            }
            AdminOpcode::FirmwareImageDownload
            | AdminOpcode::DirectiveSend
            | AdminOpcode::DirectiveReceive => dwords(entry.cdw10),
            AdminOpcode::SecuritySend | AdminOpcode::SecurityReceive => Length::Exact(entry.cdw11.into()),
            AdminOpcode::GetLbaStatus => dwords(entry.cdw12),
            AdminOpcode::SetFeatures | AdminOpcode::GetFeatures => {
                let [feature, ..] = entry.cdw10.to_le_bytes();
                let known = FEATURES.iter().find(|(known, _)| *known == feature);
                Length::Exact(known.map_or(STRUCTURE, |(_, length)| *length))
            }
            _ => Length::AtMost(UNKNOWN_MAX),
        };
        // The opcodes of Set Features and Get Features encode the direction.
        Self { length, flags: flags_of(entry.opcode), metadata: 0 }.checked()
    }

    /// The memory of an I/O command, whose namespace may be known to have a format.
    pub(crate) fn of_io(entry: &SubmissionQueueEntry, format: Option<Format>) -> Self {
        let blocks = u64::from(entry.cdw12 & 0xffff) + 1;
        let mut metadata = 0;
        let unknown = Length::AtMost(UNKNOWN_MAX);
        let opcode = IoOpcode::from(entry.opcode);
        let moves_blocks = matches!(opcode, IoOpcode::Read | IoOpcode::Write | IoOpcode::Compare)
            || entry.opcode == ZONE_APPEND;
        let length = match (moves_blocks, format) {
            (true, Some(format)) => {
                let inline = match (format.extended, entry.cdw12 & PROTECTION_ACTION != 0) {
                    (false, _) => {
                        metadata = blocks * format.metadata;
                        Some(0)
                    }
                    (true, true) if format.metadata == PROTECTION => Some(0),
                    // It depends on the width of the guard.
                    (true, true) if format.metadata == 2 * PROTECTION => None,
                    (true, _) => Some(format.metadata),
                };
                inline.map_or(unknown, |inline| Length::Exact(blocks * (format.block + inline)))
            }
            (true, None) => {
                metadata = blocks * u64::from(u8::MAX);
                unknown
            }
            (false, _) if opcode == IoOpcode::ReservationReport => {
                Length::Exact((u64::from(entry.cdw10) + 1) * 4)
            }
            (false, _) if entry.opcode == ZONE_MANAGEMENT_RECEIVE => {
                Length::Exact((u64::from(entry.cdw12) + 1) * 4)
            }
            // The block size does not matter to any of the others.
            (false, _) => Transfer::of(entry, 1).map_or(unknown, |transfer| Length::Exact(transfer.length)),
        };
        Self { length, flags: flags_of(entry.opcode), metadata }.checked()
    }

    const fn checked(self) -> Self {
        if self.flags == 0 { Self { length: Length::Exact(0), metadata: 0, ..self } } else { self }
    }
}

/// The device's access to the data of a command: opcodes encode the direction.
const fn flags_of(opcode: u8) -> u8 {
    let [to_controller, to_host] = [opcode & DIRECTION & 1, opcode & DIRECTION & 2];
    (if to_controller != 0 { READ } else { 0 }) | (if to_host != 0 { WRITE } else { 0 })
}

/// Whether the metadata pointer is the address of an SGL segment.
pub(crate) fn has_metadata_segment(entry: &SubmissionQueueEntry) -> bool {
    entry.data_transfer() == DataTransfer::SglSegmentMetadata
}
