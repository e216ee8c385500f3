//! Requests to a running recording or replay, from any thread.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{Instant, Nanos};
use record::format::{Pin, Time, TimeSource, Trigger};
use record::registers::Direction;
use record::{Kept, PinRange, PinRefusal, Progress};
use signal_hook::consts::SIGUSR1;

use super::end::{End, on_signal};
use super::pulse::Writes;
use super::real_time;
use super::session::Task;
use crate::reactor::{Attention, Context, Driver, Reactor, Sources, Turn};
use crate::sys::clock::Clock;

/// How long a request waits for the recording to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How far a recording or replay is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It has not begun.
    #[default]
    Idle,
    /// Bytes come and are kept in the buffer until the trigger.
    Armed,
    /// Bytes come and are written, or are read and go.
    Running,
    /// The received bytes are being written, and no more are taken.
    Ending,
    /// It has ended.
    Ended,
    /// It could not begin, or ended for an error.
    Failed,
}

impl State {
    /// The word for reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Armed => "armed",
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }

    /// Whether bytes are taken or written.
    pub const fn is_under_way(self) -> bool {
        matches!(self, Self::Armed | Self::Running | Self::Ending)
    }
}

/// The medium of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Medium {
    /// Its size in bytes. A file's is the room that its file system had when the recording began.
    pub bytes: u64,
    /// The model of the device, as the device names it; empty if unknown.
    pub model: String,
}

/// How a recording that waited for it was triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triggered {
    /// When, and how long before that the recording begins.
    pub trigger: Trigger,
    /// Bytes of the streams that had come before and were kept, lost ones included.
    pub bytes: u64,
}

/// The status of a recording or replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether it is a recording or a replay.
    pub direction: Direction,
    /// How far it is.
    pub state: State,
    /// The medium that it writes or reads.
    pub medium: Medium,
    /// The first byte of the medium that is written or read.
    pub start_address: u64,
    /// No byte of the medium at or behind this address is written or read.
    pub maximum_address: u64,
    /// The most chunks that are written from the first address on; 0 is no limit.
    pub chunks_max: u64,
    /// The byte of the medium behind the data that was written or sent last; 0 if there are none.
    pub last_address: u64,
    /// The size of the buffer in bytes.
    pub buffer: u64,
    /// The length of a chunk in bytes.
    pub chunk: u32,
    /// Whether the oldest is overwritten when the medium is full.
    pub is_ring: bool,
    /// Whether a start may give the first and the last address.
    pub can_address: bool,
    /// For how long a recording keeps bytes until it is triggered; `None` if it waits for nothing.
    pub pre_trigger: Option<Nanos>,
    /// The bytes that it keeps, while it waits for that.
    pub kept: Option<Kept>,
    /// How it was triggered, once it was.
    pub triggered: Option<Triggered>,
    /// The account of bytes. Of a replay, `bytes_in` are those that were sent, and `lost` those
    /// that could not be.
    pub progress: Progress,
    /// The number of gaps that are declared.
    pub gaps: u64,
    /// Of a recording, how the medium takes its chunks.
    pub writes: Writes,
}

impl Status {
    /// The status before anything has begun.
    pub fn idle(direction: Direction) -> Self {
        Self {
            direction,
            state: State::Idle,
            medium: Medium::default(),
            start_address: 0,
            maximum_address: 0,
            chunks_max: 0,
            last_address: 0,
            buffer: 0,
            chunk: 0,
            is_ring: false,
            can_address: false,
            pre_trigger: None,
            kept: None,
            triggered: None,
            progress: Progress::default(),
            gaps: 0,
            writes: Writes::default(),
        }
    }
}

/// A handle of a recording or replay: any number of threads may ask for its status, or ask it to
/// end. A clone is a handle of the same one.
///
/// ```
/// use live::drivers::record::{End, Handle, State};
/// use record::registers::Direction;
///
/// let handle = Handle::new(Direction::Write, End::new()?);
/// let of_another_thread = handle.clone();
/// assert_eq!(of_another_thread.status().state, State::Idle);
/// of_another_thread.stop();
/// assert!(handle.is_stopped());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Handle {
    /// The process is to end.
    end: End,
    requested: Arc<Requested>,
}

/// The flags and the status that all threads of a recording or replay share.
#[derive(Debug)]
struct Requested {
    start: AtomicBool,
    stop: AtomicBool,
    /// A signal may set it, too.
    trigger: AtomicBool,
    /// When the trigger was requested, in nanoseconds since 1970; 0 if that is not known.
    trigger_time: AtomicU64,
    status: Mutex<Status>,
    requests: Mutex<Vec<Request>>,
}

/// The requests to the recording, and where their results go.
#[derive(Debug)]
struct Request {
    range: Option<PinRange>,
    answer: SyncSender<Result<Vec<Pin>, PinRefusal>>,
}

impl Handle {
    /// The handle of a recording or replay that `end` ends, too, once it is asked for.
    pub fn new(direction: Direction, end: End) -> Self {
        let requested = Requested {
            start: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            trigger: AtomicBool::new(false),
            trigger_time: AtomicU64::new(0),
            status: Mutex::new(Status::idle(direction)),
            requests: Mutex::default(),
        };
        Self { end, requested: Arc::new(requested) }
    }

    /// Lets the loop of `sources` hear of requests.
    ///
    /// # Errors
    /// When the loop hears of them already, or the kernel has no memory left.
    pub(super) fn listen(&self, sources: &Sources) -> io::Result<()> {
        self.end.bell.listen(sources, Attention::OnNews)
    }

    /// The status, at most a few milliseconds old.
    pub fn status(&self) -> Status {
        self.lock().clone()
    }

    /// Asks it to end: the bytes that a recording has taken are written, then the certificate.
    pub fn stop(&self) {
        self.requested.stop.store(true, Ordering::Release);
        self.end.bell.ring();
    }

    /// Whether its end was requested.
    pub fn is_stopped(&self) -> bool {
        self.requested.stop.load(Ordering::Acquire) || self.is_over()
    }

    /// Whether the process is to end.
    pub fn is_over(&self) -> bool {
        self.end.is_asked_for()
    }

    /// Asks the thread in [`Handle::wait_for_start`] to begin; the status of an earlier recording
    /// or replay is forgotten. Returns false if bytes move already.
    pub fn start(&self) -> bool {
        let mut status = self.lock();
        if status.state.is_under_way() {
            return false;
        }
        let (pre_trigger, can_address) = (status.pre_trigger, status.can_address);
        let (start_address, maximum_address) = (status.start_address, status.maximum_address);
        let state = if pre_trigger.is_some() { State::Armed } else { State::Running };
        let idle = Status::idle(status.direction);
        let bounds = Status { start_address, maximum_address, chunks_max: status.chunks_max, ..idle };
        *status = Status { state, pre_trigger, can_address, ..bounds };
        // Requests to the recording before do not concern this one.
        self.requests().clear();
        self.requested.stop.store(false, Ordering::Relaxed);
        self.take_trigger();
        self.requested.start.store(true, Ordering::Release);
        self.end.bell.ring();
        true
    }

    /// The same, from and up to these addresses, and with at most `chunks` chunks (0 is no limit),
    /// if it accepts addresses.
    pub fn start_between(&self, first: u64, maximum: u64, chunks: u64) -> bool {
        self.update(|status| {
            if status.can_address && !status.state.is_under_way() {
                (status.start_address, status.maximum_address) = (first, maximum);
                status.chunks_max = chunks;
            }
        });
        self.start()
    }

    /// Has the kept bytes written, and all that come from now on. Returns false if the recording
    /// waits for no trigger.
    pub fn trigger(&self) -> bool {
        let is_armed = self.lock().state == State::Armed;
        if is_armed {
            self.requested.trigger_time.store(real_time().nanos, Ordering::Relaxed);
            self.requested.trigger.store(true, Ordering::Release);
            self.end.bell.ring();
        }
        is_armed
    }

    /// Lets SIGUSR1 do what [`Handle::trigger`] does.
    ///
    /// # Errors
    /// When the system refuses the handler.
    pub fn trigger_on_signal(&self) -> io::Result<()> {
        let own = self.clone();
        on_signal(SIGUSR1, move || {
            own.requested.trigger.store(true, Ordering::Release);
            own.end.bell.ring();
        })
    }

    /// The time of a trigger since the last call, if there was one.
    pub fn take_trigger(&self) -> Option<Time> {
        let is_asked = self.requested.trigger.swap(false, Ordering::Acquire);
        let nanos = self.requested.trigger_time.swap(0, Ordering::Relaxed);
        let asked_at = Time { nanos, source: TimeSource::Host };
        is_asked.then(|| if nanos > 0 { asked_at } else { real_time() })
    }

    /// Waits until a start is requested. Returns false if the process is to end instead.
    ///
    /// # Errors
    /// When the system has no descriptor left, or can't wait.
    pub fn wait_for_start(&self) -> io::Result<bool> {
        let mut awaited = AwaitedStart { handle: self, is_there: false };
        Reactor::new(Clock::start(), Nanos::ZERO)?.run(&mut awaited)?;
        Ok(awaited.is_there)
    }

    /// Lets others know that it has failed.
    pub fn fail(&self) {
        self.update(|status| status.state = State::Failed);
    }

    /// Keeps bytes of a ring from being overwritten, with the chunks in which they lie; of `None`,
    /// lets everything be overwritten again. Returns the pinned ranges.
    ///
    /// # Errors
    /// When the recorder refuses it, or takes nothing any more.
    pub fn pin(&self, range: Option<PinRange>) -> Result<Vec<Pin>, PinRefusal> {
        if !self.status().state.is_under_way() {
            return Err(PinRefusal::NoRing);
        }
        let (answer, answered) = sync_channel(1);
        self.requests().push(Request { range, answer });
        self.end.bell.ring();
        match answered.recv_timeout(ANSWER_MAX) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(PinRefusal::NoRing),
        }
    }

    /// Carries out the requests. Returns whether there were any.
    pub(super) fn serve(&self, now: Instant, task: &mut impl Task) -> bool {
        let requests = std::mem::take(&mut *self.requests());
        let are_there = !requests.is_empty();
        for Request { range, answer } in requests {
            // The thread that asked may have given up waiting.
            let _ = answer.send(task.pin(now, range));
        }
        are_there
    }

    /// Changes the status.
    pub fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock());
    }

    fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requested.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        // A thread that panicked has left a status that is whole: each field is set at once.
        self.requested.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits in a loop for a start.
struct AwaitedStart<'a> {
    handle: &'a Handle,
    is_there: bool,
}

impl Driver for AwaitedStart<'_> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.handle.listen(sources)
    }

    fn turn(&mut self, _context: &Context<'_>) -> io::Result<Turn> {
        if self.handle.is_over() {
            return Ok(Turn::Done);
        }
        self.is_there = self.handle.requested.start.swap(false, Ordering::Acquire);
        Ok(if self.is_there { Turn::Done } else { Turn::Idle })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_stop(&mut self, _now: Instant) {}
}
