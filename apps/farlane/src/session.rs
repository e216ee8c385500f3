//! The controller that a subcommand uses: attaches to it, waits until it is ready, sends
//! it commands.

use std::collections::VecDeque;
use std::path::Path;

use assemblies::near::Near;
use engine::{Instant, Nanos};
use live::client::{
    Absence, Address, AttachError, Completed, Controller, Event, Failure, Identity, Options, RootPort,
    SubmitError, Url,
};
use live::media::Media;
use live::reactor::Stop;
use live::sys::clock::Clock;
use nvme::host::Namespace;
use nvme::wire::SubmissionQueueEntry;
use nvme_pcie::function;
use nvme_pcie::host::{Data, DataRegion, QueueId, Submission};
use status::{ConfigCache, Connection, Lookahead};
use tunnel::frame::Tally;
use tunnel::upstream::PortIndex;

use crate::args::{Root, Target};
use crate::capture::{Tracing, What};
use crate::counters;
use crate::error::{Error, NvmeError};
use crate::processor::stay_on;

/// How long an admin command or a register read may take.
pub(crate) const PATIENCE: Nanos = Nanos::from_secs(60);
/// How long the far end may take to report its counts.
const TALLY_PATIENCE: Nanos = Nanos::from_secs(2);

/// The needs of a subcommand on its host.
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

/// The data of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// The command has no data.
    None,
    /// These bytes go to the controller.
    Sent(&'a [u8]),
    /// This many bytes come from the controller.
    Wanted(u32),
}

/// A controller that a subcommand has attached to.
#[derive(Debug)]
pub(crate) struct Session {
    controller: Controller,
    /// Commands that ended while something else was waited for.
    ended: VecDeque<Completed>,
    /// The capture that is being written.
    tracing: Option<Tracing>,
    clock: Clock,
}

/// The settings of a host that spins for `spin` and waits for its far end for `timeout`.
pub(crate) fn options(needs: Needs, spin: Nanos, timeout: Nanos) -> Options {
    let mut options = Options {
        data_bytes: needs.data_bytes,
        // All data have a place.
        slots: 0,
        depth: needs.depth,
        // A far end that goes away has as long to come back as a missing far end has to appear.
        absence: Absence::GiveUp(timeout),
        spin,
        ..Options::new("host")
    };
    options.session.stamps = needs.stamps;
    options.session.tally = true;
    if needs.stamps {
        // One-way times are as good as the alignment of the clocks, which is as good as the best
        // recent Ping.
        options.session.ping_interval = Nanos::from_millis(20);
    }
    options
}

/// Attaches to the controller at `address` and waits for `timeout` until it takes commands.
pub(crate) fn attach(
    address: &Address,
    options: &Options,
    timeout: Nanos,
) -> Result<Controller, AttachError> {
    wait(Controller::open(address, options)?, timeout)
}

fn wait(mut controller: Controller, timeout: Nanos) -> Result<Controller, AttachError> {
    controller.stop().on_signals()?;
    controller.wait_ready(timeout)?;
    Ok(controller)
}

impl Session {
    /// Attaches to the controller at `target` and waits until it takes commands.
    pub(crate) fn attach(target: &Target, needs: Needs) -> Result<Self, Error> {
        Self::attach_to(&target.url, target, target.capture.as_deref(), needs)
    }

    /// Attaches a further session, whose thread has its processor, to the controller at `url`, with
    /// the options of `target`. Sessions with one `clock` have times that can be compared.
    pub(crate) fn attach_beside(
        clock: Clock,
        url: &Url,
        target: &Target,
        needs: Needs,
    ) -> Result<Self, Error> {
        Self::attach_with(clock, url, target, None, needs)
    }

    /// Attaches to the controller at `url`, with the options of `target`. The packets are written
    /// to the file at `capture`, if there is one: each session needs a file of its own.
    pub(crate) fn attach_to(
        url: &Url,
        target: &Target,
        capture: Option<&Path>,
        needs: Needs,
    ) -> Result<Self, Error> {
        stay_on(target.spin.cpu)?;
        Self::attach_with(Clock::start(), url, target, capture, needs)
    }

    fn attach_with(
        clock: Clock,
        url: &Url,
        target: &Target,
        capture: Option<&Path>,
        needs: Needs,
    ) -> Result<Self, Error> {
        let timeout = target.timeout.into();
        let mut options = options(needs, target.spin.spin.into(), timeout);
        options.clock = clock;
        let Root { payload_size, completion_size, interrupts } = target.root;
        options.root = RootPort { payload_size, completion_size, interrupts };
        let tunnel = &target.tunnel;
        tunnel.spread.check(url, &tunnel.transport)?;
        tunnel.transport.check(url)?;
        // A caller that asks for time stamps wants to see each hop.
        let shows_all = needs.stamps || target.capture.is_some();
        let spread = tunnel.spread.is_on() && !shows_all;
        options.session.lookahead = tunnel.lookahead.is_on() && !shows_all;
        options.session.dma = tunnel.dma.mode();
        options.session.config_cache = tunnel.config_cache.is_on() && !shows_all && !needs.round_trips;
        if spread {
            options.session.strands = tunnel.spread.connections();
            options.queues = tunnel.spread.queues();
        }
        options.transport = tunnel.transport.checked()?;
        target.secrets.check(url)?;
        options.secrets = target.secrets.files();
        let mut controller = Controller::open(&url.resolve()?, &options)?;
        let tracing = capture.map(|path| trace(&mut controller, path, url)).transpose()?;
        Self::of(wait(controller, timeout)?, tracing, clock)
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
        let controller = wait(Controller::direct(config, media, &options)?, timeout)?;
        Self::of(controller, None, options.clock)
    }

    fn of(controller: Controller, tracing: Option<Tracing>, clock: Clock) -> Result<Self, Error> {
        let mut session = Self { controller, ended: VecDeque::new(), tracing, clock };
        // Events that a user should know before anything else is done.
        while let Some(event) = session.controller.poll_event() {
            act_on(event)?;
        }
        Ok(session)
    }

    /// The host on PCI Express; none when the controller is reached by vfio-user or a fabric.
    pub(crate) fn near(&self) -> Option<&Near> {
        self.controller.near()
    }
    /// The bytes that each connection of the tunnel has carried, the main one first; empty unless
    /// the tunnel has several.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let upstream = self.near().and_then(Near::upstream);
        counters::connections(upstream.into_iter().flat_map(|upstream| upstream.strands(PortIndex(0))))
    }
    /// The counts of the tunnel's lookahead; none without a tunnel or without lookahead.
    pub(crate) fn lookahead(&self) -> Option<Lookahead> {
        counters::lookahead(self.near()?.upstream()?)
    }
    /// Asks the far end for the counts of its device's reads of memory until now, and waits for the
    /// answer. None without a tunnel, or when the far end does not answer.
    pub(crate) fn far_reads(&mut self) -> Result<Option<Tally>, Error> {
        let asked = self.now();
        let Some(near) = self.controller.near_mut().filter(|near| near.upstream().is_some()) else {
            return Ok(None);
        };
        near.ping(asked);
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
    /// The counts of the tunnel's answers at the near end; none without a tunnel or without a
    /// config cache.
    pub(crate) fn config_cache(&self) -> Option<ConfigCache> {
        counters::config_cache(self.near()?.upstream()?)
    }

    /// The host on PCI Express, for work that only such a host can do.
    ///
    /// # Panics
    /// When the controller is reached by vfio-user or a fabric.
    pub(crate) fn near_mut(&mut self) -> &mut Near {
        self.controller.near_mut().expect("a demo's hosts are on PCI Express")
    }
    pub(crate) fn now(&self) -> Instant {
        self.controller.now()
    }
    /// The clock of the session's times.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }
    /// A handle that ends the session's waits, as the user's interruption does.
    pub(crate) fn stop(&self) -> Stop {
        self.controller.stop()
    }
    /// The controller's name for a person: its place in the hierarchy, or its identifier in
    /// its subsystem.
    pub(crate) fn name(&self) -> String {
        self.controller.name()
    }
    /// The controller's identity, as the controller reported it.
    pub(crate) fn identity(&self) -> Result<Identity<'_>, Error> {
        self.controller.identity().ok_or(Error::Attach(AttachError::NoController))
    }
    /// Host memory for the data of commands.
    pub(crate) fn data_region(&self) -> DataRegion {
        self.controller.data_region()
    }
    /// The namespace whose identifier (NSID) is `wanted`.
    pub(crate) fn namespace(&self, wanted: u32) -> Result<Namespace, Error> {
        let namespaces = self.identity()?.namespaces;
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
        self.controller.bytes(data)
    }
    /// Lets `fill` write all bytes of host memory at `data`, and returns the result of `fill`.
    pub(crate) fn put<T>(&mut self, data: Data, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        self.controller.put(data, fill)
    }

    /// Submits `submission` for a caller that waits for its [`Completed`].
    pub(crate) fn submit(&mut self, command: &'static str, submission: Submission) -> Result<(), Error> {
        self.submit_at(self.now(), command, submission)
    }

    /// As [`Session::submit`], for a caller that knows the time: not before the end of its last
    /// wait.
    pub(crate) fn submit_at(
        &mut self,
        now: Instant,
        command: &'static str,
        submission: Submission,
    ) -> Result<(), Error> {
        self.controller.submit(now, submission).map_err(|error| Error::refused(command, error))
    }

    /// The next command that ends until `deadline`; none when the deadline comes first.
    pub(crate) fn next_completed(&mut self, deadline: Option<Instant>) -> Result<Option<Completed>, Error> {
        if let Some(completed) = self.ended.pop_front() {
            return Ok(Some(completed));
        }
        loop {
            let Some(event) = self.controller.next_event(deadline)? else { return Ok(None) };
            if let Some(completed) = act_on(event)? {
                return Ok(Some(completed));
            }
        }
    }

    /// A command that has ended already; none instead of waiting for one.
    pub(crate) fn poll_completed(&mut self) -> Result<Option<Completed>, Error> {
        loop {
            match self.controller.poll_event() {
                // The next submission to a failed device reports the failure, with the remedy about
                // it.
                Some(Event::Failed(Failure::Pcie(_) | Failure::VfioUser(_))) => {}
                Some(event) => {
                    if let Some(completed) = act_on(event)? {
                        return Ok(Some(completed));
                    }
                }
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
        self.complete(command, submission)?;
        Ok(submission.data.map(|data| self.bytes(data).to_vec()).unwrap_or_default())
    }

    /// Executes one command while no other is under way, and waits for it to succeed.
    fn complete(&mut self, command: &'static str, submission: Submission) -> Result<Completed, Error> {
        let deadline = self.now() + PATIENCE;
        self.submit(command, submission)?;
        match self.next_completed(Some(deadline))? {
            None => Err(Error::Unanswered { command, timeout: PATIENCE }),
            Some(completed) if completed.status.is_success() => Ok(completed),
            Some(completed) => Err(Error::Command { command, status: completed.status }),
        }
    }

    /// Executes one command while no other is under way, and waits for it to end. Returns DW0 of
    /// its completion, and the data that it asked for.
    pub(crate) fn command(
        &mut self,
        command: &'static str,
        queue: QueueId,
        entry: SubmissionQueueEntry,
        payload: Payload<'_>,
    ) -> Result<(u32, Vec<u8>), Error> {
        let length = match payload {
            Payload::None => 0,
            Payload::Sent(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Payload::Wanted(length) => length,
        };
        let data = (length > 0).then_some(Data { address: self.data_region().base, length });
        if let Some(data) = data {
            self.put(data, |room| match payload {
                Payload::Sent(bytes) => room.copy_from_slice(bytes),
                // Bytes that the controller leaves out are zero, and not the former ones.
                Payload::Wanted(_) | Payload::None => room.fill(0),
            });
        }
        let completed = self.complete(command, Submission { queue, entry, data, cookie: 0 })?;
        let wanted = data.filter(|_| matches!(payload, Payload::Wanted(_)));
        Ok((completed.dw0, wanted.map(|data| self.bytes(data).to_vec()).unwrap_or_default()))
    }

    /// Executes an admin command without data while no other is under way, and waits for it to end.
    /// Returns DW0 and DW1 of its completion.
    pub(crate) fn wide_command(
        &mut self,
        command: &'static str,
        entry: SubmissionQueueEntry,
    ) -> Result<(u32, u32), Error> {
        let submission = Submission { queue: QueueId::ADMIN, entry, data: None, cookie: 0 };
        let completed = self.complete(command, submission)?;
        Ok((completed.dw0, completed.dw1))
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

    /// Whether the controller is behind a fabric, where [`Session::probe`] is a Property Get of VS.
    pub(crate) fn is_fabric(&self) -> bool {
        self.controller.is_fabric()
    }

    /// Reads the first double word of the controller's configuration space, or over a fabric the
    /// property VS; returns it and how long that took.
    pub(crate) fn probe(&mut self) -> Result<(u32, Nanos), Error> {
        let unanswered = |timeout| Error::Unanswered { command: "a configuration read", timeout };
        let started = self.now();
        self.controller.probe(started).map_err(|error| match error {
            SubmitError::Pcie(_) => unanswered(Nanos::ZERO),
            error => AttachError::Submit(error).into(),
        })?;
        // Paths to a subsystem end each command in time by themselves.
        let deadline = (!self.is_fabric()).then_some(started + PATIENCE);
        loop {
            match self.controller.next_event(deadline)? {
                Some(Event::Probed(result)) => {
                    let length = self.now() - started;
                    return Ok((result?, length));
                }
                Some(event) => {
                    act_on(event)?;
                }
                None => return Err(unanswered(PATIENCE)),
            }
        }
    }

    /// Reads a register in BAR0 of `length` bytes, 4 or 8, and waits for `patience`.
    ///
    /// # Panics
    /// When the controller is behind a fabric.
    pub(crate) fn register(&mut self, offset: u32, length: u32, patience: Nanos) -> Result<u64, Error> {
        let started = self.now();
        let submitted = self.controller.read_register(started, offset, length);
        submitted.map_err(|error| Error::Attach(AttachError::Submit(error)))?;
        loop {
            match self.controller.next_event(Some(started + patience))? {
                Some(Event::Register(value)) => {
                    return value.ok_or_else(|| NvmeError::Unread { offset }.into());
                }
                Some(event) => {
                    act_on(event)?;
                }
                None => return Err(Error::Unanswered { command: "a register read", timeout: patience }),
            }
        }
    }

    /// Writes a double word to a register in BAR0.
    ///
    /// # Panics
    /// When the controller is behind a fabric.
    pub(crate) fn set_register(&mut self, offset: u32, value: u32) {
        let now = self.now();
        self.controller.write_register(now, offset, value);
    }

    /// Runs the engines until `at`, with nothing else to do. Commands that end meanwhile are kept
    /// for later.
    pub(crate) fn idle_until(&mut self, at: Instant) -> Result<(), Error> {
        while self.now() < at {
            if let Some(event) = self.controller.next_event(Some(at))? {
                self.ended.extend(act_on(event)?);
            }
        }
        Ok(())
    }

    /// Runs the engines for a moment, so that they answer the packets that have arrived: a host
    /// that is silent for seconds is taken for lost.
    pub(crate) fn keep_alive(&mut self) -> Result<(), Error> {
        self.idle_until(self.now() + Nanos::from_millis(1))
    }

    /// Ends the session in an orderly way.
    pub(crate) fn close(self) -> Result<(), Error> {
        self.controller.close().map_err(AttachError::Io)?;
        self.tracing.map_or(Ok(()), Tracing::finish)
    }
}

/// Writes the packets between host and controller to a file from now on.
fn trace(controller: &mut Controller, path: &Path, url: &Url) -> Result<Tracing, Error> {
    let now = controller.now();
    let what = if controller.is_fabric() { What::Streams } else { What::Packets };
    let watch = controller.watch().ok_or_else(|| Error::NothingToTrace { url: url.to_string() })?;
    Tracing::begin(path, what, now, watch)
}

/// The command that has ended, if the event is an end. Events that concern only a user go to
/// standard error.
fn act_on(event: Event) -> Result<Option<Completed>, Error> {
    match event {
        Event::Completed(completed) => return Ok(Some(completed)),
        Event::Here(Some(news)) | Event::Away(news) | Event::News(news) => info!("{news}"),
        Event::Failed(failure) => return Err(AttachError::Failed(failure).into()),
        Event::Here(None) | Event::Probed(_) | Event::Register(_) => {}
    }
    Ok(None)
}
