//! Questions to a daemon of this machine, through its control socket.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use live::drivers::control;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use status::Report;

/// The answer to a request through a control socket.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer<T> {
    Done(T),
    Failed(String),
}

/// Why a daemon gives no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// No process listens at the socket.
    #[error("no daemon listens at {}", .0.display())]
    Absent(PathBuf),
    /// It listens, and does not answer.
    #[error("the daemon at {}: {error}", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It refuses.
    #[error("the daemon at {} refuses: {why}", path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The daemon's words.
        why: String,
    },
}

/// The answer of the daemon at `socket` to a request.
///
/// # Errors
/// When there is no answer, or the daemon refuses.
pub(crate) fn ask<T: DeserializeOwned>(socket: &Path, request: &str) -> Result<T, NoAnswer> {
    let path = || socket.to_owned();
    let answer = control::ask(socket, request).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => NoAnswer::Absent(path()),
        _ => NoAnswer::Silent { path: path(), error },
    })?;
    let strange = |error: serde_json::Error| NoAnswer::Silent { path: path(), error: error.into() };
    match serde_json::from_str(&answer).map_err(strange)? {
        Answer::Done(done) => Ok(done),
        Answer::Failed(why) => Err(NoAnswer::Refused { path: path(), why }),
    }
}

/// The status of the daemon at `socket`.
///
/// # Errors
/// When there is no answer, or this version can't read it.
pub(crate) fn report(socket: &Path) -> Result<Report, NoAnswer> {
    let answer: Value = ask(socket, r#"{"command":"status"}"#)?;
    Report::read(answer).map_err(|why| NoAnswer::Refused { path: socket.to_owned(), why: why.to_string() })
}

/// Sends a signal to a process.
///
/// # Errors
/// The system's.
pub(crate) fn signal(process: u32, signal: Signal) -> io::Result<()> {
    let known = i32::try_from(process).ok().and_then(Pid::from_raw);
    let known = known.ok_or_else(|| io::Error::other(format!("{process} is no process")))?;
    Ok(kill_process(known, signal)?)
}

/// The daemon at `socket` is of another kind than the agent has started.
pub(crate) fn stranger(socket: &Path, report: &Report) -> NoAnswer {
    let why = format!("a daemon of kind {} listens there", report.status.kind());
    NoAnswer::Refused { path: socket.to_owned(), why }
}
