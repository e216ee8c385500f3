//! A subsystem of NVMe over Fabrics that a subcommand uses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use engine::{Buffer, Instant, Nanos, Pool};
use live::drivers::controller::{SubsystemUrl, host_id};
use live::drivers::fabrics::initiator::{AttachError, Attachment, Options};
use machine::initiator::Output;
use nvme::host::{Data, Origin};
use nvme::wire::CompletionQueueEntry;
use nvme_fabrics::host;
use nvme_fabrics::host::multipath::{self, PathIndex, Request};
use nvme_fabrics::wire::{FabricsCommand, HostId, Nqn, PropertyGet, PropertySize, property};
use nvme_pcie::host as pcie_host;
use nvme_pcie::host::{Completed, DataRegion, Identity, Submission};

use crate::error::Error;
use crate::session::Needs;

/// First address of the memory for data, as commands name places in it.
const BASE: u64 = 4096;
/// Bytes of memory for admin data, beside the data of commands under way.
const ADMIN_BYTES: u64 = 1 << 20;
/// Most commands that a target has under way at another subsystem.
const BACKING_DEPTH: u32 = 256;
/// Bit that is set in the cookies of admin commands.
const ADMIN: u64 = 1 << 61;

/// A command that has not ended.
#[derive(Clone, Copy, Debug)]
struct Pending {
    cookie: u64,
    data: Option<pcie_host::Data>,
    queue: pcie_host::QueueId,
    submitted: Instant,
}

/// A subsystem of NVMe over Fabrics that a subcommand has connected to.
#[derive(Debug)]
pub(crate) struct Fabrics {
    attachment: Attachment,
    memory: Vec<u8>,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    identity: Option<Identity>,
    /// Completions that came while something else was waited for.
    completed: VecDeque<Completed>,
    pool: Pool,
    /// Paths that a person was told are lost.
    lost: BTreeSet<PathIndex>,
    /// Digests that a person was told a path is without.
    missing: BTreeMap<PathIndex, &'static str>,
}

/// This host's name and identifier for controllers: as nvme-cli keeps them, or made from the
/// machine's identifier.
fn host_names() -> (Nqn, HostId) {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let machine = read("/etc/machine-id")
        .and_then(|text| host_id(&text))
        .unwrap_or(HostId([0xfa, 0x41, 0xa0, 0xe0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, 1]));
    let id = read("/etc/nvme/hostid").and_then(|text| host_id(&text)).unwrap_or(machine);
    let name = read("/etc/nvme/hostnqn").and_then(|text| text.parse().ok());
    let made = || format!("nqn.2014-08.org.nvmexpress:uuid:{id}").parse().ok();
    (name.or_else(made).unwrap_or_else(Nqn::discovery), id)
}

fn options(url: &SubsystemUrl, needs: Needs, spin: Nanos) -> Options {
    let (name, id) = host_names();
    let settings = &url.settings;
    let host = settings.host.clone().unwrap_or(name);
    let mut association = host::Config::new(url.subsystem.clone(), host, settings.host_id.unwrap_or(id));
    let nanos = |time: Duration| Nanos::from(time);
    association.io_queues = settings.queues.unwrap_or(1);
    let depth = u16::try_from(needs.depth).unwrap_or(1024).clamp(128, 1024);
    association.queue_size = settings.queue_size.unwrap_or(depth);
    if let Some(time) = settings.keep_alive {
        association.keep_alive = nanos(time);
    }
    if let Some(limit) = settings.controller_loss {
        association.controller_loss_timeout = limit.map(nanos);
    }
    association.fast_io_fail_timeout = settings.fast_io_fail.map(nanos);
    let multipath = multipath::Config {
        policy: settings.policy,
        commands_max: needs.depth.max(1024),
        ..multipath::Config::default()
    };
    Options {
        association,
        multipath,
        header_digest: settings.header_digest,
        data_digest: settings.data_digest,
        spin,
    }
}

/// Connects to the subsystem of `url` and waits until the subsystem takes commands.
pub(crate) fn attach(
    url: &SubsystemUrl,
    needs: Needs,
    spin: Nanos,
    timeout: Nanos,
) -> Result<Attachment, Error> {
    let mut options = options(url, needs, spin);
    if url.settings.controller_loss.is_none() {
        // A controller that is lost gets as long to come back as one that is not there yet.
        options.association.controller_loss_timeout = Some(timeout);
    }
    let mut attachment = Attachment::connect(paths(url)?, &options)?;
    attachment.stop().on_signals().map_err(AttachError::Io)?;
    attachment.wait_ready(timeout)?;
    Ok(attachment)
}

/// The paths to the subsystem of `url`, and the options of a target that uses it as a backing.
/// Unless the URL says otherwise, the target never gives the subsystem up, and commands wait for it
/// for `hold` at most.
pub(crate) fn backing(
    url: &SubsystemUrl,
    hold: Nanos,
) -> Result<(Vec<Vec<std::net::SocketAddr>>, Options), Error> {
    let mut options = options(url, Needs { depth: BACKING_DEPTH, ..Needs::default() }, Nanos::ZERO);
    options.association.fast_io_fail_timeout.get_or_insert(hold);
    if url.settings.controller_loss.is_none() {
        options.association.controller_loss_timeout = None;
    }
    Ok((paths(url)?, options))
}

fn paths(url: &SubsystemUrl) -> Result<Vec<Vec<std::net::SocketAddr>>, Error> {
    let resolve =
        |path: &String| live::carrier::tcp::resolve(path).map_err(|error| Error::Fabrics(error.into()));
    url.paths.iter().map(resolve).collect()
}

impl Fabrics {
    pub(crate) fn attach(
        url: &SubsystemUrl,
        needs: Needs,
        spin: Nanos,
        timeout: Nanos,
    ) -> Result<Self, Error> {
        let attachment = attach(url, needs, spin, timeout)?;
        let length = usize::try_from(needs.data_bytes + ADMIN_BYTES).expect("memory is addressable");
        let mut fabrics = Self {
            attachment,
            memory: vec![0; length],
            pending: Vec::new(),
            free: Vec::new(),
            identity: None,
            completed: VecDeque::new(),
            pool: Pool::default(),
            lost: BTreeSet::new(),
            missing: BTreeMap::new(),
        };
        fabrics.take_identity();
        for path in (0..).map(PathIndex).take(url.paths.len()) {
            fabrics.tell_digests(path);
        }
        Ok(fabrics)
    }

    /// Tells a person which digests a path has to do without, once for each change.
    fn tell_digests(&mut self, path: PathIndex) {
        let missing = self.attachment.initiator().missing_digests(path);
        let told = match missing {
            Some(what) => self.missing.insert(path, what),
            None => self.missing.remove(&path),
        };
        if let Some(what) = missing.filter(|_| missing != told) {
            tell!(
                "farlane: path {}: the controller enables no {what}: a bit that flips in transit may go unnoticed; \
                 'hdgst=off' and 'ddgst=off' in the URL ask for none",
                path.0 + 1
            );
        }
    }

    /// Takes the controller's identity, with the limit of this host.
    fn take_identity(&mut self) {
        let Some(identity) = self.attachment.identity() else { return };
        self.identity = Some(Identity {
            transfer_bytes_max: identity.transfer_bytes_max.min(128 << 10),
            ..identity.clone()
        });
    }

    pub(crate) fn now(&self) -> Instant {
        self.attachment.now()
    }

    pub(crate) const fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    pub(crate) fn data_region(&self) -> DataRegion {
        DataRegion { base: BASE, length: self.memory.len() as u64 }
    }

    pub(crate) fn bytes(&self, data: pcie_host::Data) -> &[u8] {
        &self.memory[range(data)]
    }

    pub(crate) fn bytes_mut(&mut self, data: pcie_host::Data) -> &mut [u8] {
        &mut self.memory[range(data)]
    }

    pub(crate) fn submit(
        &mut self,
        command: &'static str,
        now: Instant,
        submission: Submission,
    ) -> Result<(), Error> {
        let Submission { queue, entry, data, cookie } = submission;
        let moved = match data {
            None => Data::None,
            // The two lowest bits of an opcode give the direction of the data.
            Some(data) if entry.opcode & 0b11 == 0b10 => Data::Read(data.length),
            Some(data) => Data::Write(self.pool.copy(&self.memory[range(data)])),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        self.pending[index] = Some(Pending { cookie, data, queue, submitted: now });
        let cookie = index as u64;
        let taken = if queue == pcie_host::QueueId::ADMIN {
            self.attachment.submit_admin(ADMIN | cookie, entry, moved)
        } else {
            let request = Request { cookie, entry, data: moved, queue: queue.0.wrapping_sub(1) };
            let submitted = self.attachment.submit(now, request);
            submitted.map_err(|error| AttachError::Submit(error.to_string()))
        };
        taken.map_err(|error| {
            self.retire(index);
            Error::FabricsCommand { command, error }
        })
    }

    fn retire(&mut self, index: usize) -> Option<Pending> {
        let pending = self.pending.get_mut(index)?.take()?;
        self.free.push(index);
        Some(pending)
    }

    /// Retires a command that has ended, and puts the data that it read in place.
    fn on_completed(
        &mut self,
        cookie: u64,
        entry: CompletionQueueEntry,
        data: &Buffer,
        origin: Origin,
    ) -> Option<Completed> {
        let index = usize::try_from(cookie & !ADMIN).ok()?;
        let Pending { cookie, data: place, queue, submitted } = self.retire(index)?;
        if let Some(place) = place {
            let start = range(place).start;
            let length = data.len().min(range(place).len());
            self.memory[start..start + length].copy_from_slice(&data[..length]);
        }
        Some(Completed {
            cookie,
            queue,
            command: entry.command_id,
            status: entry.status(),
            dw0: entry.dw0,
            dw1: entry.dw1,
            origin,
            submitted,
            completed: self.attachment.turned(),
        })
    }

    /// Turns an event into what a subcommand acts on. What concerns only a person goes to standard
    /// error.
    fn on_event(&mut self, event: Output) -> Result<Option<Completed>, Error> {
        match event {
            Output::Completed(completed) => {
                let multipath::Completed { cookie, entry, data, origin, .. } = completed;
                return Ok(self.on_completed(cookie, entry, &data, origin));
            }
            Output::AdminCompleted(admin) if admin.cookie & ADMIN != 0 => {
                return Ok(self.on_completed(admin.cookie, admin.entry, &admin.data, Origin::Controller));
            }
            Output::PathLost(path, why) => {
                tell!("farlane: path {} is lost: {why}", path.0 + 1);
                self.lost.insert(path);
            }
            Output::PathUp(path) => {
                if self.lost.remove(&path) {
                    tell!("farlane: path {} is up again", path.0 + 1);
                }
                self.take_identity();
            }
            Output::ProtocolError(_, why) => tell!("farlane: {why}"),
            Output::Initialized(id, _) if id.queue.is_admin() => self.tell_digests(id.path),
            Output::PathEnded(path, Some(failure)) => {
                if self.attachment.initiator().multipath().is_over() {
                    return Err(AttachError::Failed(failure).into());
                }
                tell!("farlane: path {} is given up: {failure}", path.0 + 1);
            }
            Output::IdentityChanged(_) => self.take_identity(),
            _ => {}
        }
        Ok(None)
    }

    /// The next command that ends until `deadline`; none when the deadline comes first.
    pub(crate) fn next_completed(&mut self, deadline: Option<Instant>) -> Result<Option<Completed>, Error> {
        loop {
            if let Some(completed) = self.completed.pop_front() {
                return Ok(Some(completed));
            }
            let Some(event) = self.attachment.next_event(deadline)? else { return Ok(None) };
            if let Some(completed) = self.on_event(event)? {
                return Ok(Some(completed));
            }
        }
    }

    /// A command that has ended already; none instead of waiting for one.
    pub(crate) fn poll_completed(&mut self) -> Result<Option<Completed>, Error> {
        while let Some(event) = self.attachment.poll_event() {
            if let Some(completed) = self.on_event(event)? {
                return Ok(Some(completed));
            }
        }
        Ok(None)
    }

    /// Runs the engines until `at`. Commands that end meanwhile are kept for later.
    pub(crate) fn idle_until(&mut self, at: Instant) -> Result<(), Error> {
        while self.now() < at {
            if let Some(event) = self.attachment.next_event(Some(at))? {
                let completed = self.on_event(event)?;
                self.completed.extend(completed);
            }
        }
        Ok(())
    }

    /// A round trip to the controller that involves no medium: a Property Get of VS. Returns the
    /// value and how long it took.
    pub(crate) fn round_trip(&mut self) -> Result<(u32, Nanos), Error> {
        let get = PropertyGet { size: PropertySize::Dword, offset: property::VERSION };
        let entry = FabricsCommand::PropertyGet(get).emit();
        let started = self.now();
        let (entry, _) = self.attachment.admin(entry, Data::None)?;
        Ok((entry.dw0, self.now() - started))
    }

    pub(crate) fn close(self) -> Result<(), Error> {
        self.attachment.close().map_err(|error| Error::Fabrics(error.into()))
    }
}

/// Where `data` lies in the memory, as a range of indices.
fn range(data: pcie_host::Data) -> std::ops::Range<usize> {
    let start =
        usize::try_from(data.address.saturating_sub(BASE)).expect("data lies in the region that was given");
    start..start + usize::try_from(data.length).expect("32 bits fit")
}
