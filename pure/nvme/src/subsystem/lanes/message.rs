//! The messages between the subsystem and its lanes. They hold no buffers of the engines, so that
//! threads can exchange them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::super::controller::ControllerKey;
use super::super::types::{CommandToken, CompletionResult};
use super::super::view::{Changes, Views};
use super::counts::Counts;
use crate::wire::{CommandId, NamespaceId, QueueId, Status, SubmissionQueueEntry};

/// The subsystem's name for a lane while the lane is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId(pub u32);

/// The state with which a lane begins: all views, and their version. See [`super::Lane::new`].
#[derive(Clone, Debug)]
pub struct LaneViews {
    pub(super) views: Views,
    pub(super) commands_max: u32,
}

impl LaneViews {
    /// The most commands that the lane may have at once: its tokens are below that.
    pub const fn commands_max(&self) -> u32 {
        self.commands_max
    }
}

/// A lane's name for a command that it has handed over. No other command of the lane ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in super::super) struct Hand {
    /// The lane's token of the command.
    pub(super) token: CommandToken,
    pub(super) number: u64,
}

/// A message from the subsystem to a lane. All messages to a lane arrive in their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToLane(pub(super) Order);

impl ToLane {
    /// The version of the views that the message publishes, for simulations that plant faults.
    #[doc(hidden)]
    pub fn version(&self) -> Option<u64> {
        match &self.0 {
            Order::Publish(publication) => Some(publication.changes.version),
            _ => None,
        }
    }

    /// Whether the message makes the lane end.
    pub const fn is_end(&self) -> bool {
        matches!(self.0, Order::End)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    Publish(Publication),
    /// Pull the data of a command that the lane has handed over.
    Pull {
        hand: Hand,
        length: u32,
    },
    /// Push data to the host of a command that the lane has handed over.
    Push {
        hand: Hand,
        offset: u32,
        length: u32,
        data: Box<[u8]>,
    },
    /// A command that the lane has handed over has ended.
    Complete {
        hand: Hand,
        completion: CompletionResult,
    },
    /// End all commands, report all counts, and then the end.
    End,
}

/// What a lane must see and acknowledge.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Publication {
    pub(super) changes: Changes,
    /// The commands that the lane ends before it has seen the publication.
    pub(super) endings: Vec<Ending>,
    /// Whether the lane reports its counts first.
    pub(super) wants_counts: bool,
}

/// Commands that a lane ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in super::super) enum Ending {
    /// The controllers' commands for the namespace end as far as Abort would end them, because
    /// their host was preempted.
    Preempted { namespace: NamespaceId, controllers: Vec<ControllerKey> },
    /// All commands of a controller end without completions, as in a reset.
    Controller(ControllerKey),
    /// The Abort command `by` ends a command.
    Abort { by: CommandToken, controller: ControllerKey, queue: QueueId, command: CommandId },
}

/// A message from a lane to the subsystem. All messages of a lane arrive in their order.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToSubsystem(pub(in super::super) Report);

impl ToSubsystem {
    /// Whether the lane has ended: this is its last message.
    pub const fn is_last(&self) -> bool {
        matches!(self.0, Report::Ended)
    }

    /// The acknowledgement of a lane that has seen the version `seen` and is quiet since the
    /// version `quiet`, for simulations that plant faults.
    #[doc(hidden)]
    pub const fn acknowledgement(seen: u64, quiet: u64) -> Self {
        Self(Report::Acknowledged { seen, quiet })
    }

    /// Whether the message reports what the lane has counted.
    #[doc(hidden)]
    pub const fn has_counts(&self) -> bool {
        matches!(self.0, Report::Counts(_))
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) enum Report {
    /// Execute this command, which the lane hands over.
    Command(HandedOver),
    /// The data that the subsystem has pulled.
    HostData {
        hand: Hand,
        data: Vec<u8>,
    },
    /// A transfer of a command that was handed over has failed.
    HostDataFailed {
        hand: Hand,
        status: Status,
    },
    /// A command that was handed over has ended in the lane, without a completion.
    Dropped(Hand),
    /// The lane has seen every version up to `seen`, and media have answered all requests that it
    /// sent before it had seen `quiet`.
    Acknowledged {
        seen: u64,
        quiet: u64,
    },
    /// The command that the Abort command `by` names was aborted.
    Aborted {
        by: CommandToken,
    },
    Counts(Box<Counts>),
    /// The lane has ended: it will send nothing more.
    Ended,
}

/// A command that a lane hands over.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct HandedOver {
    pub(super) hand: Hand,
    /// The version that the lane had seen, which distinguishes the lives of a key.
    pub(super) version: u64,
    pub(super) controller: ControllerKey,
    pub(super) queue: QueueId,
    pub(super) entry: SubmissionQueueEntry,
}

const fn assert_send<T: Send>() {}
const _: () = {
    assert_send::<ToLane>();
    assert_send::<ToSubsystem>();
    assert_send::<LaneViews>();
};
