//! Messages to users and programs, sent without ever waiting for a reader.
//!
//! A thread that moves data hands a line to a bounded queue and goes on; one thread owns the stream
//! and writes. Lines that repeat themselves are counted (`fold`). When the stream has no reader,
//! lines that do not fit in the queue are dropped, and their number is logged once there is room.
//! [`flush`] waits until the queue is written, but not for ever.
//!
//! `subscriber` makes lines of `tracing`'s events. The queues of logging crates
//! (`tracing-appender`) neither count repetitions nor report how many were lost. Most of this
//! module does just this; the queue is the standard library's.

mod fold;
mod journal;
mod line;
mod subscriber;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fold::Fold;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub use line::{Form, Line};
pub use subscriber::begin;

/// Number of lines that may wait for the writer; further lines are dropped.
const WAITING_MAX: usize = 1024;
/// How long the end of a process waits for each stream's messages to be written.
pub const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How often a caller that waits for room in a full queue looks again.
const LOOK_EVERY: Duration = Duration::from_millis(2);

static ERRORS: OnceLock<StreamQueue> = OnceLock::new();
static OUTPUT: OnceLock<StreamQueue> = OnceLock::new();
static OUTLIVES_READER: AtomicBool = AtomicBool::new(false);
/// Where [`begin`] has errors written, until the first is logged. Only then does a thread start:
/// one that ran before its process gave up rights would keep them.
static CHOSEN: Mutex<Option<Streams>> = Mutex::new(None);

/// Writes `text` to standard error unchanged, for example a display of progress.
pub fn show(text: String) {
    errors().send(Item::Text(text));
}

/// Has the process go on when the reader of its standard output has gone away: its work matters
/// more than its output.
pub fn outlive_reader() {
    OUTLIVES_READER.store(true, Ordering::Relaxed);
}

/// Whether the process goes on when the reader of its standard output has gone away.
pub fn outlives_reader() -> bool {
    OUTLIVES_READER.load(Ordering::Relaxed)
}

/// Gives a program a line, on standard output. If its reader has gone away, the process
/// ends quietly, unless [`outlive_reader`] was called.
pub fn report(line: String) {
    output().send(Item::Text(line + "\n"));
}

/// Waits until all messages are written, for at most [`FLUSH_MAX`] for each of the two streams.
pub fn flush() {
    for stream in [&OUTPUT, &ERRORS].into_iter().filter_map(OnceLock::get) {
        stream.flush(FLUSH_MAX);
    }
}

/// Writes a text that is worth waiting for, the last one of a process, to standard error, and then
/// calls [`flush`].
pub fn write_last(text: String) {
    // Counted lines come first: the end is the last that is read.
    errors().flush(FLUSH_MAX);
    errors().send_within(Item::Text(text + "\n"), Instant::now() + FLUSH_MAX);
    flush();
}

fn errors() -> &'static StreamQueue {
    ERRORS.get_or_init(|| {
        let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).take();
        StreamQueue::new("errors", chosen.unwrap_or_else(|| Streams::new(Box::new(io::stderr()))), |_| {})
    })
}

fn output() -> &'static StreamQueue {
    OUTPUT.get_or_init(|| {
        StreamQueue::new("output", Streams::new(Box::new(io::stdout())), |error| {
            if error.kind() == io::ErrorKind::BrokenPipe && !outlives_reader() {
                std::process::exit(0);
            }
        })
    })
}

/// An item of the writer's queue.
enum Item {
    /// A line that is counted if it repeats others.
    Line(Line),
    /// Text that is written unchanged.
    Text(String),
    /// Asks the writer to answer when everything queued before is written.
    Flush(SyncSender<()>),
}

/// A stream's queue to the thread that owns the stream.
struct StreamQueue {
    queue: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

impl StreamQueue {
    /// Starts a thread that writes to `streams` and calls `failed` with each error.
    fn new(name: &str, streams: Streams, failed: fn(&io::Error)) -> Self {
        let (queue, items) = sync_channel(WAITING_MAX);
        let dropped: Arc<AtomicU64> = Arc::default();
        let writer = Writer { streams, failed, items, dropped: dropped.clone(), fold: Fold::default() };
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
        let _ = writeln!(io::stderr(), "{}", line.text);
    }
}

/// Where a stream writes.
struct Streams {
    texts: Box<dyn Write + Send>,
    /// Where lines go, if not to where texts go.
    lines: Option<Box<dyn Write + Send>>,
    form: Form,
    /// The processors of the thread that writes, if not those of the thread that logs first.
    processors: Option<CpuSet>,
}

impl Streams {
    fn new(texts: Box<dyn Write + Send>) -> Self {
        Self { texts, lines: None, form: Form::Text { stamped: false, ranked: false }, processors: None }
    }

    /// Has a thread write on the processors that this one may use now. Later this one may stay on a
    /// processor where it polls.
    fn with_these_processors(mut self) -> Self {
        self.processors = sched_getaffinity(None).ok();
        self
    }
}

/// The thread that owns the streams.
struct Writer {
    streams: Streams,
    failed: fn(&io::Error),
    items: Receiver<Item>,
    dropped: Arc<AtomicU64>,
    fold: Fold,
}

impl Writer {
    fn run(mut self) {
        if let Some(processors) = &self.streams.processors {
            // On other processors it writes as well.
            let _ = sched_setaffinity(None, processors);
        }
        loop {
            let item = self.next();
            let now = Instant::now();
            match item {
                Ok(Item::Line(line)) => {
                    let taken = if line.each { Some(line) } else { self.fold.take(now, line) };
                    if let Some(line) = taken {
                        self.write_line(&line);
                    }
                }
                Ok(Item::Text(text)) => self.write_text(&text),
                Ok(Item::Flush(done)) => {
                    self.write_all(Fold::end);
                    self.report_dropped();
                    // The caller may have given up waiting.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.write_all(|fold| fold.expire(now));
        }
    }

    /// The next item. The wait ends early when counted lines are due to be logged.
    fn next(&mut self) -> Result<Item, RecvTimeoutError> {
        if let Ok(item) = self.items.try_recv() {
            return Ok(item);
        }
        // The queue is empty, so there is room again.
        self.report_dropped();
        match self.fold.due() {
            None => self.items.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => self.items.recv_timeout(due.saturating_duration_since(Instant::now())),
        }
    }

    fn report_dropped(&mut self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            self.write_line(&Line::warning(format!(
                "{dropped} messages were lost here: the reader was too slow"
            )));
        }
    }

    fn write_all(&mut self, lines: impl FnOnce(&mut Fold) -> Vec<Line>) {
        for line in lines(&mut self.fold) {
            self.write_line(&line);
        }
    }

    // Both make one system call for each line, so that the lines of several processes do not mix.

    fn write_line(&mut self, line: &Line) {
        let bytes = self.streams.form.of(line);
        let stream = self.streams.lines.as_mut().unwrap_or(&mut self.streams.texts);
        let written = stream.write_all(&bytes).and_then(|()| stream.flush());
        self.see(written);
    }

    fn write_text(&mut self, text: &str) {
        let stream = &mut self.streams.texts;
        let written = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
        self.see(written);
    }

    fn see(&self, written: io::Result<()>) {
        if let Err(error) = written {
            (self.failed)(&error);
        }
    }
}
