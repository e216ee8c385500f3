//! What an application is told by a near host.

use core::fmt;

use nvme_pcie::host::{ArenaTooSmall, AsynchronousEvent, Completed, InitError, ResetReason};
use pcie::requester::RequestError;
use pcie::root_complex::EnumerationError;
use tunnel::upstream::PortIndex;

/// An NVMe controller that was found: the first is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerIndex(pub usize);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// To a port's link.
    Link {
        /// The port.
        port: PortIndex,
        /// What.
        event: tunnel::Event,
    },
    /// The hierarchy was enumerated, for the first time or again below a port; see
    /// [`Near::topology`](super::Near::topology).
    Enumerated,
    /// A controller is up, for the first time or after a reset.
    Ready {
        /// Which.
        controller: ControllerIndex,
    },
    /// A command ended.
    Completed {
        /// Of which controller.
        controller: ControllerIndex,
        /// Which, and how.
        completed: Completed,
    },
    /// A configuration read ended.
    ConfigRead {
        /// The caller's name for it.
        cookie: u32,
        /// The double word, or why there is none.
        result: Result<u32, RequestError>,
    },
    /// A controller reports an event.
    Asynchronous {
        /// Which.
        controller: ControllerIndex,
        /// The event.
        event: AsynchronousEvent,
    },
    /// A controller is being reset; its commands wait.
    Resetting {
        /// Which.
        controller: ControllerIndex,
        /// Why.
        reason: ResetReason,
    },
    /// Something can't be used.
    Failed(Failure),
}

/// What can't be used, and why.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// The hierarchy.
    Enumeration(EnumerationError),
    /// A controller; its commands have failed.
    Controller {
        /// Which.
        controller: ControllerIndex,
        /// Why.
        error: InitError,
    },
    /// A controller: the arena that [`super::Config`] gives its driver is too small.
    Arena(ArenaTooSmall),
    /// More controllers were found than there is memory for: one a port.
    TooManyControllers,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enumeration(error) => error.fmt(f),
            Self::Controller { controller, error } => write!(f, "controller {}: {error}", controller.0),
            Self::Arena(error) => error.fmt(f),
            Self::TooManyControllers => f.write_str("there are more NVMe controllers than ports"),
        }
    }
}
