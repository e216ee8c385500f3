//! Threads of their own for files and pipes, so that a blocking file stalls no session.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most pieces that wait between a thread and its session.
const WAITING_MAX: usize = 8;
/// How often an output is asked whether it has settled.
const LOOK: Duration = Duration::from_millis(1);

/// The content of an input for its session at the moment.
#[derive(Debug)]
pub(crate) enum Piece {
    /// The next bytes of the input.
    Bytes(Vec<u8>),
    /// No bytes yet.
    NotYet,
    /// No more bytes: the input has ended.
    End,
}

/// An input that gives its bytes in order.
pub(crate) trait Source {
    /// The next bytes, if there are any yet: `wanted` of them, or as many as suit the source.
    fn take(&mut self, wanted: usize) -> io::Result<Piece>;
}

/// An output that takes bytes in order.
pub(crate) trait Sink {
    /// Whether the output has room for a piece now.
    fn has_room(&mut self) -> io::Result<bool>;
    /// Takes a piece. The caller has seen that there is room.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Whether everything is written. The caller has put its last piece.
    fn is_done(&mut self) -> io::Result<bool>;
    /// Waits until everything is written, for `patience` at most: an output may be blocked for
    /// good. Returns how many of the bytes that were put are not written and never will be.
    fn settle(&mut self, patience: Duration) -> io::Result<u64>;
}

/// An input that a thread reads ahead.
#[derive(Debug)]
pub(crate) struct Ahead {
    pieces: Receiver<io::Result<Vec<u8>>>,
}

impl Ahead {
    /// Starts to read `input` to its end, or up to `most` bytes, in pieces of `piece` bytes.
    pub(crate) fn start(input: impl Read + Send + 'static, piece: usize, most: u64) -> Self {
        let (sender, pieces) = sync_channel(WAITING_MAX);
        let mut input = input.take(most);
        std::thread::spawn(move || {
            loop {
                let mut bytes = vec![0; piece];
                let result = read_full(&mut input, &mut bytes).map(|count| {
                    bytes.truncate(count);
                    bytes
                });
                let is_last = result.as_ref().map_or(true, |bytes| bytes.len() < piece);
                if sender.send(result).is_err() || is_last {
                    return;
                }
            }
        });
        Self { pieces }
    }
}

impl Source for Ahead {
    fn take(&mut self, _: usize) -> io::Result<Piece> {
        match self.pieces.try_recv() {
            Ok(Ok(bytes)) if bytes.is_empty() => Ok(Piece::End),
            Ok(Ok(bytes)) => Ok(Piece::Bytes(bytes)),
            Ok(Err(error)) => Err(error),
            Err(TryRecvError::Empty) => Ok(Piece::NotYet),
            Err(TryRecvError::Disconnected) => Ok(Piece::End),
        }
    }
}

/// An output that a thread writes behind.
#[derive(Debug)]
pub(crate) struct Behind {
    /// Way to the thread; none once the thread has been given everything.
    pieces: Option<SyncSender<Vec<u8>>>,
    /// A piece that the thread had no room for yet.
    waiting: Option<Vec<u8>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Bytes that were put.
    put: u64,
    written: Arc<Written>,
}

/// How far a thread has come.
#[derive(Debug, Default)]
struct Written {
    bytes: AtomicU64,
    /// Whether nothing more may be written.
    is_over: AtomicBool,
}

impl Written {
    /// Writes `bytes` to `output`, or as many as it takes before nothing more may be written.
    fn write(&self, output: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && !self.is_over.load(Ordering::Relaxed) {
            match output.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.bytes.fetch_add(count as u64, Ordering::Relaxed);
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Behind {
    pub(crate) fn start(mut output: impl Write + Send + 'static) -> Self {
        let (sender, pieces) = sync_channel::<Vec<u8>>(WAITING_MAX);
        let written = Arc::new(Written::default());
        let progress = Arc::clone(&written);
        let thread = std::thread::spawn(move || {
            loop {
                match pieces.recv() {
                    Ok(bytes) => progress.write(&mut output, &bytes)?,
                    Err(RecvError) => return output.flush(),
                }
            }
        });
        Self { pieces: Some(sender), waiting: None, thread: Some(thread), put: 0, written }
    }

    /// Waits for the thread to end, and returns its result.
    fn end(&mut self) -> io::Result<()> {
        self.pieces = None;
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that writes has panicked")),
        }
    }
}

impl Sink for Behind {
    fn has_room(&mut self) -> io::Result<bool> {
        let Some(bytes) = self.waiting.take() else { return Ok(true) };
        let Some(pieces) = &self.pieces else { return Ok(true) };
        match pieces.try_send(bytes) {
            Ok(()) => Ok(true),
            Err(TrySendError::Full(bytes)) => {
                self.waiting = Some(bytes);
                Ok(false)
            }
            Err(TrySendError::Disconnected(_)) => self.end().map(|()| true),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.put += bytes.len() as u64;
        self.waiting = Some(bytes.to_vec());
        self.has_room().map(|_| ())
    }

    fn is_done(&mut self) -> io::Result<bool> {
        if !self.has_room()? {
            return Ok(false);
        }
        self.pieces = None;
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(false);
        }
        self.end().map(|()| true)
    }

    fn settle(&mut self, patience: Duration) -> io::Result<u64> {
        let until = Instant::now() + patience;
        while !self.is_done()? {
            if Instant::now() >= until {
                self.written.is_over.store(true, Ordering::Relaxed);
                break;
            }
            std::thread::sleep(LOOK);
        }
        Ok(self.put.saturating_sub(self.written.bytes.load(Ordering::Relaxed)))
    }
}

/// Reads until `bytes` is full or the input ends. Returns how many bytes were read.
pub(crate) fn read_full(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A source whose bytes are made on the spot.
impl<F: FnMut(&mut [u8]) -> io::Result<usize>> Source for F {
    fn take(&mut self, wanted: usize) -> io::Result<Piece> {
        let mut bytes = vec![0; wanted];
        let count = self(&mut bytes)?;
        bytes.truncate(count);
        Ok(if count == 0 { Piece::End } else { Piece::Bytes(bytes) })
    }
}

/// A sink that drops all bytes.
#[derive(Debug)]
pub(crate) struct Nowhere;

impl Sink for Nowhere {
    fn has_room(&mut self) -> io::Result<bool> {
        Ok(true)
    }
    fn put(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn is_done(&mut self) -> io::Result<bool> {
        Ok(true)
    }
    fn settle(&mut self, _: Duration) -> io::Result<u64> {
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// An output that takes bytes while no other thread holds its lock.
    #[derive(Clone, Default)]
    struct Locked(Arc<Mutex<Vec<u8>>>);

    impl Write for Locked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Puts as many bytes as find room.
    fn fill(behind: &mut Behind) -> u64 {
        let mut put = 0;
        while behind.has_room().unwrap() {
            behind.put(&[7; 4]).unwrap();
            put += 4;
        }
        put
    }

    #[test]
    fn an_output_that_settles_has_written_what_waited() {
        let output = Locked::default();
        let held = output.0.lock().unwrap();
        let mut behind = Behind::start(output.clone());
        let put = fill(&mut behind);
        drop(held);
        assert_eq!(behind.settle(Duration::from_secs(600)).unwrap(), 0);
        assert_eq!(output.0.lock().unwrap().len() as u64, put);
    }

    #[test]
    fn a_blocked_output_reports_the_bytes_that_it_did_not_write() {
        let output = Locked::default();
        let held = output.0.lock().unwrap();
        let mut behind = Behind::start(output.clone());
        let put = fill(&mut behind);
        assert!(put > 0);
        assert_eq!(behind.settle(Duration::ZERO).unwrap(), put);
        drop(held);
    }
}
