//! The commands of a connection.

use engine::Buffer;
use nvme::wire::{CommandId, CompletionQueueEntry};
use nvme_fabrics::transport::ControllerCommands;

use crate::assembly::Assembly;
use crate::{DataPointer, R2TS_PER_COMMAND_MAX};

/// Commands by slot.
pub(crate) type Slots = ControllerCommands<Command>;

/// A part of a transfer that an R2T requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// Offset of the next data of the part in the transfer.
    pub(super) next: u32,
    /// Offset of the end of the part; equal to `next` when all of its data have arrived.
    pub(super) end: u32,
}

impl Window {
    pub(super) const fn is_open(self) -> bool {
        self.next < self.end
    }
}

/// Data that are fetched from the host.
#[derive(Debug, Default)]
pub(super) struct Pull {
    pub(super) data: Assembly,
    /// Number of requested bytes.
    pub(super) asked: u32,
    pub(super) windows: [Window; R2TS_PER_COMMAND_MAX],
}

impl Pull {
    pub(super) const fn is_active(&self) -> bool {
        self.data.length > 0
    }
}

/// A command between its arrival and its response.
#[derive(Debug)]
pub(crate) struct Command {
    pub(super) id: CommandId,
    pub(super) pointer: DataPointer,
    /// The data in the capsule.
    pub(super) capsule: Buffer,
    pub(super) pull: Pull,
    /// Bytes that were pushed to the host, in order.
    pub(super) pushed: u32,
    /// Bytes that the command counts in the connection's backlog.
    pub(super) reserved: u32,
    /// Number of bytes requested from the host.
    pub(super) pulled: u32,
    /// The completion of a command that was given up while its data were coming.
    pub(super) response: Option<CompletionQueueEntry>,
}
