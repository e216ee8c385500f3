//! A namespace of another device as a block device of this machine, by the kernel's user-space
//! block driver.
//!
//! A request of the block layer becomes a request to a [`RemoteMedium`]. While the other device is
//! away, requests wait as long as the medium lets them. When this process ends without removing the
//! block device, the kernel keeps it with its requests, and another process takes it over: it knows
//! the device by its mark.

mod find;
mod tally;

use std::cell::Cell;
use std::io;

use assemblies::watch::Port;
use engine::{Instant, Pool, Watch};
use nvme::media::{Completion, IoId, MediaError, MediumId, Operation as Wanted, Request};

use crate::media::RemoteMedium;
use crate::reactor::{Attention, Context, Driver, Sources, Turn};
use crate::sys::block_use;
use crate::sys::clock::Clock;
use crate::sys::ublk::{Control, Device, Error, Operation, Request as Asked};

pub use find::{FindError, Found, Settings, find};
pub use tally::{Kind, KindTally, Tally};

/// The most requests that are taken in one turn.
const TAKEN_MAX: usize = 256;
/// The most bytes of blocks that the pool keeps for reuse.
const POOL_BYTES: usize = 32 << 20;

/// An event of a block device.
#[derive(Debug)]
pub enum Event {
    /// The block device can be used.
    Live,
    /// The kernel has refused an answer: its request waits for another server.
    Refused(io::Error),
    /// The block device stays, and waits for another server, because it is in use.
    Left(Vec<String>),
    /// The block device was removed.
    Removed,
    /// The block device could not be removed.
    NotRemoved(Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel looks at the new device.
    Starting,
    Live,
    /// The kernel removes the device.
    Stopping,
    Over,
}

/// A request that has come and was not answered.
#[derive(Clone, Copy, Debug)]
struct Pending {
    asked: Asked,
    since: Instant,
    /// The error number with which data could not be passed to the kernel.
    failed: Option<i32>,
}

/// Serves a block device.
pub struct UblkDriver<F> {
    clock: Clock,
    control: Control,
    /// The device's number.
    number: u32,
    /// `None` when it was closed.
    device: Option<Device>,
    medium: RemoteMedium,
    pool: Pool,
    pending: Vec<Option<Pending>>,
    under_way: usize,
    state: State,
    /// Whether the device is to be removed even while it is in use.
    is_unwanted: Cell<bool>,
    /// Whether requests fail at once, because the device is removed while the medium is away.
    is_refusing: bool,
    tally: Tally,
    report: F,
}

impl<F: FnMut(Event)> UblkDriver<F> {
    /// Serves `found` from now on with the blocks of `medium`. `report` gets events.
    ///
    /// # Errors
    /// When the device can't be opened or started.
    pub fn new(
        clock: Clock,
        mut control: Control,
        found: Found,
        medium: RemoteMedium,
        report: F,
    ) -> Result<Self, Error> {
        let device = Device::serve(&mut control, found.info, found.is_taken_over)?;
        let pending = vec![None; device.names() as usize];
        Ok(Self {
            clock,
            control,
            number: found.info.device,
            device: Some(device),
            medium,
            pool: Pool::new(POOL_BYTES),
            pending,
            under_way: 0,
            state: State::Starting,
            is_unwanted: Cell::new(false),
            is_refusing: false,
            tally: Tally::default(),
            report,
        })
    }

    /// Whether the block device can be used.
    pub fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// The name of the block device, without its folder.
    pub fn name(&self) -> String {
        name_of(self.number)
    }

    /// The medium behind the block device.
    pub const fn medium(&self) -> &RemoteMedium {
        &self.medium
    }

    /// The watchers of the packets between this process and the medium's device, as
    /// [`RemoteMedium::passing`] has them.
    pub fn passing(&mut self) -> Option<&mut Watch<Port>> {
        self.medium.passing()
    }

    /// Counts of the requests.
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The number of requests that have come and were not answered.
    pub const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Has the next stop remove the block device even while it is in use.
    pub fn set_unwanted(&self) {
        self.is_unwanted.set(true);
    }

    /// Looks whether the command of the control file has ended.
    fn heed_control(&mut self) -> io::Result<bool> {
        if !self.control.is_waiting() {
            return Ok(false);
        }
        let Some(result) = self.control.ended() else { return Ok(false) };
        match (self.state, result) {
            (State::Starting, Ok(())) => {
                self.state = State::Live;
                (self.report)(Event::Live);
            }
            (State::Starting, Err(error)) => return Err(io::Error::other(error)),
            (_, Ok(())) => {}
            (_, Err(error)) => (self.report)(Event::NotRemoved(error)),
        }
        Ok(true)
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
        if let Some(error) = self.device.as_mut().and_then(Device::refusal) {
            (self.report)(Event::Refused(error));
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

    /// Begins to remove the device. Requests that wait for an absent device end now.
    fn stop(&mut self) {
        self.state = State::Stopping;
        if let Err(error) = self.control.begin_stop(self.number) {
            (self.report)(Event::NotRemoved(error.into()));
            self.state = State::Over;
        }
        self.is_refusing = !self.medium.is_here();
        if self.is_refusing {
            (0..).take(self.pending.len()).for_each(|name| self.answer(name, Err(libc::ENOLINK)));
        }
    }

    /// The device is over, because it was stopped: closes and deletes it.
    fn conclude(&mut self, sources: &Sources) {
        let was_ours = self.state == State::Stopping;
        if let Some(device) = self.device.take() {
            sources.remove(device.poll_fd());
        }
        self.state = State::Over;
        if was_ours {
            let deleted = self.control.delete(self.number);
            (self.report)(deleted.map_or_else(Event::NotRemoved, |()| Event::Removed));
        } else {
            // The process that stopped it deletes it.
            (self.report)(Event::Removed);
        }
    }
}

impl<F: FnMut(Event)> Driver for UblkDriver<F> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        if let Some(device) = &self.device {
            sources.add(device.poll_fd(), Attention::EachTurn)?;
        }
        sources.add(self.medium.poll_fd(), Attention::EachTurn)?;
        sources.add(self.control.poll_fd(), Attention::EachTurn)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let mut busy = self.heed_control()?;
        busy |= self.take_requests(context.now) > 0;
        busy |= self.reap() > 0;
        if let Some(device) = &mut self.device {
            device.submit()?;
            if device.is_over() && !self.control.is_waiting() {
                self.conclude(context.sources());
            }
        }
        Ok(match (self.state, busy) {
            (State::Over, _) => Turn::Done,
            (_, true) => Turn::Busy,
            (_, false) => Turn::Idle,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.medium.poll_timeout()
    }

    fn on_stop(&mut self, _now: Instant) {
        let users = block_use::users(&self.name());
        if !users.is_empty() && !self.is_unwanted.get() {
            (self.report)(Event::Left(users));
            self.state = State::Over;
        } else if self.control.is_waiting() {
            // The kernel still starts the device. Without its server it gives that up.
            self.state = State::Over;
        } else {
            self.stop();
        }
    }
}

/// The name of the block device of this number, without its folder.
pub fn name_of(number: u32) -> String {
    format!("ublkb{number}")
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
