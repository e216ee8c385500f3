//! `farlane upgrade`: a new process goes on in the place of a running daemon.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use daemon::succession::VARIABLE;
use live::sys::unix::Connection;
use serde::Serialize;

use super::{control, print, print_json};
use crate::args::UpgradeArgs;
use crate::error::{DaemonError, Error};

/// How long an upgrade may take in all.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at the processes.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The `--json` report.
#[derive(Serialize)]
struct Upgraded {
    /// The process that has ended.
    predecessor: i32,
    /// The process that goes on in its place.
    process: u32,
}

pub(crate) fn run(args: &UpgradeArgs) -> Result<(), Error> {
    let socket = find(&args.daemon)?;
    let fail = |error| Error::Control { path: socket.clone(), error };
    let process = Connection::connect(&socket).map_err(fail)?.peer_process();
    let process = process.ok_or_else(|| fail(io::Error::other("its process is not known")))?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(Error::Output)?,
    };
    let mut successor = start(&program, process, &socket).map_err(|error| DaemonError::Upgrade {
        process,
        why: format!("{} can't be started in its place: {error}", program.display()),
    })?;
    watch(&mut successor, process, &socket)?;
    let upgraded = Upgraded { predecessor: process, process: successor.id() };
    if args.output.json {
        return print_json(&upgraded);
    }
    print(&format!("process {} goes on in the place of process {process}\n", upgraded.process))
}

/// The control socket of the daemon that the argument means.
fn find(daemon: &str) -> Result<PathBuf, Error> {
    if daemon.contains('/') {
        return Ok(PathBuf::from(daemon));
    }
    let by_process: Option<u32> = daemon.parse().ok();
    let is_meant = |path: &Path| {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let (kind, process) = name.rsplit_once('-').unwrap_or((name, ""));
        by_process.map_or(kind == daemon, |wanted| process.parse() == Ok(wanted))
    };
    let found = control::look()?;
    let sockets = found.daemons.into_iter().map(|one| one.socket);
    let sockets = sockets.chain(found.unreadable.into_iter().map(|(socket, _)| socket));
    let mut meant: Vec<_> = sockets.filter(|path| is_meant(path)).collect();
    match meant.len() {
        1 => Ok(meant.remove(0)),
        count => Err(DaemonError::NotOne { daemon: daemon.to_owned(), count }.into()),
    }
}

/// Starts `program` as `process` was started: with its arguments, in its folder, and with its
/// environment and output.
fn start(program: &Path, process: i32, socket: &Path) -> io::Result<Child> {
    let place = PathBuf::from(format!("/proc/{process}"));
    let words = |name: &str| -> io::Result<Vec<OsString>> {
        let bytes = fs::read(place.join(name))?;
        let words = bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
        let mut words: Vec<_> = words.collect();
        // Each word ends with a zero byte.
        words.pop();
        Ok(words)
    };
    let variables = words("environ")?.into_iter().filter_map(|word| {
        let word = word.into_vec();
        let split = word.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (word[..split].to_vec(), word[split + 1..].to_vec());
        Some((OsString::from_vec(name), OsString::from_vec(value)))
    });
    let output = |number: u32| -> Stdio {
        let file = OpenOptions::new().append(true).open(place.join(format!("fd/{number}")));
        // The socket of a journal can't be opened by its name: this process has one of its own.
        file.map_or_else(|_| Stdio::inherit(), |file: File| Stdio::from(file))
    };
    Command::new(program)
        .args(words("cmdline")?.into_iter().skip(1))
        .env_clear()
        .envs(variables)
        .env(VARIABLE, std::path::absolute(socket)?)
        // The service manager awaits the beats of the successor, which has another identifier.
        .env_remove("WATCHDOG_PID")
        .current_dir(place.join("cwd"))
        .stdin(Stdio::null())
        .stdout(output(1))
        .stderr(output(2))
        .process_group(0)
        .spawn()
}

/// Waits until the successor has taken over and answers requests.
fn watch(successor: &mut Child, process: i32, socket: &Path) -> Result<(), Error> {
    let failed = |why: String| DaemonError::Upgrade { process, why }.into();
    let until = Instant::now() + PATIENCE;
    loop {
        let has_left = has_left(process);
        if has_left && serves(successor.id(), socket) {
            return Ok(());
        }
        if let Some(status) = successor.try_wait().map_err(Error::Output)? {
            let when = if has_left { " after it had taken over" } else { "" };
            return Err(failed(format!("the new process has ended{when} ({status})")));
        }
        if Instant::now() >= until {
            let _ = successor.kill();
            let _ = successor.wait();
            return Err(failed(format!("no process has taken over within {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether `process` listens at the control socket of its predecessor, or at one that has the
/// process' own name beside it.
fn serves(process: u32, socket: &Path) -> bool {
    let name = socket.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let own = name.rsplit_once('-').map(|(kind, _)| format!("{kind}-{process}.sock"));
    let places = [Some(socket.to_owned()), own.map(|own| socket.with_file_name(own))];
    places.into_iter().flatten().any(|place| {
        let found = Connection::connect(&place).ok().and_then(|connection| connection.peer_process());
        found.and_then(|found| u32::try_from(found).ok()) == Some(process)
    })
}

/// Whether a process has ended, or is ending.
fn has_left(process: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    // The state comes behind the name, which may have any character: proc_pid_stat(5).
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| matches!(rest.trim_start().as_bytes().first(), Some(b'Z' | b'X')))
}
