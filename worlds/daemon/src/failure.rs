//! Why a daemon ends early, apart from errors of its offer.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use live::reactor::PinError;
use live::sys::descriptors::TooFew;
use live::sys::unix::BindError;

/// Why a daemon could not begin, or its loop has failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The limit of descriptors is too low.
    #[error(transparent)]
    Descriptors(#[from] TooFew),
    /// The chosen processor is not available.
    #[error(transparent)]
    Processor(PinError),
    /// A path that is to stay within reach does not exist.
    #[error("there is no {}", path.display())]
    NothingToAllow {
        /// The path.
        path: PathBuf,
    },
    /// The system refuses to confine the process.
    #[error("this process can't be confined: {0}")]
    Sandbox(io::Error),
    /// The system refuses to take rights from the process.
    #[error("rights can't be given up: {error}")]
    Renounce {
        /// The user that the process is to become.
        user: Option<String>,
        /// The system's reason.
        error: io::Error,
    },
    /// The system has no descriptor, thread or signal handler left.
    #[error("the system has too few resources left: {0}")]
    System(io::Error),
    /// The given control socket is not available.
    #[error("can't listen at {}: {error}", path.display())]
    Bind {
        /// Its path.
        path: PathBuf,
        /// Why not.
        error: BindError,
    },
    /// The address of the figures is not available.
    #[error("no figures at {address}: {error}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
    /// The process was to go on where another one ends, which goes on by itself.
    #[error("the running process can't be succeeded: {why}; it goes on by itself")]
    NoSuccession {
        /// The reason.
        why: String,
    },
    /// The process was to end before it served.
    #[error("interrupted")]
    Interrupted,
    /// The loop has failed.
    #[error("{what}: {error}")]
    Loop {
        /// The driver that the loop turned.
        what: &'static str,
        /// The system's reason.
        error: io::Error,
    },
}
