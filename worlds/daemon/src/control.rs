//! The control socket of a daemon: where it is, and how a request is answered.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use live::drivers::control::Control;
use live::sys::runtime_folder::{self, Unusable};
use live::sys::sandbox::Needs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// The answer to a request, as a line of JSON has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer<T> {
    /// The request was carried out, with this result.
    Done(T),
    /// The request was not carried out, for this reason.
    Failed(String),
}

/// The line that answers a request with `result`.
pub(crate) fn line<T: Serialize>(result: Result<T, String>) -> String {
    let answer = result.map_or_else(Answer::Failed, Answer::Done);
    serde_json::to_string(&answer).unwrap_or_default()
}

/// A request that every daemon answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// Reports the state.
    Status,
    /// Reads the configuration again.
    Reload,
}

/// The requests of a daemon. Some of them are common to all daemons.
pub trait Request: DeserializeOwned {
    /// The common request that this one is, if it is one.
    fn common(&self) -> Option<Common>;
}

/// The request of a daemon that reports its state and takes no other requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum OnlyStatus {
    /// Reports the state.
    Status,
}

impl Request for OnlyStatus {
    fn common(&self) -> Option<Common> {
        Some(Common::Status)
    }
}

/// Where daemons have their control sockets by default: a folder of their user, the same one as
/// long as a process runs.
pub fn folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| runtime_folder::place("farlane")).clone()
}

/// Path of this process' control socket, by default one with the process' kind and identifier.
fn path(kind: &str, given: Option<&Path>) -> PathBuf {
    let default = || folder().join(format!("{kind}-{}.sock", std::process::id()));
    given.map_or_else(default, Path::to_owned)
}

/// Lets a process that gives up most of the machine keep its control socket.
pub(crate) fn need(needs: &mut Needs, kind: &str, given: Option<&Path>) {
    // A folder that is refused gets no socket, and needs no rights.
    if given.is_some() || make_folder().is_ok() {
        needs.change_beside(&path(kind, given));
    }
}

/// Opens the control socket of a process of this kind. If the default one can't be opened, the
/// process logs a warning and runs without.
///
/// # Errors
/// When the socket that was given can't be opened.
pub(crate) fn bind(kind: &str, given: Option<&Path>) -> Result<Option<Control>, Failure> {
    if given.is_none()
        && let Err(why) = make_folder()
    {
        warn!(each = true, "no control socket in {why}; choose one with --control");
        return Ok(None);
    }
    let path = path(kind, given);
    match Control::bind(&path) {
        Ok(control) => Ok(Some(control)),
        Err(error) if given.is_some() => Err(Failure::Bind { path, error }),
        Err(error) => {
            warn!(each = true, "no control socket at {}: {error}; choose one with --control", path.display());
            Ok(None)
        }
    }
}

/// Makes the folder of control sockets, for this user alone.
fn make_folder() -> Result<(), Unusable> {
    runtime_folder::make(&folder())
}

/// Checks the folder of control sockets without making it.
///
/// # Errors
/// When it could not be made, or other users may put sockets there.
pub fn check_folder() -> Result<(), Unusable> {
    runtime_folder::check(&folder())
}
