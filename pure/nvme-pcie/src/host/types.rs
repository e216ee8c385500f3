//! What passes between the driver and its world.

use alloc::boxed::Box;
use core::fmt;

use engine::{Instant, Nanos};
use nvme::host::command;
use nvme::wire::{CommandId, IoOpcode, NamespaceId, Status, SubmissionQueueEntry};
use pcie::memory::Unmapped;

use super::initialise::{Identity, InitError};
use super::queue::Data;
use crate::controller::{IO_QUEUES_MAX, QUEUE_ENTRIES_MAX};

/// Names a queue pair; 0 is the admin queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u16);

impl QueueId {
    /// The admin queues.
    pub const ADMIN: Self = Self(0);
}

/// What a driver is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Where in host memory the queues and PRP lists are kept; what they leave is [`super::Host::data_region`].
    pub arena_base: u64,
    /// Bytes of that.
    pub arena_length: u64,
    /// I/O queue pairs, 1..=64; the controller may grant fewer.
    pub queue_pairs: u16,
    /// Entries of each I/O queue, 2..=4096; one fewer commands fit.
    pub queue_entries: u32,
    /// The most bytes that one command moves, 4 KiB..=1 MiB.
    pub transfer_bytes_max: u32,
    /// Whether completion queue `n` raises MSI-X vector `n`; queues are only polled otherwise.
    pub interrupts: bool,
    /// Whether an I/O completion queue's doorbell is rung for each completion, as Linux does, and not only when a quarter of
    /// the queue or the room in it has been used up.
    pub rings_for_each: bool,
    /// How long a command may take before it is aborted, and after that before the controller is reset.
    pub command_timeout: Nanos,
    /// How long a register read may take.
    pub register_timeout: Nanos,
    /// Resets without a successful command in between, after which commands fail.
    pub resets_max: u32,
    /// How long to wait between attempts to bring the controller up again.
    pub retry_delay: Nanos,
    /// How long commands wait for a device that has gone; zero fails them at once.
    pub hold: Nanos,
    /// How long nothing may complete before CSTS is read, to find out whether the controller was reset behind the driver's
    /// back; zero never reads it. For devices whose link does not go down when they do.
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

/// The bytes of a register write: 4 or 8.
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

/// What the world tells the driver.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The answer to [`Output::RegisterRead`].
    RegisterRead {
        /// The read.
        cookie: u64,
        /// The bytes, as many as were asked for; none where the read failed.
        bytes: Option<&'a [u8]>,
    },
    /// An MSI-X interrupt; completions may have come.
    Interrupt {
        /// The vector.
        vector: u16,
    },
    /// The device is gone (link down): commands wait for it as long as [`Config::hold`] says.
    DeviceLost,
    /// The device is there again, in a state after reset, at the same BAR.
    DeviceBack,
}

/// Why the driver resets a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// A command completed neither in time nor after its Abort.
    Timeout {
        /// The queue.
        queue: QueueId,
        /// The command.
        command: CommandId,
    },
    /// The device came back.
    DeviceBack,
    /// The controller is not enabled any more, or has failed: CSTS says so.
    Stopped,
    /// The driver's memory could not be reached.
    Memory,
    /// The caller wants it.
    Requested,
}

impl fmt::Display for ResetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { queue, command } => {
                let (queue, command) = (queue.0, command.0);
                write!(f, "command {command} of queue {queue} was not answered in time, nor was its Abort")
            }
            Self::DeviceBack => f.write_str("the device was away and is back"),
            Self::Stopped => f.write_str(
                "the controller is not enabled any more, or has failed: it was reset by somebody else",
            ),
            Self::Memory => f.write_str("the driver's memory could not be reached"),
            Self::Requested => f.write_str("that was asked for"),
        }
    }
}

/// What the driver asks of its world, and tells it.
#[derive(Clone, Debug)]
pub enum Output {
    /// Read a register in BAR0; answered by [`Input::RegisterRead`].
    RegisterRead {
        /// Names the read.
        cookie: u64,
        /// Bytes from the start of the BAR.
        offset: u32,
        /// 4 or 8.
        length: u32,
    },
    /// Write a register in BAR0; posted, and behind all writes of host memory.
    RegisterWrite {
        /// Bytes from the start of the BAR.
        offset: u32,
        /// What to write.
        bytes: RegisterBytes,
    },
    /// The controller is up, for the first time or after a reset.
    Ready(Box<Identity>),
    /// The controller can't be brought up; every command has failed.
    Failed(InitError),
    /// A command has ended.
    Completed(Completed),
    /// The controller reports an event.
    Event(AsynchronousEvent),
    /// The controller is being reset; commands wait.
    Resetting(ResetReason),
}

/// An asynchronous event (DW0 of the completion of Asynchronous Event Request).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsynchronousEvent {
    /// Asynchronous Event Type.
    pub kind: u8,
    /// Asynchronous Event Information.
    pub information: u8,
    /// Log Page Identifier.
    pub log_page: u8,
}

/// Who says how a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The controller, by a completion.
    Controller,
    /// The driver, which gave the command up; the controller may have carried it out or not.
    Driver,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The caller's name for it.
    pub cookie: u64,
    /// The queue.
    pub queue: QueueId,
    /// Its identifier.
    pub command: CommandId,
    /// How it ended.
    pub status: Status,
    /// Command-specific result (DW0).
    pub dw0: u32,
    /// Command-specific result (DW1).
    pub dw1: u32,
    /// Who says so.
    pub origin: Origin,
    /// When it was submitted.
    pub submitted: Instant,
    /// When its completion was seen.
    pub completed: Instant,
}

/// A command to submit.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// The queue; admin commands go to [`QueueId::ADMIN`].
    pub queue: QueueId,
    /// The command; its identifier and data pointer are filled in.
    pub entry: SubmissionQueueEntry,
    /// Its data, contiguous in host memory.
    pub data: Option<Data>,
    /// The caller's name for it, which comes back with [`Completed`].
    pub cookie: u64,
}

impl Submission {
    /// Reads `blocks` (1..=65,536) logical blocks from `lba` on.
    pub fn read(
        queue: QueueId,
        namespace: NamespaceId,
        lba: u64,
        blocks: u32,
        data: Data,
        cookie: u64,
    ) -> Self {
        Self::transfer(IoOpcode::Read, queue, namespace, lba, blocks, data, cookie)
    }

    /// Writes `blocks` (1..=65,536) logical blocks from `lba` on.
    pub fn write(
        queue: QueueId,
        namespace: NamespaceId,
        lba: u64,
        blocks: u32,
        data: Data,
        cookie: u64,
    ) -> Self {
        Self::transfer(IoOpcode::Write, queue, namespace, lba, blocks, data, cookie)
    }

    /// Makes durable what was written.
    pub fn flush(queue: QueueId, namespace: NamespaceId, cookie: u64) -> Self {
        Self { queue, entry: command::flush(namespace), data: None, cookie }
    }

    fn transfer(
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
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The queue is full; take completions first.
    Busy,
    /// The controller was never brought up, or was given up.
    NotReady,
    /// There is no such queue.
    NoSuchQueue(QueueId),
    /// Too many bytes, or none.
    Length {
        /// Bytes asked for.
        length: u32,
        /// Bytes that a command may move.
        limit: u32,
    },
    /// The data's address is not a multiple of 4, or its end is beyond the address space.
    Address(u64),
    /// The driver's memory can't be reached.
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

/// Counters since the driver was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands submitted, the driver's own included.
    pub submitted: u64,
    /// Commands that completed to their callers.
    pub completed: u64,
    /// Doorbell writes.
    pub doorbells: u64,
    /// Completions of no command: a fault of the controller.
    pub unexpected: u64,
    /// Aborts sent.
    pub aborts: u64,
    /// Controller resets.
    pub resets: u64,
    /// Commands submitted again after a reset.
    pub resubmitted: u64,
}
