//! What can go wrong with a guest, said so that the reader knows what to do.

use std::io;
use std::path::Path;
use std::time::Duration;

/// Why there is no guest, or no status of its script.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No guest can run on this machine, or what it needs could not be fetched. Tests skip.
    #[error("no guest can be run here: {reason}")]
    Unavailable {
        /// What is missing, and what would help.
        reason: String,
    },
    /// Linux did not reach the init script in time.
    #[error("the guest did not start its init script within {after:?}\n{tail}")]
    BootTimeout {
        /// How long was waited.
        after: Duration,
        /// The last lines of the console, and what QEMU said.
        tail: String,
    },
    /// The script did not end, or a word that was expected did not come, in time.
    #[error("the guest's script: {waited_for} did not come within {after:?}\n{tail}")]
    ScriptTimeout {
        /// What was waited for.
        waited_for: String,
        /// How long was waited.
        after: Duration,
        /// The last lines of the script's output and of the console, and what QEMU said.
        tail: String,
    },
    /// The script ended before it said a word that was expected.
    #[error("the guest's script ended with status {status} before {waited_for} came\n{tail}")]
    ScriptEnded {
        /// The script's exit status.
        status: i32,
        /// What was waited for.
        waited_for: String,
        /// The last lines of the script's output and of the console, and what QEMU said.
        tail: String,
    },
    /// QEMU ended before the script's status came: a guest that panicked or was reset, or a refused argument.
    #[error("QEMU ended ({status}) before {waited_for} came\n{tail}")]
    QemuEnded {
        /// QEMU's exit status.
        status: String,
        /// What was waited for.
        waited_for: String,
        /// The last lines of the script's output and of the console, and what QEMU said.
        tail: String,
    },
    /// The monitor refused a command or did not answer.
    #[error("QEMU's monitor: {0}")]
    Monitor(String),
    /// Something that the caller asked to put into the guest does not exist.
    #[error("{what} is not among what was fetched for guests ({looked_in})")]
    Missing {
        /// The program, library or module.
        what: String,
        /// Where it was looked for.
        looked_in: String,
    },
    /// The world failed: a file, a process, a socket.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: an [`io::Error`] with what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// For `map_err`: an [`io::Error`] with what was done to a path.
    pub(crate) fn at<'a>(verb: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { doing: format!("{verb} {}", path.display()), source }
    }

    /// No guest here, because of this.
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }
}
