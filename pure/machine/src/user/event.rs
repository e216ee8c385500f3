//! What an application is told by the user of a function.

use core::fmt;

use nvme_pcie::host::{ArenaTooSmall, AsynchronousEvent, Completed, InitError, ResetReason};
use vfio_user::Errno;
use vfio_user::client::CloseReason;

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The controller is up, for the first time or after a reset.
    Ready,
    /// A command ended.
    Completed(Completed),
    /// A configuration read ended.
    ConfigRead(Result<u32, Errno>),
    /// Completions are signalled from now on, or not any more, as was asked for; or that can't be.
    Listening(bool),
    /// The controller reports an event.
    Asynchronous(AsynchronousEvent),
    /// The controller is being reset; its commands wait.
    Resetting(ResetReason),
    /// The function can't be used, or not any longer. Commands that have not ended never will.
    Failed(Failure),
}

/// Why a function can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server ends the connection before it has said its version.
    TurnedAway,
    /// The server has gone.
    Gone,
    /// What is there does not speak the protocol, or not well.
    Protocol(CloseReason),
    /// The server refuses something that can't be done without.
    Refused {
        /// What, as "to …".
        what: &'static str,
        /// Its error.
        error: Errno,
    },
    /// The server answers something else than it was asked.
    Answer {
        /// What it was asked, as "to …".
        what: &'static str,
    },
    /// The function is not on PCI.
    NotPci,
    /// The function is no NVMe controller: its class.
    Class(u32),
    /// BAR0 is too small for a controller's registers: its bytes.
    Registers(u64),
    /// The driver can't bring the controller up, or not again.
    Controller(InitError),
    /// The memory is too small for the driver.
    Arena(ArenaTooSmall),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TurnedAway => f.write_str("the connection was ended at once"),
            Self::Gone => f.write_str("the process with the device has gone"),
            Self::Protocol(reason @ CloseReason::Handshake) => {
                write!(f, "{reason}: it is no vfio-user device, or a farlane attach whose far end is away")
            }
            Self::Protocol(reason) => write!(f, "what is there does not speak vfio-user: {reason}"),
            Self::Refused { what, error } => write!(f, "the server refuses {what} ({error})"),
            Self::Answer { what } => write!(f, "the server was asked {what} and answered something else"),
            Self::NotPci => f.write_str("the device is no PCI function"),
            Self::Class(class) => {
                write!(f, "the function has class {class:06x}, not 010802: it is no NVMe controller")
            }
            Self::Registers(bytes) => {
                write!(f, "the function's BAR0 has {bytes} bytes, too few for an NVMe controller")
            }
            Self::Controller(error) => error.fmt(f),
            Self::Arena(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Failure {}
