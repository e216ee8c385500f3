//! A controller of a subsystem of NVMe over Fabrics, over any fabric.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;

use engine::{Buffer, Instant, Nanos, Pool};
use nvme::host::{Command, Data, Origin};
use nvme::wire::{CompletionQueueEntry, SubmissionQueueEntry};
use nvme_fabrics::authentication::Credentials;
use nvme_fabrics::host::multipath::{self, Multipath, PathIndex, Request};
use nvme_fabrics::host::{self, Failure as Fault, Loss};
use nvme_fabrics::tls::{Psk, TlsCredentials};
use nvme_fabrics::wire::{FabricsCommand, HostId, Nqn, PropertyGet, PropertySize, property};
use nvme_pcie::host::{Data as Place, DataRegion, QueueId, Submission};

use super::address::Subsystem;
use super::cookie::TableCookie;
use super::error::{AttachError, Failure, SubmitError};
use super::event::{Completed, Event, News};
use super::options::{Absence, Options, SecretFiles};
use super::pcie::length;
use super::places::Places;
use super::subsystem::{Fabric, host_id};
use super::transport::{Identity, Transport};
use crate::drivers::secret_file;
use crate::reactor::blocking::{Application, Blocking};
use crate::sys;

/// First address of the memory for data, as commands name places in it.
const BASE: u64 = 4096;
/// Bytes of memory for admin data, beside the data of commands under way.
const ADMIN_BYTES: u64 = 1 << 20;
/// The most bytes that one command moves, as far as the controller allows it.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The least that the paths to a subsystem have room for, in commands.
const COMMANDS_MAX: u32 = 1024;
/// The cookie of a round trip.
const PROBE: u64 = 1 << 62;

/// An event of the driver of a fabric.
#[derive(Debug)]
pub enum FabricEvent {
    /// An I/O command has ended.
    Completed(multipath::Completed),
    /// An admin command has ended.
    AdminCompleted {
        /// The caller's name for the command.
        cookie: u64,
        /// The completion queue entry of the command.
        entry: CompletionQueueEntry,
        /// The data that the command has read.
        data: Buffer,
    },
    /// The Admin Queue of a path is connected.
    Connected(PathIndex),
    /// A path can be used, for the first time or again.
    PathUp(PathIndex),
    /// A path is lost, and is tried again.
    PathLost(PathIndex, Loss),
    /// A path is given up.
    PathGivenUp(PathIndex, Fault),
    /// One end of a connection has broken the protocol.
    ProtocolError(String),
    /// An event without a meaning here.
    Other,
}

/// The driver of a fabric: paths to a subsystem, and their carriers.
pub trait FabricDriver: Application<Event = FabricEvent> {
    /// The paths to the subsystem.
    fn multipath(&self) -> &Multipath;

    /// The latest failure to reach the other end of a path, in words, if the latest attempt failed.
    fn dial_failure(&self, path: PathIndex) -> Option<String>;

    /// Whether the other end of a path has refused every key that this host has for it, in the
    /// latest attempts.
    fn is_key_refused(&self, path: PathIndex) -> bool;

    /// Names the digests that were asked for and that the controller of a path has not enabled.
    fn missing_digests(&self, path: PathIndex) -> Option<&'static str>;

    /// Takes an I/O command; [`FabricEvent::Completed`] follows exactly once.
    ///
    /// # Errors
    /// When the command can't be taken; it then never completes.
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), multipath::SubmitError>;

    /// Takes an admin command; [`FabricEvent::AdminCompleted`] follows exactly once.
    ///
    /// # Errors
    /// When the command can't be taken; it then never completes.
    fn submit_admin(&mut self, now: Instant, command: Command) -> Result<(), host::SubmitError>;
}

/// A command that is remembered until it has ended.
#[derive(Clone, Copy, Debug)]
struct Pending {
    cookie: u64,
    place: Option<Place>,
    submitted: Instant,
}

/// A subsystem that a host is connected to.
#[derive(Debug)]
pub(super) struct Fabrics<D: FabricDriver> {
    blocking: Blocking<D>,
    /// The data that have a place.
    places: Places,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    pool: Pool,
    /// Paths whose loss was reported to the owner.
    lost: BTreeSet<PathIndex>,
    /// Paths whose other end refuses this host for good, with the reason.
    refused: BTreeMap<PathIndex, String>,
    /// Missing digests that were reported to the owner, for each path.
    missing: BTreeMap<PathIndex, &'static str>,
    /// News that the driver does not report.
    news: VecDeque<News>,
    /// The name under which this host comes.
    host: Nqn,
}

/// This host's name and identifier for controllers: as nvme-cli keeps them, or made from the
/// machine's identifier.
pub fn host_names() -> (Nqn, HostId) {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let machine = read("/etc/machine-id")
        .and_then(|text| host_id(&text))
        .unwrap_or(HostId([0xfa, 0x41, 0xa0, 0xe0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 1]));
    let id = read("/etc/nvme/hostid").and_then(|text| host_id(&text)).unwrap_or(machine);
    let name = read("/etc/nvme/hostnqn").and_then(|text| text.parse().ok());
    let made = || format!("nqn.2014-08.org.nvmexpress:uuid:{id}").parse().ok();
    (name.or_else(made).unwrap_or_else(Nqn::discovery), id)
}

/// The configuration of each association with a subsystem.
///
/// # Errors
/// When a file holds no secret, or others may read it.
pub(super) fn association(subsystem: &Subsystem, options: &Options) -> Result<host::Config, AttachError> {
    let (name, id) = host_names();
    let settings = &subsystem.url.settings;
    let host = settings.host.clone().unwrap_or(name);
    let id = settings.host_id.unwrap_or(id);
    let mut association = host::Config::new(subsystem.url.subsystem.clone(), host, id);
    association.io_queues = settings.queues.unwrap_or(1);
    let depth = u16::try_from(options.depth).unwrap_or(1024).clamp(128, 1024);
    association.queue_size = settings.queue_size.unwrap_or(depth);
    if let Some(time) = settings.keep_alive {
        association.keep_alive = Nanos::from(time);
    }
    let (loss, fail) = match options.absence {
        Absence::GiveUp(time) => (Some(time), None),
        Absence::Fail(time) => (None, Some(time)),
    };
    association.controller_loss_timeout =
        settings.controller_loss.map_or(loss, |limit| limit.map(Nanos::from));
    association.fast_io_fail_timeout = settings.fast_io_fail.map(Nanos::from).or(fail);
    association.authentication = authentication(files(subsystem, options))?;
    Ok(association)
}

/// The files that the URL names, or else those of the options.
fn files<'a>(subsystem: &'a Subsystem, options: &'a Options) -> &'a SecretFiles {
    let of_url = &subsystem.url.settings.secrets;
    if *of_url == SecretFiles::default() { &options.secrets } else { of_url }
}

/// The keys that the host may prove by TLS to the subsystem of `association`; empty without a key.
///
/// # Errors
/// When a file holds no key, or others may read it.
pub(super) fn psks(
    subsystem: &Subsystem,
    options: &Options,
    association: &host::Config,
) -> Result<Vec<Psk>, AttachError> {
    let Some(path) = &files(subsystem, options).tls else { return Ok(Vec::new()) };
    if subsystem.url.is_by(Fabric::NvmeRdma) {
        return Err(AttachError::CannotEncrypt(path.clone()));
    }
    let key = secret_file::read(path).map_err(AttachError::Secret)?;
    let tls = TlsCredentials { key, origin: path.display().to_string() };
    Ok(tls.psks(&association.host, &association.subsystem))
}

/// How the host authenticates by the secrets in `files`.
fn authentication(files: &SecretFiles) -> Result<Option<host::Authentication>, AttachError> {
    let Some(path) = &files.host else {
        return match &files.controller {
            Some(path) => Err(AttachError::HalfAuthenticated(path.clone())),
            None => Ok(None),
        };
    };
    let mut credentials = Credentials::new(secret_file::read(path).map_err(AttachError::Secret)?);
    credentials.origin = path.display().to_string();
    if let Some(path) = &files.controller {
        credentials.controller = Some(secret_file::read(path).map_err(AttachError::Secret)?);
    }
    Ok(Some(host::Authentication { credentials, entropy: sys::entropy::system() }))
}

/// The configuration of the paths to a subsystem.
pub(super) fn paths(subsystem: &Subsystem, options: &Options) -> multipath::Config {
    multipath::Config {
        policy: subsystem.url.settings.policy,
        commands_max: options.depth.max(COMMANDS_MAX),
        ..multipath::Config::default()
    }
}

impl<D: FabricDriver> Fabrics<D> {
    /// Uses a subsystem through a driver that has begun to connect.
    pub(super) fn new(blocking: Blocking<D>, options: &Options, host: Nqn) -> Self {
        let length = usize::try_from(options.data_bytes + ADMIN_BYTES).expect("memory is addressable");
        Self {
            blocking,
            places: Places::new(length),
            pending: Vec::new(),
            free: Vec::new(),
            pool: Pool::default(),
            lost: BTreeSet::new(),
            refused: BTreeMap::new(),
            missing: BTreeMap::new(),
            news: VecDeque::new(),
            host,
        }
    }

    fn multipath(&self) -> &Multipath {
        self.blocking.driver.multipath()
    }

    /// Notes what the end of an attempt says about a path.
    fn note_attempt(&mut self, event: &FabricEvent) {
        let (path, why) = match event {
            FabricEvent::PathUp(path) => (*path, None),
            FabricEvent::PathLost(path, why) if self.blocking.driver.is_key_refused(*path) => {
                let reason = self.blocking.driver.dial_failure(*path);
                (*path, Some(reason.unwrap_or_else(|| why.to_string())))
            }
            FabricEvent::PathLost(path, _) => (*path, None),
            FabricEvent::PathGivenUp(path, failure) => {
                (*path, failure.is_refusal().then(|| failure.to_string()))
            }
            _ => return,
        };
        match why {
            Some(why) => drop(self.refused.insert(path, why)),
            None => drop(self.refused.remove(&path)),
        }
    }

    /// Notes which digests a path has to do without; returns news of a change.
    fn note_digests(&mut self, path: PathIndex) -> Option<News> {
        let missing = self.blocking.driver.missing_digests(path);
        let known = match missing {
            Some(what) => self.missing.insert(path, what),
            None => self.missing.remove(&path),
        };
        missing.filter(|_| missing != known).map(|what| News::NoDigests(path, what))
    }

    /// Remembers a command; returns its cookie for the driver.
    fn remember(&mut self, pending: Pending) -> TableCookie {
        let index = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        self.pending[index] = Some(pending);
        TableCookie::at(index)
    }

    fn retire(&mut self, cookie: TableCookie) -> Option<Pending> {
        let index = cookie.place();
        let pending = self.pending.get_mut(index)?.take()?;
        self.free.push(index);
        Some(pending)
    }

    fn admin(
        &mut self,
        now: Instant,
        pending: Pending,
        entry: SubmissionQueueEntry,
        data: Data,
    ) -> Result<(), SubmitError> {
        let cookie = self.remember(pending);
        let command = Command { cookie: cookie.raw(), entry, data };
        self.blocking.driver.submit_admin(now, command).map_err(|error| {
            self.retire(cookie);
            SubmitError::FabricsAdmin(error)
        })
    }

    /// The result of a command, for its caller. Data that have a place are put there.
    fn on_completed(&mut self, completed: multipath::Completed) -> Option<Completed> {
        let multipath::Completed { mut cookie, entry, mut data, origin, mut submitted } = completed;
        if let Some(remembered) = TableCookie::parse(cookie) {
            let pending = self.retire(remembered)?;
            (cookie, submitted) = (pending.cookie, pending.submitted);
            if let Some(place) = pending.place {
                let range = range(place);
                let data = core::mem::take(&mut data);
                self.places.put(range.start, data.slice(0..data.len().min(range.len())));
            }
        }
        let (status, is_unheard) = (entry.status(), origin == Origin::Host);
        Some(Completed { cookie, status, dw0: entry.dw0, dw1: entry.dw1, data, is_unheard, submitted })
    }
}

impl<D: FabricDriver> Transport for Fabrics<D> {
    type Driver = D;

    fn blocking(&self) -> &Blocking<D> {
        &self.blocking
    }
    fn blocking_mut(&mut self) -> &mut Blocking<D> {
        &mut self.blocking
    }
    fn into_blocking(self) -> Blocking<D> {
        self.blocking
    }

    fn is_fabric(&self) -> bool {
        true
    }
    /// The controller's identifier in its subsystem.
    fn name(&self) -> String {
        let identity = self.multipath().identity();
        identity.map_or_else(String::new, |identity| identity.controller.controller_id.to_string())
    }
    fn identity(&self) -> Option<Identity<'_>> {
        let identity = self.multipath().identity()?;
        Some(Identity {
            controller: &identity.controller,
            namespaces: &identity.namespaces,
            queues: identity.io_queues,
            transfer_bytes_max: identity.transfer_bytes_max.min(TRANSFER_BYTES_MAX),
        })
    }

    fn wait_ready(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        let deadline = self.blocking.now() + timeout;
        let mut last = None;
        let mut broken = None;
        while !self.multipath().is_live() {
            match self.blocking.next_event(Some(deadline))? {
                Some(FabricEvent::PathGivenUp(_, failure)) if self.multipath().is_over() => {
                    return Err(match failure {
                        Fault::ControllerLoss => AttachError::NoSubsystem { timeout, last },
                        failure => AttachError::of_fabric(&self.host, failure),
                    });
                }
                Some(FabricEvent::ProtocolError(why)) => broken = Some(why),
                Some(FabricEvent::PathLost(path, why)) => {
                    let reason = broken.take().or_else(|| self.blocking.driver.dial_failure(path));
                    last = Some(reason.map_or_else(|| why.to_string(), |reason| format!("{why}: {reason}")));
                }
                Some(_) => {}
                None => return Err(AttachError::NoSubsystem { timeout, last }),
            }
        }
        for path in (0..).map(PathIndex).take(self.multipath().paths().count()) {
            let news = self.note_digests(path);
            self.news.extend(news);
        }
        Ok(())
    }

    fn refusal(&self) -> Option<&str> {
        let is_everywhere = self.refused.len() == self.multipath().paths().count();
        self.refused.values().next().filter(|_| is_everywhere).map(String::as_str)
    }

    fn data_region(&self) -> DataRegion {
        DataRegion { base: BASE, length: self.places.len() as u64 }
    }
    fn bytes(&mut self, place: Place) -> &[u8] {
        self.places.bytes(range(place))
    }
    fn put<T>(&mut self, place: Place, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        fill(self.places.bytes_mut(range(place)))
    }

    fn submit(&mut self, now: Instant, submission: Submission) -> Result<(), SubmitError> {
        let Submission { queue, entry, data: place, cookie } = submission;
        let data = match place {
            None => Data::None,
            // The two lowest bits of an opcode give the direction of the data.
            Some(place) if entry.opcode & 0b11 == 0b10 => {
                self.places.expect(range(place));
                Data::Read(place.length)
            }
            Some(place) => Data::Write(self.pool.copy(self.places.bytes(range(place)))),
        };
        let pending = Pending { cookie, place, submitted: now };
        if queue == QueueId::ADMIN {
            return self.admin(now, pending, entry, data);
        }
        let cookie = self.remember(pending);
        let command = Command { cookie: cookie.raw(), entry, data };
        self.submit_buffers(now, Some(queue.0.wrapping_sub(1)), command).inspect_err(|_| {
            self.retire(cookie);
        })
    }
    #[inline]
    fn submit_buffers(
        &mut self,
        now: Instant,
        queue: Option<u16>,
        command: Command,
    ) -> Result<(), SubmitError> {
        let Command { cookie, entry, data } = command;
        match queue {
            Some(queue) => {
                let request = Request { cookie, entry, data, queue };
                self.blocking.driver.submit(now, request).map_err(SubmitError::Fabrics)
            }
            None => self.admin(now, Pending { cookie, place: None, submitted: now }, entry, data),
        }
    }
    /// Gets the property Version (VS): a controller behind a fabric has no configuration space.
    fn probe(&mut self, now: Instant) -> Result<(), SubmitError> {
        let get = PropertyGet { size: PropertySize::Dword, offset: property::VERSION };
        let entry = FabricsCommand::PropertyGet(get).emit();
        let command = Command { cookie: PROBE, entry, data: Data::None };
        self.blocking.driver.submit_admin(now, command).map_err(SubmitError::FabricsAdmin)
    }

    fn poll_own(&mut self) -> Option<Event> {
        self.news.pop_front().map(Event::News)
    }
    fn on_event(&mut self, event: FabricEvent) -> Option<Event> {
        self.note_attempt(&event);
        Some(match event {
            FabricEvent::Completed(completed) => Event::Completed(self.on_completed(completed)?),
            FabricEvent::AdminCompleted { cookie: PROBE, entry, .. } => Event::Probed(match entry.status() {
                status if status.is_success() => Ok(entry.dw0),
                status => Err(AttachError::Command(status)),
            }),
            FabricEvent::AdminCompleted { cookie, entry, data } => {
                let (origin, submitted) = (Origin::Controller, self.blocking.now());
                let completed = multipath::Completed { cookie, entry, data, origin, submitted };
                Event::Completed(self.on_completed(completed)?)
            }
            FabricEvent::Connected(path) => Event::News(self.note_digests(path)?),
            FabricEvent::PathUp(path) => Event::Here(self.lost.remove(&path).then_some(News::PathBack(path))),
            FabricEvent::PathLost(path, why) => {
                self.lost.insert(path);
                let news = News::PathLost(path, why);
                if self.multipath().is_live() { Event::News(news) } else { Event::Away(news) }
            }
            FabricEvent::PathGivenUp(_, failure) if self.multipath().is_over() => {
                Event::Failed(Failure::Fabrics(failure))
            }
            FabricEvent::PathGivenUp(path, failure) => Event::News(News::PathGivenUp(path, failure)),
            FabricEvent::ProtocolError(why) => Event::News(News::ProtocolError(why)),
            FabricEvent::Other => return None,
        })
    }
}

/// Where `place` lies in the memory, as a range of indices.
fn range(place: Place) -> std::ops::Range<usize> {
    let start =
        usize::try_from(place.address.saturating_sub(BASE)).expect("data lies in the region that was given");
    start..start + length(place)
}
