//! The operations of an end of a connection, the same on every fabric.

use engine::Buffer;
use nvme::host::{Data, SubmitError};
use nvme::wire::{CommandId, CompletionQueueEntry, Status, SubmissionQueueEntry};

use super::{Held, Permission, Queue, Slot};

/// A controller's end of a connection, which carries one queue. Its outputs are
/// [`ControllerOutput`](super::ControllerOutput)s.
pub trait ControllerEnd {
    /// Sets the parameters that the Connect command requested. Call this before the Connect is
    /// completed; until then, the end accepts one command at a time.
    ///
    /// # Panics
    /// When the size is 0 or more than [`QUEUE_SIZE_MAX`](super::QUEUE_SIZE_MAX), or a capsule has
    /// more data than the fabric allows.
    fn set_queue(&mut self, queue: Queue);
    /// Whether the connection wants input from the host now. Input that arrives nevertheless is
    /// kept.
    fn wants_input(&self) -> bool;
    /// How many bytes the connection holds for its host.
    fn held(&self) -> Held;
    /// Whether requested data of the host have not arrived.
    fn is_owed_data(&self) -> bool;
    /// Sets the connection's permission from now on.
    fn permit(&mut self, permission: Permission);
    /// Ends the connection at once and silently: unsent data are dropped.
    fn give_up(&mut self);
    /// Number of commands that were not completed.
    fn outstanding(&self) -> u16;

    /// The data that the command of `slot` sends. Data in the capsule are returned at once; other
    /// data arrive by [`HostData`](super::ControllerOutput::HostData) once the host has sent them.
    /// Only one pull for each command is allowed.
    ///
    /// # Errors
    /// The status to complete the command with, if its SGL descriptor offers fewer bytes.
    ///
    /// # Panics
    /// When no command has that slot, or `length` is 0 or more than the fabric moves.
    fn pull(&mut self, slot: Slot, length: u32) -> Result<Option<Buffer>, Status>;

    /// Sends the host `data`, which belong at `offset` of the `total` bytes that the command of
    /// `slot` moves. Pieces may be in any order.
    ///
    /// # Errors
    /// The status to complete the command with, if its SGL descriptor has no room for `total`
    /// bytes.
    ///
    /// # Panics
    /// When no command has that slot, or the piece does not lie within the whole.
    fn push(&mut self, slot: Slot, offset: u32, total: u32, data: Buffer) -> Result<(), Status>;

    /// Ends the command of `slot`, with its identifier filled in. The slot is free at once, unless
    /// data of the host are still coming for it. In that case the slot becomes free when the data
    /// have arrived, and no further output names it.
    ///
    /// # Panics
    /// When no command has that slot.
    fn complete(&mut self, slot: Slot, entry: CompletionQueueEntry);
}

/// A host's end of a connection, which carries one queue. Its outputs are
/// [`HostOutput`](super::HostOutput)s.
pub trait HostEnd {
    /// Sends a command, with its identifier and data pointer filled in.
    /// [`Completed`](super::HostOutput::Completed) follows.
    ///
    /// # Errors
    /// When the command is rejected; it then was not sent. [`SubmitError::Busy`] also when the
    /// fabric lends no more memory.
    ///
    /// # Panics
    /// When the command moves more bytes than the fabric.
    fn submit(
        &mut self,
        cookie: u64,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<CommandId, SubmitError>;
    /// Whether commands can be submitted.
    fn is_ready(&self) -> bool;
    /// Whether one more command can be submitted.
    fn has_room(&self) -> bool;
    /// Number of commands that have not ended.
    fn outstanding(&self) -> u16;
}
