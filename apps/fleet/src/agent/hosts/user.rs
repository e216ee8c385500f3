//! Attachments without a block device: programs connect by themselves.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::record::Record;

/// How long a login may take.
const LOGIN_WITHIN: Duration = Duration::from_secs(5);
/// How much longer the program may take that logs in.
const GRACE: Duration = Duration::from_secs(10);
/// The interval between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
/// The most characters of a program's message.
const MESSAGE_MAX: usize = 400;

/// Logs in once, by the program `farlane`.
///
/// # Errors
/// In words, when the owner lets the host not in.
pub(super) fn log_in(farlane: &Path, record: &Record) -> Result<(), String> {
    let mut command = Command::new(farlane);
    command.args(["-qq", "measure", "ping", &record.url, "--count", "1"]);
    command.arg("--timeout").arg(format!("{}s", LOGIN_WITHIN.as_secs())).args(record.secrets());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("{}: {error}", farlane.display()))?;
    wait(child, LOGIN_WITHIN + GRACE)
}

/// Waits for a program that says little, and ends it if it takes too long.
fn wait(mut child: Child, within: Duration) -> Result<(), String> {
    let until = Instant::now() + within;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the login did not end within {} s", within.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().rev().find(|line| line.contains("error")).unwrap_or(text.trim());
    Err(first.chars().take(MESSAGE_MAX).collect())
}
