//! Messages to people and programs, sent without ever waiting for a reader.
//!
//! Whoever moves data hands a line to a bounded queue and goes on; one thread owns the stream and
//! writes. Lines that repeat themselves are counted (`fold`). When nobody reads the stream, lines
//! that do not fit in the queue are dropped, and their number is told once there is room. [`flush`]
//! waits until the queue is written, but not for ever.
//!
//! Logging crates have such queues (`tracing-appender`), but neither count repetitions nor tell how
//! much was lost. Most of this module does just this; the queue is the standard library's.

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

/// Number of lines that may wait for the writer; further lines are dropped.
const WAITING_MAX: usize = 1024;
/// How long the end of a process waits for each stream's messages to be written.
pub const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How often a caller that waits for room in a full queue looks again.
const LOOK_EVERY: Duration = Duration::from_millis(2);

static ERRORS: OnceLock<Teller> = OnceLock::new();
static OUTPUT: OnceLock<Teller> = OnceLock::new();

/// Tells a person a line, on standard error. Repeated lines are counted instead of written.
pub fn tell(line: fmt::Arguments<'_>) {
    errors().send(Item::Line(line.to_string()));
}

/// Tells a person a line that is written even if other lines are like it: a line told once for each
/// thing that is given at the start.
pub fn note(line: fmt::Arguments<'_>) {
    show(format!("{line}\n"));
}

/// Writes `text` to standard error unchanged, for example a display of progress.
pub fn show(text: String) {
    errors().send(Item::Text(text));
}

/// Gives a program a line, on standard output. If its reader has gone away, the process ends
/// quietly.
pub fn report(line: String) {
    output().send(Item::Text(line + "\n"));
}

/// Waits until all messages are written, for at most [`FLUSH_MAX`] for each of the two streams.
pub fn flush() {
    for teller in [&OUTPUT, &ERRORS].into_iter().filter_map(OnceLock::get) {
        teller.flush(FLUSH_MAX);
    }
}

/// Tells a person a line that is worth waiting for, the last one of a process, and then calls
/// [`flush`].
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

/// What the writer's queue holds.
enum Item {
    /// A line that is counted if it repeats others.
    Line(String),
    /// Text that is written unchanged.
    Text(String),
    /// Asks the writer to answer when everything queued before is written.
    Flush(SyncSender<()>),
}

/// A stream's queue to the thread that owns the stream.
struct Teller {
    queue: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

impl Teller {
    /// Starts a thread that writes to `stream` and calls `failed` with each error.
    fn new(name: &str, stream: Box<dyn Write + Send>, failed: fn(&io::Error)) -> Self {
        let (queue, items) = sync_channel(WAITING_MAX);
        let dropped: Arc<AtomicU64> = Arc::default();
        let writer = Writer { stream, failed, items, dropped: dropped.clone(), fold: Fold::default() };
        // Where no thread can be started, callers write their lines themselves.
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

    /// Waits for room until `deadline`, and returns whether the item was queued.
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

    /// Waits until everything is written, for at most `longest`; returns whether it is.
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

/// The thread that owns the stream.
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
                    // The caller may have given up waiting.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.write_all(|fold| fold.expire(now));
        }
    }

    /// The next item. The wait ends early when counted lines are due to be told.
    fn next(&mut self) -> Result<Item, RecvTimeoutError> {
        if let Ok(item) = self.items.try_recv() {
            return Ok(item);
        }
        // The queue is empty, so there is room again.
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
        // One system call for each line, so that the lines of several processes do not mix.
        let written = self.stream.write_all(text.as_bytes()).and_then(|()| self.stream.flush());
        if let Err(error) = written {
            (self.failed)(&error);
        }
    }
}
