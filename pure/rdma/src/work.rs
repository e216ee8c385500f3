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

    /// A copy of `bytes`.
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

/// What a send request does.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Sends a message, which takes one receive request of the peer.
    Send {
        /// The beginning of the message.
        inline: Inline,
        /// What follows it.
        data: Buffer,
        /// A key of the peer's that no longer names anything once the message has arrived
        /// (Send with Invalidate).
        invalidate: Option<Key>,
        /// 32 bits that the peer's completion brings (Send with Immediate). iWARP has none, and
        /// refuses the request. Not together with `invalidate`.
        immediate: Option<u32>,
    },
    /// Writes `data` into memory that the peer has lent (RDMA Write).
    Write {
        /// What is written.
        data: Buffer,
        /// Where to.
        remote: Remote,
    },
    /// Reads memory that the peer has lent (RDMA Read). The completion brings the data.
    Read {
        /// Where from, and how many bytes.
        remote: Remote,
    },
}

/// A request for the send queue.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// What the completion returns (wr_id).
    pub id: u64,
    /// What is done.
    pub operation: Operation,
    /// Whether a completion is wanted on success. A failure always has one, and so has a read.
    pub signalled: bool,
}

/// A request for the receive queue: room for one message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// What the completion returns (wr_id).
    pub id: u64,
    /// Length of the longest message that is taken, in bytes.
    pub length_max: u32,
}

/// How a work request ended.
#[derive(Clone, Debug)]
pub struct WorkCompletion {
    /// The identifier of the request.
    pub id: u64,
    /// The queue pair that the request was posted to, or that took it from a shared receive queue.
    pub queue_pair: crate::QueuePairId,
    /// What was done, or why it was not.
    pub result: Result<Done, WorkError>,
}

/// What a work request has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The message has been sent.
    Sent,
    /// The data have been written.
    Written,
    /// The data that were read.
    Read(Buffer),
    /// A message has come.
    Received {
        /// The message.
        data: Buffer,
        /// The key of ours that the peer has invalidated with it.
        invalidated: Option<Key>,
        /// The immediate data of the peer.
        immediate: Option<u32>,
    },
}

/// Why a work request was not done (ibv_wc_status).
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
    /// The peer has not answered, however often it was asked (IBV_WC_RETRY_EXC_ERR).
    RetryExceeded,
    /// The peer had no receive request, however often it was asked (IBV_WC_RNR_RETRY_EXC_ERR).
    ReceiverNotReady,
    /// The peer has answered what nobody asked (IBV_WC_BAD_RESP_ERR).
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
            Self::BadResponse => "the peer answered what nobody asked",
            Self::Flushed => "the queue pair ended before",
        })
    }
}

impl core::error::Error for WorkError {}

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full.
    Full,
    /// The queue pair takes no such request in its state.
    State,
    /// The wire protocol cannot do the request, or the queue pair has not that many bytes.
    Unsupported,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the queue is full",
            Self::State => "the queue pair takes no requests in its state",
            Self::Unsupported => "the wire protocol cannot do this request",
        })
    }
}

impl core::error::Error for PostError {}
