//! The process of the target, which outlives the agent.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Deserialize;
use serde_json::Value;
use status::Status;

use super::super::daemon::{self, NoAnswer};
use super::super::files;

/// How long a target may take from its start until it answers. After `kill -9`, the next target
/// waits up to a minute for the last writes of the one before.
const STARTS_WITHIN: Duration = Duration::from_secs(90);
/// The most bytes of the target's log. At twice as many, the older half is dropped.
const LOG_BYTES: u64 = 1 << 20;
/// The most bytes of the log that go into a message.
const LAST_WORDS: u64 = 2000;

/// The answer to a reload.
#[derive(Deserialize)]
pub(super) struct Reloaded {
    pub(super) changes: Vec<String>,
}

/// The end of a target.
#[derive(Debug)]
pub(super) struct Ended {
    /// Whether its file is at fault: it ended by itself, and had not served before.
    pub(super) is_of_file: bool,
    /// How it ended, and the last line of its log.
    pub(super) why: String,
}

/// The process of the target.
#[derive(Debug)]
pub(super) struct Process {
    program: PathBuf,
    config: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    /// Folders in which the target opens volumes.
    pools: Vec<PathBuf>,
    /// The process, if this agent has started it; and when, until it has answered.
    child: Option<(Child, Option<Instant>)>,
}

impl Process {
    pub(super) fn new(program: PathBuf, [config, socket, log]: [PathBuf; 3], pools: Vec<PathBuf>) -> Self {
        Self { program, config, socket, log, pools, child: None }
    }

    /// Starts the target. Whether it serves is seen by its answers.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let log = File::options().append(true).create(true).open(&self.log);
        let log = log.map_err(|error| files::at(&self.log, &error))?;
        let mut command = Command::new(&self.program);
        command.arg("target").arg("--config").arg(&self.config).arg("--control").arg(&self.socket);
        for pool in self.pools.iter().filter(|pool| pool.is_dir()) {
            command.arg("--allow-path").arg(pool);
        }
        // A group of its own: signals of a terminal reach the agent only. A hang-up has the target
        // read its file again, and nothing more.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|error| files::at(&self.program, &error))?;
        tracing::info!(process = child.id(), "the target is started");
        self.child = Some((child, Some(Instant::now())));
        Ok(())
    }

    /// Whether the agent has started a target that has not ended.
    pub(super) fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|(child, _)| matches!(child.try_wait(), Ok(None)))
    }

    /// The end of a target that this agent had started; ends one that never answers.
    pub(super) fn ended(&mut self) -> Option<Ended> {
        let (child, since) = self.child.as_mut()?;
        let mut is_of_file = since.is_some();
        let how = match child.try_wait() {
            Ok(Some(status)) => {
                is_of_file &= status.signal().is_none();
                format!("it ended with {status}")
            }
            Ok(None) if since.is_some_and(|since| since.elapsed() > STARTS_WITHIN) => {
                // It is this agent's own child, which holds the disks of a target that answers.
                let _ = child.kill().and_then(|()| child.wait());
                format!("it did not answer within {} s", STARTS_WITHIN.as_secs())
            }
            Ok(None) => return None,
            Err(error) => format!("its end is unknown: {error}"),
        };
        self.child = None;
        let words = last_line(&self.log).unwrap_or_default();
        let log = self.log.display();
        let why = format!("{how}; its log {log} ends with: {}", words.trim().escape_debug());
        Some(Ended { is_of_file, why })
    }

    /// Takes note that the target answers: it may take any time from now on.
    pub(super) fn note_answer(&mut self) {
        if let Some((_, since)) = &mut self.child {
            *since = None;
        }
    }

    /// The status of the target.
    ///
    /// # Errors
    /// When there is no answer, or it is not that of a target.
    pub(super) fn status(&self) -> Result<status::Target, NoAnswer> {
        let report = daemon::report(&self.socket)?;
        match report.status {
            Status::Target(target) => Ok(target),
            _ => Err(daemon::stranger(&self.socket, &report)),
        }
    }

    /// Has the target end: it ends requests and connections first. Returns its version.
    ///
    /// # Errors
    /// When there is no answer, or the system refuses.
    pub(super) fn terminate(&self) -> Result<String, NoAnswer> {
        let report = daemon::report(&self.socket)?;
        daemon::signal(report.pid, Signal::TERM)
            .map_err(|error| NoAnswer::Silent { path: self.socket.clone(), error })?;
        Ok(report.farlane)
    }

    /// Has the target read its file again. Returns what changed, in the target's words.
    ///
    /// # Errors
    /// When there is no answer, or the target refuses the file.
    pub(super) fn reload(&self) -> Result<Vec<String>, NoAnswer> {
        Ok(daemon::ask::<Reloaded>(&self.socket, r#"{"command":"reload"}"#)?.changes)
    }

    /// Has the target use the present length of a volume's file.
    ///
    /// # Errors
    /// When there is no answer, or the target refuses.
    pub(super) fn resize(&self, nqn: &str, namespace: u32) -> Result<(), NoAnswer> {
        let request = serde_json::json!({"command": "resize", "nqn": nqn, "nsid": namespace});
        daemon::ask::<Value>(&self.socket, &request.to_string()).map(drop)
    }

    /// Drops the older part of a log that has become long.
    pub(super) fn shorten_log(&self) {
        if let Err(error) = shorten(&self.log) {
            tracing::debug!("{}: {error}", self.log.display());
        }
    }
}

/// The last line of a file, as far as it is not too long.
fn last_line(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS)))?;
    let mut words = Vec::new();
    file.take(LAST_WORDS).read_to_end(&mut words)?;
    let words = String::from_utf8_lossy(&words);
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    Ok(last.unwrap_or_default().to_owned())
}

/// Drops the older half of a file that has more than twice [`LOG_BYTES`]. Its writer appends.
fn shorten(path: &Path) -> io::Result<()> {
    let mut file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let length = file.metadata()?.len();
    if length <= 2 * LOG_BYTES {
        return Ok(());
    }
    file.seek(SeekFrom::Start(length - LOG_BYTES))?;
    let mut kept = Vec::new();
    (&file).take(LOG_BYTES).read_to_end(&mut kept)?;
    // A line that the target writes between these two is lost.
    file.set_len(0)?;
    let mut file = File::options().append(true).open(path)?;
    io::Write::write_all(&mut file, &kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_keeps_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        shorten(&path).unwrap();
        let line = |number: u64| format!("{number:015}\n");
        let text: String = (0..(2 * LOG_BYTES / 16 + 1)).map(line).collect();
        std::fs::write(&path, &text).unwrap();
        let mut writer = File::options().append(true).open(&path).unwrap();
        shorten(&path).unwrap();
        io::Write::write_all(&mut writer, b"more\n").unwrap();
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept.len() as u64, LOG_BYTES + 5);
        assert!(text.ends_with(&kept[..kept.len() - 5]) && kept.ends_with("more\n"));
        assert_eq!(last_line(&path).unwrap(), "more");
    }
}
