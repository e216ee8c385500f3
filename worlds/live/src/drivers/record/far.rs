//! A namespace of another device as the place of a recording.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use engine::{Buffer, Instant, Nanos};
use nvme::media::{Completion, IoId, MediaError, MediumId, Operation, Request};
use record::{Fault, Input};

use super::reads::Block;
use super::wait;
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
    waiting: VecDeque<Waiting>,
    ended: VecDeque<Input>,
    /// Where each read under way goes, by its request; nowhere if its result is no longer wanted.
    reads: Vec<Option<Wanted>>,
    read: VecDeque<(u64, Block, io::Result<usize>)>,
    alone: Option<Alone>,
}

/// A read that is under way.
enum Wanted {
    Into(Block, usize),
    No,
}

/// The operation that is waited for alone.
#[derive(Debug)]
struct Alone {
    /// The bytes that a read returned.
    bytes: Vec<u8>,
    /// How it ended.
    result: Option<Result<(), MediaError>>,
}

/// A request that waits for its turn.
struct Waiting {
    name: Option<u64>,
    operation: Operation,
    /// Where a read goes.
    into: Option<Wanted>,
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

/// The system's error for a request that is waited for. A block that the medium has lost is as a
/// sector that a disk can't read. A device that fails otherwise is not: it may have all bytes.
fn failure(error: MediaError) -> io::Error {
    match error {
        MediaError::Read => io::Error::from_raw_os_error(libc::EIO),
        error => io::Error::other(error.to_string()),
    }
}

impl Far {
    /// The namespace that `medium` serves, by the clock with which it was opened.
    pub fn new(clock: Clock, medium: RemoteMedium) -> Self {
        let names = vec![None; REQUESTS_MAX as usize];
        let free = (0..REQUESTS_MAX).rev().collect();
        let (waiting, ended, read) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let reads = (0..REQUESTS_MAX).map(|_| None).collect();
        Self { clock, medium, names, free, waiting, ended, reads, read, alone: None }
    }

    /// The size of the namespace in bytes.
    pub fn bytes(&self) -> u64 {
        self.medium.size()
    }

    /// The model of the device, as it names itself.
    pub(super) fn model(&self) -> &str {
        self.medium.model()
    }

    pub(super) fn poll_fd(&self) -> RawFd {
        self.medium.poll_fd()
    }

    pub(super) fn write(&mut self, name: u64, offset: u64, data: Buffer) {
        let operation = Operation::Write { offset, data, durable: false };
        self.waiting.push_back(Waiting { name: Some(name), operation, into: None });
    }

    pub(super) fn sync(&mut self) {
        // It concerns writes that have ended, and need not wait for others.
        self.waiting.push_front(Waiting { name: None, operation: Operation::Flush, into: None });
    }

    /// Begins to read `length` bytes, whole blocks of the namespace, into `block`. Gives the block
    /// back if the namespace ends before them.
    pub(super) fn read(&mut self, name: u64, offset: u64, block: Block, length: usize) -> Result<(), Block> {
        let unit = u64::from(self.medium.block());
        let is_whole = offset.is_multiple_of(unit) && (length as u64).is_multiple_of(unit);
        let is_there = offset.checked_add(length as u64).is_some_and(|end| end <= self.bytes());
        let Some(bytes) = u32::try_from(length).ok().filter(|bytes| *bytes > 0 && is_whole && is_there)
        else {
            return Err(block);
        };
        let operation = Operation::Read { offset, length: bytes };
        self.waiting.push_back(Waiting {
            name: Some(name),
            operation,
            into: Some(Wanted::Into(block, length)),
        });
        Ok(())
    }

    /// A read that has ended: its name, its block, and the number of bytes there.
    pub(super) fn next_read(&mut self) -> Option<(u64, Block, io::Result<usize>)> {
        self.read.pop_front()
    }

    /// Discards the results of the reads under way.
    pub(super) fn forget_reads(&mut self) {
        self.waiting.retain(|waiting| waiting.into.is_none());
        self.reads.iter_mut().flatten().for_each(|wanted| *wanted = Wanted::No);
        self.read.clear();
    }

    /// After what time the device has to be looked at, although its descriptor reports nothing.
    pub(super) fn wake_in(&self) -> Option<Nanos> {
        let now = self.clock.now();
        let left = |at: Instant| Nanos::new(at.as_nanos().saturating_sub(now.as_nanos()));
        self.medium.poll_timeout().map(left)
    }

    /// How long the device may be left alone.
    pub(super) fn patience(&self) -> Duration {
        self.wake_in().map_or(SLEEP_MAX, Duration::from).min(SLEEP_MAX)
    }

    /// Starts the waiting requests, as far as the device takes them, and takes those that have
    /// ended. Returns whether the device may have more to do at once.
    pub(super) fn submit(&mut self) -> bool {
        while let (Some(id), false) = (self.free.last().copied(), self.waiting.is_empty()) {
            let Some(Waiting { name, operation, into }) = self.waiting.pop_front() else { break };
            self.free.pop();
            (self.names[id as usize], self.reads[id as usize]) = (name, into);
            self.medium.submit(request(IoId(id), operation));
        }
        let Self { ended, alone, names, free, reads, read, .. } = self;
        let done = self.medium.reap(&mut |completion| match completion {
            Completion::Data { id: ALONE, offset, data } => {
                let (Some(Alone { bytes, .. }), start) = (alone.as_mut(), offset as usize) else { return };
                if let Some(place) = bytes.get_mut(start..start + data.len()) {
                    place.copy_from_slice(&data);
                }
            }
            Completion::Data { id: IoId(id), offset, data } => {
                if let Some(Some(Wanted::Into(block, length))) = reads.get_mut(id as usize) {
                    block.put(offset as usize, &data, *length);
                }
            }
            Completion::Done { id: ALONE, result } => {
                if let Some(alone) = alone {
                    alone.result = Some(result);
                }
            }
            Completion::Done { id: IoId(id), result } => {
                free.push(id);
                let name = names[id as usize].take();
                if let Some(wanted) = reads[id as usize].take() {
                    if let (Wanted::Into(block, length), Some(name)) = (wanted, name) {
                        read.push_back((name, block, result.map(|()| length).map_err(failure)));
                    }
                    return;
                }
                let result = result.map_err(fault);
                ended.push_back(match name {
                    Some(name) => Input::Written { name, result },
                    None => Input::Synced(result),
                });
            }
        });
        done > 0
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
                Some(Alone { result: Some(Err(error)), .. }) => return Err(failure(error)),
                alone => self.alone = alone,
            }
            wait::until_readable([self.medium.poll_fd()].into_iter(), self.patience())?;
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

    /// Makes the written bytes durable.
    ///
    /// # Errors
    /// When the device fails, or stays away for too long.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.wait(Operation::Flush, 0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reading::is_unreadable;
    use super::*;

    #[test]
    fn a_block_that_is_lost_is_unreadable_and_a_device_that_fails_is_not() {
        assert!(is_unreadable(&failure(MediaError::Read)));
        for error in [MediaError::ReadFailed, MediaError::Unreachable, MediaError::OutOfRange] {
            assert!(!is_unreadable(&failure(error)), "{error}");
        }
    }
}
