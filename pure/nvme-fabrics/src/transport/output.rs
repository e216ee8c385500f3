//! What an end of a connection puts out for its owner, on every fabric.

use engine::Buffer;
use nvme::host::Completed;
use nvme::wire::{Status, SubmissionQueueEntry};

use super::Slot;

/// An output of a controller's end of a connection for its owner. `Agreed` are the parameters that
/// both ends have agreed upon, and `Why` is the reason for the end of the connection. On a fabric
/// on which no transfer fails alone, `Failure` has no values.
#[derive(Debug)]
pub enum ControllerOutput<Agreed, Why, Failure = Status> {
    /// The connection is initialised.
    Initialized(Agreed),
    /// A command, with its data if they were in the capsule: a pull of the connection returns them.
    Command {
        /// Names the command until it is completed.
        slot: Slot,
        /// The submission queue entry of the command.
        entry: SubmissionQueueEntry,
    },
    /// The data that a pull has requested from the host.
    HostData {
        /// The command that requested the data.
        slot: Slot,
        /// The data, exactly as many bytes as requested.
        data: Buffer,
    },
    /// Pulled data are broken; complete the command with `status`.
    HostDataFailed {
        /// The command that requested the data.
        slot: Slot,
        /// Status to complete the command with: Transient Transport Error.
        status: Failure,
    },
    /// The connection is over: send the contents of the outbox, if it has one, then close. This is
    /// the last output.
    Closed(Why),
}

impl<Agreed, Why, Failure> ControllerOutput<Agreed, Why, Failure> {
    /// The same output, as an owner of connections of several fabrics sees it.
    #[inline]
    pub fn map<A, W, F>(
        self,
        agreed: impl FnOnce(Agreed) -> A,
        why: impl FnOnce(Why) -> W,
        failure: impl FnOnce(Failure) -> F,
    ) -> ControllerOutput<A, W, F> {
        match self {
            Self::Initialized(parameters) => ControllerOutput::Initialized(agreed(parameters)),
            Self::Command { slot, entry } => ControllerOutput::Command { slot, entry },
            Self::HostData { slot, data } => ControllerOutput::HostData { slot, data },
            Self::HostDataFailed { slot, status } => {
                ControllerOutput::HostDataFailed { slot, status: failure(status) }
            }
            Self::Closed(reason) => ControllerOutput::Closed(why(reason)),
        }
    }
}

/// An output of a host's end of a connection for its owner. `Agreed` are the parameters that both
/// ends have agreed upon, and `Why` is the reason for the end of the connection.
#[derive(Debug)]
pub enum HostOutput<Agreed, Why> {
    /// The connection is initialised: commands can be submitted.
    Initialized(Agreed),
    /// A command has ended.
    Completed(Completed),
    /// The connection is over: send the contents of the outbox, if it has one, then close. This is
    /// the last output. The results of outstanding commands are unknown.
    Closed(Why),
}

impl<Agreed, Why> HostOutput<Agreed, Why> {
    /// The same output, as an owner of connections of several fabrics sees it.
    #[inline]
    pub fn map<A, W>(self, agreed: impl FnOnce(Agreed) -> A, why: impl FnOnce(Why) -> W) -> HostOutput<A, W> {
        match self {
            Self::Initialized(parameters) => HostOutput::Initialized(agreed(parameters)),
            Self::Completed(completed) => HostOutput::Completed(completed),
            Self::Closed(reason) => HostOutput::Closed(why(reason)),
        }
    }
}
