//! Settings, inputs and outputs of a controller's end of a connection.

use core::convert::Infallible;

use engine::Nanos;
use nvme::wire::CommandId;
use nvme_fabrics::transport::ControllerOutput;

use crate::connection::{Closed, Parameters};
use crate::wire::Rejection;
use crate::{ADMIN_CAPSULE_DATA_MAX, QUEUE_SIZE_MAX, SharedPool, TRANSFER_BYTES_MAX};

/// The largest identifier of a controller (CNTLID); the others are reserved.
const CONTROLLER_ID_MAX: u16 = 0xffef;

/// The settings of a controller's end of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pool for data that arrive in parts.
    pub pool: SharedPool,
    /// Maximum number of commands that a host may send at a time (HSQSIZE): 1..=[`QUEUE_SIZE_MAX`].
    /// A host that requests more is refused.
    pub queue_size_max: u16,
    /// The largest identifier of a queue. A host that requests a larger one is refused.
    pub queue_id_max: u16,
    /// The largest identifier of a controller. A host that names another is refused.
    pub controller_id_max: u16,
    /// Refuses every host for this reason. The owner sets it if it has no room, or if IRD or ORD of
    /// the request are not acceptable.
    pub refusal: Option<Rejection>,
    /// Maximum length of the data in a capsule, in bytes: at least the
    /// [`capsule_data_max`](nvme_fabrics::transport::Queue::capsule_data_max) of each queue.
    pub capsule_data_max: u32,
    /// RDMA Reads outstanding at a time (ORD, and no more than the host's IRD): at least 1.
    pub reads_max: u16,
    /// Limit on the outstanding bytes of reads, over all commands; further transfers wait. One read
    /// is always permitted.
    pub pull_bytes_max: u32,
    /// Limit on the bytes that wait for the host to read them, including those that commands in
    /// flight will produce. Beyond the limit, the connection accepts no further command.
    pub backlog_bytes_max: u64,
    /// Whether responses invalidate keys on request of the host, if the endpoint supports it.
    pub remote_invalidate: bool,
    /// Time limit for establishing the connection.
    pub initialise_timeout: Nanos,
}

impl Config {
    /// Settings with the usual limits.
    pub const fn new(pool: SharedPool) -> Self {
        Self {
            pool,
            queue_size_max: QUEUE_SIZE_MAX,
            queue_id_max: u16::MAX,
            controller_id_max: CONTROLLER_ID_MAX,
            refusal: None,
            capsule_data_max: ADMIN_CAPSULE_DATA_MAX,
            reads_max: 16,
            pull_bytes_max: 8 << 20,
            backlog_bytes_max: 8 << 20,
            remote_invalidate: true,
            initialise_timeout: Nanos::from_secs(10),
        }
    }

    pub(super) fn check(&self) {
        assert!((1..=QUEUE_SIZE_MAX).contains(&self.queue_size_max), "1..={QUEUE_SIZE_MAX} commands");
        assert!(self.capsule_data_max <= TRANSFER_BYTES_MAX, "at most {TRANSFER_BYTES_MAX} B in a capsule");
        assert!(self.reads_max > 0, "at least one read at a time");
    }
}

/// An output of the connection for its owner. A host whose memory cannot be reached loses its
/// connection, so no transfer fails alone.
pub type Output = ControllerOutput<Parameters, Closed, Infallible>;

/// Counters since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of received commands.
    pub commands: u64,
    /// Commands that the connection itself answered, because of duplicate identifiers.
    pub refused: u64,
    /// Keys of the host that responses have invalidated.
    pub invalidated: u64,
    /// The last identifier that an outstanding command had already; the new command was answered
    /// with Command ID Conflict.
    pub last_conflict: Option<CommandId>,
}
