//! Attachments as block devices of the kernel's driver for devices in user space.
//!
//! `farlane connect` answers the requests of a device, and outlives the agent. If it is killed, the
//! kernel keeps the device, and the next such process takes it over.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use live::drivers::control;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use status::{Report, Status};

use super::record::Record;

/// The driver's control file.
pub(super) const CONTROL: &str = "/dev/ublk-control";

/// The answer to a request through a control socket.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Done(Value),
    Failed(String),
}

/// The first line of `farlane connect`.
#[derive(Deserialize)]
struct Connected {
    device: PathBuf,
}

/// The control socket of an attachment's process. Its path must be short.
fn socket(folder: &Path, record: &Record) -> PathBuf {
    let digest = Sha256::digest(record.attachment.0.as_bytes());
    let name = digest[..8].iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    folder.join(format!("{name}.sock"))
}

/// The answer of an attachment's process; `None` if there is no process.
fn ask(folder: &Path, record: &Record, request: &str) -> Result<Option<Value>, String> {
    let answer = match control::ask(&socket(folder, record), request) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        answer => answer.map_err(|error| format!("farlane connect gives no answer: {error}"))?,
    };
    match serde_json::from_str(&answer) {
        Ok(Answer::Done(done)) => Ok(Some(done)),
        Ok(Answer::Failed(why)) => Err(why),
        Err(error) => Err(format!("the answer of farlane connect: {error}")),
    }
}

/// The block device of an attachment, and whether it reaches its volume; `None` without a process.
pub(super) fn state(folder: &Path, record: &Record) -> Result<Option<(PathBuf, bool)>, String> {
    let Some(answer) = ask(folder, record, r#"{"command":"status"}"#)? else { return Ok(None) };
    match Report::read(answer).map_err(|why| why.to_string())?.status {
        Status::Connect(connect) => {
            let is_away = connect.way.is_away();
            Ok(connect.device.map(|device| (PathBuf::from(device), !is_away)))
        }
        other => Err(format!("a daemon of kind {} has the socket", other.kind())),
    }
}

/// Makes the block device, or takes it over. Returns its path.
///
/// # Errors
/// In words.
pub(super) fn connect(farlane: &Path, folder: &Path, record: &Record) -> Result<PathBuf, String> {
    let log = folder.join("connect.log");
    let log = File::options().create(true).append(true).open(&log).map_err(|error| error.to_string())?;
    let mut command = Command::new(farlane);
    command.args(["connect", &record.url, "--over", "ublk", "--background", "--json"]);
    command.arg("--control").arg(socket(folder, record)).args(record.secrets());
    if record.mode == crate::wire::Mode::Read {
        command.arg("--read-only");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let output = command.output().map_err(|error| format!("{}: {error}", farlane.display()))?;
    if !output.status.success() {
        return Err(format!("farlane connect ended with {}: see connect.log", output.status));
    }
    let connected: Result<Connected, _> = serde_json::from_slice(&output.stdout);
    Ok(connected.map_err(|error| format!("the first line of farlane connect: {error}"))?.device)
}

/// Removes the block device.
///
/// # Errors
/// In words, such as for a device that is mounted.
pub(super) fn disconnect(farlane: &Path, folder: &Path, record: &Record) -> Result<(), String> {
    if ask(folder, record, r#"{"command":"disconnect"}"#)?.is_some() {
        return Ok(());
    }
    // The kernel may still have the device of a process that was killed.
    let Some(device) = record.device.as_ref().filter(|device| device.exists()) else { return Ok(()) };
    let mut command = Command::new(farlane);
    command.args(["use", "disconnect"]).arg(device).stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|error| format!("{}: {error}", farlane.display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().chars().take(400).collect())
}
