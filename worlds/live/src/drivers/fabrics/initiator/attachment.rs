//! An NVMe/TCP subsystem in use, as an application wants it: connect, wait, submit, close.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use engine::{Buffer, Instant, Nanos, Pool};
use machine::initiator::{self, Initiator, Output};
use nvme::host::command::on_blocks;
use nvme::host::{Data, Identity};
use nvme::wire::{CompletionQueueEntry, IoOpcode, NamespaceId, Status, SubmissionQueueEntry};
use nvme_fabrics::host::multipath::{self, Completed, Request, SubmitError};
use nvme_fabrics::host::{self, Failure};
use nvme_tcp::host::{self as tcp, DigestUse};

use super::InitiatorDriver;
use crate::drivers::attached::{Application, Attached, WaitError};
use crate::drivers::fabrics::crc32c;
use crate::reactor::Reactor;
use crate::sys::clock::Clock;

/// The most bytes of blocks that the pool keeps for reuse.
const POOL_BYTES: usize = 16 << 20;

/// How an attachment behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration of each association with the subsystem.
    pub association: host::Config,
    /// How the paths work together.
    pub multipath: multipath::Config,
    /// How header digests are used.
    pub header_digest: DigestUse,
    /// How data digests are used.
    pub data_digest: DigestUse,
    /// How long to spin for the next event before sleeping.
    pub spin: Nanos,
}

/// Why there is no subsystem to use, or no longer one.
#[derive(Debug)]
pub enum AttachError {
    /// The system refuses an operation.
    Io(io::Error),
    /// The controller refused, or was away for too long.
    Failed(Failure),
    /// The subsystem could not be reached in time.
    TimedOut {
        /// How long it was tried.
        timeout: Nanos,
        /// The last failure to reach the subsystem, if there was one.
        last: Option<String>,
    },
    /// A command was not taken, for this reason.
    Submit(String),
    /// A command completed with this error status.
    Command(Status),
    /// The wait was stopped from outside.
    Interrupted,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Failed(failure) => failure.fmt(f),
            Self::TimedOut { timeout, last: None } => write!(f, "no controller within {timeout}"),
            Self::TimedOut { timeout, last: Some(last) } => {
                write!(f, "no controller within {timeout}: {last}")
            }
            Self::Submit(why) => write!(f, "the command was not taken: {why}"),
            Self::Command(status) => write!(f, "the command failed: {status}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<WaitError> for AttachError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Interrupted => Self::Interrupted,
            WaitError::Io(error) => Self::Io(error),
        }
    }
}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A subsystem in use, together with the loop of its driver.
pub type Attachment = Attached<InitiatorDriver>;

impl Application for InitiatorDriver {
    type Event = Output;

    fn poll_event(&mut self) -> Option<Output> {
        self.world.events.pop_front()
    }
    fn has_events(&self) -> bool {
        !self.world.events.is_empty()
    }
    /// Commands leave before everything else.
    fn before_wait(&mut self) {
        self.send();
    }
}

impl Attached<InitiatorDriver> {
    /// Begins to connect to a subsystem at `paths`. Each element has the addresses of one path,
    /// which are tried in turn.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    ///
    /// # Panics
    /// When there is no path, a path has no address, or an option exceeds its limits.
    pub fn connect(paths: Vec<Vec<SocketAddr>>, options: &Options) -> Result<Self, AttachError> {
        assert!(paths.iter().all(|addresses| !addresses.is_empty()), "a path has an address");
        let pool = Rc::new(Pool::new(POOL_BYTES).into());
        let connection = tcp::Config {
            crc32c,
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            ..tcp::Config::new(Rc::clone(&pool))
        };
        let config = initiator::Config { multipath: options.multipath, connection };
        let associations = paths.iter().map(|_| options.association.clone()).collect();
        let mut initiator = Initiator::new(config, associations);
        let clock = Clock::start();
        let reactor = Reactor::new(clock, options.spin)?;
        initiator.start(clock.now());
        let driver = InitiatorDriver::new(initiator, paths, pool);
        Ok(Self::new(reactor, driver))
    }

    /// The time at which the loop last looked at the world; the latest events came with that look.
    pub const fn turned(&self) -> Instant {
        self.driver.now()
    }

    /// The engine, which speaks NVMe/TCP as a host.
    pub const fn initiator(&self) -> &Initiator {
        self.driver.initiator()
    }

    /// What the controller told about itself; `None` before the controller was first up.
    pub fn identity(&self) -> Option<&Identity> {
        self.initiator().multipath().identity()
    }

    /// Waits until commands can be sent.
    ///
    /// # Errors
    /// When no path is ready within `timeout`, or none ever will be.
    pub fn wait_ready(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        let deadline = self.now() + timeout;
        let mut last = None;
        let mut broken = None;
        while !self.initiator().multipath().is_live() {
            match self.next_event(Some(deadline))? {
                Some(Output::PathEnded(_, Some(Failure::ControllerLoss)))
                    if self.initiator().multipath().is_over() =>
                {
                    return Err(AttachError::TimedOut { timeout, last });
                }
                Some(Output::PathEnded(_, Some(failure))) if self.initiator().multipath().is_over() => {
                    return Err(AttachError::Failed(failure));
                }
                Some(Output::ProtocolError(_, why)) => broken = Some(why.to_string()),
                Some(Output::PathLost(path, why)) => {
                    let failure = self.driver.failure(usize::from(path.0)).map(ToString::to_string);
                    let reason = broken.take().or(failure);
                    last = Some(reason.map_or_else(|| why.to_string(), |reason| format!("{why}: {reason}")));
                }
                Some(_) => {}
                None => return Err(AttachError::TimedOut { timeout, last }),
            }
        }
        Ok(())
    }

    /// Submits an I/O command; [`Output::Completed`] follows exactly once. The command is sent with
    /// the next wait for an event, or by [`Attachment::flush`].
    ///
    /// # Errors
    /// When the command can't be taken; it then never completes.
    #[inline]
    pub fn submit(&mut self, now: Instant, request: Request) -> Result<(), SubmitError> {
        self.driver.initiator_mut().submit(now, request)
    }

    /// Submits an admin command; [`Output::AdminCompleted`] follows exactly once.
    ///
    /// # Errors
    /// When the command can't be taken; it then never completes.
    pub fn submit_admin(
        &mut self,
        cookie: u64,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<(), AttachError> {
        let now = self.now();
        let submitted = self.driver.initiator_mut().submit_admin(now, cookie, entry, data);
        submitted.map_err(|error| AttachError::Submit(error.to_string()))
    }

    /// Sends the commands that were submitted.
    pub fn flush(&mut self) {
        self.driver.send();
    }

    /// Carries out one I/O command and waits for it, while nothing else is under way.
    ///
    /// # Errors
    /// When the command can't be taken, or fails.
    pub fn execute(&mut self, entry: SubmissionQueueEntry, data: Data) -> Result<Completed, AttachError> {
        let (cookie, now) = (self.driver.cookie(), self.now());
        let request = Request { cookie, entry, data, queue: 0 };
        self.submit(now, request).map_err(|error| AttachError::Submit(error.to_string()))?;
        loop {
            if let Some(Output::Completed(completed)) = self.next_event(None)?
                && completed.cookie == cookie
            {
                let status = completed.entry.status();
                return if status.is_success() { Ok(completed) } else { Err(AttachError::Command(status)) };
            }
        }
    }

    /// Carries out one admin command and waits for it, while nothing else is under way.
    ///
    /// # Errors
    /// When the command can't be taken, or fails.
    pub fn admin(
        &mut self,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<(CompletionQueueEntry, Buffer), AttachError> {
        let wanted = self.driver.cookie();
        self.submit_admin(wanted, entry, data)?;
        loop {
            if let Some(Output::AdminCompleted(admin)) = self.next_event(None)?
                && admin.cookie == wanted
            {
                let status = admin.entry.status();
                return if status.is_success() {
                    Ok((admin.entry, admin.data))
                } else {
                    Err(AttachError::Command(status))
                };
            }
        }
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
}
