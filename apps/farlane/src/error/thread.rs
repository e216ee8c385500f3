//! Errors of one of several threads that work together.

use std::fmt;

use live::client::AttachError;
use live::sys::descriptors::is_exhaustion;
use miette::Diagnostic;

use super::Error;
use crate::exit::Exit;

/// The error of a thread that works with others.
#[derive(Debug)]
pub(crate) enum ThreadError {
    /// A thread has failed.
    Failed {
        /// The thread's number, counted from 1.
        thread: usize,
        /// The number of threads.
        of: usize,
        /// The error that ended the thread.
        error: Box<Error>,
    },
    /// A thread has a fault of Farlane.
    Panicked {
        /// The message of the panic.
        why: String,
    },
}

impl fmt::Display for ThreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { thread, of, error } => write!(f, "thread {thread} of {of}: {error}"),
            Self::Panicked { why } => write!(f, "a fault of farlane: {why}"),
        }
    }
}

impl std::error::Error for ThreadError {}

impl Diagnostic for ThreadError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        match self {
            Self::Failed { error, .. } => error.help().or_else(|| {
                let is_full = is_without_descriptors(error);
                is_full.then(|| -> Box<dyn fmt::Display> {
                    Box::new(
                        "ulimit -n allows more descriptors; fewer threads need fewer (--cores, --queues)",
                    )
                })
            }),
            Self::Panicked { .. } => Some(Box::new("please report it, with the place that is printed above")),
        }
    }
}

/// Whether the process has no descriptor left.
fn is_without_descriptors(error: &Error) -> bool {
    let (Error::System(error) | Error::Attach(AttachError::Io(error))) = error else { return false };
    is_exhaustion(error)
}

impl ThreadError {
    /// How the process ends with this error.
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Failed { error, .. } => error.exit(),
            Self::Panicked { .. } => Exit::Fault,
        }
    }
}
