//! The messages between a controller and its lanes. They hold no buffers of the engines, so that
//! threads can exchange them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use nvme::pointer::PageSize;
use nvme::subsystem::{ControllerKey, LaneViews};
use serde::{Deserialize, Serialize};

use super::DoorbellFault;
use super::config::Config;
use super::interrupts::Coalescing;
use super::rings::CompletionQueueId;

/// What a [`QueueLane`](super::QueueLane) begins with.
#[derive(Debug)]
pub struct LaneStart {
    pub(super) views: LaneViews,
    pub(super) key: ControllerKey,
    pub(super) life: u64,
    pub(super) limits: Limits,
    pub(super) settings: Settings,
}

/// The limits of a controller that its lanes share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) io_queues: u16,
    pub(super) commands_max: u16,
    pub(super) bytes_in_flight_max: u64,
    pub(super) interrupt_vectors: u16,
}

impl Limits {
    pub(super) const fn of(config: &Config) -> Self {
        Self {
            io_queues: config.io_queues,
            commands_max: config.commands_max,
            bytes_in_flight_max: config.bytes_in_flight_max,
            interrupt_vectors: config.interrupt_vectors,
        }
    }
}

/// What the host has set for all queues.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) burst: Option<u8>,
    pub(super) coalescing: Coalescing,
    /// The vectors without coalescing.
    pub(super) vectors_apart: Vec<u16>,
    /// The addresses of the shadow doorbells and of EventIdx.
    pub(super) shadow: Option<[u64; 2]>,
}

/// A message of a controller to one of its lanes. The messages to a lane arrive in their order.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToLane(pub(super) Order);

impl ToLane {
    /// The life of the controller that begins, for simulations that plant faults.
    #[doc(hidden)]
    pub const fn resets(&self) -> Option<u64> {
        match self.0 {
            Order::Reset { life } => Some(life),
            _ => None,
        }
    }

    /// The submission queue to delete, for simulations that plant faults.
    #[doc(hidden)]
    pub const fn deletes(&self) -> Option<u16> {
        match self.0 {
            Order::DeleteSubmissionQueue(queue) => Some(queue),
            _ => None,
        }
    }
}

/// A message of a lane to its controller. The messages of a lane arrive in their order.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToHome {
    /// The life of the controller that the message is about: what a lane reports of an earlier one
    /// is void.
    pub(super) life: u64,
    pub(super) report: Report,
}

impl ToHome {
    /// Whether the lane has ended: this is its last message.
    pub fn is_last(&self) -> bool {
        matches!(&self.report, Report::Engine(message) if message.is_last())
    }

    /// The acknowledgement of a reset, for simulations that plant faults.
    #[doc(hidden)]
    pub const fn reset(life: u64) -> Self {
        Self { life, report: Report::Reset }
    }

    /// The report that a submission queue is deleted, for simulations that plant faults.
    #[doc(hidden)]
    pub const fn deleted(life: u64, queue: u16) -> Self {
        Self { life, report: Report::Done(Change::SubmissionQueueDeleted(queue)) }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// A message of the subsystem to its lane.
    Engine(Box<nvme::subsystem::ToLane>),
    CreateCompletionQueue {
        id: u16,
        base: u64,
        entries: u32,
        vector: Option<u16>,
        page_size: PageSize,
    },
    CreateSubmissionQueue {
        id: u16,
        base: u64,
        entries: u32,
        completes_to: CompletionQueueId,
    },
    DeleteCompletionQueue(u16),
    DeleteSubmissionQueue(u16),
    /// The host wrote to the tail or head doorbell of a queue.
    Doorbell {
        queue: u16,
        is_tail: bool,
        value: u32,
    },
    /// All queues are gone, and a new life of the controller begins.
    Reset {
        life: u64,
    },
    /// Fetch nothing more, and answer when no command is in progress.
    Drain,
    /// Fetch entries again.
    GoOn,
    Settings(Settings),
    /// Whether the function may access the host's memory (Bus Master Enable).
    BusMaster(bool),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// A message of the lane to its subsystem.
    Engine(Box<nvme::subsystem::ToSubsystem>),
    /// An order about a queue was carried out.
    Done(Change),
    /// A submission queue that is being deleted fetches nothing more.
    Stopped(u16),
    /// The lane has forgotten all queues and commands of earlier lives.
    Reset,
    /// No command is in progress.
    Drained,
    /// The settings are in effect.
    Set,
    DoorbellFault(DoorbellFault),
    /// Entries or doorbells in host memory cannot be read.
    Failed,
}

/// A change of the set of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Change {
    CompletionQueueCreated(u16),
    CompletionQueueDeleted(u16),
    SubmissionQueueCreated(u16),
    SubmissionQueueDeleted(u16),
}

const fn assert_send<T: Send>() {}
const _: () = {
    assert_send::<LaneStart>();
    assert_send::<ToLane>();
    assert_send::<ToHome>();
};
