//! Capsules: a command or a completion in a PDU (CapsuleCmd, CapsuleResp).

use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};

use super::CommonHeader;

/// Length of the header of a CapsuleCmd in bytes.
pub const COMMAND_CAPSULE_LENGTH: usize = CommonHeader::LENGTH + SubmissionQueueEntry::LENGTH;
/// Length of the header of a CapsuleResp in bytes.
pub const RESPONSE_CAPSULE_LENGTH: usize = CommonHeader::LENGTH + CompletionQueueEntry::LENGTH;

/// A command (CapsuleCmd); its data may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCapsule {
    /// The command (SQE).
    pub entry: SubmissionQueueEntry,
}

impl CommandCapsule {
    /// Decodes the header of a CapsuleCmd whose framing was checked.
    #[inline]
    pub fn parse(bytes: &[u8; COMMAND_CAPSULE_LENGTH]) -> Self {
        let entry = bytes.last_chunk().expect("a command fits behind the common header");
        Self { entry: SubmissionQueueEntry::parse(entry) }
    }

    /// Encodes the header, with `common` at its front.
    #[inline]
    pub fn emit(&self, common: &CommonHeader) -> [u8; COMMAND_CAPSULE_LENGTH] {
        common.before(&self.entry.emit())
    }
}

/// A completion (CapsuleResp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseCapsule {
    /// The completion (CQE).
    pub entry: CompletionQueueEntry,
}

impl ResponseCapsule {
    /// Decodes the header of a CapsuleResp whose framing was checked.
    #[inline]
    pub fn parse(bytes: &[u8; RESPONSE_CAPSULE_LENGTH]) -> Self {
        let entry = bytes.last_chunk().expect("a completion fits behind the common header");
        Self { entry: CompletionQueueEntry::parse(entry) }
    }

    /// Encodes the header, with `common` at its front.
    #[inline]
    pub fn emit(&self, common: &CommonHeader) -> [u8; RESPONSE_CAPSULE_LENGTH] {
        common.before(&self.entry.emit())
    }
}
