//! The controller that a subcommand uses: attaches to it, waits until it is ready, sends it
//! commands.

use std::path::Path;

use engine::{Instant, Nanos};
use live::carrier::route;
use live::drivers::attach::{AttachError, Attachment, Options};
use live::drivers::controller::Url;
use live::drivers::vfio_user_client;
use live::media::Media;
use machine::near::{self, ControllerIndex, Event, Near};
use nvme::host::Namespace;
use nvme::wire::SubmissionQueueEntry;
use nvme_pcie::function;
use nvme_pcie::host::{Completed, Data, DataRegion, Host, Identity, QueueId, ResetReason, Submission};
use pcie::wire::Bdf;
use tunnel::frame::Tally;
use tunnel::upstream::PortIndex;

use crate::args::{Ahead, Carried, Shadowed, Target};
use crate::commands::stay_on;
use crate::error::Error;
use crate::fabrics::Fabrics;

/// Bytes of host memory for queues, PRP lists and admin data, beside the data of commands under
/// way.
const QUEUE_BYTES: u64 = 8 << 20;
/// How long an admin command or a register read may take.
const PATIENCE: Nanos = Nanos::from_secs(60);
/// How long the far end may take to report its counts.
const TALLY_PATIENCE: Nanos = Nanos::from_secs(2);

/// The longest time between two attempts to reach a far end.
const REDIAL: Nanos = Nanos::from_millis(250);

/// What a subcommand needs of its host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Most bytes of data under way at once.
    pub(crate) data_bytes: u64,
    /// Most commands under way at once.
    pub(crate) depth: u32,
    /// Whether the tunnel's frames carry time stamps.
    pub(crate) stamps: bool,
    /// Whether each register read goes to the far end, so that the round trip can be measured.
    pub(crate) round_trips: bool,
}

impl Default for Needs {
    fn default() -> Self {
        Self { data_bytes: 1 << 20, depth: 32, stamps: false, round_trips: false }
    }
}

/// How the controller is reached.
#[derive(Debug)]
enum Way {
    /// PCI Express: a tunnel, or a function in this process.
    Near(Box<Attachment>, ControllerIndex),
    /// vfio-user, to a function in another process of this machine.
    User(Box<vfio_user_client::Attachment>),
    /// NVMe/TCP, to a subsystem.
    Fabrics(Box<Fabrics>),
}

/// What happened to the controller, as far as a subcommand acts on it.
enum Happened {
    Completed(Completed),
    ConfigRead(Result<u32, Error>),
    Other,
}

/// A controller that a subcommand has attached to.
#[derive(Debug)]
pub(crate) struct Session {
    way: Way,
    /// Copy of data in memory that another process shares: the original could change while it is
    /// read.
    copy: Vec<u8>,
}

/// The settings of a host that spins for `spin` and waits for its far end for `timeout`.
pub(crate) fn options(needs: Needs, spin: Nanos, timeout: Nanos) -> Options {
    let mut near = near::Config { arena_bytes: QUEUE_BYTES + needs.data_bytes, ..near::Config::default() };
    // One entry of a queue stays free.
    near.driver.queue_entries = (needs.depth + 1).next_power_of_two().max(64);
    // A far end that goes away gets as long to come back as one that is not there yet.
    near.driver.hold = timeout;
    let identity = tunnel::frame::Identity {
        name: format!("farlane process {}", std::process::id()),
        vendor: "Farlane".to_owned(),
        device: "host".to_owned(),
        ..tunnel::frame::Identity::default()
    };
    let mut session = tunnel::session::Config {
        identity,
        stamps: needs.stamps,
        tally: true,
        ..tunnel::session::Config::default()
    };
    // A person is waiting: dial again before they lose patience.
    session.redial.1 = REDIAL;
    if needs.stamps {
        // One-way times are as good as the alignment of the clocks, which is as good as the best
        // recent Ping.
        session.ping_interval = Nanos::from_millis(20);
    }
    Options { near, session, transport: route::Transport::default(), spin, timeout }
}

impl Session {
    /// Attaches to the controller at `target` and waits until it takes commands.
    pub(crate) fn attach(target: &Target, needs: Needs) -> Result<Self, Error> {
        stay_on(target.spin.cpu)?;
        let mut options = options(needs, target.spin.spin.into(), target.timeout.into());
        target.spread.check(&target.url, &target.transport)?;
        // A caller that asks for time stamps wants to see each hop.
        let spread = target.spread.is_on() && !needs.stamps;
        options.session.lookahead = target.lookahead.is_on() && !needs.stamps;
        options.session.config_cache = target.shadow.is_on() && !needs.stamps && !needs.round_trips;
        if spread {
            let queues = target.spread.queues();
            options.session.strands = target.spread.connections();
            options.near.driver.queue_pairs = queues;
            options.near.arena_bytes += (u64::from(queues) - 1) * QUEUE_BYTES;
        }
        options.transport = target.transport.checked()?;
        match &target.url {
            Url::Far(url) => Self::wait(Attachment::over_tcp(&[url.name()], &options)?, &options),
            Url::VfioUser(path) => Self::over_vfio_user(path, &options),
            Url::Subsystem(url) => {
                let fabrics = Fabrics::attach(url, needs, options.spin, options.timeout)?;
                Ok(Self { way: Way::Fabrics(Box::new(fabrics)), copy: Vec::new() })
            }
        }
    }

    fn over_vfio_user(path: &Path, options: &Options) -> Result<Self, Error> {
        let options = vfio_user_client::Options {
            driver: options.near.driver,
            arena_bytes: options.near.arena_bytes.next_multiple_of(4096),
            spin: options.spin,
            timeout: options.timeout,
        };
        let mut attachment = vfio_user_client::Attachment::connect(path, &options)?;
        attachment.stop().on_signals().map_err(AttachError::Io)?;
        attachment.wait_ready(options.timeout)?;
        Ok(Self { way: Way::User(Box::new(attachment)), copy: Vec::new() })
    }

    /// Brings up a controller in this process, with no tunnel.
    pub(crate) fn direct(
        config: function::Config,
        media: Media,
        needs: Needs,
        spin: Nanos,
        timeout: Nanos,
    ) -> Result<Self, Error> {
        let options = options(needs, spin, timeout);
        Self::wait(Attachment::direct(config, media, &options)?, &options)
    }

    fn wait(mut attachment: Attachment, options: &Options) -> Result<Self, Error> {
        attachment.stop().on_signals().map_err(AttachError::Io)?;
        let controller = attachment.wait_ready(options.timeout)?;
        Ok(Self { way: Way::Near(Box::new(attachment), controller), copy: Vec::new() })
    }

    /// The host on PCI Express; none when the controller is reached by vfio-user or NVMe/TCP.
    pub(crate) fn near(&self) -> Option<&Near> {
        match &self.way {
            Way::Near(attachment, _) => Some(attachment.near()),
            Way::User(_) | Way::Fabrics(_) => None,
        }
    }
    /// What each connection of the tunnel has carried, the main one first; empty unless the tunnel
    /// has several.
    pub(crate) fn connections(&self) -> Vec<Carried> {
        let upstream = self.near().and_then(Near::upstream);
        Carried::by(upstream.into_iter().flat_map(|upstream| upstream.strands(PortIndex(0))))
    }
    /// What the tunnel has sent ahead; none without a tunnel or without lookahead.
    pub(crate) fn lookahead(&self) -> Option<Ahead> {
        self.near()?.upstream()?.interposer().map(|lookahead| lookahead.statistics().into())
    }
    /// Asks the far end what has become of its device's reads of memory until now, and waits for
    /// the answer. None without a tunnel, or when the far end does not answer.
    pub(crate) fn far_reads(&mut self) -> Result<Option<Tally>, Error> {
        let asked = self.now();
        let Way::Near(attachment, _) = &mut self.way else { return Ok(None) };
        if attachment.near().upstream().is_none() {
            return Ok(None);
        }
        attachment.near_mut().ping(asked);
        loop {
            let session =
                self.near().and_then(Near::upstream).and_then(|tunnel| tunnel.session(PortIndex(0)));
            match session.and_then(tunnel::session::Session::tally) {
                Some((as_of, tally)) if as_of >= asked => return Ok(Some(*tally)),
                // The far end is away, or its version does not count.
                _ if self.now() > asked + TALLY_PATIENCE => return Ok(None),
                _ => self.idle_until(self.now() + Nanos::from_millis(1))?,
            }
        }
    }
    /// What the tunnel has answered at the near end; none without a tunnel or without a config
    /// cache.
    pub(crate) fn shadow(&self) -> Option<Shadowed> {
        self.near()?.upstream()?.config_cache().map(Shadowed::from)
    }
    /// The host on PCI Express, for what only such a host can do.
    ///
    /// # Panics
    /// When the controller is reached by vfio-user or NVMe/TCP.
    pub(crate) fn near_mut(&mut self) -> &mut Near {
        match &mut self.way {
            Way::Near(attachment, _) => attachment.near_mut(),
            Way::User(_) | Way::Fabrics(_) => panic!("a demo's hosts are on PCI Express"),
        }
    }
    pub(crate) fn now(&self) -> Instant {
        match &self.way {
            Way::Near(attachment, _) => attachment.now(),
            Way::User(attachment) => attachment.now(),
            Way::Fabrics(fabrics) => fabrics.now(),
        }
    }
    /// The controller's place in the hierarchy; [`Bdf::default`] where there is no hierarchy.
    pub(crate) fn bdf(&self) -> Bdf {
        let Way::Near(attachment, controller) = &self.way else { return Bdf::default() };
        let mut controllers = attachment.near().controllers();
        controllers.find(|(index, _)| index == controller).map(|(_, bdf)| bdf).unwrap_or_default()
    }
    /// The controller's name for a person: its place in the hierarchy, or its identifier in its
    /// subsystem.
    pub(crate) fn name(&self) -> String {
        match &self.way {
            Way::Fabrics(fabrics) => {
                let identity = fabrics.identity();
                identity.map_or_else(String::new, |identity| identity.controller.controller_id.to_string())
            }
            _ => self.bdf().to_string(),
        }
    }
    fn driver(&self) -> Option<&Host> {
        match &self.way {
            Way::Near(attachment, controller) => attachment.near().driver(*controller),
            Way::User(attachment) => attachment.host(),
            Way::Fabrics(_) => None,
        }
    }
    /// The controller's identity, as the controller reported it.
    pub(crate) fn identity(&self) -> Result<&Identity, Error> {
        let identity = match &self.way {
            Way::Fabrics(fabrics) => fabrics.identity(),
            _ => self.driver().and_then(Host::identity),
        };
        identity.ok_or(Error::Attach(AttachError::NoController))
    }
    /// Host memory for the data of commands.
    pub(crate) fn data_region(&self) -> DataRegion {
        if let Way::Fabrics(fabrics) = &self.way {
            return fabrics.data_region();
        }
        self.driver().map_or(DataRegion { base: 0, length: 0 }, Host::data_region)
    }
    /// The namespace whose identifier (NSID) is `wanted`.
    pub(crate) fn namespace(&self, wanted: u32) -> Result<Namespace, Error> {
        let namespaces = &self.identity()?.namespaces;
        namespaces.iter().find(|namespace| namespace.id.0 == wanted).copied().ok_or_else(|| {
            let there: Vec<_> = namespaces.iter().map(|namespace| namespace.id.0.to_string()).collect();
            match there.is_empty() {
                true => Error::NoNamespaces { wanted },
                false => Error::NoNamespace { wanted, there: there.join(", ") },
            }
        })
    }
    /// The bytes in host memory at `data`.
    pub(crate) fn bytes(&mut self, data: Data) -> &[u8] {
        let length = usize::try_from(data.length).expect("32 bits fit");
        match &self.way {
            Way::Near(attachment, _) => {
                let memory = attachment.near().memory();
                memory.slice(data.address, length).expect("data lies in the region that the driver gave")
            }
            Way::User(attachment) => {
                self.copy.resize(length, 0);
                let read = attachment.memory().read(data.address, &mut self.copy);
                read.expect("data lies in the region that the driver gave");
                &self.copy
            }
            Way::Fabrics(fabrics) => fabrics.bytes(data),
        }
    }
    /// Lets `fill` write all bytes of host memory at `data`, and returns what `fill` returns.
    pub(crate) fn put<T>(&mut self, data: Data, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        let length = usize::try_from(data.length).expect("32 bits fit");
        match &mut self.way {
            Way::Near(attachment, _) => {
                let memory = attachment.near_mut().memory_mut();
                let bytes = memory.slice_mut(data.address, length);
                fill(bytes.expect("data lies in the region that the driver gave"))
            }
            Way::User(attachment) => {
                self.copy.resize(length, 0);
                let result = fill(&mut self.copy);
                let written = attachment.memory().write(data.address, &self.copy);
                written.expect("data lies in the region that the driver gave");
                result
            }
            Way::Fabrics(fabrics) => fill(fabrics.bytes_mut(data)),
        }
    }

    /// Submits `submission` for a caller that waits for its [`Completed`].
    pub(crate) fn submit(&mut self, command: &'static str, submission: Submission) -> Result<(), Error> {
        let now = self.now();
        let submitted = match &mut self.way {
            Way::Near(attachment, controller) => {
                attachment.near_mut().submit(now, *controller, submission).map(|_| ())
            }
            Way::User(attachment) => attachment.submit(now, submission),
            Way::Fabrics(fabrics) => return fabrics.submit(command, now, submission),
        };
        submitted.map_err(|error| Error::Submit { command, error })
    }

    /// The next event until `deadline`; none when the deadline comes first.
    fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Happened>, Error> {
        match &mut self.way {
            Way::Near(attachment, _) => attachment.next_event(deadline)?.map(of_near).transpose(),
            Way::User(attachment) => attachment.next_event(deadline)?.map(of_user).transpose(),
            Way::Fabrics(fabrics) => Ok(fabrics.next_completed(deadline)?.map(Happened::Completed)),
        }
    }

    /// The next command that ends until `deadline`; none when the deadline comes first.
    pub(crate) fn next_completed(&mut self, deadline: Option<Instant>) -> Result<Option<Completed>, Error> {
        loop {
            match self.next(deadline)? {
                Some(Happened::Completed(completed)) => return Ok(Some(completed)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// A command that has ended already; none instead of waiting for one.
    pub(crate) fn poll_completed(&mut self) -> Result<Option<Completed>, Error> {
        loop {
            let happened = match &mut self.way {
                Way::Near(attachment, _) => attachment.poll_event().map(of_near),
                Way::User(attachment) => attachment.poll_event().map(of_user),
                Way::Fabrics(fabrics) => return fabrics.poll_completed(),
            };
            match happened {
                Some(Ok(Happened::Completed(completed))) => return Ok(Some(completed)),
                // The next submission to a failed device reports the failure, with what to do about
                // it.
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Executes one command while no other is under way, waits for it to end, and returns its data.
    pub(crate) fn execute(
        &mut self,
        command: &'static str,
        submission: Submission,
    ) -> Result<Vec<u8>, Error> {
        let deadline = self.now() + PATIENCE;
        self.submit(command, submission)?;
        match self.next_completed(Some(deadline))? {
            None => Err(Error::Unanswered { command, timeout: PATIENCE }),
            Some(completed) if completed.status.is_success() => {
                Ok(submission.data.map(|data| self.bytes(data).to_vec()).unwrap_or_default())
            }
            Some(completed) => Err(Error::Command { command, status: completed.status }),
        }
    }

    /// Executes an admin command that returns `length` bytes.
    pub(crate) fn admin(
        &mut self,
        command: &'static str,
        entry: SubmissionQueueEntry,
        length: u32,
    ) -> Result<Vec<u8>, Error> {
        let data = (length > 0).then_some(Data { address: self.data_region().base, length });
        self.execute(command, Submission { queue: QueueId::ADMIN, entry, data, cookie: 0 })
    }

    /// Whether the controller is behind a fabric, where [`Session::config_read`] is a Property Get
    /// of VS.
    pub(crate) const fn is_fabrics(&self) -> bool {
        matches!(self.way, Way::Fabrics(_))
    }

    /// Reads a double word of the controller's configuration space; returns it and how long that
    /// took.
    pub(crate) fn config_read(&mut self, offset: u16) -> Result<(u32, Nanos), Error> {
        let (target, started) = (self.bdf(), self.now());
        match &mut self.way {
            Way::Near(attachment, _) => {
                if attachment.near_mut().config_read(started, target, offset, 0).is_err() {
                    return Err(Error::Unanswered { command: "a configuration read", timeout: Nanos::ZERO });
                }
            }
            Way::User(attachment) => attachment.config_read(started, offset),
            // A controller behind a fabric has no configuration space.
            Way::Fabrics(fabrics) => return fabrics.round_trip(),
        }
        loop {
            match self.next(Some(started + PATIENCE))? {
                Some(Happened::ConfigRead(result)) => {
                    let length = self.now() - started;
                    return result.map(|value| (value, length));
                }
                Some(_) => {}
                None => return Err(Error::Unanswered { command: "a configuration read", timeout: PATIENCE }),
            }
        }
    }

    /// Runs the engines until `at`, with nothing else to do.
    pub(crate) fn idle_until(&mut self, at: Instant) -> Result<(), Error> {
        if let Way::Fabrics(fabrics) = &mut self.way {
            return fabrics.idle_until(at);
        }
        while self.now() < at {
            self.next(Some(at))?;
        }
        Ok(())
    }

    /// Runs the engines for a moment, so that they answer what has arrived: a host that says
    /// nothing for seconds is taken for lost.
    pub(crate) fn keep_alive(&mut self) -> Result<(), Error> {
        self.idle_until(self.now() + Nanos::from_millis(1))
    }

    /// Ends the session in an orderly way.
    pub(crate) fn close(self) -> Result<(), Error> {
        let closed = match self.way {
            Way::Near(attachment, _) => attachment.close(),
            Way::User(attachment) => attachment.close(),
            Way::Fabrics(fabrics) => return fabrics.close(),
        };
        closed.map_err(|error| AttachError::Io(error).into())
    }
}

/// Turns an event into what a subcommand acts on. What concerns only a person goes to standard
/// error.
fn of_near(event: Event) -> Result<Happened, Error> {
    use tunnel::Event as Link;
    match event {
        Event::Completed { completed, .. } => return Ok(Happened::Completed(completed)),
        Event::ConfigRead { result, .. } => {
            return Ok(Happened::ConfigRead(result.map_err(Error::ConfigRead)));
        }
        Event::Failed(failure) => return Err(AttachError::Failed(failure).into()),
        Event::Link {
            event:
                event @ (Link::LinkDown { .. }
                | Link::Interrupted { .. }
                | Link::Resumed
                | Link::PathAway(_)
                | Link::PathBack(_)),
            ..
        } => {
            tell!("farlane: {event}");
        }
        Event::Resetting { reason, .. } => tell_reset(reason),
        _ => {}
    }
    Ok(Happened::Other)
}

/// Turns an event of a vfio-user device into what a subcommand acts on. A reset is told on standard
/// error.
fn of_user(event: machine::vfio_user_client::Event) -> Result<Happened, Error> {
    use machine::vfio_user_client::{Event, Failure};
    match event {
        Event::Completed(completed) => return Ok(Happened::Completed(completed)),
        Event::ConfigRead(result) => {
            let refused = |error| Failure::Refused { what: "a configuration read", error };
            let result = result.map_err(|error| AttachError::Device(refused(error)).into());
            return Ok(Happened::ConfigRead(result));
        }
        Event::Failed(failure) => return Err(AttachError::Device(failure).into()),
        Event::Resetting(reason) => tell_reset(reason),
        _ => {}
    }
    Ok(Happened::Other)
}

fn tell_reset(reason: ResetReason) {
    tell!("farlane: the controller is being reset: {reason}");
}
