//! Telling people what happens, without ever waiting for them.
//!
//! Whoever moves data hands a line to a bounded queue and goes on; one thread owns the stream and writes. Lines that repeat
//! themselves are counted ([`fold`]). When nobody reads the stream, what does not fit in the queue is dropped, and how
//! much that was is told once there is room. [`flush`] waits for what was told, but not for ever.
//!
//! Logging crates have such queues (`tracing-appender`), and neither count repetitions nor say what was lost: that is
//! most of what is here, and the queue is the standard library's.

mod fold;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fold::Fold;

/// Lines that wait for the writer at most; further ones are dropped.
const WAITING_MAX: usize = 1024;
/// How long the end of a process waits for what it has told.
pub const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How often to look for room in a full queue, where that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(2);

static ERRORS: OnceLock<Teller> = OnceLock::new();
static OUTPUT: OnceLock<Teller> = OnceLock::new();

/// Tells a person a line, on standard error.
pub fn tell(line: fmt::Arguments<'_>) {
    errors().send(Item::Line(line.to_string()));
}

/// As [`tell`], for what is told once of each thing that is given at the start: a line that others are like is no repetition.
pub fn note(line: fmt::Arguments<'_>) {
    show(format!("{line}\n"));
}

/// Puts `text` on standard error as it is: what shows how far something is.
pub fn show(text: String) {
    errors().send(Item::Text(text));
}

/// Gives a program a line, on standard output. A reader that has gone away ends the process quietly.
pub fn report(line: String) {
    output().send(Item::Text(line + "\n"));
}

/// Waits until all that was told is written, for [`FLUSH_MAX`] at most for each of the two streams.
pub fn flush() {
    for teller in [&OUTPUT, &ERRORS].into_iter().filter_map(OnceLock::get) {
        teller.flush(FLUSH_MAX);
    }
}

/// As [`tell`] and then [`flush`]: a line that is worth waiting for, the last of a process.
pub fn tell_last(line: String) {
    errors().send_within(Item::Line(line), Instant::now() + FLUSH_MAX);
    flush();
}

fn errors() -> &'static Teller {
    ERRORS.get_or_init(|| Teller::new("errors", Box::new(io::stderr()), |_| {}))
}

fn output() -> &'static Teller {
    OUTPUT.get_or_init(|| {
        Teller::new("output", Box::new(io::stdout()), |error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                std::process::exit(0);
            }
        })
    })
}

/// What the writer is given.
enum Item {
    /// A line of its own, which may be like others.
    Line(String),
    /// Text as it is.
    Text(String),
    /// Asks to be told when everything before it is written.
    Flush(SyncSender<()>),
}

/// A stream, the thread that owns it, and the queue between.
struct Teller {
    queue: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

impl Teller {
    /// Has a thread write to `stream` from now on; `failed` hears of errors.
    fn new(name: &str, stream: Box<dyn Write + Send>, failed: fn(&io::Error)) -> Self {
        let (queue, items) = sync_channel(WAITING_MAX);
        let dropped: Arc<AtomicU64> = Arc::default();
        let writer = Writer { stream, failed, items, dropped: dropped.clone(), fold: Fold::default() };
        // Where there is no thread left, lines are written by whoever tells them.
        let _ = std::thread::Builder::new().name(name.to_owned()).spawn(move || writer.run());
        Self { queue, dropped }
    }

    fn send(&self, item: Item) {
        match self.queue.try_send(item) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(item)) => write_without_thread(&item),
        }
    }

    /// Waits for room until `deadline`; whether there was any.
    fn send_within(&self, mut item: Item, deadline: Instant) -> bool {
        loop {
            match self.queue.try_send(item) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) if Instant::now() < deadline => item = back,
                Err(TrySendError::Full(back)) => {
                    let is_said = !matches!(back, Item::Flush(_));
                    self.dropped.fetch_add(is_said.into(), Ordering::Relaxed);
                    return false;
                }
                Err(TrySendError::Disconnected(item)) => {
                    write_without_thread(&item);
                    return false;
                }
            }
            sleep(LOOK_EVERY);
        }
    }

    /// Waits until everything is written, for `longest` at most; whether it is.
    fn flush(&self, longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        let (done, is_done) = sync_channel(1);
        self.send_within(Item::Flush(done), deadline)
            && is_done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }
}

fn write_without_thread(item: &Item) {
    if let Item::Line(line) = item {
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// The thread's part.
struct Writer {
    stream: Box<dyn Write + Send>,
    failed: fn(&io::Error),
    items: Receiver<Item>,
    dropped: Arc<AtomicU64>,
    fold: Fold,
}

impl Writer {
    fn run(mut self) {
        loop {
            let item = self.next();
            let now = Instant::now();
            match item {
                Ok(Item::Line(line)) => {
                    if let Some(line) = self.fold.take(now, line) {
                        self.write(&format!("{line}\n"));
                    }
                }
                Ok(Item::Text(text)) => self.write(&text),
                Ok(Item::Flush(done)) => {
                    self.write_all(Fold::end);
                    self.tell_dropped();
                    // Whoever asked may have given up waiting.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.write_all(|fold| fold.expire(now));
        }
    }

    /// The next item, as long as none is needed to tell what was counted.
    fn next(&mut self) -> Result<Item, RecvTimeoutError> {
        if let Ok(item) = self.items.try_recv() {
            return Ok(item);
        }
        // There is room.
        self.tell_dropped();
        match self.fold.due() {
            None => self.items.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => self.items.recv_timeout(due.saturating_duration_since(Instant::now())),
        }
    }

    fn tell_dropped(&mut self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.write(&format!("farlane: {dropped} messages were lost here: nobody read those before\n"));
        }
    }

    fn write_all(&mut self, lines: impl FnOnce(&mut Fold) -> Vec<String>) {
        for line in lines(&mut self.fold) {
            self.write(&format!("{line}\n"));
        }
    }

    fn write(&mut self, text: &str) {
        // A line in one system call, so that lines of several processes do not mix.
        let written = self.stream.write_all(text.as_bytes()).and_then(|()| self.stream.flush());
        if let Err(error) = written {
            (self.failed)(&error);
        }
    }
}
