//! A command as the caller of a host hands it over.

use super::Data;
use crate::wire::SubmissionQueueEntry;

/// A command to carry out, with its data in buffers.
#[derive(Clone, Debug)]
pub struct Command {
    /// The caller's name for the command.
    pub cookie: u64,
    /// The submission queue entry. The host fills in the command identifier and the data pointer.
    pub entry: SubmissionQueueEntry,
    /// The data that the command moves.
    pub data: Data,
}
