//! The messages that the command core exchanges with its transport and its media.

use alloc::boxed::Box;

use engine::{Buffer, Nanos};
use serde::{Deserialize, Serialize};

use super::config::{BlockSize, NamespaceConfig};
use super::controller::ControllerKey;
use super::firmware_image::FirmwareImage;
use super::lanes::{LaneId, ToLane, ToSubsystem};
use super::record::{
    Counters, PersistentEvent, ReservationRecord, SanitizeRecord, SavedFeature, UnreadableBlocks,
    WriteProtection,
};
use crate::media;
use crate::wire::log::SelfTestResult;
use crate::wire::{NamespaceId, QueueId, Status, SubmissionQueueEntry};

/// The transport's name for a command between arrival and completion: an index in
/// 0..`commands_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommandToken(pub u32);

/// An input of the command core or of a lane, from the transport or the media.
#[derive(Debug)]
pub enum Input {
    /// The transport fetched a command.
    Command {
        /// The controller that the command is for.
        controller: ControllerKey,
        /// The command's name until it completes. No other command of the subsystem may have this
        /// token meanwhile.
        token: CommandToken,
        /// The submission queue of the command. The queue decides the command set, and Abort finds
        /// the command by its queue.
        queue: QueueId,
        /// The submission queue entry.
        entry: SubmissionQueueEntry,
    },
    /// All the data of an [`Output::PullHostData`] have arrived.
    HostData {
        /// The command that the data belongs to.
        token: CommandToken,
        /// The bytes, exactly as many as requested. The data of a write go to the medium unchanged.
        data: Buffer,
    },
    /// A transfer failed, in either direction. The failure ends the command with `status`, unless
    /// [`Output::Complete`] was polled already.
    HostDataFailed {
        /// The command whose transfer failed.
        token: CommandToken,
        /// The reason for the failure, as the status of the completion.
        status: Status,
    },
    /// A medium answers a request.
    Media(media::Completion),
    /// A message of a lane, for the subsystem.
    FromLane(LaneId, Box<ToSubsystem>),
    /// A message of the subsystem, for a lane.
    FromSubsystem(Box<ToLane>),
}

/// How a command ended: the part of a completion that does not depend on the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionResult {
    /// Command-specific result, Dword 0 of the completion.
    pub dw0: u32,
    /// Command-specific result, Dword 1 of the completion.
    pub dw1: u32,
    /// Status Field of the completion.
    pub status: Status,
}

/// A request of the command core or of a lane to the transport or the media.
#[derive(Debug, Serialize, Deserialize)]
pub enum Output {
    /// Fetch the command's data from the host. The transport answers with [`Input::HostData`] or
    /// [`Input::HostDataFailed`].
    PullHostData {
        /// The command that needs the data.
        token: CommandToken,
        /// Length of the data in bytes, at least 1.
        length: u32,
    },
    /// Send bytes to the host. The pieces of a transfer may be in any order, and all of them
    /// precede the completion.
    PushHostData {
        /// The command that the bytes belong to.
        token: CommandToken,
        /// Offset in bytes of this piece within the command's transfer.
        offset: u32,
        /// Length in bytes of the whole transfer, which a walk through PRPs needs to know.
        length: u32,
        /// The bytes of this piece.
        data: Buffer,
    },
    /// The command has ended and its token is free. When a command is aborted during a pull of its
    /// data, the transport keeps the token until the pull has ended, or drops the data that still
    /// arrives.
    Complete {
        /// The command that has ended.
        token: CommandToken,
        /// The result to post.
        completion: CompletionResult,
    },
    /// Send a request to a medium.
    Media(media::Request),
    /// Report a change that the transport or the outside world may have to act upon.
    Notify(Notification),
    /// A message of the subsystem to a lane. There is none while no lane is attached.
    ToLane(LaneId, Box<ToLane>),
    /// A message of a lane to the subsystem.
    ToSubsystem(Box<ToSubsystem>),
    /// The command of a request in progress has ended without a completion. Of a subsystem with
    /// lanes, for the order between controllers ([`media::Ranges`]).
    Disowned(media::IoId),
}

/// A change that matters outside the command core. A notification of state that must survive a
/// restart names the configuration field that restores the state at the next start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notification {
    /// A host set Number of Queues: the host may create this many I/O queues of each kind.
    NumberOfQueues {
        /// The controller whose feature was set.
        controller: ControllerKey,
        /// Number of I/O submission queues.
        submission: u16,
        /// Number of I/O completion queues.
        completion: u16,
    },
    /// A host set Keep Alive Timer. The transport gives up a host that is silent for longer than
    /// this time.
    KeepAliveTimeout {
        /// The controller whose feature was set.
        controller: ControllerKey,
        /// Keep Alive Timeout (KATO) in milliseconds; 0 switches the timer off.
        milliseconds: u32,
    },
    /// A host requests, through another controller, the end of a controller that it cannot reach.
    CrossControllerReset {
        /// The controller whose association is to be ended.
        controller: ControllerKey,
    },
    /// A host set Arbitration.
    Arbitration {
        /// The controller whose feature was set.
        controller: ControllerKey,
        /// Arbitration Burst: the maximum number of commands to take from one queue at a time;
        /// `None` for no limit.
        burst: Option<u8>,
        /// Commands per round from queues of high, medium and low priority, 1..=256 each. The
        /// weights matter only where the transport arbitrates by weight.
        weights: [u16; 3],
    },
    /// A host set Interrupt Coalescing. Coalescing is off when both the threshold and the time are
    /// zero.
    InterruptCoalescing {
        /// The controller whose feature was set.
        controller: ControllerKey,
        /// Number of waiting completions that raise the interrupt at once.
        threshold: u16,
        /// The longest that a completion may wait for others.
        time: Nanos,
    },
    /// A host set Interrupt Vector Configuration.
    InterruptVector {
        /// The controller whose feature was set.
        controller: ControllerKey,
        /// The interrupt vector.
        vector: u16,
        /// Whether interrupt coalescing is off for this vector.
        coalescing_disabled: bool,
    },
    /// A namespace was formatted: its block size may be new, and its contents are erased. The next
    /// start must remember this.
    NamespaceFormatted {
        /// The namespace that was formatted.
        namespace: NamespaceId,
        /// The namespace's block size from now on.
        block: BlockSize,
    },
    /// A namespace was created in the pool, not yet attached: a new entry of
    /// [`Config::namespaces`](super::Config::namespaces).
    NamespaceCreated {
        /// The new namespace.
        namespace: Box<NamespaceConfig>,
        /// How many namespaces were ever created, for
        /// [`PoolConfig::created`](super::PoolConfig::created).
        created: u64,
    },
    /// A namespace was deleted. Its extent of the pool is free and reads as zeroes.
    NamespaceDeleted(NamespaceId),

    /// A namespace was attached to every controller that exists, or detached from all of them: a
    /// new value of [`NamespaceConfig::attached`], which later controllers start with. An
    /// attachment to only some of several controllers is not reported, and ends with those
    /// controllers.
    NamespaceAttached {
        /// The namespace whose attachment changed.
        namespace: NamespaceId,
        /// Whether the namespace is now attached.
        attached: bool,
    },
    /// A host set the write protection of a namespace: a new value of
    /// [`NamespaceConfig::write_protection`].
    NamespaceProtected {
        /// The namespace whose protection changed.
        namespace: NamespaceId,
        /// The new write protection state.
        protection: WriteProtection,
    },
    /// Blocks were made unreadable, to be added to
    /// [`Config::unreadable_blocks`](super::Config::unreadable_blocks).
    BlocksUnreadable(UnreadableBlocks),
    /// Blocks were written and are readable again, to be removed from
    /// [`Config::unreadable_blocks`](super::Config::unreadable_blocks).
    BlocksReadable(UnreadableBlocks),
    /// The registrants or the reservation of a namespace changed, and the reservations persist
    /// through power loss or have just ceased to. The record replaces the one of the same namespace
    /// in [`Config::reservations`](super::Config::reservations).
    ReservationsChanged(Box<ReservationRecord>),
    /// A sanitize operation began or ended, or the first write after one ended Global Data Erased:
    /// a new value of [`Config::sanitize`](super::Config::sanitize).
    SanitizeChanged(SanitizeRecord),
    /// A self-test began. An extended self-test that a power loss interrupts is started again by
    /// means of [`Config::extended_self_test`](super::Config::extended_self_test).
    SelfTestStarted {
        /// Whether the self-test is extended rather than short.
        extended: bool,
        /// The namespace that the self-test reads, or the identifier for all namespaces or for
        /// none.
        namespace: NamespaceId,
    },
    /// A self-test ended: a new first entry of
    /// [`Config::self_test_results`](super::Config::self_test_results).
    SelfTestEnded(Box<SelfTestResult>),
    /// The Persistent Event log recorded an event: a new first entry of
    /// [`Config::events`](super::Config::events).
    EventRecorded(PersistentEvent),
    /// A firmware image was stored in a slot, for [`Config::firmware`](super::Config::firmware).
    FirmwareStored {
        /// The firmware slot, 2 or higher.
        slot: u8,
        /// The firmware image.
        image: Box<FirmwareImage>,
    },
    /// A firmware slot was selected, to be active from the next reset or start: a new value of
    /// [`FirmwareConfig::active`](super::FirmwareConfig::active).
    FirmwareSelected {
        /// The firmware slot, 1 or higher.
        slot: u8,
    },
    /// A reset activated a firmware slot: the revision in the slot is now the controller's.
    FirmwareActivated {
        /// The firmware slot, 1 or higher.
        slot: u8,
    },
    /// The value of a feature was saved, for
    /// [`Config::saved_features`](super::Config::saved_features) at the next start.
    FeatureSaved(SavedFeature),

    /// A shutdown flushed every medium. Until a medium is used again, a loss of power is not an
    /// unsafe shutdown. The counters are those of the health log, for
    /// [`Config::counters`](super::Config::counters). The core sends this notification only if
    /// [`Config::state`](super::Config::state) names a medium, which is flushed after it.
    ReadyForPowerLoss(Box<Counters>),
    /// A shutdown that [`Subsystem::shut_down`](super::Subsystem::shut_down) began has ended.
    /// Acknowledged writes are durable if `flushed` is set.
    ShutDown {
        /// The controller that was shut down.
        controller: ControllerKey,
        /// Whether every medium was flushed.
        flushed: bool,
    },
}

// Every output passes through several queues: rare notifications must not make it larger.
const _: () = assert!(size_of::<Notification>() <= 32 && size_of::<Output>() <= 64);

/// The direction in which a command's data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the controller: the controller pulls the data.
    FromHost,
    /// From the controller to the host: the controller pushes the data.
    ToHost,
}

/// The transfer of a command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The direction of the transfer.
    pub direction: Direction,
    /// Length of the transfer in bytes, including the metadata.
    pub length: u32,
    /// The number of its last bytes that are metadata, which lie at the Metadata Pointer (MPTR).
    pub metadata: u32,
}
