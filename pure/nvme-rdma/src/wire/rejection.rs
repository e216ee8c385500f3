//! Why a controller refuses a connection.

use core::fmt;

use super::RECORD_FORMAT;

/// Why a controller refuses a connection (STS of the `RDMA_CM_REJECT` private data).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The private data of the request are too short (Invalid Private Data Length, 01h).
    PrivateDataLength,
    /// The private data of the request have an unknown format (Invalid RECFMT, 02h).
    RecordFormat,
    /// The controller has no such queue (Invalid QID, 03h).
    QueueId,
    /// The host sends more commands at a time than the controller accepts (Invalid HSQSIZE, 04h).
    HostSendQueueSize,
    /// The host has too few receive requests for the responses (Invalid HRQSIZE, 05h).
    HostReceiveQueueSize,
    /// The controller has no room for the queue (No Resources, 06h).
    NoResources,
    /// The host answers too few reads at a time (Invalid IRD, 07h).
    InboundReads,
    /// The host reads more at a time than the controller answers (Invalid ORD, 08h).
    OutboundReads,
    /// The subsystem has no such controller (Invalid CNTLID, 09h).
    ControllerId,
    /// A status that the specification does not name.
    Other(u16),
}

/// Every named reason, in the order of their statuses from 01h on.
const NAMED: [Rejection; 9] = [
    Rejection::PrivateDataLength,
    Rejection::RecordFormat,
    Rejection::QueueId,
    Rejection::HostSendQueueSize,
    Rejection::HostReceiveQueueSize,
    Rejection::NoResources,
    Rejection::InboundReads,
    Rejection::OutboundReads,
    Rejection::ControllerId,
];

impl Rejection {
    /// Length of the private data in bytes.
    pub const LENGTH: usize = 4;

    /// Decodes the private data of a rejection. `None` if they are too short or of another format,
    /// so that the reason is unknown. Bytes behind them are ignored: some wire protocols pad
    /// private data.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d] = *bytes.first_chunk()?;
        let status = u16::from_le_bytes([c, d]);
        (u16::from_le_bytes([a, b]) == RECORD_FORMAT).then(|| Self::of(status))
    }

    /// The reason with this status (STS).
    fn of(status: u16) -> Self {
        let named = usize::from(status).checked_sub(1).and_then(|index| NAMED.get(index));
        named.copied().unwrap_or(Self::Other(status))
    }

    /// The status (STS) of this reason.
    pub const fn status(self) -> u16 {
        match self {
            Self::PrivateDataLength => 1,
            Self::RecordFormat => 2,
            Self::QueueId => 3,
            Self::HostSendQueueSize => 4,
            Self::HostReceiveQueueSize => 5,
            Self::NoResources => 6,
            Self::InboundReads => 7,
            Self::OutboundReads => 8,
            Self::ControllerId => 9,
            Self::Other(status) => status,
        }
    }

    /// Encodes the private data of a rejection.
    pub const fn emit(self) -> [u8; Self::LENGTH] {
        let [a, b] = RECORD_FORMAT.to_le_bytes();
        let [c, d] = self.status().to_le_bytes();
        [a, b, c, d]
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrivateDataLength => "the private data of the request are too short (32 bytes at least)",
            Self::RecordFormat => "the private data of the request have an unknown format (0 is known)",
            Self::QueueId => "the controller has no such queue; request fewer queues",
            Self::HostSendQueueSize => {
                "the host sends more commands at a time than the controller accepts; request a shorter queue"
            }
            Self::HostReceiveQueueSize => "the host has fewer receive requests than commands",
            Self::NoResources => "the controller has no room for another queue; try again later",
            Self::InboundReads => "the host answers too few reads at a time (IRD)",
            Self::OutboundReads => "the host reads more at a time than the controller answers (ORD)",
            Self::ControllerId => "the subsystem has no such controller; connect the Admin Queue anew",
            Self::Other(status) => return write!(f, "the controller gives the unknown status {status:#x}"),
        })
    }
}

impl core::error::Error for Rejection {}
