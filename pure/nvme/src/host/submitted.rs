//! A command as the caller of a host hands it over.

use core::fmt;

use super::Data;
use crate::wire::SubmissionQueueEntry;

/// A command to execute, with its data in buffers.
#[derive(Clone, Debug)]
pub struct Command {
    /// The caller's name for the command.
    pub cookie: u64,
    /// The submission queue entry. The host fills in the command identifier and the data pointer.
    pub entry: SubmissionQueueEntry,
    /// The data that the command moves.
    pub data: Data,
}

/// Why a connection has not accepted a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The queue is full.
    Busy,
    /// The connection is not initialised yet, or is over.
    NotReady,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the queue is full",
            Self::NotReady => "the connection is not ready",
        })
    }
}

impl core::error::Error for SubmitError {}
