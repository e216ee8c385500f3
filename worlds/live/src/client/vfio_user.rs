//! A controller in another process of this machine, which offers it by vfio-user.

use std::path::{Path, PathBuf};

use assemblies::near::MEMORY_BASE;
use assemblies::vfio_user_client::{Config, Event as UserEvent, Failure as Fault, User};
use engine::{Instant, Nanos};
use nvme::host::Command;
use nvme_pcie::host::SubmitError as Refused;
use nvme_pcie::host::{self, Data as Place, DataRegion, Host, Submission};
use pcie::wire::Bdf;

use super::error::{AttachError, Failure, SubmitError};
use super::event::{Event, News};
use super::options::Options;
use super::pcie::length;
use super::slots::Slots;
use super::transport::{Identity, Transport};
use crate::drivers::vfio_user_client::UserDriver;
use crate::reactor::Reactor;
use crate::reactor::blocking::Blocking;
use crate::sys::doorbells::memory_file;
use crate::sys::shared::{MapError, Mapping, SharedMemory};
use crate::sys::unix::Connection;

/// After this long without a completion, the controller is asked whether it is still enabled.
const WATCH: Nanos = Nanos::from_secs(1);
/// The name that some servers give their socket in a directory.
const CONTROL: &str = "cntrl";

/// The controller of another process's function.
#[derive(Debug)]
pub(super) struct VfioUser {
    blocking: Blocking<UserDriver>,
    slots: Slots,
    /// Copy of data in memory that the other process shares: the original could change while it is
    /// read.
    copy: Vec<u8>,
}

impl VfioUser {
    /// Connects to the server's socket at `path`. If `path` is a directory, the socket is called
    /// `cntrl` in it.
    pub(super) fn connect(path: &Path, options: &Options) -> Result<Self, AttachError> {
        let path: PathBuf = if path.is_dir() { path.join(CONTROL) } else { path.to_owned() };
        let connection = Connection::connect(&path).map_err(|error| AttachError::Socket(path, error))?;
        let near = options.near();
        let arena_bytes = near.arena_bytes.next_multiple_of(4096);
        let file = memory_file("farlane-host", arena_bytes)?;
        let mut memory = SharedMemory::new();
        let mapping =
            Mapping { address: MEMORY_BASE, length: arena_bytes, offset: 0, readable: true, writable: true };
        memory.map(file.try_clone()?, mapping).map_err(|error| match error {
            MapError::Io(error) => error,
            error => std::io::Error::other(error),
        })?;
        let driver = host::Config {
            arena_base: MEMORY_BASE,
            arena_length: arena_bytes,
            // A server that is gone is not waited for.
            hold: Nanos::ZERO,
            // The server may stay while the function behind it was away, for example when a far end
            // was restarted.
            watch: WATCH,
            // The function reads lists and pieces as its own processor's work.
            sgls: true,
            ..near.driver
        };
        let config = Config { client: vfio_user::client::Config::default(), driver };
        let clock = options.clock;
        let reactor = Reactor::new(clock, options.spin)?;
        let user = User::new(config, memory, file);
        let driver = UserDriver::new(user, connection, options.spin, clock.now())?;
        let blocking = Blocking::new(reactor, driver);
        Ok(Self { blocking, slots: Slots::new(options.slots), copy: Vec::new() })
    }

    /// The driver; `None` before the function is set up and after it has failed.
    const fn host(&self) -> Option<&Host> {
        self.blocking.driver.user().driver()
    }
}

impl Transport for VfioUser {
    type Driver = UserDriver;

    fn blocking(&self) -> &Blocking<UserDriver> {
        &self.blocking
    }
    fn blocking_mut(&mut self) -> &mut Blocking<UserDriver> {
        &mut self.blocking
    }
    fn into_blocking(self) -> Blocking<UserDriver> {
        self.blocking
    }

    /// There is no hierarchy: the function has the place that a hierarchy would give first.
    fn name(&self) -> String {
        Bdf::default().to_string()
    }
    fn identity(&self) -> Option<Identity<'_>> {
        self.host()?.identity().map(Identity::from)
    }
    fn wait_ready(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        let deadline = self.blocking.now() + timeout;
        loop {
            match self.blocking.next_event(Some(deadline))? {
                Some(UserEvent::Ready) => return Ok(()),
                Some(UserEvent::Failed(failure)) => {
                    return Err(AttachError::Failed(Failure::VfioUser(failure)));
                }
                Some(_) => {}
                None => return Err(AttachError::TimedOut(timeout)),
            }
        }
    }

    fn data_region(&self) -> DataRegion {
        self.host().map_or(DataRegion { base: 0, length: 0 }, |host| self.slots.rest(host.data_region()))
    }
    fn bytes(&mut self, place: Place) -> &[u8] {
        self.copy.resize(length(place), 0);
        let read = self.blocking.driver.user().memory().read(place.address, &mut self.copy);
        read.expect("data lies in the region that the driver gave");
        &self.copy
    }
    fn put<T>(&mut self, place: Place, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        self.copy.resize(length(place), 0);
        let result = fill(&mut self.copy);
        let written = self.blocking.driver.user().memory().write(place.address, &self.copy);
        written.expect("data lies in the region that the driver gave");
        result
    }

    #[inline]
    fn submit(&mut self, now: Instant, submission: Submission) -> Result<(), SubmitError> {
        let driver = &mut self.blocking.driver;
        driver.user_mut().submit(now, submission).map_err(SubmitError::Pcie)?;
        driver.on_submitted(now);
        Ok(())
    }
    fn submit_buffers(
        &mut self,
        now: Instant,
        queue: Option<u16>,
        command: Command,
    ) -> Result<(), SubmitError> {
        let target = Slots::target(self.host().ok_or(SubmitError::Pcie(Refused::NotReady))?, queue);
        let memory = self.blocking.driver.user().memory();
        let submission = self.slots.issue(target, &command, |at, bytes| memory.write(at, bytes))?;
        self.submit(now, submission).inspect_err(|_| {
            self.slots.retire(submission.cookie);
        })
    }
    /// Reads the first double word of the configuration space.
    fn probe(&mut self, now: Instant) -> Result<(), SubmitError> {
        self.blocking.driver.user_mut().config_read(now, 0);
        Ok(())
    }
    fn read_register(&mut self, now: Instant, offset: u32, length: u32) -> Result<(), SubmitError> {
        self.blocking.driver.user_mut().register_read(now, offset, length);
        Ok(())
    }
    fn write_register(&mut self, now: Instant, offset: u32, value: u32) {
        self.blocking.driver.user_mut().register_write(now, offset, value);
    }

    #[inline]
    fn on_event(&mut self, event: UserEvent) -> Option<Event> {
        Some(match event {
            UserEvent::Completed(completed) => {
                let memory = self.blocking.driver.user().memory();
                Event::Completed(self.slots.complete(&completed, |at, bytes| memory.read(at, bytes)))
            }
            UserEvent::ConfigRead(result) => Event::Probed(result.map_err(|error| {
                let refused = Fault::Refused { what: "a configuration read", error };
                AttachError::Failed(Failure::VfioUser(refused))
            })),
            UserEvent::RegisterRead(result) => Event::Register(result.ok()),
            UserEvent::Ready => Event::Here(None),
            UserEvent::Resetting(reason) => Event::Away(News::Resetting(reason)),
            UserEvent::Failed(failure) => Event::Failed(Failure::VfioUser(failure)),
            _ => return None,
        })
    }
}
