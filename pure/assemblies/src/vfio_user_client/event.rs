//! Events of the user of a function, for the application.

use core::fmt;

use nvme_pcie::host::{ArenaTooSmall, AsynchronousEvent, Completed, InitError, ResetReason};
use pcie::config::ClassCode;
use vfio_user::Errno;
use vfio_user::client::CloseReason;

/// An event of the function or its driver.
#[derive(Clone, Debug)]
pub enum Event {
    /// The controller is up, for the first time or after a reset.
    Ready,
    /// A command ended.
    Completed(Completed),
    /// A configuration read ended, with the double word or the server's error.
    ConfigRead(Result<u32, Errno>),
    /// A register read of the application ended: the value, or the server's error.
    RegisterRead(Result<u64, Errno>),
    /// Answers [`User::listen`](super::User::listen). True: the request was carried out. False: it
    /// failed.
    Listening(bool),
    /// The controller reports an event.
    Asynchronous(AsynchronousEvent),
    /// The controller is being reset; its commands wait.
    Resetting(ResetReason),
    /// The function cannot be used, or not any longer. Commands that have not ended never will.
    Failed(Failure),
}

/// Why a function cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server ended the connection before it sent its version.
    TurnedAway,
    /// The server has gone.
    Gone,
    /// The peer does not speak the protocol, or breaks it.
    Protocol(CloseReason),
    /// The server refuses something indispensable.
    Refused {
        /// The request to the server, worded as "to …".
        what: &'static str,
        /// The error that the server answered.
        error: Errno,
    },
    /// The server's answer does not fit the question.
    Answer {
        /// The request to the server, worded as "to …".
        what: &'static str,
    },
    /// The function is not on PCI.
    NotPci,
    /// The function is no NVMe controller. Holds its Class Code.
    Class(ClassCode),
    /// BAR0 is too small for a controller's registers. Holds its size in bytes.
    Registers(u64),
    /// The driver cannot bring the controller up, or not again.
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
            Self::Protocol(reason) => write!(f, "the peer does not speak vfio-user: {reason}"),
            Self::Refused { what, error } => write!(f, "the server refuses {what} ({error})"),
            Self::Answer { what } => write!(f, "the server was asked {what} and answered something else"),
            Self::NotPci => f.write_str("the device is no PCI function"),
            Self::Class(class) => {
                write!(f, "the function has class {class}, not {}: it is no NVMe controller", ClassCode::NVME)
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
