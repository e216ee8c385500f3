//! Data, and the permission to send data (H2CData, C2HData, R2T).

use nvme::wire::CommandId;

use super::{CommonHeader, u16_at, u32_at};

/// Length in bytes of the header of an H2CData, a C2HData, an R2T or a Terminate Connection
/// Request.
pub const DATA_HEADER_LENGTH: usize = 24;

const COMMAND: usize = 8;
const TAG: usize = 10;
const OFFSET: usize = 12;
const LENGTH: usize = 16;

/// Data of a command from the host (H2CData), as an R2T has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostToControllerData {
    /// Command Capsule CID (CCCID).
    pub command: CommandId,
    /// Transfer Tag (TTAG), from the R2T.
    pub tag: u16,
    /// Offset of these data in the command's data (DATAO), in bytes.
    pub offset: u32,
    /// Length of these data (DATAL), in bytes.
    pub length: u32,
}

/// Data of a command from the controller (C2HData).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerToHostData {
    /// Command Capsule CID (CCCID).
    pub command: CommandId,
    /// Offset of these data in the command's data (DATAO), in bytes.
    pub offset: u32,
    /// Length of these data (DATAL), in bytes.
    pub length: u32,
}

/// Permission to send a part of a command's data (R2T).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToTransfer {
    /// Command Capsule CID (CCCID).
    pub command: CommandId,
    /// Transfer Tag (TTAG), which the data must carry.
    pub tag: u16,
    /// Offset of the part in the command's data (R2TO), in bytes.
    pub offset: u32,
    /// Length of the part (R2TL), in bytes.
    pub length: u32,
}

impl HostToControllerData {
    /// Decodes the header of an H2CData whose framing was checked.
    #[inline]
    pub fn parse(bytes: &[u8; DATA_HEADER_LENGTH]) -> Self {
        let (command, tag, offset, length) = parse(bytes);
        Self { command, tag, offset, length }
    }

    /// Encodes the header, with `common` at its front.
    #[inline]
    pub fn emit(&self, common: &CommonHeader) -> [u8; DATA_HEADER_LENGTH] {
        emit(common, self.command, self.tag, self.offset, self.length)
    }
}

impl ControllerToHostData {
    /// Decodes the header of a C2HData whose framing was checked.
    #[inline]
    pub fn parse(bytes: &[u8; DATA_HEADER_LENGTH]) -> Self {
        let (command, _, offset, length) = parse(bytes);
        Self { command, offset, length }
    }

    /// Encodes the header, with `common` at its front.
    #[inline]
    pub fn emit(&self, common: &CommonHeader) -> [u8; DATA_HEADER_LENGTH] {
        emit(common, self.command, 0, self.offset, self.length)
    }
}

impl ReadyToTransfer {
    /// Decodes the header of an R2T whose framing was checked.
    #[inline]
    pub fn parse(bytes: &[u8; DATA_HEADER_LENGTH]) -> Self {
        let (command, tag, offset, length) = parse(bytes);
        Self { command, tag, offset, length }
    }

    /// Encodes the header, with `common` at its front.
    #[inline]
    pub fn emit(&self, common: &CommonHeader) -> [u8; DATA_HEADER_LENGTH] {
        emit(common, self.command, self.tag, self.offset, self.length)
    }
}

fn parse(bytes: &[u8; DATA_HEADER_LENGTH]) -> (CommandId, u16, u32, u32) {
    let command = CommandId(u16_at(bytes, COMMAND));
    (command, u16_at(bytes, TAG), u32_at(bytes, OFFSET), u32_at(bytes, LENGTH))
}

fn emit(
    common: &CommonHeader,
    command: CommandId,
    tag: u16,
    offset: u32,
    length: u32,
) -> [u8; DATA_HEADER_LENGTH] {
    let mut bytes = [0; DATA_HEADER_LENGTH];
    bytes[..CommonHeader::LENGTH].copy_from_slice(&common.emit());
    bytes[COMMAND..TAG].copy_from_slice(&command.0.to_le_bytes());
    bytes[TAG..OFFSET].copy_from_slice(&tag.to_le_bytes());
    bytes[OFFSET..LENGTH].copy_from_slice(&offset.to_le_bytes());
    bytes[LENGTH..LENGTH + 4].copy_from_slice(&length.to_le_bytes());
    bytes
}
