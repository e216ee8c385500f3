//! Packets of a network interface, captured by dumpcap for Wireshark's dissectors.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::running::signal;

/// How long a file must not have grown until it has everything: the kernel's buffers are handed on
/// after a quarter of a second, and written after half a second.
const LAG: Duration = Duration::from_secs(1);
/// How often that is looked at, at most: others may go on sending.
const LOOKS_MAX: usize = 20;

/// A capture by dumpcap.
pub(crate) struct Capture {
    child: Child,
    file: PathBuf,
}

impl Capture {
    /// Begins a capture of a TCP port of the loopback interface, or says why it can't.
    pub(crate) fn start(port: &str, file: &Path) -> Result<Self, String> {
        Self::of("lo", &format!("tcp port {port}"), file)
    }

    /// Begins a capture of the packets that pass `interface` and `filter`, or returns why it can't.
    pub(crate) fn of(interface: &str, filter: &str, file: &Path) -> Result<Self, String> {
        let mut command = Command::new("dumpcap");
        // A buffer of 64 MiB, so that nothing is lost on a busy machine.
        command.args(["-q", "-i", interface, "-B", "64", "-f", filter, "-w"]).arg(file);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| format!("dumpcap can't be run ({error})"))?;
        let mut said = String::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
            if line.starts_with("File:") {
                return Ok(Self { child, file: file.to_owned() });
            }
            said.push_str(&line);
        }
        let _ = child.wait();
        Err(format!("dumpcap captures nothing: {said}"))
    }

    /// Ends the capture once everything that was sent is in its file.
    pub(crate) fn finish(mut self) {
        let length = || std::fs::metadata(&self.file).map(|file| file.len()).ok();
        let mut before = length();
        for _ in 0..LOOKS_MAX {
            std::thread::sleep(LAG);
            let now = length();
            if now == before {
                break;
            }
            before = now;
        }
        signal(self.child.id(), "INT");
        assert!(self.child.wait().unwrap().success());
    }
}

/// Keeps this thread, and the processes that it starts, on one processor. Several processors may
/// hand segments to a capture in another order than they were sent in. Wireshark could put them in
/// order, but its version 4.0 sometimes crashes when it does.
pub(crate) fn stay_on_one_processor() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let first = allowed.trim().split(|next: char| !next.is_ascii_digit()).next().unwrap();
    live::reactor::pin(first.parse().unwrap()).unwrap();
}
