//! Writing flat out to where a recording would go, to see how fast it takes chunks.

use std::fmt;
use std::io;
use std::time::Duration;

use engine::{Buffer, Engine, Instant, Nanos, Pool};
use record::format::{Certificate, Gap, Reason, Time};
use record::packing::Taker;
use record::registers::Direction;
use record::{Algorithm, Fault, Input, Missed, Output, Progress};

use super::session::{Session, Task};
use super::sink::{Sink, Stripes};
use super::{End, Handle, Limits, Target};
use crate::reactor::Reactor;
use crate::sys::clock::Clock;
use crate::sys::entropy;

/// The number of chunks under way at once.
pub const MEASURED_DEPTH: usize = 64;
/// The most chunks that one measurement writes.
pub const MEASURED_MAX: usize = 1 << 22;
/// The number of different chunks. A device may not find that it has seen them before.
const DIFFERENT: usize = 64;
/// How long the last writes may take.
const DRAIN: Nanos = Nanos::from_secs(30);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Length of a chunk in bytes.
    pub chunk: u32,
    /// The longest time.
    pub time: Duration,
    /// The most bytes.
    pub bytes: u64,
    /// How often written bytes are made durable, as a recorder does it.
    pub flush: Nanos,
}

/// A write that has ended well.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// When it ended, since the measurement began.
    pub at: Nanos,
    /// How long it took.
    pub took: Nanos,
}

/// The result of a measurement.
#[derive(Debug, Default)]
pub struct Measured {
    /// Each chunk that was written, in the order in which they ended.
    pub chunks: Vec<Ended>,
    /// Whether the medium was full before anything else ended the measurement.
    pub is_full: bool,
}

/// A medium that is about to be measured.
pub struct Measurement {
    sink: Sink,
}

impl fmt::Debug for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measurement").finish_non_exhaustive()
    }
}

impl Measurement {
    /// Takes the medium. Its former content is lost.
    ///
    /// # Errors
    /// The system's; `WouldBlock` if another process records there.
    pub fn open(target: Target<'_>) -> io::Result<Self> {
        let mut sink = Sink::create(target, true, 0)?;
        sink.empty()?;
        Ok(Self { sink })
    }

    /// The length in bytes of a medium that can't grow.
    pub fn bytes(&self) -> Option<u64> {
        self.sink.bytes()
    }

    /// Whether writes bypass the host's page cache.
    pub const fn is_direct(&self) -> bool {
        self.sink.is_direct()
    }

    /// Writes chunks one behind the other, [`MEASURED_DEPTH`] at a time and beginning anew at the
    /// end of a medium of `length` bytes, until the time or the bytes of `extent` are over, `end`
    /// is asked for, or the medium is full. Calls `report` a few times a second with the bytes that
    /// were written and the time.
    ///
    /// # Errors
    /// When a write fails, or does not end within half a minute.
    pub fn run(
        self,
        extent: Extent,
        length: Option<u64>,
        end: &End,
        mut report: impl FnMut(u64, Nanos),
    ) -> io::Result<Measured> {
        let chunks = chunks(extent.chunk);
        let mut reactor = Reactor::new(Clock::start(), Nanos::ZERO)?;
        let clock = reactor.clock();
        let start = clock.now();
        let load = Load::new(extent, length, (clock, start), chunks);
        let handle = Handle::new(Direction::Write, end.clone());
        let mut shown = |status: &super::Status| report(status.progress.stored, clock.now() - start);
        let sink = Stripes::single(self.sink, extent.chunk);
        let mut session = Session::new(load, sink, Vec::new(), &handle, &mut shown);
        session.limits = Limits { time: Some(extent.time), bytes: None };
        session.run(&mut reactor)?;
        let Load { failure, measured, .. } = session.task;
        failure.map_or(Ok(measured), Err)
    }
}

/// Writes as fast as the medium takes it.
struct Load {
    clock: Clock,
    start: Instant,
    chunk: u64,
    /// Number of chunks that the medium has room for.
    slots: u64,
    /// Number of chunks that have yet to be written.
    left: u64,
    chunks: Vec<Buffer>,
    /// When each write under way began, by its name.
    began: Vec<Option<Instant>>,
    begun: u64,
    flush: Nanos,
    /// When the written bytes were made durable last.
    flushed: Instant,
    wants_sync: bool,
    is_syncing: bool,
    /// Until then, the last writes have to end.
    latest: Instant,
    reason: Reason,
    failure: Option<io::Error>,
    is_over: bool,
    measured: Measured,
}

impl Load {
    fn new(
        extent: Extent,
        length: Option<u64>,
        (clock, start): (Clock, Instant),
        chunks: Vec<Buffer>,
    ) -> Self {
        let chunk = u64::from(extent.chunk);
        Self {
            clock,
            start,
            chunk,
            slots: length.map_or(u64::MAX, |bytes| (bytes / chunk).max(1)),
            left: (extent.bytes / chunk).min(MEASURED_MAX as u64),
            chunks,
            began: vec![None; MEASURED_DEPTH],
            begun: 0,
            flush: extent.flush,
            flushed: start,
            wants_sync: false,
            is_syncing: false,
            latest: start + Nanos::from(extent.time) + DRAIN,
            reason: Reason::Limit,
            failure: None,
            is_over: false,
            measured: Measured::default(),
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.left = 0;
        self.failure.get_or_insert(error);
    }

    /// When written bytes are to be made durable next.
    fn sync_at(&self) -> Option<Instant> {
        let is_wanted = self.left > 0 && !self.wants_sync && !self.is_syncing;
        is_wanted.then(|| self.flushed + self.flush)
    }

    fn on_written(&mut self, name: u64, result: Result<(), Fault>) {
        let slot = usize::try_from(name).ok().and_then(|name| self.began.get_mut(name));
        let began = slot.and_then(Option::take).unwrap_or(self.start);
        let at = self.clock.now();
        match result {
            Ok(()) => self.measured.chunks.push(Ended { at: at - self.start, took: at - began }),
            Err(Fault::Full) => (self.measured.is_full, self.left) = (true, 0),
            Err(Fault::Failed) => self.fail(io::Error::other("a write failed")),
        }
    }

    /// The next write, if one may begin.
    fn begin(&mut self) -> Option<Output> {
        let name = self.began.iter().position(Option::is_none).filter(|_| self.left > 0)?;
        self.began[name] = Some(self.clock.now());
        let data = self.chunks[usize::try_from(self.begun).unwrap_or(0) % DIFFERENT].clone();
        let offset = self.begun % self.slots * self.chunk;
        self.begun += 1;
        self.left -= 1;
        Some(Output::Write { name: name as u64, offset, data })
    }

    fn account(&self) -> Certificate {
        Certificate {
            reason: self.reason,
            algorithm: Algorithm::None,
            slots: 0,
            gaps: 0,
            bad: 0,
            high_water: 0,
            index: 0,
            digest: [0; 32],
            streams: Vec::new(),
            rules: Vec::new(),
            signature: None,
        }
    }
}

impl Engine for Load {
    type Input<'a> = Input;
    type Output = Output;

    fn handle_input(&mut self, _now: Instant, input: Input) {
        match input {
            Input::Written { name, result } => self.on_written(name, result),
            Input::Synced(result) => {
                self.is_syncing = false;
                if result.is_err() {
                    self.fail(io::Error::other("the medium failed to make its accepted data durable"));
                }
            }
            Input::Digested { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.sync_at().is_some_and(|at| at <= now) {
            (self.flushed, self.wants_sync) = (now, true);
        }
        if self.latest <= now && !self.is_over {
            self.fail(io::Error::new(io::ErrorKind::TimedOut, "the last writes do not end"));
            (self.is_syncing, self.wants_sync) = (false, false);
            self.began.fill(None);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        if let Some(write) = self.begin() {
            return Some(write);
        }
        if std::mem::take(&mut self.wants_sync) {
            self.is_syncing = true;
            return Some(Output::Sync);
        }
        let is_busy = self.left > 0 || self.is_syncing || self.began.iter().any(Option::is_some);
        if is_busy || std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        Some(Output::Ended(self.account()))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let latest = (!self.is_over).then_some(self.latest);
        self.sync_at().into_iter().chain(latest).min()
    }
}

/// It takes nothing, and makes its bytes by itself.
impl Taker for Load {
    fn room(&mut self, _now: Instant, _stream: usize) -> Option<&mut [u8]> {
        None
    }

    fn filled(&mut self, _now: Instant, _stream: usize, _bytes: usize, _time: Time) {}

    fn end_chunk(&mut self, _stream: usize) {}

    fn miss(&mut self, _now: Instant, _stream: usize, _missed: Missed) {}

    fn keeps_places(&self) -> bool {
        false
    }

    fn progress(&self) -> Progress {
        let stored = self.measured.chunks.len() as u64 * self.chunk;
        Progress { bytes_in: self.begun * self.chunk, stored, ..Progress::default() }
    }

    fn gaps(&self) -> &[Gap] {
        &[]
    }

    fn is_recording(&self) -> bool {
        self.left > 0
    }

    fn finish(&mut self, reason: Reason) {
        (self.left, self.reason) = (0, reason);
    }
}

impl Task for Load {
    fn is_complete(&self) -> bool {
        self.is_over && self.failure.is_none()
    }
}

/// Chunks of bytes that nothing compresses.
fn chunks(length: u32) -> Vec<Buffer> {
    let mut pool = Pool::new(DIFFERENT * (length as usize + 8192));
    let mut entropy = entropy::system();
    let make = |_| {
        let mut chunk = pool.take(length as usize);
        entropy.fill(&mut chunk);
        pool.seal(chunk)
    };
    (0..DIFFERENT).map(make).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(bytes: u64) -> Extent {
        Extent { chunk: 16 << 10, time: Duration::from_secs(20), bytes, flush: Nanos::from_millis(5) }
    }

    #[test]
    fn as_much_is_written_as_was_asked_for_and_each_write_is_timed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let measurement = Measurement::open(Target::Path(file.path())).unwrap();
        let measured = measurement.run(extent(4 << 20), None, &End::new().unwrap(), |_, _| ()).unwrap();
        assert_eq!((measured.chunks.len(), measured.is_full), (256, false));
        assert_eq!(file.as_file().metadata().unwrap().len(), 4 << 20);
        assert!(measured.chunks.is_sorted_by_key(|chunk| chunk.at));
        assert!(measured.chunks.iter().all(|chunk| chunk.took > Nanos::ZERO && chunk.took <= chunk.at));
    }

    /// A namespace of 1 MiB is written again and again.
    #[test]
    fn a_short_medium_is_written_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let measurement = Measurement::open(Target::Path(file.path())).unwrap();
        let length = Some(1 << 20);
        let measured = measurement.run(extent(3 << 20), length, &End::new().unwrap(), |_, _| ()).unwrap();
        assert_eq!(measured.chunks.len(), 192);
        assert_eq!(file.as_file().metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_stopped_measurement_returns_its_results() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let measurement = Measurement::open(Target::Path(file.path())).unwrap();
        let end = End::new().unwrap();
        end.ask();
        let measured = measurement.run(extent(1 << 30), None, &end, |_, _| ()).unwrap();
        assert!(measured.chunks.is_empty());
    }
}
