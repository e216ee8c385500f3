//! Digests of streams on threads of their own, for which the thread that receives does not wait.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use engine::Buffer;
use record::format::STREAMS_MAX;
use record::{Algorithm, Hasher, Input};

use crate::reactor::{Attention, Bell, Sources};

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

/// Wakes the thread that receives, while it wants that.
#[derive(Debug)]
struct Call {
    bell: Bell,
    is_wanted: AtomicBool,
}

impl Call {
    fn ring(&self) {
        // Either this thread sees that the bell is wanted, or the other one sees the answers.
        fence(Ordering::SeqCst);
        if self.is_wanted.load(Ordering::Relaxed) {
            self.bell.ring();
        }
    }
}

/// A thread that digests some of the streams.
#[derive(Debug)]
struct Worker {
    /// `None` once the thread is to end.
    lent: Option<Sender<Lent>>,
    answers: Receiver<[u8; 32]>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(algorithm: Algorithm, call: Arc<Call>) -> io::Result<Self> {
        let (lent, orders) = channel::<Lent>();
        let (digests_out, answers) = channel();
        let work = move || work(algorithm, &orders, &digests_out, &call);
        let thread = std::thread::Builder::new().name("digests".into()).spawn(work)?;
        Ok(Self { lent: Some(lent), answers, thread: Some(thread) })
    }
}

/// Answers orders until there will be none any more.
fn work(algorithm: Algorithm, orders: &Receiver<Lent>, digests_out: &Sender<[u8; 32]>, call: &Call) {
    let mut digests = vec![Hasher::new(algorithm); STREAMS_MAX];
    let mut silent = 0;
    let ring = |silent: &mut usize| {
        if std::mem::take(silent) > 0 {
            call.ring();
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
        if digests_out.send(digests[stream].finalize()).is_err() {
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
    call: Arc<Call>,
}

impl Digester {
    /// Digests the given number of streams, on as many threads as there are processors for them.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor.
    pub(super) fn start(algorithm: Algorithm, streams: usize) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let call = Arc::new(Call { bell: Bell::new()?, is_wanted: AtomicBool::new(false) });
        let workers =
            (0..streams.min(processors).max(1)).map(|_| Worker::start(algorithm, Arc::clone(&call)));
        Ok(Self { workers: workers.collect::<io::Result<_>>()?, held: VecDeque::new(), call })
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

    /// Lets answers wake the loop of `sources`, while [`Digester::listen`] says so.
    ///
    /// # Errors
    /// When the kernel has no memory left.
    pub(super) fn register(&self, sources: &Sources) -> io::Result<()> {
        self.call.bell.listen(sources, Attention::EachTurn)
    }

    /// Whether so much is held that answers are worth a wakeup.
    pub(super) fn has_many(&self) -> bool {
        self.held.len() >= MANY
    }

    /// Whether answers wake the loop from now on. Returns whether they did not before: then
    /// [`Digester::next_ended`] is to be asked before a sleep.
    pub(super) fn listen(&mut self, wants: bool) -> bool {
        let did = self.call.is_wanted.swap(wants, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        wants && !did
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
    use engine::{Instant, Nanos};
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::reactor::{Context, Driver, Outcome, Reactor, Turn};
    use crate::sys::clock::Clock;

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

    /// One order after the other, each only once the one before is answered.
    struct Orders {
        digester: Digester,
        block: Buffer,
        left: u32,
    }

    impl Driver for Orders {
        fn start(&mut self, sources: &Sources) -> io::Result<()> {
            self.digester.register(sources)
        }

        fn turn(&mut self, _context: &Context<'_>) -> io::Result<Turn> {
            if self.digester.held.is_empty() {
                self.left -= 1;
                self.digester.digest(0, self.block.clone());
                // Every other sleep begins with the bell silent.
                self.digester.listen(self.left.is_multiple_of(2));
            }
            self.digester.listen(true);
            let has_ended = self.digester.next_ended().is_some();
            Ok(match (self.left, has_ended) {
                (0, true) => Turn::Done,
                (_, true) => Turn::Busy,
                (_, false) => Turn::Idle,
            })
        }

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }

        fn on_stop(&mut self, _now: Instant) {}
    }

    /// Nothing but the bell wakes the loop.
    #[test]
    fn no_answer_is_slept_through() {
        let digester = Digester::start(Algorithm::Sha256, 1).unwrap();
        let block = Buffer::copy_from_slice(&[7; 100]);
        let clock = Clock::start();
        let mut reactor = Reactor::new(clock, Nanos::ZERO).unwrap();
        let mut orders = Orders { digester, block, left: 5_000 };
        let deadline = Some(clock.now() + Nanos::from_secs(50));
        assert_eq!(reactor.run_until(&mut orders, deadline, |_| false).unwrap(), Outcome::Done);
    }

    #[test]
    fn it_ends_with_work_left() {
        let mut digester = Digester::start(Algorithm::Blake3, 1).unwrap();
        let block = Buffer::copy_from_slice(&vec![1; 1 << 20]);
        (0..20).for_each(|_| digester.digest(0, block.clone()));
        drop(digester);
    }
}
