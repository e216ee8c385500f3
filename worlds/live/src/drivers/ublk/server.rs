//! Queues of a block device, served by one thread with a medium of its own.

use std::io;
use std::os::fd::RawFd;

use engine::{Instant, Pool};
use nvme::media::{Completion, IoId, MediaError, MediumId, Operation as Wanted, Request};

use super::tally::Tally;
use crate::media::RemoteMedium;
use crate::reactor::{Attention, Sources};
use crate::sys::clock::Clock;
use crate::sys::ublk::{Device, Operation, Request as Asked};

/// The most requests that are taken in one turn.
const TAKEN_MAX: usize = 256;
/// The most bytes of blocks that the pool keeps for reuse.
const POOL_BYTES: usize = 32 << 20;

/// A request that has come and was not answered.
#[derive(Clone, Copy, Debug)]
struct Pending {
    asked: Asked,
    since: Instant,
    /// The error number with which data could not be passed to the kernel.
    failed: Option<i32>,
}

/// Serves queues of a block device.
pub(super) struct Server {
    clock: Clock,
    /// `None` when it was closed.
    device: Option<Device>,
    pub(super) medium: RemoteMedium,
    pool: Pool,
    pending: Vec<Option<Pending>>,
    pub(super) under_way: usize,
    /// Whether requests fail at once, because the device is removed while the medium is away.
    is_refusing: bool,
    pub(super) tally: Tally,
}

impl Server {
    /// Serves queues of `device` with the blocks of `medium`.
    pub(super) fn new(clock: Clock, device: Device, medium: RemoteMedium) -> Self {
        let pending = vec![None; device.names() as usize];
        Self {
            clock,
            device: Some(device),
            medium,
            pool: Pool::new(POOL_BYTES),
            pending,
            under_way: 0,
            is_refusing: false,
            tally: Tally::default(),
        }
    }

    /// Has a loop look at the device and the medium in each turn.
    ///
    /// # Errors
    /// When the loop takes no more sources.
    pub(super) fn register(&self, sources: &Sources) -> io::Result<()> {
        for source in self.poll_fd().into_iter().chain([self.medium.poll_fd()]) {
            sources.add(source, Attention::EachTurn)?;
        }
        Ok(())
    }

    /// Serves the requests that have come, and answers those that have ended. Returns whether there
    /// was anything to do.
    ///
    /// # Errors
    /// When io_uring itself fails.
    pub(super) fn turn(&mut self, now: Instant) -> io::Result<bool> {
        let mut busy = self.take_requests(now) > 0;
        busy |= self.reap() > 0;
        if let Some(device) = &mut self.device {
            device.submit()?;
        }
        Ok(busy)
    }

    /// Why the kernel has refused an answer, if it has. It is returned once.
    pub(super) fn refusal(&mut self) -> Option<io::Error> {
        self.device.as_mut().and_then(Device::refusal)
    }

    /// Whether no request can come any more, because the device was stopped.
    pub(super) fn is_over(&self) -> bool {
        self.device.as_ref().is_some_and(Device::is_over)
    }

    /// The descriptor of the device's requests, if the device was not closed.
    pub(super) fn poll_fd(&self) -> Option<RawFd> {
        self.device.as_ref().map(Device::poll_fd)
    }

    /// Closes the device.
    pub(super) fn close(&mut self) {
        self.device = None;
    }

    /// The device is about to be removed: requests that wait for an absent medium end now, with
    /// an error.
    pub(super) fn refuse_if_away(&mut self) {
        self.is_refusing = !self.medium.is_here();
        if self.is_refusing {
            (0..).take(self.pending.len()).for_each(|name| self.answer(name, Err(libc::ENOLINK)));
        }
    }

    /// Passes requests that have come to the medium. Returns how many.
    fn take_requests(&mut self, now: Instant) -> usize {
        let mut taken = 0;
        while taken < TAKEN_MAX
            && let Some(asked) = self.device.as_mut().and_then(Device::next_request)
        {
            taken += 1;
            self.pending[asked.name as usize] = Some(Pending { asked, since: now, failed: None });
            self.under_way += 1;
            match self.operation(&asked) {
                Ok(_) if self.is_refusing => {
                    self.answer(asked.name, Err(libc::ENOLINK));
                }
                Ok(operation) => {
                    self.medium.submit(Request { id: IoId(asked.name), medium: MediumId(0), operation });
                }
                Err(error) => self.answer(asked.name, Err(error)),
            }
        }
        taken
    }

    /// The operation for the medium; an error number if there is none.
    fn operation(&mut self, asked: &Asked) -> Result<Wanted, i32> {
        let Asked { name, operation, durable, offset, length } = *asked;
        let short = || u32::try_from(length).map_err(|_| libc::EINVAL);
        Ok(match operation {
            Operation::Read => Wanted::Read { offset, length: short()? },
            Operation::Write => {
                let device = self.device.as_ref().ok_or(libc::ENODEV)?;
                let length = short()? as usize;
                if length > Pool::LENGTH_MAX {
                    return Err(libc::EINVAL);
                }
                let mut data = self.pool.take(length);
                device.get(name, 0, &mut data).map_err(|error| number_of(&error))?;
                Wanted::Write { offset, data: self.pool.seal(data), durable }
            }
            Operation::Flush => Wanted::Flush,
            Operation::Discard => Wanted::Deallocate { offset, length },
            Operation::WriteZeroes { kept } => {
                Wanted::WriteZeroes { offset, length, deallocate: !kept, durable }
            }
            Operation::Other(_) => return Err(libc::EOPNOTSUPP),
        })
    }

    /// Passes on the medium's completions. Returns their number.
    fn reap(&mut self) -> usize {
        let Self { clock, medium, device, pending, under_way, tally, .. } = self;
        medium.reap(&mut |completion| {
            let Some(device) = device.as_mut() else { return };
            match completion {
                Completion::Data { id, offset, data } => {
                    let Some(Some(pending)) = pending.get_mut(id.0 as usize) else { return };
                    if let Err(error) = device.put(id.0, offset, &data) {
                        pending.failed = Some(number_of(&error));
                    }
                }
                Completion::Done { id, result } => {
                    let Some(ended) = pending.get_mut(id.0 as usize).and_then(Option::take) else { return };
                    *under_way -= 1;
                    let result = ended.failed.map_or_else(|| result.map_err(error_number), Err);
                    tally.count(&ended.asked, result.is_ok(), clock.now() - ended.since);
                    device.answer(id.0, result.map(|()| moved(&ended.asked)));
                }
            }
        })
    }

    /// Answers a request that the medium does not have.
    fn answer(&mut self, name: u32, result: Result<u32, i32>) {
        let Some(ended) = self.pending[name as usize].take() else { return };
        self.under_way -= 1;
        self.tally.count(&ended.asked, result.is_ok(), self.clock.now() - ended.since);
        if let Some(device) = &mut self.device {
            device.answer(name, result);
        }
    }
}

/// The bytes that a request has moved, as its answer says.
fn moved(asked: &Asked) -> u32 {
    match asked.operation {
        Operation::Read | Operation::Write => u32::try_from(asked.length).unwrap_or(u32::MAX),
        _ => 0,
    }
}

fn number_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The error number that the block layer understands best.
const fn error_number(error: MediaError) -> i32 {
    match error {
        MediaError::Read | MediaError::ReadFailed | MediaError::Write | MediaError::OutOfRange => libc::EIO,
        MediaError::NoSpace => libc::ENOSPC,
        MediaError::ReadOnly => libc::EROFS,
        MediaError::Unreachable => libc::ENOLINK,
    }
}
