//! Work requests and their completions.

use core::fmt;
use core::ops::Deref;

use engine::Buffer;

use crate::{Key, Remote};

/// Bytes that are copied into the work request itself (IBV_SEND_INLINE): 64 at most, as long as a
/// submission queue entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Inline {
    bytes: [u8; Self::LENGTH_MAX],
    length: u8,
}

impl Inline {
    /// No bytes.
    pub const EMPTY: Self = Self { bytes: [0; Self::LENGTH_MAX], length: 0 };
    /// Maximum number of bytes.
    pub const LENGTH_MAX: usize = 64;

    /// Copies `bytes`.
    ///
    /// # Panics
    /// When there are more than [`Inline::LENGTH_MAX`] bytes.
    #[expect(clippy::cast_possible_truncation, reason = "64 fits into a byte")]
    pub fn new(bytes: &[u8]) -> Self {
        let mut inline = Self { length: bytes.len() as u8, ..Self::EMPTY };
        inline.bytes[..bytes.len()].copy_from_slice(bytes);
        inline
    }
}

impl Deref for Inline {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inline({:02x?})", &**self)
    }
}

/// The operation of a send request.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Sends a message, which takes one receive request of the peer.
    Send {
        /// The beginning of the message.
        inline: Inline,
        /// The rest of the message.
        data: Buffer,
        /// A key of the peer that is invalid once the message has arrived (Send with Invalidate).
        invalidate: Option<Key>,
        /// 32 bits for the peer's completion (Send with Immediate). iWARP does not support them,
        /// and rejects the request. Not together with `invalidate`.
        immediate: Option<u32>,
    },
    /// Writes `data` into memory that the peer has lent (RDMA Write).
    Write {
        /// The bytes to write.
        data: Buffer,
        /// The memory to write to.
        remote: Remote,
    },
    /// Reads memory that the peer has lent (RDMA Read). The completion brings the data.
    Read {
        /// The memory to read.
        remote: Remote,
    },
}

/// A request for the send queue.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The identifier that the completion returns (wr_id).
    pub id: u64,
    /// The operation to perform.
    pub operation: Operation,
    /// Whether a completion is wanted on success. Failures and reads always have one.
    pub signalled: bool,
}

/// A request for the receive queue: room for one message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The identifier that the completion returns (wr_id).
    pub id: u64,
    /// Length of the longest acceptable message in bytes.
    pub length_max: u32,
}

/// The result of a work request.
#[derive(Clone, Debug)]
pub struct WorkCompletion {
    /// The identifier of the request.
    pub id: u64,
    /// The queue pair that the request was posted to, or that took it from a shared receive queue.
    pub queue_pair: crate::QueuePairId,
    /// The outcome: the completed operation, or the error.
    pub result: Result<Done, WorkError>,
}

/// A completed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The message has been sent.
    Sent,
    /// The data have been written.
    Written,
    /// The data that were read.
    Read(Buffer),
    /// A message has arrived.
    Received {
        /// The message.
        data: Buffer,
        /// The key of this end that the message has invalidated.
        invalidated: Option<Key>,
        /// The immediate data of the peer.
        immediate: Option<u32>,
    },
}

/// Why a work request failed (ibv_wc_status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkError {
    /// A message was longer than the receive request allows (IBV_WC_LOC_LEN_ERR).
    LocalLength,
    /// The peer refuses the key, the address or the right (IBV_WC_REM_ACCESS_ERR).
    RemoteAccess,
    /// The peer found the request invalid (IBV_WC_REM_INV_REQ_ERR).
    RemoteInvalidRequest,
    /// The peer could not do the request (IBV_WC_REM_OP_ERR).
    RemoteOperation,
    /// The peer has not answered after all retries (IBV_WC_RETRY_EXC_ERR).
    RetryExceeded,
    /// The peer had no receive request after all retries (IBV_WC_RNR_RETRY_EXC_ERR).
    ReceiverNotReady,
    /// The peer sent an unexpected response (IBV_WC_BAD_RESP_ERR).
    BadResponse,
    /// The queue pair ended before the request was done (IBV_WC_WR_FLUSH_ERR).
    Flushed,
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LocalLength => "a message is longer than its receive request allows",
            Self::RemoteAccess => "the peer refuses the key, the address or the right",
            Self::RemoteInvalidRequest => "the peer found the request invalid",
            Self::RemoteOperation => "the peer could not do the request",
            Self::RetryExceeded => "the peer does not answer",
            Self::ReceiverNotReady => "the peer has no receive request posted",
            Self::BadResponse => "the peer sent an unexpected response",
            Self::Flushed => "the queue pair ended before",
        })
    }
}

impl core::error::Error for WorkError {}

/// Why a work request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full.
    Full,
    /// The queue pair does not accept such requests in its state.
    State,
    /// The wire protocol or the queue pair does not support the request.
    Unsupported,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue is full",
            Self::State => "the queue pair accepts no requests in its state",
            Self::Unsupported => "the wire protocol cannot do this request",
        })
    }
}

impl core::error::Error for PostError {}
