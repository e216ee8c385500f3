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
    /// The pool for messages that do not come in one piece.
    pub pool: SharedPool,
    /// The number of the queue pair, which no other queue pair of the domain has.
    pub queue_pair: QueuePairId,

    /// Where completions go. If connections share it, [`Endpoint::poll_completion`] of each returns
    /// those of all.
    ///
    /// [`Endpoint::poll_completion`]: rdma::Endpoint::poll_completion
    pub completions: SharedCompletionQueue,
    /// The receive queue, if connections share it.
    pub shared_receives: Option<SharedReceiveQueue>,
    /// Send requests outstanding at a time.
    pub send_depth: u16,
    /// Receive requests posted at a time.
    pub receive_depth: u16,
    /// Reads of this end that are outstanding at a time (ORD); the peer may lower it. Others wait.
    pub reads_outstanding_max: u16,
    /// Reads of the peer that this end answers at a time (IRD).
    pub reads_answered_max: u16,
    /// The function that computes CRCs (CRC32C).
    pub crc32c: Crc32c,
    /// Whether this end wants CRCs. They are used if either end wants them.
    pub crc: bool,
    /// The revision of MPA with which this end connects. The end that accepts answers with the
    /// revision of the request.
    pub revision: Revision,
    /// Whether the end that connects sends an empty message first, so that the other end may send
    /// before this end does. Only in revision 2.
    pub peer_to_peer: bool,
    /// Data of the longest segment sent, in bytes: 1..=[`SEGMENT_BYTES_MAX`]. Cards may want
    /// segments that fit into one TCP segment.
    pub segment_bytes: u32,
    /// How long the peer may take for its request, or for its reply.
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

    /// The settings, if they are legal.
    ///
    /// # Panics
    /// When they are not.
    pub(crate) fn checked(self) -> Self {
        let segment = 1..=SEGMENT_BYTES_MAX;
        assert!(segment.contains(&self.segment_bytes), "a segment has 1 to {SEGMENT_BYTES_MAX} bytes");
        let reads = self.reads_outstanding_max.max(self.reads_answered_max);
        assert!(reads < IRD_ORD_MAX, "there are at most {} reads at a time", IRD_ORD_MAX - 1);
        self
    }
}
