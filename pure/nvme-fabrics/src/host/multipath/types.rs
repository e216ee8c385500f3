//! What passes between several paths to a subsystem and their user.

use core::fmt;

use engine::{Buffer, Instant, Nanos};
use nvme::host::Data;
use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};

use crate::host::Identity;
use crate::host::association::{Failure, Loss};
use crate::wire::QueueId;

/// Paths at most.
pub const PATHS_MAX: usize = 16;

/// Names a path: 0.., in the order in which they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathIndex(pub u16);

impl PathIndex {
    pub(super) const fn usize(self) -> usize {
        self.0 as usize
    }
}

/// Which of several good paths a command takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Each in its turn.
    #[default]
    RoundRobin,
    /// The one on which commands have taken the least time of late, weighed with what is outstanding.
    LowestLatency,
}

/// What the paths have in common.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Which of several good paths a command takes.
    pub policy: Policy,
    /// Commands outstanding at once, over all paths: 1..=65536.
    pub commands_max: u32,
    /// How long a command may take on its path before the path is given up and made anew.
    pub io_timeout: Nanos,
    /// How often a command is sent again after errors that are not its own.
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

/// A command to carry out.
#[derive(Clone, Debug)]
pub struct Request {
    /// The caller's name for it.
    pub cookie: u64,
    /// The command; its identifier and data pointer are filled in.
    pub entry: SubmissionQueueEntry,
    /// Its data.
    pub data: Data,
    /// Commands with the same number share an I/O queue, where there are several.
    pub queue: u16,
}

/// A command to be sent on a path.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// On which path.
    pub path: PathIndex,
    /// On which of its queues.
    pub queue: QueueId,
    /// Its name there.
    pub token: u64,
    /// The command.
    pub entry: SubmissionQueueEntry,
    /// Its data.
    pub data: Data,
}

/// Who says how a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The controller.
    Controller,
    /// The host, which gave the command up; controllers may have carried it out or not.
    Host,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The caller's name for it.
    pub cookie: u64,
    /// The completion.
    pub entry: CompletionQueueEntry,
    /// What was read, as many bytes as asked for where it succeeded.
    pub data: Buffer,
    /// Who says so.
    pub origin: Origin,
    /// When it was submitted.
    pub submitted: Instant,
}

/// What the paths ask of their transport, and tell their user.
#[derive(Clone, Debug)]
pub enum Output {
    /// Connect a queue of a path.
    OpenQueue {
        /// The path.
        path: PathIndex,
        /// Which queue.
        queue: QueueId,
        /// Commands that it holds.
        size: u16,
        /// The most data in a capsule, bytes.
        capsule_data_max: u32,
    },
    /// Close every queue of a path at once.
    CloseQueues {
        /// The path.
        path: PathIndex,
        /// What was not sent yet must not be sent.
        abort: bool,
    },
    /// Send a command.
    Dispatch(Dispatch),
    /// A path can be used, for the first time or again.
    PathUp(PathIndex),
    /// A path is lost, and tried again; its commands go elsewhere or wait.
    PathLost(PathIndex, Loss),
    /// A path is over: given up, or shut down where there is no failure.
    PathEnded(PathIndex, Option<Failure>),
    /// A command has ended.
    Completed(Completed),
    /// An admin command has ended.
    AdminCompleted {
        /// The caller's name for it.
        cookie: u64,
        /// The completion.
        entry: CompletionQueueEntry,
        /// What was read.
        data: Buffer,
    },
    /// The controller of a path reports an event (DW0 of the Asynchronous Event Request).
    Event(PathIndex, u32),
    /// What a controller told about itself has changed.
    IdentityChanged(PathIndex),
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// As many are outstanding as there may be; take completions first.
    Busy,
    /// There is no path, and none is to come.
    NoPath,
    /// It moves more bytes than can be moved.
    Length {
        /// Bytes asked for.
        length: u64,
        /// Bytes that a command may move.
        limit: u32,
    },
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("as many commands are outstanding as there may be"),
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

/// What can be said of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathStatus<'a> {
    /// Whether commands can take it.
    pub live: bool,
    /// Whether it is over for good.
    pub over: bool,
    /// Commands on it.
    pub outstanding: u32,
    /// How long commands have taken on it of late.
    pub latency: Nanos,
    /// What its controller told about itself, last.
    pub identity: Option<&'a Identity>,
}
