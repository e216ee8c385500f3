//! The process of an attachment, which outlives the agent and has a control socket.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use status::Report;

use super::super::daemon::{self, NoAnswer};
use super::record::Record;

/// The path of a socket of an attachment's process, with this ending. It must be short.
pub(super) fn place(folder: &Path, record: &Record, ending: &str) -> PathBuf {
    let digest = Sha256::digest(record.attachment.0.as_bytes());
    let name = digest[..8].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    folder.join(format!("{name}.{ending}"))
}

/// The control socket of an attachment's process.
pub(super) fn socket(folder: &Path, record: &Record) -> PathBuf {
    place(folder, record, "sock")
}

/// The answer of an attachment's process; `None` if there is no process.
///
/// # Errors
/// In words.
pub(super) fn ask<T: DeserializeOwned>(
    folder: &Path,
    record: &Record,
    request: &str,
) -> Result<Option<T>, String> {
    known(daemon::ask(&socket(folder, record), request))
}

/// The status of an attachment's process; `None` if there is no process.
///
/// # Errors
/// In words.
pub(super) fn report(folder: &Path, record: &Record) -> Result<Option<Report>, String> {
    known(daemon::report(&socket(folder, record)))
}

fn known<T>(answer: Result<T, NoAnswer>) -> Result<Option<T>, String> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(NoAnswer::Absent(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
