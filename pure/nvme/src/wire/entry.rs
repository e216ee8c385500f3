//! Queue entries: a command has 64 bytes, a completion 16.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::bits::{high_u32, join_u64, low_u32};
use super::{Bits, Status};

/// Command Identifier (CID), which the host chooses uniquely among the outstanding commands of a
/// submission queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommandId(pub u16);

/// Queue Identifier (QID, SQID): names a submission queue, and the completion queue that a host
/// pairs with it; 0 names the admin queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueId(pub u16);

impl QueueId {
    /// The identifier of the admin queues.
    pub const ADMIN: Self = Self(0);

    /// Whether this names the admin queues.
    pub const fn is_admin(self) -> bool {
        self.0 == 0
    }
}

impl core::fmt::Display for QueueId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Namespace Identifier (NSID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NamespaceId(pub u32);

impl NamespaceId {
    /// The value that means no namespace.
    pub const NONE: Self = Self(0);
    /// The broadcast value, which means every namespace of the controller.
    pub const ALL: Self = Self(u32::MAX);
}

impl fmt::Display for NamespaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Fused Operation (FUSE): the command's part in a fused pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedOperation {
    /// The command is not part of a fused pair.
    Normal,
    /// The first command of a fused pair.
    First,
    /// The second command of a fused pair.
    Second,
    /// The reserved encoding (11b).
    Reserved,
}

/// PRP or SGL for Data Transfer (PSDT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTransfer {
    /// The data pointer has PRP entries.
    Prp,
    /// The data pointer is an SGL, and the metadata pointer is the address of a contiguous buffer.
    SglContiguousMetadata,
    /// The data pointer is an SGL, and the metadata pointer is the address of an SGL segment.
    SglSegmentMetadata,
    /// The reserved encoding (11b).
    Reserved,
}

/// A command in the format of a submission queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub struct SubmissionQueueEntry {
    /// Opcode (OPC).
    pub opcode: u8,
    /// Byte 1 of the entry, with FUSE ([`Self::fused`]) and PSDT ([`Self::data_transfer`]).
    pub flags: u8,
    /// Command Identifier (CID).
    pub command_id: CommandId,
    /// Namespace Identifier (NSID).
    pub namespace: NamespaceId,
    /// Command Dword 2 (CDW2).
    pub cdw2: u32,
    /// Command Dword 3 (CDW3).
    pub cdw3: u32,
    /// Metadata Pointer (MPTR).
    pub metadata_pointer: u64,
    /// Data Pointer (DPTR): PRP Entry 1 and 2, or the two halves of an SGL descriptor.
    pub data_pointer: [u64; 2],
    /// Command Dword 10 (CDW10).
    pub cdw10: u32,
    /// Command Dword 11 (CDW11).
    pub cdw11: u32,
    /// Command Dword 12 (CDW12).
    pub cdw12: u32,
    /// Command Dword 13 (CDW13).
    pub cdw13: u32,
    /// Command Dword 14 (CDW14).
    pub cdw14: u32,
    /// Command Dword 15 (CDW15).
    pub cdw15: u32,
}

const _: () = assert!(size_of::<SubmissionQueueEntry>() == SubmissionQueueEntry::LENGTH);

const FUSE: Bits = Bits::new(1, 0);
const PSDT: Bits = Bits::new(7, 6);
/// The bits of PSDT in byte 1.
const PSDT_MASK: u8 = 0b1100_0000;
/// PSDT of an SGL with contiguous metadata.
const PSDT_SGL: u8 = 0b0100_0000;

impl SubmissionQueueEntry {
    /// Length of a submission queue entry in bytes.
    pub const LENGTH: usize = 64;

    /// An entry of zeroes.
    pub const EMPTY: Self = Self {
        opcode: 0,
        flags: 0,
        command_id: CommandId(0),
        namespace: NamespaceId::NONE,
        cdw2: 0,
        cdw3: 0,
        metadata_pointer: 0,
        data_pointer: [0; 2],
        cdw10: 0,
        cdw11: 0,
        cdw12: 0,
        cdw13: 0,
        cdw14: 0,
        cdw15: 0,
    };

    /// Decodes an entry. Every bit pattern is valid.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let word = |index: usize| {
            u32::from_le_bytes([
                bytes[4 * index],
                bytes[4 * index + 1],
                bytes[4 * index + 2],
                bytes[4 * index + 3],
            ])
        };
        let quad = |index: usize| join_u64(word(index), word(index + 1));
        Self {
            opcode: bytes[0],
            flags: bytes[1],
            command_id: CommandId(u16::from_le_bytes([bytes[2], bytes[3]])),
            namespace: NamespaceId(word(1)),
            cdw2: word(2),
            cdw3: word(3),
            metadata_pointer: quad(4),
            data_pointer: [quad(6), quad(8)],
            cdw10: word(10),
            cdw11: word(11),
            cdw12: word(12),
            cdw13: word(13),
            cdw14: word(14),
            cdw15: word(15),
        }
    }

    /// Encodes the entry in the format of a submission queue.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let [low, high] = self.command_id.0.to_le_bytes();
        let first = u32::from_le_bytes([self.opcode, self.flags, low, high]);
        let [metadata, data, more] =
            [self.metadata_pointer, self.data_pointer[0], self.data_pointer[1]].map(halves);
        emit_words([
            first,
            self.namespace.0,
            self.cdw2,
            self.cdw3,
            metadata[0],
            metadata[1],
            data[0],
            data[1],
            more[0],
            more[1],
            self.cdw10,
            self.cdw11,
            self.cdw12,
            self.cdw13,
            self.cdw14,
            self.cdw15,
        ])
    }

    /// Fused Operation (FUSE).
    pub const fn fused(&self) -> FusedOperation {
        match FUSE.of(self.flags as u32) {
            0 => FusedOperation::Normal,
            1 => FusedOperation::First,
            2 => FusedOperation::Second,
            _ => FusedOperation::Reserved,
        }
    }

    /// PRP or SGL for Data Transfer (PSDT).
    pub const fn data_transfer(&self) -> DataTransfer {
        match PSDT.of(self.flags as u32) {
            0 => DataTransfer::Prp,
            1 => DataTransfer::SglContiguousMetadata,
            2 => DataTransfer::SglSegmentMetadata,
            _ => DataTransfer::Reserved,
        }
    }

    /// The entry with an SGL of one Data Block descriptor as its data pointer: `length` bytes at
    /// `address` of host memory.
    #[must_use]
    pub const fn with_data_block(mut self, address: u64, length: u32) -> Self {
        // The descriptor's type and subtype, which are its last byte, are 0.
        self.data_pointer = [address, length as u64];
        self.flags = self.flags & !PSDT_MASK | PSDT_SGL;
        self
    }

    /// The quad word in CDW10 and CDW11, which is the Starting LBA (SLBA) of most I/O commands.
    pub const fn starting_lba(&self) -> u64 {
        join_u64(self.cdw10, self.cdw11)
    }

    /// The entry with `lba` as its Starting LBA (SLBA), in CDW10 and CDW11.
    #[must_use]
    pub const fn with_starting_lba(mut self, lba: u64) -> Self {
        self.cdw10 = low_u32(lba);
        self.cdw11 = high_u32(lba);
        self
    }
}

/// A completion in the format of a completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompletionQueueEntry {
    /// Command-specific result, Dword 0 (DW0).
    pub dw0: u32,
    /// Command-specific result, Dword 1 (DW1).
    pub dw1: u32,
    /// SQ Head Pointer (SQHD): the next submission queue entry that the controller will consume.
    pub submission_queue_head: u16,
    /// SQ Identifier (SQID) of the command's submission queue.
    pub submission_queue: QueueId,
    /// Command Identifier (CID) of the command that ended.
    pub command_id: CommandId,
    /// Phase Tag (P, [`Self::phase`]) in bit 0, and the Status Field ([`Self::status`]) in bits
    /// 15:1.
    pub status_and_phase: u16,
}

const _: () = assert!(size_of::<CompletionQueueEntry>() == CompletionQueueEntry::LENGTH);

impl CompletionQueueEntry {
    /// Length of a completion queue entry in bytes.
    pub const LENGTH: usize = 16;

    /// Decodes an entry. Every bit pattern is valid.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LENGTH]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            dw0: u32::from_le_bytes([a, b, c, d]),
            dw1: u32::from_le_bytes([e, f, g, h]),
            submission_queue_head: u16::from_le_bytes([i, j]),
            submission_queue: QueueId(u16::from_le_bytes([k, l])),
            command_id: CommandId(u16::from_le_bytes([m, n])),
            status_and_phase: u16::from_le_bytes([o, p]),
        }
    }

    /// Encodes the entry in the format of a completion queue.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let double = |low: u16, high: u16| u32::from(high) << 16 | u32::from(low);
        emit_words([
            self.dw0,
            self.dw1,
            double(self.submission_queue_head, self.submission_queue.0),
            double(self.command_id.0, self.status_and_phase),
        ])
    }

    /// The Status Field, bits 15:1 of the last word.
    pub const fn status(&self) -> Status {
        Status::from_raw(self.status_and_phase >> 1)
    }

    /// The Phase Tag (P), bit 0 of the last word.
    pub const fn phase(&self) -> bool {
        self.status_and_phase & 1 != 0
    }

    /// The entry with Status Field `status` and Phase Tag `phase`.
    #[must_use]
    pub const fn with_status(mut self, status: Status, phase: bool) -> Self {
        self.status_and_phase = status.raw() << 1 | phase as u16;
        self
    }
}

/// The low and the high double word of `value`.
#[inline]
const fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// Encodes double words without a call for each.
#[inline]
fn emit_words<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::StatusCode;
    use proptest::prelude::*;

    #[test]
    fn fields_stand_where_the_specification_puts_them() {
        let mut bytes = [0_u8; 64];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(index).unwrap();
        }
        let entry = SubmissionQueueEntry::parse(&bytes);
        assert_eq!(entry.command_id, CommandId(0x0302));
        assert_eq!(entry.namespace, NamespaceId(0x0706_0504));
        assert_eq!(entry.metadata_pointer, 0x1716_1514_1312_1110);
        assert_eq!(entry.data_pointer, [0x1f1e_1d1c_1b1a_1918, 0x2726_2524_2322_2120]);
        assert_eq!(entry.starting_lba(), 0x2f2e_2d2c_2b2a_2928);
        assert_eq!(entry.cdw15, 0x3f3e_3d3c);
        assert_eq!(entry.fused(), FusedOperation::First);
    }

    #[test]
    fn a_data_block_is_an_sgl_of_sixteen_bytes() {
        let entry = SubmissionQueueEntry { flags: 0b1000_0010, ..SubmissionQueueEntry::default() };
        let bytes = entry.with_data_block(0x1_2345_6000, 0x2_0000).emit();
        assert_eq!(bytes[1], 0b0100_0010, "PSDT is 01b, and the rest of the byte stays");
        assert_eq!(bytes[24..40], [0, 0x60, 0x45, 0x23, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_completion_carries_phase_below_status() {
        // Invalid Field in Command, Do Not Retry, phase 1: 0x4002 << 1 | 1.
        let status = Status::from(StatusCode::InvalidField);
        let entry = CompletionQueueEntry { command_id: CommandId(7), ..Default::default() };
        let bytes = entry.with_status(status, true).emit();
        assert_eq!(&bytes[12..], [7, 0, 0x05, 0x80]);
        assert!(CompletionQueueEntry::parse(&bytes).phase());
        assert_eq!(CompletionQueueEntry::parse(&bytes).status(), status);
    }

    proptest! {
        #[test]
        fn entries_round_trip(submission: [u8; 32], rest: [u8; 32], completion: [u8; 16]) {
            let mut bytes = [0; 64];
            bytes[..32].copy_from_slice(&submission);
            bytes[32..].copy_from_slice(&rest);
            prop_assert_eq!(SubmissionQueueEntry::parse(&bytes).emit(), bytes);
            prop_assert_eq!(CompletionQueueEntry::parse(&completion).emit(), completion);
        }
    }
}
