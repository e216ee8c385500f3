//! Attachments as SSDs of virtual machines: a socket at which a monitor finds the SSD (vfio-user).
//!
//! `farlane attach` serves the socket, and outlives the agent.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use status::Status;

use super::super::daemon;
use super::process;
use super::record::Record;

/// How long the process may take until it answers, and until it has ended.
const WITHIN: Duration = Duration::from_secs(15);
/// The interval between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The socket for the monitor of an attachment's virtual machine.
pub(super) fn socket(folder: &Path, record: &Record) -> PathBuf {
    process::place(folder, record, "vfio")
}

/// The socket, and whether the volume is reached; `None` without a process.
///
/// # Errors
/// In words.
pub(super) fn state(folder: &Path, record: &Record) -> Result<Option<(PathBuf, bool)>, String> {
    let Some(report) = process::report(folder, record)? else { return Ok(None) };
    match report.status {
        Status::Attach(slot) => {
            let is_here = slot.link.is_some_and(|link| link.connected);
            Ok(Some((PathBuf::from(slot.vfio_user), is_here)))
        }
        other => Err(format!("a daemon of kind {} has the socket", other.kind())),
    }
}

/// Starts the process. Returns the socket for the monitor.
///
/// # Errors
/// In words.
pub(super) fn connect(farlane: &Path, folder: &Path, record: &Record) -> Result<PathBuf, String> {
    let log = folder.join("attach.log");
    let log = File::options().create(true).append(true).open(&log).map_err(|error| error.to_string())?;
    let mut command = Command::new(farlane);
    command.args(["attach", &record.url]).arg("--vfio-user").arg(socket(folder, record));
    command.arg("--control").arg(process::socket(folder, record)).args(record.secrets());
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", farlane.display()))?;
    let until = Instant::now() + WITHIN;
    loop {
        if let Some((socket, _)) = state(folder, record)? {
            return Ok(socket);
        }
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Err(format!("farlane attach ended with {status}: see attach.log"));
        }
        if Instant::now() > until {
            let _ = child.kill().and_then(|()| child.wait());
            return Err(format!("farlane attach did not answer within {} s", WITHIN.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends the process: the virtual machine loses the SSD.
///
/// # Errors
/// In words.
pub(super) fn disconnect(folder: &Path, record: &Record) -> Result<(), String> {
    let until = Instant::now() + WITHIN;
    let mut is_asked = false;
    while let Some(report) = process::report(folder, record)? {
        let is_late = Instant::now() > until;
        // A second request would end it amid the requests of its virtual machine.
        if is_late || !is_asked {
            let signal = if is_late { Signal::KILL } else { Signal::TERM };
            daemon::signal(report.pid, signal).map_err(|error| error.to_string())?;
            is_asked = true;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
