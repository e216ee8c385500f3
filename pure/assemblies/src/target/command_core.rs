//! What executes the commands for a subsystem here: the subsystem itself, or one of its lanes.

use alloc::boxed::Box;

use engine::{Engine, Instant};
use nvme::subsystem::{ControllerKey, Input, Lane, Output, Subsystem};
use nvme::wire::QueueId;

/// The executor of a subsystem's commands on this reactor.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "subsystems are few and live long")]
pub(super) enum Core {
    /// The subsystem, whose home this reactor is.
    Home(Subsystem),
    /// A lane of a subsystem whose home is another reactor.
    Lane(Box<Lane>),
}

impl Core {
    pub(super) const fn home(&self) -> Option<&Subsystem> {
        match self {
            Self::Home(core) => Some(core),
            Self::Lane(_) => None,
        }
    }

    pub(super) const fn home_mut(&mut self) -> Option<&mut Subsystem> {
        match self {
            Self::Home(core) => Some(core),
            Self::Lane(_) => None,
        }
    }

    #[inline]
    pub(super) fn handle_input(&mut self, now: Instant, input: Input) {
        match self {
            Self::Home(core) => core.handle_input(now, input),
            Self::Lane(lane) => lane.handle_input(now, input),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Home(core) => core.handle_timeout(now),
            Self::Lane(lane) => lane.handle_timeout(now),
        }
    }

    #[inline]
    pub(super) fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Home(core) => core.poll_output(),
            Self::Lane(lane) => lane.poll_output(),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Home(core) => core.poll_timeout(),
            Self::Lane(lane) => lane.poll_timeout(),
        }
    }

    /// Ends the commands of a queue whose connection is lost, without completions.
    pub(super) fn drop_queue(&mut self, now: Instant, controller: ControllerKey, queue: QueueId) {
        match self {
            Self::Home(core) => core.drop_queue(now, controller, queue),
            Self::Lane(lane) => lane.drop_queue(now, controller, queue),
        }
    }
}
