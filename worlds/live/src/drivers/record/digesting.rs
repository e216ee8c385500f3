//! Digests of streams on threads of their own, for which the thread that receives does not wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use engine::Buffer;
use record::format::STREAMS_MAX;
use record::{Algorithm, Hasher, Input};
use rustix::event::EventfdFlags;

/// This many answers, or all that there are, wake the thread that receives.
const TOGETHER: usize = 8;
/// This many held buffers are worth a wakeup. A recorder's buffer has at least twice as many.
const MANY: usize = 16;

/// Bytes that a thread reads.
struct Lent {
    stream: usize,
    start: *const u8,
    length: usize,
}

// SAFETY: the bytes are those of a buffer that `Digester` holds until the thread has answered, or
// is over. No thread writes to them meanwhile, since a buffer with two holders is exclusive to
// neither.
unsafe impl Send for Lent {}

/// A thread that digests some of the streams.
#[derive(Debug)]
struct Worker {
    /// `None` once the thread is to end.
    lent: Option<Sender<Lent>>,
    answers: Receiver<[u8; 32]>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(algorithm: Algorithm, bell: Arc<OwnedFd>) -> io::Result<Self> {
        let (lent, orders) = channel::<Lent>();
        let (told, answers) = channel();
        let work = move || work(algorithm, &orders, &told, &bell);
        let thread = std::thread::Builder::new().name("digests".into()).spawn(work)?;
        Ok(Self { lent: Some(lent), answers, thread: Some(thread) })
    }
}

/// Answers orders until there will be none any more.
fn work(algorithm: Algorithm, orders: &Receiver<Lent>, told: &Sender<[u8; 32]>, bell: &OwnedFd) {
    let mut digests = vec![Hasher::new(algorithm); STREAMS_MAX];
    let mut silent = 0;
    let ring = |silent: &mut usize| {
        if std::mem::take(silent) > 0 {
            // A counter that is full is readable, too.
            let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
        }
    };
    loop {
        let order = match orders.try_recv() {
            Err(TryRecvError::Empty) => {
                ring(&mut silent);
                orders.recv().ok()
            }
            order => order.ok(),
        };
        let Some(Lent { stream, start, length }) = order else { return };
        // SAFETY: the buffer is held until this is answered.
        digests[stream].update(unsafe { std::slice::from_raw_parts(start, length) });
        if told.send(digests[stream].finalize()).is_err() {
            return;
        }
        silent += 1;
        if silent == TOGETHER {
            ring(&mut silent);
        }
    }
}

/// Computes the digest of each stream, in the order of its input.
#[derive(Debug)]
pub(super) struct Digester {
    workers: Vec<Worker>,
    /// The buffers that the threads read or will read, the oldest first, and the number of the
    /// thread.
    held: VecDeque<(usize, Buffer)>,
    /// Is readable when there are answers.
    bell: Arc<OwnedFd>,
}

impl Digester {
    /// Digests the given number of streams, on as many threads as there are processors for them.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor.
    pub(super) fn start(algorithm: Algorithm, streams: usize) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let bell = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let workers =
            (0..streams.min(processors).max(1)).map(|_| Worker::start(algorithm, Arc::clone(&bell)));
        Ok(Self { workers: workers.collect::<io::Result<_>>()?, held: VecDeque::new(), bell })
    }

    /// Appends `data` to the digested bytes of a stream.
    ///
    /// # Panics
    /// When there is no such stream.
    pub(super) fn digest(&mut self, stream: u32, data: Buffer) {
        let stream = stream as usize;
        assert!(stream < STREAMS_MAX, "stream {stream}");
        let lent = Lent { stream, start: data.as_ptr(), length: data.len() };
        let worker = stream % self.workers.len();
        self.held.push_back((worker, data));
        let sent = self.workers[worker].lent.as_ref().is_some_and(|orders| orders.send(lent).is_ok());
        assert!(sent, "a thread of digests runs as long as there are orders");
    }

    /// The descriptor that is readable when there are answers.
    pub(super) fn poll_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Whether so much is held that answers are worth a wakeup.
    pub(super) fn has_many(&self) -> bool {
        self.held.len() >= MANY
    }

    /// Forgets that the bell has rung. Returns whether it had: then [`Digester::next_ended`] is to
    /// be asked before a sleep.
    pub(super) fn hush(&self) -> bool {
        rustix::io::read(self.bell.as_fd(), &mut [0; 8]).is_ok()
    }

    /// The next answer.
    pub(super) fn next_ended(&mut self) -> Option<Input> {
        let (worker, _) = self.held.front()?;
        let digest = self.workers[*worker].answers.try_recv().ok()?;
        self.held.pop_front();
        Some(Input::Digested { digest })
    }
}

impl Drop for Digester {
    /// Waits until no thread reads anything any more.
    fn drop(&mut self) {
        self.workers.iter_mut().for_each(|worker| worker.lent = None);
        let threads = self.workers.iter_mut().filter_map(|worker| worker.thread.take());
        threads.for_each(|thread| drop(thread.join()));
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn streams_are_digested_in_order_and_buffers_come_back() {
        let mut digester = Digester::start(Algorithm::Sha256, 3).unwrap();
        let mut blocks: Vec<_> = (0..40_u8).map(|byte| Buffer::copy_from_slice(&[byte; 5_000])).collect();
        for (stream, block) in (0..).map(|at| at % 3).zip(&blocks) {
            digester.digest(stream, block.slice(7..5_000));
        }
        let mut expected = vec![Sha256::new(); 3];
        for at in 0..40_u8 {
            let input = loop {
                digester.hush();
                if let Some(input) = digester.next_ended() {
                    break input;
                }
                std::thread::yield_now();
            };
            let stream = usize::from(at % 3);
            expected[stream].update([at; 4_993]);
            let sha: [u8; 32] = expected[stream].clone().finalize().into();
            assert!(matches!(input, Input::Digested { digest } if digest == sha), "{at}");
            assert!(blocks[usize::from(at)].try_mut().is_some(), "{at} is held");
        }
        assert!(digester.next_ended().is_none());
    }

    #[test]
    fn it_ends_with_work_left() {
        let mut digester = Digester::start(Algorithm::Blake3, 1).unwrap();
        let block = Buffer::copy_from_slice(&vec![1; 1 << 20]);
        (0..20).for_each(|_| digester.digest(0, block.clone()));
        drop(digester);
    }
}
