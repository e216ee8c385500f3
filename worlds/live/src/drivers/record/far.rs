//! A namespace of another device as the place of a recording.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use engine::Buffer;
use nvme::media::{Completion, IoId, MediaError, MediumId, Operation, Request};
use record::{Fault, Input};

use super::source;
use crate::media::remote::RemoteMedium;
use crate::sys::clock::Clock;

/// The most requests of a recorder under way at once.
const REQUESTS_MAX: u32 = 64;
/// Names the read or write that is waited for alone.
const ALONE: IoId = IoId(REQUESTS_MAX);
/// The longest sleep between two looks at the device.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// A namespace, and the requests that are under way or wait for their turn.
pub struct Far {
    clock: Clock,
    medium: RemoteMedium,
    /// The recorder's name of each request under way; `None` for a sync.
    names: Vec<Option<u64>>,
    free: Vec<u32>,
    waiting: VecDeque<(Option<u64>, Operation)>,
    ended: VecDeque<Input>,
    alone: Option<Alone>,
}

/// The operation that is waited for alone.
#[derive(Debug)]
struct Alone {
    /// What a read has brought.
    bytes: Vec<u8>,
    /// How it ended.
    result: Option<Result<(), MediaError>>,
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Far").field("namespace", &self.medium.namespace()).finish_non_exhaustive()
    }
}

const fn request(id: IoId, operation: Operation) -> Request {
    Request { id, medium: MediumId(0), operation }
}

fn fault(error: MediaError) -> Fault {
    match error {
        MediaError::NoSpace | MediaError::OutOfRange => Fault::Full,
        _ => Fault::Failed,
    }
}

impl Far {
    /// The namespace that `medium` serves, by the clock with which it was opened.
    pub fn new(clock: Clock, medium: RemoteMedium) -> Self {
        let names = vec![None; REQUESTS_MAX as usize];
        let free = (0..REQUESTS_MAX).rev().collect();
        let (waiting, ended) = (VecDeque::new(), VecDeque::new());
        Self { clock, medium, names, free, waiting, ended, alone: None }
    }

    /// The size of the namespace in bytes.
    pub fn bytes(&self) -> u64 {
        self.medium.size()
    }

    /// The model of the device, as it tells itself.
    pub(super) fn model(&self) -> &str {
        self.medium.model()
    }

    pub(super) fn poll_fd(&self) -> RawFd {
        self.medium.poll_fd()
    }

    pub(super) fn write(&mut self, name: u64, offset: u64, data: Buffer) {
        self.waiting.push_back((Some(name), Operation::Write { offset, data, durable: false }));
    }

    pub(super) fn sync(&mut self) {
        // It concerns writes that have ended, and need not wait for others.
        self.waiting.push_front((None, Operation::Flush));
    }

    /// Starts what waits, as far as the device takes it, and takes what has ended.
    pub(super) fn submit(&mut self) {
        while let (Some(id), false) = (self.free.last().copied(), self.waiting.is_empty()) {
            let Some((name, operation)) = self.waiting.pop_front() else { break };
            self.free.pop();
            self.names[id as usize] = name;
            self.medium.submit(request(IoId(id), operation));
        }
        let Self { ended, alone, names, free, .. } = self;
        self.medium.reap(&mut |completion| match completion {
            Completion::Data { id: ALONE, offset, data } => {
                let (Some(Alone { bytes, .. }), start) = (alone.as_mut(), offset as usize) else { return };
                if let Some(place) = bytes.get_mut(start..start + data.len()) {
                    place.copy_from_slice(&data);
                }
            }
            // A recorder reads nothing.
            Completion::Data { .. } => {}
            Completion::Done { id: ALONE, result } => {
                if let Some(alone) = alone {
                    alone.result = Some(result);
                }
            }
            Completion::Done { id: IoId(id), result } => {
                let result = result.map_err(fault);
                free.push(id);
                ended.push_back(match names[id as usize].take() {
                    Some(name) => Input::Written { name, result },
                    None => Input::Synced(result),
                });
            }
        });
    }

    /// The next request that has ended, for the recorder.
    pub(super) fn next_ended(&mut self) -> Option<Input> {
        self.ended.pop_front()
    }

    /// Carries out one operation and waits for it. Returns the bytes that a read of `length`
    /// bytes brought.
    fn wait(&mut self, operation: Operation, length: usize) -> io::Result<Vec<u8>> {
        self.alone = Some(Alone { bytes: vec![0; length], result: None });
        self.medium.submit(request(ALONE, operation));
        loop {
            self.submit();
            match self.alone.take() {
                Some(Alone { bytes, result: Some(Ok(())) }) => return Ok(bytes),
                Some(Alone { result: Some(Err(error)), .. }) => {
                    return Err(io::Error::other(error.to_string()));
                }
                alone => self.alone = alone,
            }
            let now = self.clock.now();
            let due = self.medium.poll_timeout();
            let left = due.map(|at| Duration::from_nanos(at.as_nanos().saturating_sub(now.as_nanos())));
            source::sleep(&mut [], &[Some(self.medium.poll_fd())], left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX))?;
        }
    }

    /// Reads up to `bytes.len()` bytes, whole blocks, as much as there is. Returns their number.
    ///
    /// # Errors
    /// When the device fails, or stays away for too long.
    pub(super) fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let there = self.bytes().saturating_sub(offset).min(bytes.len() as u64);
        let block = u64::from(self.medium.block());
        let length = u32::try_from(there / block * block).unwrap_or(u32::MAX);
        if length == 0 {
            return Ok(0);
        }
        let read = self.wait(Operation::Read { offset, length }, length as usize)?;
        bytes[..read.len()].copy_from_slice(&read);
        Ok(read.len())
    }

    /// Writes whole blocks.
    ///
    /// # Errors
    /// When the device fails, or stays away for too long.
    pub(super) fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let data = Buffer::copy_from_slice(bytes);
        self.wait(Operation::Write { offset, data, durable: false }, 0).map(drop)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// When the device fails, or stays away for too long.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.wait(Operation::Flush, 0).map(drop)
    }
}
