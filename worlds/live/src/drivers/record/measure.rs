//! Writing flat out to where a recording would go, to see how fast it takes chunks.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{Buffer, Instant, Nanos, Pool};
use record::{Fault, Input};

use super::Target;
use super::sink::Sink;
use super::source;
use crate::sys::clock::Clock;
use crate::sys::entropy;

/// The number of chunks under way at once.
pub const MEASURED_DEPTH: usize = 64;
/// The most chunks that one measurement writes.
pub const MEASURED_MAX: usize = 1 << 22;
/// The number of different chunks. A device may not find that it has seen them before.
const DIFFERENT: usize = 64;
/// The longest sleep while nothing ends.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// How long the last writes may take.
const DRAIN: Nanos = Nanos::from_secs(30);
/// How often a measurement reports its progress.
const TOLD_EVERY: Nanos = Nanos::from_millis(250);

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
    /// end of a medium of `length` bytes, until the time or the bytes of `extent` are over, `stop`
    /// is set, or the medium is full. Calls `tell` a few times a second with the bytes that were
    /// written and the time.
    ///
    /// # Errors
    /// When a write fails, or does not end within half a minute.
    pub fn run(
        self,
        extent: Extent,
        length: Option<u64>,
        stop: &AtomicBool,
        mut tell: impl FnMut(u64, Nanos),
    ) -> io::Result<Measured> {
        let chunks = chunks(extent.chunk);
        let clock = Clock::start();
        let start = clock.now();
        let end = start + Nanos::from(extent.time);
        let chunk = u64::from(extent.chunk);
        let mut run = Run {
            sink: self.sink,
            clock,
            start,
            chunk,
            slots: length.map_or(u64::MAX, |bytes| (bytes / chunk).max(1)),
            left: (extent.bytes / chunk).min(MEASURED_MAX as u64),
            chunks,
            began: vec![None; MEASURED_DEPTH],
            begun: 0,
            is_syncing: false,
            measured: Measured::default(),
        };
        let (mut told, mut flushed) = (start, start);
        loop {
            let now = run.clock.now();
            if now >= end || run.measured.is_full || stop.load(Ordering::Relaxed) {
                run.left = 0;
            }
            run.begin();
            if now >= flushed + extent.flush && !run.is_syncing && run.left > 0 {
                (flushed, run.is_syncing) = (now, true);
                run.sink.sync();
            }
            run.sink.submit(false)?;
            let has_ended = run.hear()?;
            if now >= told + TOLD_EVERY {
                told = now;
                tell(run.measured.chunks.len() as u64 * chunk, now - start);
            }
            if run.left == 0 && !run.is_syncing && run.began.iter().all(Option::is_none) {
                return Ok(run.measured);
            }
            if now >= end + DRAIN {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the last writes do not end"));
            }
            if !has_ended {
                source::sleep(&mut [], &[run.sink.poll_fd()], SLEEP_MAX)?;
            }
        }
    }
}

/// A measurement that is under way.
struct Run {
    sink: Sink,
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
    is_syncing: bool,
    measured: Measured,
}

impl Run {
    /// Begins as many writes as may be under way.
    fn begin(&mut self) {
        let free = self.began.iter_mut().enumerate().filter(|(_, began)| began.is_none());
        for (name, began) in free.take(usize::try_from(self.left).unwrap_or(usize::MAX)) {
            *began = Some(self.clock.now());
            let data = self.chunks[usize::try_from(self.begun).unwrap_or(0) % DIFFERENT].clone();
            self.sink.write(name as u64, self.begun % self.slots * self.chunk, data);
            self.begun += 1;
            self.left -= 1;
        }
    }

    /// Notes the calls that have ended. Returns whether any has.
    fn hear(&mut self) -> io::Result<bool> {
        let mut has_ended = false;
        while let Some(input) = self.sink.next_ended() {
            has_ended = true;
            let (name, result) = match input {
                Input::Synced(Ok(())) => {
                    self.is_syncing = false;
                    continue;
                }
                Input::Synced(Err(_)) => {
                    return Err(io::Error::other("the medium failed to make durable what it had"));
                }
                Input::Digested { .. } => continue,
                Input::Written { name, result } => (name, result),
            };
            let slot = usize::try_from(name).ok().and_then(|name| self.began.get_mut(name));
            let began = slot.and_then(Option::take).unwrap_or(self.start);
            let at = self.clock.now();
            match result {
                Ok(()) => self.measured.chunks.push(Ended { at: at - self.start, took: at - began }),
                Err(Fault::Full) => self.measured.is_full = true,
                Err(Fault::Failed) => return Err(io::Error::other("a write failed")),
            }
        }
        Ok(has_ended)
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
        let measured = measurement.run(extent(4 << 20), None, &AtomicBool::new(false), |_, _| ()).unwrap();
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
        let measured = measurement.run(extent(3 << 20), length, &AtomicBool::new(false), |_, _| ()).unwrap();
        assert_eq!(measured.chunks.len(), 192);
        assert_eq!(file.as_file().metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn whoever_stops_it_gets_what_was_measured_until_then() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let measurement = Measurement::open(Target::Path(file.path())).unwrap();
        let measured = measurement.run(extent(1 << 30), None, &AtomicBool::new(true), |_, _| ()).unwrap();
        assert!(measured.chunks.is_empty());
    }
}
