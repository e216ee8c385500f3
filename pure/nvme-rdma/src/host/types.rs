//! Settings, inputs and outputs of a host's end of a connection.

use engine::Nanos;
use nvme::wire::{CommandId, QueueId};
use nvme_fabrics::transport::HostOutput;

use crate::connection::{Closed, Parameters};
use crate::wire::Request;
use crate::{QUEUE_SIZE_MAX, TRANSFER_BYTES_MAX};

/// The settings of a host's end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The queue that the connection carries.
    pub queue: QueueId,
    /// The controller that an I/O queue is for (CNTLID); 0 on an Admin Queue.
    pub controller_id: u16,
    /// Maximum number of outstanding commands: 1..=[`QUEUE_SIZE_MAX`]. Linux's target accepts at
    /// most 32 on an Admin Queue.
    pub queue_size: u16,
    /// Maximum length of the data in a capsule, in bytes. On an I/O queue, IOCCSZ less the entry,
    /// if SGLS reports support for data at an offset and ICDOFF is 0; else 0. On an Admin Queue, a
    /// host sends no data in capsules.
    pub capsule_data_max: u32,
    /// Whether responses may invalidate keys, if the endpoint can do it. Otherwise the host always
    /// ends loans itself.
    pub remote_invalidate: bool,
    /// How long the controller may take to accept the connection.
    pub initialise_timeout: Nanos,
}

impl Config {
    /// Settings for an Admin Queue of 32 entries.
    pub const fn new() -> Self {
        Self {
            queue: QueueId::ADMIN,
            controller_id: 0,
            queue_size: 32,
            capsule_data_max: 0,
            remote_invalidate: true,
            initialise_timeout: Nanos::from_secs(10),
        }
    }

    /// These settings for an I/O queue of `queue_size` entries of the controller `controller_id`,
    /// and capsules of up to `capsule_data_max` bytes of data.
    #[must_use]
    pub const fn for_queue(
        self,
        queue: QueueId,
        controller_id: u16,
        queue_size: u16,
        capsule_data_max: u32,
    ) -> Self {
        Self { queue, controller_id, queue_size, capsule_data_max, ..self }
    }

    /// The private data for the endpoint's request for the connection.
    ///
    /// # Panics
    /// When the queue has no entries.
    pub fn private_data(&self) -> [u8; Request::LENGTH] {
        let request = Request {
            queue: self.queue,
            host_receives: self.queue_size,
            host_sends: self.queue_size.into(),
            controller_id: self.controller_id,
        };
        request.emit()
    }

    pub(super) fn check(&self) {
        assert!((1..=QUEUE_SIZE_MAX).contains(&self.queue_size), "1..={QUEUE_SIZE_MAX} commands");
        assert!(self.capsule_data_max <= TRANSFER_BYTES_MAX, "at most {TRANSFER_BYTES_MAX} B in a capsule");
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// An output of the connection for its owner. When it is closed, none of its memory is lent any
/// more.
pub type Output = HostOutput<Parameters, Closed>;

/// Counters since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands sent.
    pub submitted: u64,
    /// Commands that ended.
    pub completed: u64,
    /// Keys that the controller has invalidated with its response.
    pub invalidated: u64,
    /// Identifier of the last command that was completed.
    pub last_completed: Option<CommandId>,
}
