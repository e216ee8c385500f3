//! SHA-256 of streams on a thread of its own, for which the thread that receives does not wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use engine::Buffer;
use record::Input;
use record::format::STREAMS_MAX;
use rustix::event::EventfdFlags;
use sha2::{Digest as _, Sha256};

/// Bytes that the thread reads.
struct Lent {
    stream: usize,
    start: *const u8,
    length: usize,
}

// SAFETY: the bytes are those of a buffer that `Digester` holds until the thread has answered, or
// is over. Nobody writes to them meanwhile, since nobody has a buffer alone of which there are two
// holders.
unsafe impl Send for Lent {}

/// Computes the SHA-256 of each stream, in the order of what it is given.
#[derive(Debug)]
pub(super) struct Digester {
    /// `None` once the thread is to end.
    lent: Option<Sender<Lent>>,
    answers: Receiver<[u8; 32]>,
    /// What the thread reads or will read, the oldest first.
    held: VecDeque<Buffer>,
    /// Is readable when there are answers.
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Digester {
    /// # Errors
    /// When the system refuses a thread or a descriptor.
    pub(super) fn start() -> io::Result<Self> {
        let (lent, orders) = channel::<Lent>();
        let (told, answers) = channel();
        let bell = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let rung = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name("digests".into()).spawn(move || {
            let mut digests = vec![Sha256::new(); STREAMS_MAX];
            for Lent { stream, start, length } in orders {
                // SAFETY: the buffer is held until this is answered.
                digests[stream].update(unsafe { std::slice::from_raw_parts(start, length) });
                if told.send(digests[stream].clone().finalize().into()).is_err() {
                    return;
                }
                // A counter that is full is readable, too.
                let _ = rustix::io::write(&*rung, &1_u64.to_ne_bytes());
            }
        })?;
        let held = VecDeque::new();
        Ok(Self { lent: Some(lent), answers, held, bell, thread: Some(thread) })
    }

    /// Appends `data` to what is digested of a stream.
    ///
    /// # Panics
    /// When there is no such stream.
    pub(super) fn digest(&mut self, stream: u32, data: Buffer) {
        let stream = stream as usize;
        assert!(stream < STREAMS_MAX, "stream {stream}");
        let lent = Lent { stream, start: data.as_ptr(), length: data.len() };
        self.held.push_back(data);
        let sent = self.lent.as_ref().is_some_and(|orders| orders.send(lent).is_ok());
        assert!(sent, "the thread of digests runs as long as there are orders");
    }

    pub(super) fn poll_fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Forgets that the bell has rung; [`Digester::next_ended`] is to be asked afterwards.
    pub(super) fn hush(&self) {
        if !self.held.is_empty() {
            let _ = rustix::io::read(self.bell.as_fd(), &mut [0; 8]);
        }
    }

    /// The next answer.
    pub(super) fn next_ended(&mut self) -> Option<Input> {
        let sha256 = self.answers.try_recv().ok()?;
        self.held.pop_front();
        Some(Input::Digested { sha256 })
    }
}

impl Drop for Digester {
    /// Waits until the thread reads nothing any more.
    fn drop(&mut self) {
        self.lent = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_digested_in_order_and_buffers_come_back() {
        let mut digester = Digester::start().unwrap();
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
            assert!(matches!(input, Input::Digested { sha256 } if sha256 == sha), "{at}");
            assert!(blocks[usize::from(at)].try_mut().is_some(), "{at} is held");
        }
        assert!(digester.next_ended().is_none());
    }

    #[test]
    fn it_ends_with_work_left() {
        let mut digester = Digester::start().unwrap();
        let block = Buffer::copy_from_slice(&vec![1; 1 << 20]);
        (0..20).for_each(|_| digester.digest(0, block.clone()));
        drop(digester);
    }
}
