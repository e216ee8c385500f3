//! A namespace of another device as a block device of this machine, by the kernel's user-space
//! block driver.
//!
//! A request of the block layer becomes a request to a [`RemoteMedium`]. While the other device is
//! away, requests wait as long as the medium lets them. When this process ends without removing the
//! block device, the kernel keeps it with its requests, and another process takes it over: it knows
//! the device by its mark.
//!
//! Where the other device takes several hosts, each queue of the block device has a thread, an
//! io_uring and a host of its own ([`Threads`]). Otherwise one thread serves all queues.

mod find;
mod growth;
mod server;
mod tally;
mod threads;

use std::cell::Cell;
use std::fmt;
use std::io;

use assemblies::watch::Port;
use engine::{Instant, Watch};

use crate::media::RemoteMedium;
use crate::media::remote::OpenError;
use crate::reactor::{Attention, Context, Driver, Sources, Turn};
use crate::sys::block_use;
use crate::sys::clock::Clock;
use crate::sys::ublk::{Control, Device, DeviceFile, Error};
use growth::{Growth, Lengths, Step};
use server::Server;
use threads::{Queues, Reports};

pub use find::{FindError, Found, Settings, find};
pub use tally::{Kind, KindTally, Tally};
pub use threads::Threads;

/// An event of a block device.
#[derive(Debug)]
pub enum Event {
    /// The block device can be used.
    Live,
    /// The kernel has refused an answer: its request waits for another server.
    Refused(io::Error),
    /// The block device stays, and waits for another server, because it is in use.
    Left(Vec<String>),
    /// The namespace has become longer, and the block device with it: the length in bytes.
    Resized(u64),
    /// The namespace has this length by now, and the kernel does not give it to the block device.
    /// Without an error, the kernel's driver can't.
    NotResized(u64, Option<Error>),
    /// The block device was removed.
    Removed,
    /// The block device could not be removed.
    NotRemoved(Error),
}

/// Why a block device can't be served.
#[derive(Debug)]
pub enum StartError {
    /// The driver fails.
    Driver(Error),
    /// The thread of a queue can't serve it.
    Queue {
        /// The queue's number, counted from 0.
        queue: u16,
        /// Why.
        error: OpenError,
    },
    /// The system has no threads or descriptors left.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => error.fmt(f),
            Self::Queue { queue, error } => write!(f, "the thread of queue {queue}: {error}"),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

/// The figures of a thread that serves queues.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Whether the other device can be reached.
    pub is_here: bool,
    /// Why the other device refuses this host for good, if it does.
    pub refusal: Option<String>,
    /// Requests that have come and were not answered.
    pub under_way: usize,
    /// Counts of the requests.
    pub tally: Tally,
}

impl Figures {
    fn of(server: &Server) -> Self {
        Self {
            is_here: server.medium.is_here(),
            refusal: server.medium.refusal().map(str::to_owned),
            under_way: server.under_way,
            tally: server.tally,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel looks at the new device.
    Starting,
    Live,
    /// The kernel gives the device this length.
    Resizing(u64),
    /// The kernel removes the device.
    Stopping,
    Over,
}

/// Serves a block device.
pub struct UblkDriver {
    control: Control,
    /// The device's number.
    number: u32,
    /// Serves the first queue; without other threads, all of them.
    server: Server,
    queues: Queues,
    state: State,
    /// The lengths of the namespace that the threads know, and the length of the device.
    lengths: Lengths,
    growth: Growth,
    /// Whether the device is to be removed once the kernel has resized it.
    stops_later: bool,
    /// Whether the device is to be removed even while it is in use.
    is_unwanted: Cell<bool>,
    report: fn(Event),
}

impl UblkDriver {
    /// Serves `found` from now on with the blocks of `medium`; with `threads`, the queues but the
    /// first on threads of their own. `report` gets events.
    ///
    /// # Errors
    /// When the device can't be opened or started, or a thread can't serve its queue.
    pub fn new(
        clock: Clock,
        mut control: Control,
        found: Found,
        medium: RemoteMedium,
        threads: Option<&Threads>,
        report: fn(Event),
    ) -> Result<Self, StartError> {
        let info = found.info;
        let file = DeviceFile::open(&info)?;
        let own = if threads.is_some() { 0..1 } else { 0..info.queues };
        let mut server = Server::new(clock, Device::serve(&file, info, own)?, medium);
        let count = if threads.is_some() { usize::from(info.queues) } else { 1 };
        let lengths = Lengths::new(count, found.bytes);
        let reports = Reports { report, lengths: lengths.clone() };
        let queues = match threads {
            Some(threads) => {
                // The host of the medium answers its far end meanwhile.
                let idle = || {
                    server.medium.reap(&mut |_| ());
                };
                Queues::start(clock, (&file, info), 1..info.queues, threads, &reports, idle)?
            }
            None => Queues::default(),
        };
        control.begin_service(info.device, found.is_taken_over).map_err(StartError::System)?;
        let growth = Growth::new(found.bytes, control.can_resize());
        Ok(Self {
            control,
            number: info.device,
            server,
            queues,
            state: State::Starting,
            lengths,
            growth,
            stops_later: false,
            is_unwanted: Cell::new(false),
            report,
        })
    }

    /// Whether the block device can be used.
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Live | State::Resizing(_))
    }

    /// The length of the block device in bytes.
    pub const fn bytes(&self) -> u64 {
        self.growth.bytes
    }

    /// The name of the block device, without its folder.
    pub fn name(&self) -> String {
        name_of(self.number)
    }

    /// The medium behind the first queue.
    pub const fn medium(&self) -> &RemoteMedium {
        &self.server.medium
    }

    /// Adds a watcher of the packets between this process and the device, as
    /// [`RemoteMedium::passing`] has them, for each thread. Returns whether any passes.
    pub fn watch(&mut self, add: impl Fn(&mut Watch<Port>) + Clone + Send + 'static) -> bool {
        let Some(watch) = self.server.medium.passing() else { return false };
        add(watch);
        for sender in self.queues.senders() {
            let add = add.clone();
            // A thread that has ended has no packets.
            let _ = sender.run(move |queue| queue.medium_mut().passing().map(add));
        }
        true
    }

    /// The figures of the thread of the first queue, and a way to the figures of the other threads:
    /// it waits for their loops, so a thread beside them takes it.
    pub fn figures(&self) -> (Figures, impl FnOnce() -> Option<Vec<Figures>> + Send + 'static) {
        let senders: Vec<_> = self.queues.senders().collect();
        let others = move || senders.iter().map(|sender| sender.run(|queue| queue.figures())).collect();
        (Figures::of(&self.server), others)
    }

    /// The number of threads that serve queues.
    pub const fn threads(&self) -> usize {
        1 + self.queues.count()
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
            (State::Resizing(bytes), result) => {
                self.state = State::Live;
                match result {
                    Ok(()) => {
                        self.growth.on_resized(bytes);
                        (self.report)(Event::Resized(bytes));
                    }
                    Err(error) => {
                        self.growth.on_refused(bytes);
                        (self.report)(Event::NotResized(bytes, Some(error)));
                    }
                }
                if self.stops_later {
                    self.stop();
                }
            }
            (_, Ok(())) => {}
            (_, Err(error)) => (self.report)(Event::NotRemoved(error)),
        }
        Ok(true)
    }

    /// Has the kernel give the device the length that the namespace has by now.
    fn grow(&mut self) -> io::Result<()> {
        self.lengths.note(0, self.server.medium.adopt_growth());
        if self.state != State::Live || self.control.is_waiting() {
            return Ok(());
        }
        match self.growth.next(self.lengths.least()) {
            Step::Stay => {}
            Step::Warn(bytes) => (self.report)(Event::NotResized(bytes, None)),
            Step::Resize(bytes) => {
                self.control.begin_resize(self.number, bytes)?;
                self.state = State::Resizing(bytes);
            }
        }
        Ok(())
    }

    /// Begins to remove the device. Requests that wait for an absent device end now.
    fn stop(&mut self) {
        self.state = State::Stopping;
        if let Err(error) = self.control.begin_stop(self.number) {
            (self.report)(Event::NotRemoved(error.into()));
            self.state = State::Over;
        }
        self.queues.remove();
        self.server.refuse_if_away();
    }

    /// The device is over, because it was stopped: closes and deletes it.
    fn conclude(&mut self, sources: &Sources) {
        let was_ours = self.state == State::Stopping;
        if let Some(descriptor) = self.server.poll_fd() {
            sources.remove(descriptor);
        }
        self.server.close();
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

impl Driver for UblkDriver {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.server.register(sources)?;
        sources.add(self.control.poll_fd(), Attention::EachTurn)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let mut busy = self.heed_control()?;
        busy |= self.server.turn(context.now)?;
        if let Some(error) = self.server.refusal() {
            (self.report)(Event::Refused(error));
        }
        self.grow()?;
        let have_ended = self.queues.ended()?;
        if have_ended && self.server.is_over() && !self.control.is_waiting() {
            self.conclude(context.sources());
        }
        Ok(match (self.state, busy) {
            (State::Over, _) => Turn::Done,
            (_, true) => Turn::Busy,
            (_, false) => Turn::Idle,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.server.medium.poll_timeout()
    }

    fn on_stop(&mut self, _now: Instant) {
        let users = block_use::users(&self.name());
        if !users.is_empty() && !self.is_unwanted.get() {
            (self.report)(Event::Left(users));
            self.state = State::Over;
        } else if matches!(self.state, State::Resizing(_)) {
            // One command is begun at a time.
            self.stops_later = true;
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
