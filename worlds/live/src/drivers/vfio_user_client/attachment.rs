//! A function of another process in use by an application: connect, wait, submit, close.

use std::io;
use std::path::{Path, PathBuf};

use engine::{Instant, Nanos};
use machine::near::MEMORY_BASE;
use machine::vfio_user_client::{Config, Event, User};
use nvme_pcie::host::{self, Submission, SubmitError};

use super::UserDriver;
use crate::drivers::attach::AttachError;
use crate::drivers::attached::Attached;
use crate::reactor::Reactor;
use crate::sys::clock::Clock;
use crate::sys::doorbells::memory_file;
use crate::sys::shared::{MapError, Mapping, SharedMemory};
use crate::sys::unix::Connection;

/// After this long without a completion, the controller is asked whether it is still enabled.
const WATCH: Nanos = Nanos::from_secs(1);

/// The name that some servers give their socket in a directory.
const CONTROL: &str = "cntrl";

/// How an attachment to another process's function behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The driver's configuration; the attachment sets the place of the arena.
    pub driver: host::Config,
    /// Length in bytes of the memory for the driver's queues and data.
    pub arena_bytes: u64,
    /// How long to spin for the next event before sleeping.
    pub spin: Nanos,
    /// How long the function may take to become ready.
    pub timeout: Nanos,
}

/// A driver of another process's function, with its own loop.
pub type Attachment = Attached<UserDriver>;

impl Attached<UserDriver> {
    /// Connects to the server's socket at `path`. If `path` is a directory, the socket is called
    /// `cntrl` in it.
    ///
    /// # Errors
    /// When no process listens there, or this process has no memory or descriptors left.
    pub fn connect(path: &Path, options: &Options) -> Result<Self, AttachError> {
        let path: PathBuf = if path.is_dir() { path.join(CONTROL) } else { path.to_owned() };
        let connection = Connection::connect(&path).map_err(|error| AttachError::Socket(path, error))?;
        let file = memory_file("farlane-host", options.arena_bytes)?;
        let mut memory = SharedMemory::new();
        let mapping = Mapping {
            address: MEMORY_BASE,
            length: options.arena_bytes,
            offset: 0,
            readable: true,
            writable: true,
        };
        memory.map(file.try_clone()?, mapping).map_err(|error| match error {
            MapError::Io(error) => error,
            error => io::Error::other(error),
        })?;
        let driver = host::Config {
            arena_base: MEMORY_BASE,
            arena_length: options.arena_bytes,
            // A server that is gone is not waited for.
            hold: Nanos::ZERO,
            // The server may stay while the function behind it was away, for example when a far end
            // was restarted.
            watch: WATCH,
            ..options.driver
        };
        let config = Config { client: vfio_user::client::Config::default(), driver };
        let clock = Clock::start();
        let reactor = Reactor::new(clock, options.spin)?;
        let user = User::new(config, memory, file);
        let driver = UserDriver::new(user, connection, options.spin, clock.now())?;
        Ok(Self::new(reactor, driver))
    }

    /// The driver; `None` before the function is set up and after it has failed.
    pub const fn host(&self) -> Option<&host::Host> {
        self.driver.user().driver()
    }
    /// The memory that the driver shares with the server, for the data of commands.
    pub const fn memory(&self) -> &SharedMemory {
        self.driver.user().memory()
    }
    /// Whether doorbells are rung by stores rather than by messages.
    pub const fn has_doorbells(&self) -> bool {
        self.driver.user().has_doorbells()
    }

    /// Waits until the controller is ready for commands.
    ///
    /// # Errors
    /// When the controller is not ready within `timeout`, or never will be.
    pub fn wait_ready(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        let deadline = self.now() + timeout;
        loop {
            match self.next_event(Some(deadline))? {
                Some(Event::Ready) => return Ok(()),
                Some(Event::Failed(failure)) => return Err(AttachError::Device(failure)),
                Some(_) => {}
                None => return Err(AttachError::TimedOut(timeout)),
            }
        }
    }

    /// Submits a command. [`Event::Completed`] follows exactly once, unless [`Event::Failed`] comes
    /// instead.
    ///
    /// # Errors
    /// When the command cannot be taken; it then never completes.
    pub fn submit(&mut self, now: Instant, submission: Submission) -> Result<(), SubmitError> {
        self.driver.user_mut().submit(now, submission)?;
        self.driver.on_submitted(now);
        Ok(())
    }

    /// Reads the double word at `offset` of the configuration space; [`Event::ConfigRead`] follows.
    pub fn config_read(&mut self, now: Instant, offset: u16) {
        self.driver.user_mut().config_read(now, offset);
    }
}
