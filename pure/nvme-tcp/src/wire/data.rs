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

/// The range of a command's data that a PDU carries (H2CData, C2HData) or requests (R2T). The three
/// kinds of PDU have one layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Command Capsule CID (CCCID).
    pub command: CommandId,
    /// Transfer Tag (TTAG): an H2CData repeats the tag of its R2T. Reserved in a C2HData.
    pub tag: u16,
    /// Offset of these data in the command's data (DATAO, R2TO), in bytes.
    pub offset: u32,
    /// Length of these data (DATAL, R2TL), in bytes.
    pub length: u32,
}

impl DataHeader {
    /// Decodes the header of an H2CData, a C2HData or an R2T whose framing was checked.
    #[inline]
    pub fn parse(bytes: &[u8; DATA_HEADER_LENGTH]) -> Self {
        Self {
            command: CommandId(u16_at(bytes, COMMAND)),
            tag: u16_at(bytes, TAG),
            offset: u32_at(bytes, OFFSET),
            length: u32_at(bytes, LENGTH),
        }
    }

    /// Encodes the header, with `common` at its front.
    #[inline]
    pub fn emit(&self, common: &CommonHeader) -> [u8; DATA_HEADER_LENGTH] {
        let mut bytes = [0; DATA_HEADER_LENGTH];
        bytes[..CommonHeader::LENGTH].copy_from_slice(&common.emit());
        bytes[COMMAND..TAG].copy_from_slice(&self.command.0.to_le_bytes());
        bytes[TAG..OFFSET].copy_from_slice(&self.tag.to_le_bytes());
        bytes[OFFSET..LENGTH].copy_from_slice(&self.offset.to_le_bytes());
        bytes[LENGTH..LENGTH + 4].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }
}
