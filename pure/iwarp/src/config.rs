//! The settings of a connection.

use engine::{Crc32c, Nanos, crc32c};
use rdma::{QueuePairId, SharedCompletionQueue, SharedDomain, SharedPool, SharedReceiveQueue};

use crate::wire::{Header, IRD_ORD_MAX, Revision, ULPDU_LENGTH_MAX};

/// Data of the longest segment, in bytes: with its header, it fits into an FPDU.
#[allow(clippy::cast_possible_truncation, reason = "64 KiB")]
pub const SEGMENT_BYTES_MAX: u32 = (ULPDU_LENGTH_MAX - Header::UNTAGGED_LENGTH) as u32;

/// The settings of an end of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The memory that peers may access.
    pub domain: SharedDomain,
    /// The pool for messages that arrive in several pieces.
    pub pool: SharedPool,
    /// The number of the queue pair, unique within the domain.
    pub queue_pair: QueuePairId,

    /// The queue of completions. If connections share it, [`Endpoint::poll_completion`] of each
    /// returns the completions of all.
    ///
    /// [`Endpoint::poll_completion`]: rdma::Endpoint::poll_completion
    pub completions: SharedCompletionQueue,
    /// The receive queue, if connections share it.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// Maximum number of outstanding send requests.
    pub send_depth: u16,
    /// Maximum number of posted receive requests.
    pub receive_depth: u16,
    /// Maximum number of this end's outstanding reads (ORD); the peer may lower it. Further reads
    /// wait.
    pub reads_outstanding_max: u16,
    /// Maximum number of the peer's reads that this end answers at a time (IRD).
    pub reads_answered_max: u16,
    /// The function that computes CRCs (CRC32C).
    pub crc32c: Crc32c,
    /// Whether this end asks for CRCs. They are used if either end asks for them.
    pub crc: bool,
    /// The revision of MPA with which this end connects. The accepting end answers with the
    /// revision of the request.
    pub revision: Revision,
    /// Whether the connecting end sends an empty message first, so that the other end may send
    /// before this end does. Only in revision 2.
    pub peer_to_peer: bool,
    /// Data of the longest segment sent, in bytes: 1..=[`SEGMENT_BYTES_MAX`]. Some cards need
    /// segments that fit into one TCP segment.
    pub segment_bytes: u32,
    /// Time limit for the peer's request or reply.
    pub setup_timeout: Nanos,
}

impl Config {
    /// Settings with memory of `domain` and blocks of `pool`, for the queue pair with this number.
    pub fn new(domain: SharedDomain, pool: SharedPool, queue_pair: QueuePairId) -> Self {
        Self {
            domain,
            pool,
            queue_pair,
            completions: SharedCompletionQueue::default(),
            shared_receives: None,
            send_depth: 128,
            receive_depth: 128,
            reads_outstanding_max: 16,
            reads_answered_max: 16,
            crc32c,
            crc: true,
            revision: Revision::Two,
            peer_to_peer: true,
            segment_bytes: 32 << 10,
            setup_timeout: Nanos::from_secs(10),
        }
    }

    /// Returns the settings if they are valid.
    ///
    /// # Panics
    /// When they are not.
    pub(crate) fn checked(self) -> Self {
        let segment = 1..=SEGMENT_BYTES_MAX;
        assert!(segment.contains(&self.segment_bytes), "a segment has 1 to {SEGMENT_BYTES_MAX} bytes");
        let reads = self.reads_outstanding_max.max(self.reads_answered_max);
        assert!(reads < IRD_ORD_MAX, "at most {} reads at a time", IRD_ORD_MAX - 1);
        self
    }
}
