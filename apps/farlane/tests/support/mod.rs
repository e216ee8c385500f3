//! A far end in a process of its own, and the program as its user runs it.

#![allow(dead_code, reason = "each test binary uses some of these helpers")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub(crate) mod admin;
pub(crate) mod dumpcap;
pub(crate) mod figures;
pub(crate) mod load;
pub(crate) mod outage;
pub(crate) mod own_network;
pub(crate) mod proxy;
pub(crate) mod relay;
pub(crate) mod running;
pub(crate) mod schema;
pub(crate) mod tutorial;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

use running::{Said, signal, wait_until};

/// The program under test, which was built with the tests. Tests that measure time, or in which a
/// guest runs beside it, take a faster build where `FARLANE_UNDER_TEST` names one.
pub(crate) static FARLANE: LazyLock<String> = LazyLock::new(|| {
    let named = std::env::var("FARLANE_UNDER_TEST").ok();
    let faster = named.filter(|_| env!("CARGO_CRATE_NAME") != "cli");
    faster.unwrap_or_else(|| env!("CARGO_BIN_EXE_farlane").to_owned())
});

/// The program without what only a debugger reads, for guests, which keep it in memory; it is put
/// into `directory`.
pub(crate) fn stripped(directory: &Path) -> PathBuf {
    let place = directory.join("farlane");
    match Command::new("strip").arg("-o").arg(&place).arg(&*FARLANE).status() {
        Ok(status) if status.success() => place,
        _ => PathBuf::from(&*FARLANE),
    }
}

/// Where programs under test keep their own key and the keys that they remember.
pub(crate) const CONFIGURATION: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/configuration");

/// `farlane export`, killed when dropped.
#[derive(Debug)]
pub(crate) struct Export {
    child: Child,
    /// `127.0.0.1:PORT` of the first far end.
    pub(crate) address: String,
    /// The first line of JSON that the program printed.
    pub(crate) announcement: Value,
    announcements: BufReader<ChildStdout>,
    /// Standard error, read to its end so that the far end never blocks on it.
    errors: Said,
}

impl Export {
    /// Starts a far end on a port that the system chooses, with namespaces such as `&["--ram",
    /// "64MiB"]`.
    pub(crate) fn start(namespaces: &[&str]) -> Self {
        Self::at("127.0.0.1:0", namespaces)
    }

    /// Starts a far end at `address`.
    pub(crate) fn at(address: &str, namespaces: &[&str]) -> Self {
        let mut command = Command::new(&*FARLANE);
        command.env("XDG_CONFIG_HOME", CONFIGURATION);
        command.args(["export", "--listen", address, "--json"]).args(namespaces);
        Self::of(command)
    }

    /// Starts a far end by `command`, which has `--json` among its arguments.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut announcements = BufReader::new(child.stdout.take().unwrap());
        let mut errors = Said::by(child.stderr.take().unwrap());
        let Some((address, announcement)) = announced(&mut announcements) else {
            let _ = child.kill();
            panic!("no far end was announced, but this was said: {}", errors.all());
        };
        Self { child, address, announcement, announcements, errors }
    }

    /// The URL of the next far end, where the program has several.
    pub(crate) fn next_url(&mut self) -> String {
        format!("tcp://{}", announced(&mut self.announcements).expect("a further far end").0)
    }

    /// URL of the first far end: `tcp://127.0.0.1:PORT`.
    pub(crate) fn url(&self) -> String {
        format!("tcp://{}", self.address)
    }

    /// The process identifier, for signals.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the program (SIGKILL) and waits until it is gone. Returns its standard error.
    pub(crate) fn kill(&mut self) -> String {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.errors.all()
    }

    /// Sends the program the signal called `name`, and waits until the program has ended. Returns
    /// its exit status and its standard error.
    pub(crate) fn end_by(&mut self, name: &str) -> (Option<i32>, String) {
        signal(self.id(), name);
        let mut status = None;
        wait_until("the far end ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.and_then(|status| status.code()), self.errors.all())
    }

    /// The next line of JSON, such as the program's last line.
    pub(crate) fn next_line(&mut self) -> Value {
        let mut line = String::new();
        self.announcements.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until the program has written `words` on standard error.
    pub(crate) fn wait_for(&self, words: &str) {
        wait_until(words, || self.errors.so_far().contains(words));
    }

    /// The program's standard error so far.
    pub(crate) fn said(&self) -> String {
        self.errors.so_far()
    }
}

/// The next line of JSON, and the address in it; none if the line is no such announcement.
fn announced(announcements: &mut impl BufRead) -> Option<(String, Value)> {
    let mut line = String::new();
    announcements.read_line(&mut line).unwrap();
    let announced: Value = serde_json::from_str(&line).ok()?;
    Some((announced.get("listening")?.as_str()?.to_owned(), announced))
}

impl Drop for Export {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs the program with `arguments` to its end.
pub(crate) fn farlane(arguments: &[&str]) -> Output {
    let running = running::Running::start(arguments);
    running.output()
}

/// Runs the program, which must succeed. Returns its standard output.
pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = farlane(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "farlane {arguments:?} failed: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs the program, which must succeed and print one line of JSON. Returns that line.
pub(crate) fn json(arguments: &[&str]) -> Value {
    let text = succeed(arguments);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs the program, which must fail. Returns its standard error with single spaces for
/// white space.
pub(crate) fn fail(arguments: &[&str]) -> String {
    let output = farlane(arguments);
    assert!(!output.status.success(), "farlane {arguments:?} succeeded");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The URL of a port on which no process listens.
pub(crate) fn unused_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp://{}", listener.local_addr().unwrap())
}
