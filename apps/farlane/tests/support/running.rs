//! A program that runs while the test does something else.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CONFIGURATION, FARLANE};

/// How long to wait for something that takes a second on a quiet machine. A disk that other tests
/// write to may keep a program waiting for half a minute until its data are durable.
const PATIENCE: Duration = Duration::from_secs(120);
/// The flag of a listening socket in /proc/net/unix: the kernel's SO_ACCEPTCON.
const LISTENS: u32 = 1 << 16;

/// Waits until `met` returns true. Fails when that takes longer than [`PATIENCE`].
pub(crate) fn wait_until(what: &str, mut met: impl FnMut() -> bool) {
    let started = Instant::now();
    while !met() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Waits until a program listens at the Unix socket `path`. The name of a socket exists a moment
/// before connections to it succeed.
pub(crate) fn wait_for_listener(path: impl AsRef<Path>) {
    let path = path.as_ref().to_str().unwrap();
    wait_until(&format!("a listener at {path}"), || {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        sockets.lines().filter(|line| line.ends_with(path)).any(|line| {
            let flags = line.split_ascii_whitespace().nth(3);
            flags.is_some_and(|flags| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & LISTENS != 0))
        })
    });
}

/// Sends the signal called `name` (INT, TERM, KILL) to a process that the test has started.
pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().unwrap();
    assert!(status.success(), "{status}");
}

/// What each thread of a process waits for in the kernel: its name, state, function and system call
/// (`proc_pid_stat(5)`, `proc_pid_wchan(5)`, `proc_pid_syscall(5)`).
fn threads(process: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return String::new() };
    let line = |task: std::path::PathBuf| {
        let [stat, function, call] = ["stat", "wchan", "syscall"].map(|name| {
            let text = std::fs::read_to_string(task.join(name));
            text.unwrap_or_default().trim().chars().take(60).collect::<String>()
        });
        format!("  thread {stat} | in {function} | call {call}\n")
    };
    tasks.flatten().map(|task| line(task.path())).collect()
}

/// How often `what` was said. After the first few, similar lines are only counted.
pub(crate) fn times(said: &str, what: &str) -> usize {
    let more = |line: &str| -> usize {
        let counted = line.split_once('(').and_then(|(_, rest)| rest.split_once(" more like it"));
        counted.and_then(|(count, _)| count.parse().ok()).unwrap_or(1)
    };
    said.lines().filter(|line| line.contains(what)).map(more).sum()
}

/// The output of a program, read to its end so that the program never blocks on it.
#[derive(Debug)]
pub(crate) struct Said {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Said {
    pub(crate) fn by(mut stream: impl Read + Send + 'static) -> Self {
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let written = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                written.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Self { bytes, reader: Some(reader) }
    }

    /// Everything that was written until now.
    pub(crate) fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// Everything that was written. Waits until the program has ended.
    pub(crate) fn all(&mut self) -> String {
        self.reader.take().map(JoinHandle::join);
        self.so_far()
    }

    fn bytes(mut self) -> Vec<u8> {
        self.all();
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}

/// `farlane` in the background, killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    said: Option<(Said, Said)>,
    arguments: String,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, Stdio::null())
    }

    /// Starts the program with `input` as its standard input.
    pub(crate) fn start_with(arguments: &[&str], input: Stdio) -> Self {
        let mut child = Command::new(&*FARLANE)
            .env("XDG_CONFIG_HOME", CONFIGURATION)
            .args(arguments)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, said: Some((Said::by(out), Said::by(errors))), arguments: arguments.join(" ") }
    }

    /// Starts the program with `bytes` as its standard input.
    pub(crate) fn fed(arguments: &[&str], bytes: Vec<u8>) -> Self {
        let mut running = Self::start_with(arguments, Stdio::piped());
        let mut stdin = running.child.stdin.take().unwrap();
        // The program may end before it has read everything.
        std::thread::spawn(move || drop(stdin.write_all(&bytes)));
        running
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// The program's standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.as_ref().map(|(_, errors)| errors.so_far()).unwrap_or_default()
    }

    /// The program's standard output so far.
    pub(crate) fn printed(&self) -> String {
        self.said.as_ref().map(|(out, _)| out.so_far()).unwrap_or_default()
    }

    /// Processor time of the program in ticks of 10 ms (`proc_pid_stat(5)`, utime and stime).
    pub(crate) fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    }

    /// Waits until the program ends, for [`PATIENCE`] at most.
    pub(crate) fn output(self) -> Output {
        self.output_within(PATIENCE)
    }

    /// Waits until the program ends, which must be within `longest`.
    pub(crate) fn output_within(mut self, longest: Duration) -> Output {
        let status = self.wait(longest);
        let (out, errors) = self.said.take().unwrap();
        Output { status, stdout: out.bytes(), stderr: errors.bytes() }
    }

    fn wait(&mut self, longest: Duration) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if started.elapsed() > longest {
                let (said, printed) = (self.said(), self.printed());
                let threads = threads(self.process());
                panic!("farlane {} hangs: {said}{printed}\n{threads}", self.arguments);
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the program succeeds. Returns its one line of JSON, and its standard error.
    pub(crate) fn json(self) -> (Value, String) {
        let arguments = self.arguments.clone();
        let output = self.output();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "farlane {arguments} failed: {errors}");
        (serde_json::from_slice(&output.stdout).expect("JSON"), errors)
    }

    /// Waits until the program fails, and not by a signal. Returns its standard error, with single
    /// spaces for white space.
    pub(crate) fn fail(self) -> String {
        let arguments = self.arguments.clone();
        let output = self.output();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "farlane {arguments} succeeded: {errors}");
        assert_eq!(output.status.signal(), None, "farlane {arguments}: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        errors.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
