//! Events of a near host, for the application.

use core::fmt;

use nvme_pcie::host::{ArenaTooSmall, AsynchronousEvent, Completed, InitError, ResetReason};
use pcie::requester::RequestError;
use pcie::root_complex::EnumerationError;
use tunnel::upstream::PortIndex;

/// Names an NVMe controller that was found; the first is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerIndex(pub usize);

/// An event of a near host.
#[derive(Clone, Debug)]
pub enum Event {
    /// Something happened to the link of a port.
    Link {
        /// The port of the link.
        port: PortIndex,
        /// The change of the link.
        event: tunnel::Event,
    },
    /// The hierarchy was enumerated, for the first time or again below a port; see
    /// [`Near::topology`](super::Near::topology).
    Enumerated,
    /// A controller is up, for the first time or after a reset.
    Ready {
        /// The controller that is up.
        controller: ControllerIndex,
    },
    /// A command ended.
    Completed {
        /// The controller of the command.
        controller: ControllerIndex,
        /// Which command ended, and how.
        completed: Completed,
    },
    /// A configuration read ended.
    ConfigRead {
        /// The caller's name for the read.
        cookie: u32,
        /// The double word, or why it could not be read.
        result: Result<u32, RequestError>,
    },
    /// A register read of the application ended.
    RegisterRead {
        /// The caller's name for the read.
        cookie: u32,
        /// The register's value; `None` if it could not be read.
        value: Option<u64>,
    },
    /// A controller reports an event.
    Asynchronous {
        /// The controller that reports.
        controller: ControllerIndex,
        /// The event that the controller reports.
        event: AsynchronousEvent,
    },
    /// A controller is being reset; its commands wait.
    Resetting {
        /// The controller that is being reset.
        controller: ControllerIndex,
        /// Why the controller is reset.
        reason: ResetReason,
    },
    /// Something cannot be used.
    Failed(Failure),
}

/// The function that cannot be used, and the reason.
#[derive(Clone, Copy, Debug)]
pub enum Failure {
    /// The hierarchy could not be enumerated.
    Enumeration(EnumerationError),
    /// A controller could not be brought up; its commands have failed.
    Controller {
        /// The controller that failed.
        controller: ControllerIndex,
        /// Why the controller could not be brought up.
        error: InitError,
    },
    /// A controller has no driver, because the arena that [`super::Config`] gives each driver is
    /// too small.
    Arena(ArenaTooSmall),
    /// More controllers were found than there is memory for: the memory is enough for one per port.
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
