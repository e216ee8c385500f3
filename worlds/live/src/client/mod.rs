//! A host's use of one NVMe controller, or of the controllers of one subsystem, wherever they are:
//! attach, wait, submit, close.
//!
//! A [`Url`] names the controller. A [`Controller`] is a handle to it, which looks the same for all
//! transports: a tunnel, a function in this process, vfio-user or a fabric. Commands can have their
//! data in the controller's memory ([`Controller::data_region`]) or in buffers. On PCI Express,
//! data in memory need no copy; on a fabric, data in buffers need none.

mod address;
mod cookie;
mod error;
mod event;
mod fabrics;
mod hierarchy;
mod initiator;
mod options;
mod pcie;
mod places;
mod slots;
mod subsystem;
#[cfg(test)]
mod tests;
mod transport;
mod url;
mod vfio_user;

use std::io;
use std::os::fd::RawFd;

use assemblies::near::Near;
use assemblies::watch::Port;
use engine::{Buffer, Instant, Nanos, Watch};
use nvme::host::command::on_blocks;
use nvme::host::{Command, Data};
use nvme::wire::{IoOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_fabrics::host::multipath::Request;
use nvme_pcie::function;
use nvme_pcie::host::{Data as Place, DataRegion, Submission};

pub use address::{Address, Subsystem};
pub use error::{AttachError, Failure, SubmitError};
pub use event::{Completed, Event, News};
pub use fabrics::{FabricDriver, FabricEvent, host_names};
pub use hierarchy::Hierarchy;
pub use options::{Absence, Options, RootPort, SecretFiles};
pub use subsystem::{Fabric, Provider, Settings, SubsystemUrl};
pub use transport::Identity;
pub use url::{FarUrl, Url};

use crate::drivers::fabrics::initiator::InitiatorDriver;
use crate::media::Media;
use crate::reactor::blocking::WaitError;
use crate::reactor::{Stop, Turn};
use fabrics::Fabrics;
use pcie::Pcie;
use transport::Transport;
use vfio_user::VfioUser;

/// The first cookie of the handle's own commands. Callers' cookies are less.
const OWN: u64 = 1 << 60;

/// The transports.
#[derive(Debug)]
enum Reached {
    /// A function on PCI Express: behind a tunnel, or in this process.
    Pcie(Box<Pcie>),
    /// A function in another process of this machine.
    VfioUser(Box<VfioUser>),
    /// A subsystem behind NVMe/TCP or NVMe/RDMA.
    Fabric(Box<Fabrics<InitiatorDriver>>),
}

/// Does the same with each transport.
macro_rules! each {
    ($reached:expr, $transport:ident => $act:expr) => {
        match $reached {
            Reached::Pcie($transport) => $act,
            Reached::VfioUser($transport) => $act,
            Reached::Fabric($transport) => $act,
        }
    };
}

/// A controller in use, together with the loop of its driver. When dropped, it leaves the other end
/// in order.
#[derive(Debug)]
pub struct Controller {
    reached: Reached,
    next_cookie: u64,
}

impl Controller {
    /// Begins to attach to the controller at `address`. [`Controller::wait_ready`] waits for it.
    ///
    /// # Errors
    /// When no controller answers, or the process has no memory or descriptors left.
    pub fn open(address: &Address, options: &Options) -> Result<Self, AttachError> {
        Ok(Self::of(match address {
            Address::Far(name) => Reached::Pcie(Box::new(Pcie::over_tunnel(name, options)?)),
            Address::Route(route) => Reached::Pcie(Box::new(Pcie::over_route(route, options)?)),
            Address::VfioUser(path) => Reached::VfioUser(Box::new(VfioUser::connect(path, options)?)),
            Address::Subsystem(subsystem) => {
                Reached::Fabric(Box::new(initiator::connect(subsystem, options)?))
            }
        }))
    }

    /// Brings up the function that `config` describes in this process, without switch or tunnel.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn direct(config: function::Config, media: Media, options: &Options) -> Result<Self, AttachError> {
        Ok(Self::of(Reached::Pcie(Box::new(Pcie::direct(config, media, options)?))))
    }

    const fn of(reached: Reached) -> Self {
        Self { reached, next_cookie: OWN }
    }

    /// Waits until commands can be sent.
    ///
    /// # Errors
    /// When the controller is not ready within `timeout`, or never will be.
    pub fn wait_ready(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        each!(&mut self.reached, transport => transport.wait_ready(timeout))
    }

    /// Why the other end refuses this host for good, if its latest answer on every path was such a
    /// refusal. Lost connections, time-outs and full targets are none. `None` on PCI Express.
    pub fn refusal(&self) -> Option<&str> {
        each!(&self.reached, transport => transport.refusal())
    }

    /// The time of the loop's clock.
    pub fn now(&self) -> Instant {
        each!(&self.reached, transport => transport.blocking().now())
    }
    /// A handle that ends a wait from outside.
    pub fn stop(&self) -> Stop {
        each!(&self.reached, transport => transport.blocking().stop())
    }
    /// Whether the controller is behind a fabric, rather than on PCI Express.
    pub fn is_fabric(&self) -> bool {
        each!(&self.reached, transport => transport.is_fabric())
    }
    /// The controller's name for users: its place in the hierarchy, or its identifier in its
    /// subsystem.
    pub fn name(&self) -> String {
        each!(&self.reached, transport => transport.name())
    }
    /// The controller's report about itself; `None` before the controller was first up.
    pub fn identity(&self) -> Option<Identity<'_>> {
        each!(&self.reached, transport => transport.identity())
    }

    /// The engines of a host on PCI Express, for data that only such a host has, such as the
    /// tunnel's counters; `None` for any other controller.
    pub fn near(&self) -> Option<&Near> {
        match &self.reached {
            Reached::Pcie(pcie) => Some(pcie.near()),
            _ => None,
        }
    }
    /// The engines of a host on PCI Express, for operations of such a host only, such as a trace;
    /// `None` for any other controller.
    pub fn near_mut(&mut self) -> Option<&mut Near> {
        match &mut self.reached {
            Reached::Pcie(pcie) => Some(pcie.near_mut()),
            _ => None,
        }
    }

    /// The watchers of passing traffic: the packets of a host on PCI Express, or the bytes of a
    /// fabric's connections ([`Controller::is_fabric`]). `None` where neither passes here: by
    /// vfio-user, and where queue pairs carry a fabric.
    pub fn watch(&mut self) -> Option<&mut Watch<Port>> {
        match &mut self.reached {
            Reached::Pcie(pcie) => Some(pcie.near_mut().watch()),
            Reached::VfioUser(_) => None,
            Reached::Fabric(fabric) => fabric.blocking_mut().driver.watch(),
        }
    }

    /// Memory for the data of commands that have a place.
    pub fn data_region(&self) -> DataRegion {
        each!(&self.reached, transport => transport.data_region())
    }

    /// The bytes at `place`.
    ///
    /// # Panics
    /// When `place` is not in the [`Controller::data_region`].
    pub fn bytes(&mut self, place: Place) -> &[u8] {
        each!(&mut self.reached, transport => transport.bytes(place))
    }

    /// Lets `fill` write all bytes at `place`, and returns the result of `fill`.
    ///
    /// # Panics
    /// When `place` is not in the [`Controller::data_region`].
    pub fn put<T>(&mut self, place: Place, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        each!(&mut self.reached, transport => transport.put(place, fill))
    }

    /// Submits a command whose data have a place; [`Event::Completed`] follows exactly once, unless
    /// [`Event::Failed`] comes instead. The command is sent with the next wait for an event. Its
    /// cookie is less than 2^60.
    ///
    /// # Errors
    /// When the command can't be taken; it then never completes.
    #[inline]
    pub fn submit(&mut self, now: Instant, submission: Submission) -> Result<(), SubmitError> {
        each!(&mut self.reached, transport => transport.submit(now, submission))
    }

    /// Submits an I/O command whose data are in buffers; [`Event::Completed`] follows exactly once,
    /// unless [`Event::Failed`] comes instead. The command is sent with the next wait for an event.
    /// Its cookie is less than 2^60.
    ///
    /// # Errors
    /// When the command can't be taken; it then never completes.
    #[inline]
    pub fn submit_io(&mut self, now: Instant, request: Request) -> Result<(), SubmitError> {
        let (queue, command) = request.into_command();
        each!(&mut self.reached, transport => transport.submit_buffers(now, Some(queue), command))
    }

    /// Begins a round trip to the controller that involves no medium: a configuration read, or over
    /// a fabric a Property Get. [`Event::Probed`] follows.
    ///
    /// # Errors
    /// When too many commands are under way, or the controller is not there.
    pub fn probe(&mut self, now: Instant) -> Result<(), SubmitError> {
        each!(&mut self.reached, transport => transport.probe(now))
    }

    /// Begins to read a register in BAR0 of `length` bytes, 4 or 8. [`Event::Register`] follows.
    /// Only one read at a time is allowed.
    ///
    /// # Errors
    /// When too many reads are under way, or the controller is not there.
    ///
    /// # Panics
    /// When the controller is behind a fabric, where commands read properties.
    pub fn read_register(&mut self, now: Instant, offset: u32, length: u32) -> Result<(), SubmitError> {
        each!(&mut self.reached, transport => transport.read_register(now, offset, length))
    }

    /// Writes a double word to a register in BAR0.
    ///
    /// # Panics
    /// When the controller is behind a fabric, where commands write properties.
    pub fn write_register(&mut self, now: Instant, offset: u32, value: u32) {
        each!(&mut self.reached, transport => transport.write_register(now, offset, value));
    }

    /// The next event, waiting for it until `deadline`; `None` when the deadline came first.
    ///
    /// # Errors
    /// When the loop fails or is stopped.
    #[inline]
    pub fn next_event(&mut self, deadline: Option<Instant>) -> Result<Option<Event>, WaitError> {
        each!(&mut self.reached, transport => transport.next_event(deadline))
    }
    /// Takes the next event that has come already, if any.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        each!(&mut self.reached, transport => transport.poll_event())
    }

    /// Does all present work, without waiting. A loop around this one sleeps on
    /// [`Controller::poll_fd`] and for [`Controller::wake_in`].
    ///
    /// # Errors
    /// When the loop fails.
    pub fn step(&mut self) -> io::Result<Turn> {
        each!(&mut self.reached, transport => transport.blocking_mut().step())
    }
    /// The descriptor that becomes readable when there is something to do.
    pub fn poll_fd(&self) -> RawFd {
        each!(&self.reached, transport => transport.blocking().poll_fd())
    }
    /// How long at most until there is something to do, even without news.
    pub fn wake_in(&self) -> Option<Nanos> {
        each!(&self.reached, transport => transport.blocking().wake_in())
    }

    /// Leaves the other end in order.
    ///
    /// # Errors
    /// When the loop fails before that.
    pub fn close(self) -> io::Result<()> {
        each!(self.reached, transport => transport.into_blocking().close())
    }

    /// Carries out one I/O command and waits for it, while nothing else is under way.
    ///
    /// # Errors
    /// When the command can't be taken, or fails.
    pub fn execute(&mut self, entry: SubmissionQueueEntry, data: Data) -> Result<Completed, AttachError> {
        let (cookie, now) = (self.cookie(), self.now());
        let request = Request { cookie, entry, data, queue: 0 };
        self.submit_io(now, request).map_err(AttachError::Submit)?;
        self.wait_for(cookie)
    }

    /// Carries out one admin command and waits for it, while nothing else is under way.
    ///
    /// # Errors
    /// When the command can't be taken, or fails.
    pub fn admin(&mut self, entry: SubmissionQueueEntry, data: Data) -> Result<Completed, AttachError> {
        let (cookie, now) = (self.cookie(), self.now());
        let command = Command { cookie, entry, data };
        let submitted = each!(&mut self.reached, transport => transport.submit_buffers(now, None, command));
        submitted.map_err(AttachError::Submit)?;
        self.wait_for(cookie)
    }

    /// Reads `blocks` (1..=65,536) logical blocks from `lba` on.
    ///
    /// # Errors
    /// When the command can't be taken, or fails.
    pub fn read(&mut self, namespace: NamespaceId, lba: u64, blocks: u32) -> Result<Buffer, AttachError> {
        let known = self.identity().and_then(|identity| {
            identity.namespaces.iter().find(|one| one.id == namespace).map(|one| one.block_bytes)
        });
        let bytes = known.unwrap_or(512).saturating_mul(blocks);
        Ok(self.execute(on_blocks(IoOpcode::Read, namespace, lba, blocks), Data::Read(bytes))?.data)
    }

    /// Writes `data`, which is `blocks` (1..=65,536) logical blocks, from `lba` on.
    ///
    /// # Errors
    /// When the command can't be taken, or fails.
    pub fn write(
        &mut self,
        namespace: NamespaceId,
        lba: u64,
        blocks: u32,
        data: Buffer,
    ) -> Result<(), AttachError> {
        self.execute(on_blocks(IoOpcode::Write, namespace, lba, blocks), Data::Write(data)).map(|_| ())
    }

    /// A new cookie for a command of this handle's own.
    const fn cookie(&mut self) -> u64 {
        self.next_cookie += 1;
        self.next_cookie
    }

    /// Waits for a command of this handle's own.
    fn wait_for(&mut self, cookie: u64) -> Result<Completed, AttachError> {
        loop {
            match self.next_event(None)? {
                Some(Event::Completed(completed)) if completed.cookie == cookie => {
                    let status = completed.status;
                    let is_success = status.is_success();
                    return if is_success { Ok(completed) } else { Err(AttachError::Command(status)) };
                }
                Some(Event::Failed(failure)) => return Err(AttachError::Failed(failure)),
                _ => {}
            }
        }
    }
}
