//! Settings, inputs and outputs of several paths to a subsystem.

use core::fmt;

use engine::{Buffer, Instant, Nanos};
use nvme::host::{Command, Data, Origin};
use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};

use crate::host::Identity;
use crate::host::association::{Failure, Loss};
use crate::wire::QueueId;

/// Maximum number of paths to one subsystem.
pub const PATHS_MAX: usize = 16;

/// Names a path: 0.., in the order in which the associations were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathIndex(pub u16);

impl PathIndex {
    pub(super) const fn usize(self) -> usize {
        self.0 as usize
    }
}

/// The choice between several equally good paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Each path in turn.
    #[default]
    RoundRobin,
    /// The path whose commands have recently taken the least time, weighted by the number of its
    /// outstanding commands.
    LowestLatency,
}

/// The settings that all paths share.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The choice between several equally good paths.
    pub policy: Policy,
    /// Maximum number of commands outstanding at a time, over all paths: 1..=65536.
    pub commands_max: u32,
    /// How long a command may take on its path before the path reconnects.
    pub io_timeout: Nanos,
    /// How often a command is sent again after errors that the command did not cause.
    pub retries_max: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            commands_max: 1024,
            io_timeout: Nanos::from_secs(30),
            retries_max: 5,
        }
    }
}

/// An I/O command to execute.
#[derive(Clone, Debug)]
pub struct Request {
    /// The caller's name for the command.
    pub cookie: u64,
    /// The submission queue entry. Identifier and data pointer are filled in later.
    pub entry: SubmissionQueueEntry,
    /// The data that the command moves.
    pub data: Data,
    /// Chooses the I/O queue: commands with the same number share a queue where possible.
    pub queue: u16,
}

impl Request {
    /// The number that chooses the queue, and the command without it.
    pub fn into_command(self) -> (u16, Command) {
        let Self { cookie, entry, data, queue } = self;
        (queue, Command { cookie, entry, data })
    }
}

/// A command to be sent on a path.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The path on which to send the command.
    pub path: PathIndex,
    /// The queue of the path on which to send the command.
    pub queue: QueueId,
    /// Names the command in [`Multipath::on_completed`](super::Multipath::on_completed).
    pub token: u64,
    /// The submission queue entry of the command.
    pub entry: SubmissionQueueEntry,
    /// The data that the command moves.
    pub data: Data,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The caller's name for the command.
    pub cookie: u64,
    /// The completion queue entry of the command.
    pub entry: CompletionQueueEntry,
    /// The data that the command has read; after a success, all the requested bytes.
    pub data: Buffer,
    /// The origin of the result.
    pub origin: Origin,
    /// When the command was submitted.
    pub submitted: Instant,
}

/// An output of the paths: a request to their transport, or a report to their user.
#[derive(Clone, Debug)]
pub enum Output {
    /// Connect a queue of a path.
    OpenQueue {
        /// The path of the queue.
        path: PathIndex,
        /// The queue to connect.
        queue: QueueId,
        /// The controller of the queue (CNTLID); 0 for an Admin Queue, which has none yet.
        controller: u16,
        /// Commands that the queue holds.
        size: u16,
        /// Maximum length of the data in a capsule of the queue, in bytes.
        capsule_data_max: u32,
    },
    /// Close every queue of a path at once.
    CloseQueues {
        /// The path whose queues to close.
        path: PathIndex,
        /// Whether unsent bytes must be dropped rather than sent.
        abort: bool,
    },
    /// Send a command.
    Dispatch(Dispatch),
    /// A path can be used, for the first time or again.
    PathUp(PathIndex),
    /// A path is lost and tries to connect again. Its commands take another path or wait.
    PathLost(PathIndex, Loss),
    /// A path has ended for good: with this failure, or by a shutdown (`None`).
    PathEnded(PathIndex, Option<Failure>),
    /// An I/O command has ended.
    Completed(Completed),
    /// An admin command has ended.
    AdminCompleted(nvme::host::Completed),
    /// The controller of a path reports an event (DW0 of the Asynchronous Event Request).
    Event(PathIndex, u32),
    /// The identity of the path's controller has changed.
    IdentityChanged(PathIndex),
}

/// Why a command was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The maximum number of commands is outstanding; take completions first.
    Busy,
    /// There is no path, and there will be none.
    NoPath,
    /// The command moves too many bytes.
    Length {
        /// Bytes that the command would move.
        length: u64,
        /// Maximum number of bytes that a command may move.
        limit: u32,
    },
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the maximum number of commands is outstanding"),
            Self::NoPath => f.write_str("no path to the subsystem is left"),
            Self::Length { length, limit } => {
                write!(f, "{length} B of data, where {limit} B at most can be moved")
            }
        }
    }
}

impl core::error::Error for SubmitError {}

/// Counters since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands submitted.
    pub submitted: u64,
    /// Commands that ended.
    pub completed: u64,
    /// Commands that were sent again.
    pub retried: u64,
    /// Commands that were on a path when it was lost.
    pub stranded: u64,
}

/// The state of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathStatus<'a> {
    /// Whether commands can take the path.
    pub live: bool,
    /// Whether the path has ended for good.
    pub over: bool,
    /// Commands outstanding on the path.
    pub outstanding: u32,
    /// Moving average of the time that commands have taken on the path.
    pub latency: Nanos,
    /// The last identity that the path's controller reported.
    pub identity: Option<&'a Identity>,
}
