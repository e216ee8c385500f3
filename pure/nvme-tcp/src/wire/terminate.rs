//! Terminate Connection Requests (H2CTermReq, C2HTermReq).

use super::{Agreement, CommonHeader, DATA_HEADER_LENGTH, FatalErrorStatus, Fault, Flags};
use super::{HEADER_LENGTH_MAX, PduKind, Receiver, u16_at, u32_at};

/// Length in bytes of the longest Terminate Connection Request: its header, and the longest header
/// that it can report.
pub const TERMINATE_LENGTH_MAX: usize = DATA_HEADER_LENGTH + HEADER_LENGTH_MAX;

const STATUS: usize = 8;
const INFORMATION: usize = 10;

/// A Terminate Connection Request: ends a connection with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminateRequest {
    /// The fault that ends the connection.
    pub fault: Fault,
}

impl TerminateRequest {
    /// Decodes the header; every pattern of bytes is valid.
    pub fn parse(bytes: &[u8; DATA_HEADER_LENGTH]) -> Self {
        let status = FatalErrorStatus::from_raw(u16_at(bytes, STATUS));
        Self { fault: Fault { status, information: u32_at(bytes, INFORMATION) } }
    }

    /// Encodes the PDU towards `receiver` about a PDU of which `header` was received. Returns the
    /// bytes, and how many of them are the PDU.
    pub fn emit(&self, receiver: Receiver, header: &[u8]) -> ([u8; TERMINATE_LENGTH_MAX], usize) {
        let kind = match receiver {
            Receiver::Controller => PduKind::HostTerminate,
            Receiver::Host => PduKind::ControllerTerminate,
        };
        let header = &header[..header.len().min(HEADER_LENGTH_MAX)];
        let length = u32::try_from(header.len()).expect("a header is short");
        let (common, framing) = Agreement::NONE.frame(kind, length, Flags::NONE);
        let mut bytes = [0; TERMINATE_LENGTH_MAX];
        bytes[..CommonHeader::LENGTH].copy_from_slice(&common.emit());
        bytes[STATUS..STATUS + 2].copy_from_slice(&self.fault.status.raw().to_le_bytes());
        bytes[INFORMATION..INFORMATION + 4].copy_from_slice(&self.fault.information.to_le_bytes());
        bytes[framing.head()..framing.head() + header.len()].copy_from_slice(header);
        (bytes, framing.head() + header.len())
    }
}
