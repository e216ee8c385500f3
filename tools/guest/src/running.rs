//! A running guest: keeps its output, exchanges words with its script, and waits for its end.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Error;
use crate::monitor::Monitor;
use crate::process::Process;
use crate::stream::Kept;

/// Number of lines of the console and of the script's output that an error shows.
const TAIL_LINES: usize = 30;
/// Linux's message when it cannot continue.
const PANIC: &str = "Kernel panic";
/// How long QEMU may take to end after the script's status has arrived or its control line has
/// closed.
const LEAVING: Duration = Duration::from_secs(60);
/// Maximum number of the script's words that wait for [`Running::expect`]; further words are
/// dropped.
const UNHEARD_MAX: usize = 100_000;

/// The result of a guest's script.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The script's exit status; 0 is success.
    pub status: i32,
    /// The script's output on both of its streams, and nothing else.
    pub output: String,
    /// The output of firmware, kernel and init script on the console.
    pub console: String,
    /// Time from QEMU's start to the init script's first line.
    pub boot: Duration,
    /// Time from QEMU's start to its end.
    pub elapsed: Duration,
}

impl Outcome {
    /// Returns the outcome if the script succeeded; for tests.
    ///
    /// # Panics
    /// When the script has failed; with its whole output and the end of the console.
    #[must_use]
    #[track_caller]
    pub fn expect_success(self) -> Self {
        let console: Vec<&str> = self.console.lines().collect();
        let console = console[console.len().saturating_sub(TAIL_LINES)..].join("\n");
        assert!(
            self.status == 0,
            "the guest's script ended with status {}\n--- its output\n{}\n--- the console's end\n{console}",
            self.status,
            self.output
        );
        self
    }
}

/// A word of the guest on the control line.
#[derive(Debug)]
enum Word {
    /// Linux has started the init script.
    Ready,
    /// Words sent by the script.
    Said(String),
    /// The script has ended with this status.
    Status(i32),
}

impl Word {
    fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "ready" => Some(Self::Ready),
            "tell" => Some(Self::Said(rest.to_owned())),
            "status" => rest.parse().ok().map(Self::Status),
            _ => None,
        }
    }
}

/// The output of a guest's streams so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    pub(crate) console: Kept,
    pub(crate) output: Kept,
    pub(crate) errors: Kept,
}

impl Streams {
    pub(crate) fn tail(&self) -> String {
        let mut tail = String::new();
        for (name, kept) in
            [("the script's output", &self.output), ("the console", &self.console), ("QEMU", &self.errors)]
        {
            let mut lines = kept.tail(TAIL_LINES);
            // The reason for a panic is above a call trace of any length.
            let text = kept.text();
            if let Some(panic) = text.lines().find(|line| line.contains(PANIC))
                && !lines.contains(panic)
            {
                lines = format!("{panic}\n...\n{lines}");
            }
            if !lines.is_empty() {
                tail.push_str(&format!("--- the last lines of {name}\n{lines}\n"));
            }
        }
        tail
    }
}

/// A running guest, which is killed on drop.
#[derive(Debug)]
pub struct Running {
    process: Process,
    streams: Streams,
    readers: Vec<JoinHandle<()>>,
    words: Receiver<Word>,
    control: UnixStream,
    monitor: Monitor,
    begun: Instant,
    boot: Duration,
    script_limit: Duration,
    /// The script's status, if it arrived during another wait.
    status: Option<i32>,
    /// The directory of QEMU's sockets, which is removed after QEMU's end.
    _directory: TempDir,
}

/// The parts of a guest once QEMU has connected.
pub(crate) struct Parts {
    pub(crate) process: Process,
    pub(crate) streams: Streams,
    pub(crate) readers: Vec<JoinHandle<()>>,
    pub(crate) control: UnixStream,
    pub(crate) monitor: UnixStream,
    pub(crate) begun: Instant,
    pub(crate) script_limit: Duration,
    pub(crate) directory: TempDir,
}

impl Running {
    /// Waits until the init script runs.
    pub(crate) fn new(parts: Parts, boot_limit: Duration) -> Result<Self, Error> {
        let Parts { mut process, streams, mut readers, control, monitor, begun, script_limit, directory } =
            parts;
        let source = control.try_clone().map_err(Error::io("sharing the control line"))?;
        let (words, reader) = read_words(source);
        readers.push(reader);
        let monitor = match Monitor::new(monitor) {
            // QEMU connects before it has read all of its arguments.
            Err(error) => return Err(ended(&mut process, &streams, "its monitor").unwrap_or(error)),
            Ok(monitor) => monitor,
        };
        let (boot, status) = (Duration::ZERO, None);
        let mut running = Self {
            process,
            streams,
            readers,
            words,
            control,
            monitor,
            begun,
            boot,
            script_limit,
            status,
            _directory: directory,
        };
        match running.word(begun, boot_limit, "the init script") {
            Err(Error::ScriptTimeout { after, tail, .. }) => return Err(Error::BootTimeout { after, tail }),
            other => other?,
        };
        running.boot = begun.elapsed();
        Ok(running)
    }

    /// Waits until the script sends `words`. Other words are skipped.
    ///
    /// # Errors
    /// When the words do not arrive within `limit`, or the script or QEMU ends first.
    pub fn expect(&mut self, words: &str, limit: Duration) -> Result<(), Error> {
        self.wait_for(
            &format!("\"{words}\""),
            limit,
            |word| matches!(word, Word::Said(said) if said == words),
        )
    }

    /// Waits until a guest made with [`crate::Builder::reboots`] has started again.
    ///
    /// # Errors
    /// When the guest does not start within `limit`, or the script or QEMU ends first.
    pub fn expect_reboot(&mut self, limit: Duration) -> Result<(), Error> {
        self.wait_for("the init script's next start", limit, |word| matches!(word, Word::Ready))
    }

    fn wait_for(&mut self, what: &str, limit: Duration, is_it: impl Fn(&Word) -> bool) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            let word = self.word(since, limit, what)?;
            if is_it(&word) {
                return Ok(());
            }
            if let Word::Status(status) = word {
                self.status = Some(status);
                return Err(Error::ScriptEnded { status, waited_for: what.to_owned(), tail: self.tail() });
            }
        }
    }

    /// Sends `words` to a script that waits for them (`await WORDS` in the guest).
    ///
    /// # Errors
    /// When the guest has ended.
    pub fn tell(&mut self, words: &str) -> Result<(), Error> {
        self.control
            .write_all(format!("{words}\n").as_bytes())
            .map_err(Error::io("sending words to the guest"))
    }

    /// Runs a command of QEMU's human monitor, such as `system_reset`, `device_del device0` or
    /// `info pci`. Returns the command's output.
    ///
    /// # Errors
    /// When the monitor does not answer, or refuses the command.
    pub fn monitor(&mut self, command: &str) -> Result<String, Error> {
        self.monitor.human(command)
    }

    /// Runs a command of QEMU's machine protocol, with arguments and result in JSON. For commands
    /// that the human monitor lacks, such as `device_add` of a vfio-user device.
    ///
    /// # Errors
    /// When the arguments are not JSON, or the monitor refuses.
    pub fn execute(&mut self, command: &str, arguments: &str) -> Result<String, Error> {
        let arguments = serde_json::from_str(arguments)
            .map_err(|error| Error::Monitor(format!("{command}: its arguments are not JSON: {error}")))?;
        Ok(self.monitor.execute(command, &arguments)?.to_string())
    }

    /// QEMU's process id.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id
    }

    /// Time from QEMU's start to the init script's first line.
    #[must_use]
    pub fn boot(&self) -> Duration {
        self.boot
    }

    /// The script's output so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.streams.output.text()
    }

    /// The output of firmware, kernel and init script so far.
    #[must_use]
    pub fn console(&self) -> String {
        self.streams.console.text()
    }

    /// Waits for the end of the script and of the guest.
    ///
    /// # Errors
    /// [`Error::ScriptTimeout`] when the script does not end in time, [`Error::QemuEnded`] when the
    /// guest ends without a status.
    pub fn finish(mut self) -> Result<Outcome, Error> {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.status {
                break status;
            }
            if let Word::Status(status) = self.word(since, self.script_limit, "the script's end")? {
                break status;
            }
        };
        if self.process.wait(LEAVING).is_none() {
            let tail = self.tail();
            let waited_for = "QEMU's end after the script's".to_owned();
            return Err(Error::ScriptTimeout { waited_for, after: LEAVING, tail });
        }
        for reader in self.readers.drain(..) {
            // A reader that panicked has reported so on standard error.
            let _ = reader.join();
        }
        Ok(Outcome {
            status,
            output: self.output(),
            console: self.console(),
            boot: self.boot,
            elapsed: self.begun.elapsed(),
        })
    }

    /// The next word on the control line, waited for until `after` has passed since `since`.
    fn word(&mut self, since: Instant, after: Duration, waited_for: &str) -> Result<Word, Error> {
        match self.words.recv_timeout(after.saturating_sub(since.elapsed())) {
            Ok(word) => Ok(word),
            Err(RecvTimeoutError::Disconnected) => {
                let error = ended(&mut self.process, &self.streams, waited_for);
                Err(error
                    .unwrap_or_else(|| Error::Monitor("QEMU has closed its sockets and runs on".to_owned())))
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(Error::ScriptTimeout { waited_for: waited_for.to_owned(), after, tail: self.tail() })
            }
        }
    }

    fn tail(&self) -> String {
        self.streams.tail()
    }
}

/// The error for QEMU's end, after QEMU has closed a socket.
pub(crate) fn ended(process: &mut Process, streams: &Streams, waited_for: &str) -> Option<Error> {
    let status = process.wait(LEAVING)?.to_owned();
    // The last bytes may still be on their way from the pipes.
    thread::sleep(Duration::from_millis(50));
    Some(Error::QemuEnded { status, waited_for: waited_for.to_owned(), tail: streams.tail() })
}

fn read_words(source: UnixStream) -> (Receiver<Word>, JoinHandle<()>) {
    let (tell, words) = mpsc::sync_channel(UNHEARD_MAX);
    let thread = thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = Vec::new();
        while let Ok(1..) = source.read_until(b'\n', &mut line) {
            if let Some(word) = Word::parse(String::from_utf8_lossy(&line).trim()) {
                // Full: the script has sent more words than any caller waits for. Closed: no caller
                // waits any more.
                let _ = tell.try_send(word);
            }
            line.clear();
        }
    });
    (words, thread)
}
