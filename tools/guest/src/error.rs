//! Errors of guests. Each message names the remedy.

use std::io;
use std::path::Path;
use std::time::Duration;

/// Why a guest could not run, or why its script has no status.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No guest can run on this machine, or its parts could not be fetched. Tests are skipped.
    #[error("no guest can be run here: {reason}")]
    Unavailable {
        /// The missing part, and a remedy.
        reason: String,
    },
    /// Linux did not reach the init script in time.
    #[error("the guest did not start its init script within {after:?}\n{tail}")]
    BootTimeout {
        /// How long Linux had.
        after: Duration,
        /// The last lines of the console, and QEMU's messages.
        tail: String,
    },
    /// The script did not end, or did not send an expected word, in time.
    #[error("the guest's script: {waited_for} did not arrive within {after:?}\n{tail}")]
    ScriptTimeout {
        /// The awaited event, as words for a message.
        waited_for: String,
        /// How long it was waited for.
        after: Duration,
        /// The last lines of the script's output and of the console, and QEMU's messages.
        tail: String,
    },
    /// The script ended before it sent an expected word.
    #[error("the guest's script ended with status {status} before {waited_for} arrived\n{tail}")]
    ScriptEnded {
        /// The script's exit status.
        status: i32,
        /// The awaited event, as words for a message.
        waited_for: String,
        /// The last lines of the script's output and of the console, and QEMU's messages.
        tail: String,
    },
    /// QEMU ended before the script's status arrived: the guest panicked or was reset, or QEMU
    /// refused an argument.
    #[error("QEMU ended ({status}) before {waited_for} arrived\n{tail}")]
    QemuEnded {
        /// QEMU's exit status, as text.
        status: String,
        /// The awaited event, as words for a message.
        waited_for: String,
        /// The last lines of the script's output and of the console, and QEMU's messages.
        tail: String,
    },
    /// The monitor refused a command or did not answer.
    #[error("QEMU's monitor: {0}")]
    Monitor(String),
    /// A file that the caller needs in the guest does not exist.
    #[error("{what} is not among the files fetched for guests ({looked_in})")]
    Missing {
        /// The program, library or module that is missing.
        what: String,
        /// The directory that was searched.
        looked_in: String,
    },
    /// A file, a process or a socket failed.
    #[error("{doing}: {source}")]
    Io {
        /// The action that failed, as words for a message.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: adds the failed action to an [`io::Error`].
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// For `map_err`: adds the failed action and its path to an [`io::Error`].
    pub(crate) fn at<'a>(verb: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { doing: format!("{verb} {}", path.display()), source }
    }

    /// No guest can run here, for this reason.
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }
}
