//! Attachments as block devices of the kernel's driver for devices in user space.
//!
//! `farlane connect` answers the requests of a device, and outlives the agent. If it is killed, the
//! kernel keeps the device, and the next such process takes it over.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;
use status::Status;

use super::process;
use super::record::Record;

/// The driver's control file.
pub(super) const CONTROL: &str = "/dev/ublk-control";

/// The first line of `farlane connect`.
#[derive(Deserialize)]
struct Connected {
    device: PathBuf,
}

/// The block device of an attachment, and whether it reaches its volume; `None` without a process.
pub(super) fn state(folder: &Path, record: &Record) -> Result<Option<(PathBuf, bool)>, String> {
    let Some(report) = process::report(folder, record)? else { return Ok(None) };
    match report.status {
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
    command.arg("--control").arg(process::socket(folder, record)).args(record.secrets());
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
    if process::ask::<Value>(folder, record, r#"{"command":"disconnect"}"#)?.is_some() {
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
