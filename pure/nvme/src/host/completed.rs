//! The end of a command, as a message transport reports it.

use engine::Buffer;

use crate::wire::CompletionQueueEntry;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The caller's name for the command.
    pub cookie: u64,
    /// The completion queue entry.
    pub entry: CompletionQueueEntry,
    /// The data that the command has read, from the start. The controller may have sent fewer bytes
    /// than requested.
    pub data: Buffer,
}
