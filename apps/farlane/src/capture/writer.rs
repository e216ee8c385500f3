//! The thread that writes the packets of an own port to a pcapng file or pipe, while commands run.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

use captures::{ETHERNET, LINK, Sink, Tally, header};
use engine::Instant;
use live::sys::clock::Clock;

use super::outcome::Outcome;
use super::queue::{Batch, Head, Queue, Streamed};
use super::segments::frames;
use super::tap::{Taps, What};

/// The wanted content of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) what: What,
    /// The most bytes that are kept of a packet's data, or of a piece of a stream.
    pub(crate) snap: usize,
    /// Of streams: the queues whose connections are wanted; all, if there are none.
    pub(crate) queues: Vec<u16>,
    /// Notes for a reader of the file that the frames do not contain.
    pub(crate) notes: Vec<String>,
}

impl Wanted {
    /// All of it, whole.
    pub(crate) const fn all(what: What) -> Self {
        Self { what, snap: usize::MAX, queues: Vec::new(), notes: Vec::new() }
    }
}

/// A capture that is being written.
pub(crate) struct Captured {
    taps: Taps,
    /// The end of the thread that writes, and how that went.
    ended: Receiver<io::Result<u64>>,
}

impl Captured {
    /// The makers of its watchers.
    pub(crate) const fn taps(&self) -> &Taps {
        &self.taps
    }

    /// The counts of the packets that have passed so far.
    pub(crate) fn tally(&self) -> Tally {
        self.taps.queue.tally()
    }

    /// Whether the capture has ended, by [`Captured::stop`] or because its reader has gone.
    pub(crate) fn is_over(&self) -> bool {
        self.taps.queue.is_over()
    }

    /// Ends the capture: waiting packets are still written.
    pub(crate) fn stop(&self) {
        self.taps.queue.stop();
    }

    /// Waits until all is written, for `patience` at most where one is given: a reader may have
    /// gone to sleep. The watched port is gone by then, or [`Captured::stop`] was called.
    ///
    /// # Errors
    /// When it can't be written.
    pub(crate) fn finish(self, patience: Option<Duration>) -> io::Result<Tally> {
        let ended = match patience {
            Some(patience) => self.ended.recv_timeout(patience),
            None => self.ended.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match ended {
            Ok(result) => result.map(|_| self.taps.queue.tally()),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "its reader does not read on")),
        }
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Captured({:?})", self.tally())
    }
}

/// Whence the times of packets come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Times {
    /// From the engines, for which it is this time now.
    OfEngines(Instant),
    /// From this clock, which is theirs, read for each packet.
    OfClock(Clock),
}

/// Begins a capture that a thread writes to `out`.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn capture(
    out: impl Write + Send + 'static,
    times: Times,
    wanted: Wanted,
) -> io::Result<Captured> {
    capture_reporting(out, times, wanted, |_| {})
}

/// The same; the thread that writes calls `report` with the outcome.
///
/// # Errors
/// When the system has no thread left.
pub(crate) fn capture_reporting(
    out: impl Write + Send + 'static,
    times: Times,
    wanted: Wanted,
    report: impl FnOnce(Outcome) + Send + 'static,
) -> io::Result<Captured> {
    let (now, clock) = match times {
        Times::OfEngines(now) => (now, None),
        Times::OfClock(clock) => (clock.now(), Some(clock)),
    };
    // The engines' clock counts from its start; a capture's readers want the time of day.
    let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let start = day.saturating_sub(Duration::from_nanos(now.as_nanos()));
    let queue = Arc::new(Queue::default());
    let (end, ended) = channel();
    let (own, Wanted { what, snap, queues, notes }) = (Arc::clone(&queue), wanted);
    std::thread::Builder::new().name("capture".into()).spawn(move || {
        let result = write(&own, out, what, &notes, start);
        // The reader has gone, or the medium is full: the watchers go.
        own.stop();
        report(Outcome::of(&result, own.tally()));
        // The thread that began the capture may not wait for its end.
        let _ = end.send(result);
    })?;
    Ok(Captured { taps: Taps { queue, what, snap, queues: queues.into(), clock }, ended })
}

/// Writes the packets from `queue` to its end. Returns the bytes of all frames.
fn write(queue: &Queue, out: impl Write, what: What, notes: &[String], start: Duration) -> io::Result<u64> {
    let link = if what == What::Packets { LINK } else { ETHERNET };
    let mut sink = Sink::begin(out, link, notes)?;
    let (mut batch, mut frame) = (Batch::default(), Vec::new());
    while queue.take(&mut batch) {
        for (head, stream, bytes) in batch.packets() {
            put(&mut sink, start, (head, stream, bytes), &mut frame)?;
        }
        sink.flush()?;
    }
    let bytes = sink.bytes();
    sink.finish(queue.tally()).map(|()| bytes)
}

fn put<W: Write>(
    sink: &mut Sink<W>,
    start: Duration,
    (head, stream, bytes): (&Head, Option<&Streamed>, &[u8]),
    frame: &mut Vec<u8>,
) -> io::Result<()> {
    let at = start + Duration::from_nanos(head.at.as_nanos());
    let original = head.original as usize;
    if let Some(stream) = stream {
        let show = |frame: &[u8], length| sink.put(at, frame, length);
        return frames(head.direction, stream, (bytes, original), frame, show);
    }
    let header = header(head.direction, head.port);
    frame.clear();
    frame.extend(header);
    frame.extend_from_slice(bytes);
    sink.put(at, frame, header.len() + original)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use trace::Direction;

    use super::*;
    use captures::{Item, Reader};

    /// Bytes that several can look at.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Takes the given number of bytes and no more.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn put_packet(captured: &Captured, kept: &[u8]) {
        captured.taps.queue.put(head(u32::try_from(kept.len()).unwrap()), None, &[kept]);
    }

    fn head(kept: u32) -> Head {
        Head { at: Instant::ZERO, direction: Direction::Up, port: 7, is_stream: false, kept, original: kept }
    }

    #[test]
    fn a_capture_has_its_notes_its_frames_and_at_the_end_what_was_lost() {
        let out = Shared::default();
        let wanted = Wanted { notes: vec!["one".into(), "two".into()], ..Wanted::all(What::Packets) };
        let captured = capture(out.clone(), Times::OfEngines(Instant::ZERO), wanted).unwrap();
        let tap = captured.taps().tap(7);
        put_packet(&captured, &[1, 2, 3]);
        captured.taps.queue.put(head(9 << 20), None, &[]);
        drop(tap);
        assert_eq!(captured.finish(None).unwrap(), Tally { seen: 2, lost: 1 });
        let bytes = out.0.lock().unwrap().clone();
        let (mut notes, mut frames, mut tallies) = (Vec::new(), Vec::new(), Vec::new());
        let mut reader = Reader::of(io::Cursor::new(bytes), Path::new("capture")).unwrap();
        reader
            .each_item(|item| {
                match item {
                    Item::Note(note) => notes.push(note.to_owned()),
                    Item::Frame(frame) => frames.push((frame.link, frame.bytes.to_vec())),
                    Item::Tally(tally) => tallies.push(tally),
                    Item::Waits => {}
                    Item::Foreign => panic!("each packet is a frame"),
                }
                true
            })
            .unwrap();
        assert_eq!(notes, ["one", "two"]);
        assert_eq!(frames, [(LINK, vec![1, 8, 1, 7, 0, 0, 0, 0, 1, 2, 3])]);
        assert_eq!(tallies, [Tally { seen: 2, lost: 1 }]);
    }

    #[test]
    fn a_medium_that_is_full_ends_the_capture_and_its_watchers() {
        let captured =
            capture(Full(4096), Times::OfEngines(Instant::ZERO), Wanted::all(What::Packets)).unwrap();
        let tap = captured.taps().tap(0);
        for _ in 0..64 {
            put_packet(&captured, &[0; 512]);
        }
        let queue = Arc::clone(&captured.taps.queue);
        assert_eq!(captured.finish(None).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(queue.is_over() && engine::Watcher::is_done(&tap));
    }
}
