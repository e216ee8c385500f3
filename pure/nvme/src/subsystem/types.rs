//! What passes between the command core and its transport.

use alloc::boxed::Box;

use engine::{Buffer, Nanos};

use super::config::{BlockSize, NamespaceConfig};
use super::controller::ControllerKey;
use super::event_log::PersistentEvent;
use super::features::SavedFeature;
use super::firmware::FirmwareImage;
use super::protection::WriteProtection;
use super::reservation::ReservationRecord;
use super::sanitize::SanitizeRecord;
use super::smart::Counters;
use super::uncorrectable::UnreadableBlocks;
use crate::media;
use crate::wire::log::SelfTestResult;
use crate::wire::{NamespaceId, Status, SubmissionQueueEntry, SubmissionQueueId};

/// Names a command of the subsystem between its arrival and its completion: 0..`commands_max`, chosen by the
/// transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandToken(pub u32);

/// What the transport and the media tell the core.
#[derive(Debug)]
pub enum Input {
    /// A command was fetched; its token must not be in use.
    Command {
        /// The controller that it is for.
        controller: ControllerKey,
        /// The command's name from now to its completion: no other command of the subsystem has it meanwhile.
        token: CommandToken,
        /// The queue it came from: which command set it is of, and how Abort finds it.
        queue: SubmissionQueueId,
        /// The command.
        entry: SubmissionQueueEntry,
    },
    /// All the data that [`Output::PullHostData`] asked for.
    HostData {
        /// The command.
        token: CommandToken,
        /// The bytes, as many as were asked for; for a write, they go to the medium as they are.
        data: Buffer,
    },
    /// The data could not be moved, in either direction. Ends the command with `status`, unless [`Output::Complete`]
    /// was polled already.
    HostDataFailed {
        /// The command.
        token: CommandToken,
        /// Why, in the specification's terms.
        status: Status,
    },
    /// A medium's answer.
    Media(media::Completion),
}

/// How a command ended, without what only the transport knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionResult {
    /// Command-specific result (DW0).
    pub dw0: u32,
    /// Command-specific result (DW1).
    pub dw1: u32,
    /// The Status Field.
    pub status: Status,
}

/// What the core asks of the transport and the media.
#[derive(Debug)]
pub enum Output {
    /// Fetch the command's data from the host; answer with [`Input::HostData`] or [`Input::HostDataFailed`].
    PullHostData {
        /// The command.
        token: CommandToken,
        /// Bytes, at least 1.
        length: u32,
    },
    /// Give these bytes to the host. Pieces may come in any order, and all of them come before the completion.
    PushHostData {
        /// The command.
        token: CommandToken,
        /// Where in the command's transfer these bytes belong.
        offset: u32,
        /// Bytes of the whole transfer, as a walk through PRPs needs to know it.
        length: u32,
        /// The bytes.
        data: Buffer,
    },
    /// The command has ended and its token is free. Where the command was aborted while its data was being
    /// pulled, the transport keeps the token until that pull has ended, or drops what it still brings.
    Complete {
        /// The command.
        token: CommandToken,
        /// How it ended.
        completion: CompletionResult,
    },
    /// Ask a medium.
    Media(media::Request),
    /// Something that the transport or the world may have to act upon.
    Notify(Notification),
}

/// What changed that others care about. What is worth remembering comes with how to give it back at the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// Number of Queues was set: so many I/O queues of each kind may be created.
    NumberOfQueues {
        /// The controller.
        controller: ControllerKey,
        /// I/O submission queues.
        submission: u16,
        /// I/O completion queues.
        completion: u16,
    },
    /// Keep Alive Timer was set: the transport loses patience with the host after this.
    KeepAliveTimeout {
        /// The controller.
        controller: ControllerKey,
        /// Keep Alive Timeout (KATO); 0 for none.
        milliseconds: u32,
    },
    /// The host of a controller wants it to end: through another controller, because it can't reach this one.
    CrossControllerReset {
        /// The controller, whose association is to be ended.
        controller: ControllerKey,
    },
    /// Arbitration was set.
    Arbitration {
        /// The controller.
        controller: ControllerKey,
        /// Arbitration Burst: commands taken from one queue at a time; none for no limit.
        burst: Option<u8>,
        /// Commands a round of queues of high, medium and low priority, 1..=256 each; of meaning where the transport
        /// arbitrates by weight.
        weights: [u16; 3],
    },
    /// Interrupt Coalescing was set; both zero mean that it is off.
    InterruptCoalescing {
        /// The controller.
        controller: ControllerKey,
        /// Completions that raise the interrupt at once.
        threshold: u16,
        /// How long a completion may wait for others.
        time: Nanos,
    },
    /// Interrupt Vector Configuration was set.
    InterruptVector {
        /// The controller.
        controller: ControllerKey,
        /// The vector.
        vector: u16,
        /// Interrupt coalescing must not be applied to it.
        coalescing_disabled: bool,
    },
    /// A namespace has a new block size and no contents; worth remembering for the next start.
    NamespaceFormatted {
        /// The namespace.
        namespace: NamespaceId,
        /// Its block size.
        block: BlockSize,
    },
    /// A namespace was created, in the pool and not attached: one more of
    /// [`Config::namespaces`](super::Config::namespaces).
    NamespaceCreated {
        /// The namespace.
        namespace: Box<NamespaceConfig>,
        /// How many were ever created: [`PoolConfig::created`](super::PoolConfig::created).
        created: u64,
    },
    /// A namespace was deleted; its extent of the pool is free and reads as zeroes.
    NamespaceDeleted(NamespaceId),
    /// A namespace was attached to every controller there is, or detached from all: its [`NamespaceConfig::attached`],
    /// which controllers to come start with. What is so for some of several controllers only ends with them.
    NamespaceAttached {
        /// The namespace.
        namespace: NamespaceId,
        /// Whether it is attached.
        attached: bool,
    },
    /// A host has set the write protection of a namespace: its
    /// [`NamespaceConfig::write_protection`].
    NamespaceProtected {
        /// The namespace.
        namespace: NamespaceId,
        /// Its new state.
        protection: WriteProtection,
    },
    /// Blocks were made unreadable: more of [`Config::unreadable_blocks`](super::Config::unreadable_blocks).
    BlocksUnreadable(UnreadableBlocks),
    /// Blocks were written, so that those of them that were unreadable no longer are.
    BlocksReadable(UnreadableBlocks),
    /// Registrants or the reservation of a namespace have changed, and this outlives a power loss, or no longer does: one of
    /// [`Config::reservations`](super::Config::reservations), in place of the one of the same namespace.
    ReservationsChanged(Box<ReservationRecord>),
    /// A sanitize operation has begun, come to its end, or lost its meaning by a write:
    /// [`Config::sanitize`](super::Config::sanitize).
    SanitizeChanged(SanitizeRecord),
    /// A self-test has begun. An extended one that a power loss interrupts is to be begun again:
    /// [`Config::extended_self_test`](super::Config::extended_self_test).
    SelfTestStarted {
        /// Whether it is extended rather than short.
        extended: bool,
        /// The namespace that it reads, or all or none.
        namespace: NamespaceId,
    },
    /// A self-test has ended: the first of [`Config::self_test_results`](super::Config::self_test_results).
    SelfTestEnded(Box<SelfTestResult>),
    /// Something happened that the Persistent Event log keeps: the first of
    /// [`Config::events`](super::Config::events).
    EventRecorded(PersistentEvent),
    /// A firmware image was stored: one of [`Config::firmware`](super::Config::firmware).
    FirmwareStored {
        /// The slot, from 2 on.
        slot: u8,
        /// The image.
        image: Box<FirmwareImage>,
    },
    /// A firmware slot is to be active from the next reset or start on:
    /// [`FirmwareConfig::active`](super::FirmwareConfig::active).
    FirmwareSelected {
        /// The slot, from 1 on.
        slot: u8,
    },
    /// With a reset, a firmware slot has become active: its revision is now the controller's.
    FirmwareActivated {
        /// The slot, from 1 on.
        slot: u8,
    },
    /// A feature's value was saved, to be given as [`Config::saved_features`](super::Config::saved_features) at the next start.
    FeatureSaved(SavedFeature),
    /// A shutdown has flushed every medium: until one is used again, a loss of power is no unsafe shutdown. This is what
    /// the health log counts ([`Config::counters`](super::Config::counters)). Said where state is kept
    /// ([`Config::state`](super::Config::state)), which is then flushed too.
    ReadyForPowerLoss(Box<Counters>),
    /// What [`Subsystem::shut_down`](super::Subsystem::shut_down) began has ended: acknowledged writes are durable,
    /// unless it says otherwise.
    ShutDown {
        /// The controller.
        controller: ControllerKey,
        /// Whether every medium was flushed.
        flushed: bool,
    },
}

// Every output passes through several queues: news that are rare must not make it larger.
const _: () = assert!(size_of::<Notification>() <= 32 && size_of::<Output>() <= 64);

/// Which way a command's data moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The controller will pull it.
    FromHost,
    /// The controller will push it.
    ToHost,
}

/// What a command in flight moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// Bytes.
    pub length: u32,
}
