//! The messages between the driver and the world around it.

use alloc::boxed::Box;
use core::fmt;

use engine::{Instant, Nanos};
use nvme::host::{AsynchronousEvent, Identity, Origin, command};
use nvme::wire::{CommandId, IoOpcode, NamespaceId, QueueId, Status, SubmissionQueueEntry};
use pcie::memory::Unmapped;
use serde::{Deserialize, Serialize};

use super::initialise::InitError;
use super::queue::Data;
use crate::controller::{IO_QUEUES_MAX, QUEUE_ENTRIES_MAX};

/// The configuration of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Host memory address of the arena with the queues and PRP lists. The rest of the arena is
    /// [`super::Host::data_region`].
    pub arena_base: u64,
    /// Length of the arena in bytes.
    pub arena_length: u64,
    /// Number of I/O queue pairs to request, 1..=64. The controller may grant fewer.
    pub queue_pairs: u16,
    /// Number of entries of each I/O queue, 2..=4096. A queue holds one command fewer.
    pub queue_entries: u32,
    /// The most bytes that one command transfers, 4 KiB..=1 MiB.
    pub transfer_bytes_max: u32,
    /// Whether completion queue `n` raises MSI-X vector `n`. Otherwise queues are only polled.
    pub interrupts: bool,
    /// Whether to ring an I/O completion queue's doorbell for each completion, as Linux does.
    /// Otherwise the doorbell is rung when a quarter of the queue, or the room in it, has been used
    /// up.
    pub rings_for_each: bool,
    /// Whether an I/O command uses an SGL where PRP entries would need a list, if the controller
    /// supports SGLs of any alignment. Such data are one piece to the controller, which need not
    /// read a list first.
    pub sgls: bool,
    /// The time-out of a command. An I/O command is aborted after one time-out, and the controller
    /// is reset after a second one. An admin command makes the driver reset the controller after
    /// one time-out.
    pub command_timeout: Nanos,
    /// The time-out of a register read.
    pub register_timeout: Nanos,
    /// Maximum number of resets in a row without a completed I/O command in between, not counting
    /// resets that the caller requested. After that, commands fail.
    pub resets_max: u32,
    /// The delay between attempts to bring the controller up again.
    pub retry_delay: Nanos,
    /// How long commands wait for a lost device; zero fails them at once.
    pub hold: Nanos,
    /// How long no command may complete before the driver reads CSTS to detect a reset of the
    /// controller by another party; zero never reads CSTS. This is for devices whose link stays up
    /// when they go down.
    pub watch: Nanos,
}

impl Config {
    /// The usual limits, with an arena of `arena_length` bytes at `arena_base`.
    pub const fn new(arena_base: u64, arena_length: u64) -> Self {
        Self {
            arena_base,
            arena_length,
            queue_pairs: 1,
            queue_entries: 256,
            transfer_bytes_max: 128 << 10,
            interrupts: false,
            rings_for_each: false,
            sgls: false,
            command_timeout: Nanos::from_secs(10),
            register_timeout: Nanos::from_secs(1),
            resets_max: 5,
            retry_delay: Nanos::from_millis(100),
            hold: Nanos::from_secs(5),
            watch: Nanos::ZERO,
        }
    }

    pub(super) fn check(&self) {
        assert!((1..=IO_QUEUES_MAX).contains(&self.queue_pairs), "1..={IO_QUEUES_MAX} queue pairs");
        assert!(
            (2..=QUEUE_ENTRIES_MAX).contains(&self.queue_entries),
            "2..={QUEUE_ENTRIES_MAX} queue entries"
        );
        assert!((4096..=1 << 20).contains(&self.transfer_bytes_max), "transfers of 4 KiB to 1 MiB");
        let timeouts = [self.command_timeout, self.register_timeout, self.retry_delay];
        assert!(timeouts.iter().all(|length| *length > Nanos::ZERO), "time-outs are not zero");
    }
}

/// The bytes of a register write, of which there are 4 or 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterBytes {
    bytes: [u8; 8],
    length: u8,
}

impl RegisterBytes {
    pub(super) const fn new(value: u64, length: u32) -> Self {
        Self { bytes: value.to_le_bytes(), length: if length == 8 { 8 } else { 4 } }
    }
}

impl core::ops::Deref for RegisterBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// An input of the driver.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A register read ([`Output::RegisterRead`]) was answered.
    RegisterRead {
        /// The cookie of the read.
        cookie: u64,
        /// The bytes, exactly as many as requested; `None` if the read failed.
        bytes: Option<&'a [u8]>,
    },
    /// An MSI-X interrupt was raised, so there may be completions.
    Interrupt {
        /// The vector that was raised.
        vector: u16,
    },
    /// The device is lost (link down). Commands wait for its return for the time in
    /// [`Config::hold`].
    DeviceLost,
    /// The device is back at the same BAR, in its state after a reset.
    DeviceBack,
}

/// The reason for which the driver resets a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResetReason {
    /// A command completed neither in time nor after an Abort.
    Timeout {
        /// The queue of the command.
        queue: QueueId,
        /// The identifier of the command.
        command: CommandId,
    },
    /// The device returned after it was lost.
    DeviceBack,
    /// CSTS reports that the controller is no longer enabled, or has failed.
    Stopped,
    /// The driver could not access its memory.
    Memory,
    /// The caller requested the reset.
    Requested,
}

impl fmt::Display for ResetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { queue, command } => {
                let (queue, command) = (queue.0, command.0);
                write!(f, "command {command} of queue {queue} was not answered in time, nor was its Abort")
            }
            Self::DeviceBack => f.write_str("the device was away and has returned"),
            Self::Stopped => {
                f.write_str("the controller is no longer enabled, or has failed: another party has reset it")
            }
            Self::Memory => f.write_str("the driver's memory could not be reached"),
            Self::Requested => f.write_str("the caller requested it"),
        }
    }
}

/// An output of the driver: a request to the outside world, or a report to it.
#[derive(Clone, Debug)]
pub enum Output {
    /// Read a register in BAR0. The answer is [`Input::RegisterRead`].
    RegisterRead {
        /// Identifies the read in its answer.
        cookie: u64,
        /// Offset in bytes from the start of the BAR.
        offset: u32,
        /// Length of the read in bytes, 4 or 8.
        length: u32,
    },
    /// Write a register in BAR0. The write is posted and must follow all earlier writes of host
    /// memory.
    RegisterWrite {
        /// Offset in bytes from the start of the BAR.
        offset: u32,
        /// The bytes to write.
        bytes: RegisterBytes,
    },
    /// The controller is up, for the first time or after a reset.
    Ready(Box<Identity>),
    /// The controller can't be brought up, and every command has failed.
    Failed(InitError),
    /// A command has ended.
    Completed(Completed),
    /// The controller reports an event.
    Event(AsynchronousEvent),
    /// The driver is resetting the controller, and commands wait.
    Resetting(ResetReason),
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// The cookie from the command's [`Submission`].
    pub cookie: u64,
    /// The queue of the command.
    pub queue: QueueId,
    /// The Command Identifier of the command.
    pub command: CommandId,
    /// The status with which the command ended.
    pub status: Status,
    /// Command-specific result, Dword 0 (DW0).
    pub dw0: u32,
    /// Command-specific result, Dword 1 (DW1).
    pub dw1: u32,
    /// Whether the controller or the driver determined the status.
    pub origin: Origin,
    /// The time at which the command was submitted.
    pub submitted: Instant,
    /// The time at which the driver saw the completion.
    pub completed: Instant,
}

/// A command to submit.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// The queue for the command; admin commands go to [`QueueId::ADMIN`].
    pub queue: QueueId,
    /// The command. The driver fills in its identifier and data pointer.
    pub entry: SubmissionQueueEntry,
    /// The command's data, contiguous in host memory.
    pub data: Option<Data>,
    /// The caller's name for the command, which [`Completed`] returns.
    pub cookie: u64,
}

impl Submission {
    /// A command such as Read or Write on `blocks` (1..=65,536) logical blocks from `lba`.
    pub fn on_blocks(
        opcode: IoOpcode,
        queue: QueueId,
        namespace: NamespaceId,
        lba: u64,
        blocks: u32,
        data: Data,
        cookie: u64,
    ) -> Self {
        let entry = command::on_blocks(opcode, namespace, lba, blocks);
        Self { queue, entry, data: Some(data), cookie }
    }

    /// A Flush, which makes all completed writes to the namespace durable.
    pub fn flush(queue: QueueId, namespace: NamespaceId, cookie: u64) -> Self {
        Self { queue, entry: command::flush(namespace), data: None, cookie }
    }
}

/// The reason why a command was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The queue is full until completions are taken.
    Busy,
    /// The controller was never brought up, or was given up.
    NotReady,
    /// The queue does not exist.
    NoSuchQueue(QueueId),
    /// The length of the data is zero or too great.
    Length {
        /// Length of the data in bytes.
        length: u32,
        /// The most bytes that a command may transfer.
        limit: u32,
    },
    /// The address of the data is not a multiple of 4, or the end of the data is beyond the address
    /// space.
    Address(u64),
    /// The driver can't access its memory.
    Memory(Unmapped),
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the queue is full"),
            Self::NotReady => f.write_str("the controller is not up"),
            Self::NoSuchQueue(queue) => write!(f, "there is no queue {}", queue.0),
            Self::Length { length, limit } => {
                write!(f, "{length} B of data, where 1 to {limit} B can be moved")
            }
            Self::Address(address) => write!(f, "data at {address:#x}, which is not a multiple of 4"),
            Self::Memory(unmapped) => unmapped.fmt(f),
        }
    }
}

impl core::error::Error for SubmitError {}

/// Counters since the creation of the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of commands submitted, including the driver's own.
    pub submitted: u64,
    /// Number of callers' commands that completed.
    pub completed: u64,
    /// Number of doorbell writes.
    pub doorbells: u64,
    /// Number of completions that belong to no command, which is a fault of the controller.
    pub unexpected: u64,
    /// Number of Abort commands sent.
    pub aborts: u64,
    /// Number of resets of the controller.
    pub resets: u64,
    /// Number of commands submitted again after a reset.
    pub resubmitted: u64,
}
