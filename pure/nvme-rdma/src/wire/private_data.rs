//! The private data with which a host requests a queue and a controller accepts.

use core::fmt;

use nvme::wire::QueueId;

use super::{RECORD_FORMAT, Rejection, word};

/// A host's request for a queue (the `RDMA_CM_REQUEST` private data).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The queue (QID).
    pub queue: QueueId,
    /// Receive requests that the host posts for responses (HRQSIZE).
    pub host_receives: u16,
    /// Commands that the host sends at a time (HSQSIZE, decoded): 1..=65536.
    pub host_sends: u32,
    /// The controller that an I/O queue is for (CNTLID); 0 on an Admin Queue, and of hosts that
    /// follow the first version of the specification.
    pub controller_id: u16,
}

impl Request {
    /// Length of the private data in bytes.
    pub const LENGTH: usize = 32;

    /// Decodes and checks a request. Bytes behind the private data are ignored: some wire protocols
    /// pad private data.
    ///
    /// HRQSIZE counts from 1 and HSQSIZE from 0, as in existing hosts. A host that counts HRQSIZE
    /// from 0, too, is accepted as well: it sends the same number twice.
    ///
    /// # Errors
    /// The reason for the rejection of the connection.
    pub fn parse(bytes: &[u8]) -> Result<Self, Rejection> {
        let bytes = bytes.first_chunk().ok_or(Rejection::PrivateDataLength)?;
        if word(bytes, 0) != RECORD_FORMAT {
            return Err(Rejection::RecordFormat);
        }
        let (host_receives, sends_less_one) = (word(bytes, 4), word(bytes, 6));
        if host_receives == 0 || host_receives < sends_less_one {
            return Err(Rejection::HostReceiveQueueSize);
        }
        Ok(Self {
            queue: QueueId(word(bytes, 2)),
            host_receives,
            host_sends: u32::from(sends_less_one) + 1,
            controller_id: word(bytes, 8),
        })
    }

    /// Encodes the request.
    ///
    /// # Panics
    /// When `host_sends` is 0 or more than 65536.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let sends = self.host_sends.checked_sub(1).and_then(|sends| u16::try_from(sends).ok());
        let sends = sends.expect("a queue has 1..=65536 commands");
        let mut bytes = [0; Self::LENGTH];
        let words = [RECORD_FORMAT, self.queue.0, self.host_receives, sends, self.controller_id];
        for (place, word) in bytes.chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// A controller's acceptance (the `RDMA_CM_ACCEPT` private data).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// Receive requests that the controller posts for commands (CRQSIZE).
    pub controller_receives: u16,
}

/// The fault in the private data of an acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateDataError {
    /// They are too short. Holds the number of bytes.
    Length(usize),
    /// Their format is unknown. Holds RECFMT.
    RecordFormat(u16),
    /// The controller accepts no commands: CRQSIZE is 0.
    NoReceives,
}

impl fmt::Display for PrivateDataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "{length} B of private data, {} expected", Acceptance::LENGTH),
            Self::RecordFormat(format) => write!(f, "private data of format {format}, 0 expected"),
            Self::NoReceives => f.write_str("the private data offer no receive request (CRQSIZE is 0)"),
        }
    }
}

impl core::error::Error for PrivateDataError {}

impl Acceptance {
    /// Length of the private data in bytes.
    pub const LENGTH: usize = 32;

    /// Decodes and checks an acceptance. Bytes behind the private data are ignored.
    ///
    /// # Errors
    /// The fault that was found.
    pub fn parse(bytes: &[u8]) -> Result<Self, PrivateDataError> {
        let whole = bytes.first_chunk().ok_or(PrivateDataError::Length(bytes.len()))?;
        match (word(whole, 0), word(whole, 2)) {
            (RECORD_FORMAT, 0) => Err(PrivateDataError::NoReceives),
            (RECORD_FORMAT, controller_receives) => Ok(Self { controller_receives }),
            (format, _) => Err(PrivateDataError::RecordFormat(format)),
        }
    }

    /// Encodes the acceptance.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0..2].copy_from_slice(&RECORD_FORMAT.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.controller_receives.to_le_bytes());
        bytes
    }
}
