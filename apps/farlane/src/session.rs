//! A controller in use by a subcommand: attached, waited for, asked.

use engine::{Instant, Nanos};
use live::attach::{AttachError, Attachment, Options};
use live::media::Media;
use machine::near::{self, ControllerIndex, Event, Near};
use nvme::wire::SubmissionQueueEntry;
use nvme_pcie::function;
use nvme_pcie::host::{Completed, Data, DataRegion, Identity, Namespace, QueueId, Submission};
use pcie::wire::Bdf;

use crate::args::Target;
use crate::commands::stay_on;
use crate::error::Error;

/// Host memory besides the data of commands under way: queues, PRP lists, admin data.
const QUEUE_BYTES: u64 = 8 << 20;
/// How long an admin command or a register read may take.
const PATIENCE: Nanos = Nanos::from_secs(60);

/// The longest time between two attempts to reach a far end.
const REDIAL: Nanos = Nanos::from_millis(250);

/// What a subcommand wants of its host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Bytes of data under way at once.
    pub(crate) data_bytes: u64,
    /// Commands under way at once.
    pub(crate) depth: u32,
    /// Time stamps on the tunnel's frames.
    pub(crate) stamps: bool,
}

impl Default for Needs {
    fn default() -> Self {
        Self { data_bytes: 1 << 20, depth: 32, stamps: false }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    attachment: Attachment,
    controller: ControllerIndex,
}

/// The settings of a host that spins for `spin` and waits for its far end for `timeout`.
pub(crate) fn options(needs: Needs, spin: Nanos, timeout: Nanos) -> Options {
    let mut near = near::Config { arena_bytes: QUEUE_BYTES + needs.data_bytes, ..near::Config::default() };
    // One entry of a queue stays free.
    near.driver.queue_entries = (needs.depth + 1).next_power_of_two().max(64);
    // A far end that goes may be back as late as one that is not there yet.
    near.driver.hold = timeout;
    let identity = tunnel::frame::Identity {
        name: format!("farlane process {}", std::process::id()),
        vendor: "Farlane".to_owned(),
        device: "host".to_owned(),
        ..tunnel::frame::Identity::default()
    };
    let mut session =
        tunnel::session::Config { identity, stamps: needs.stamps, ..tunnel::session::Config::default() };
    // A person waits: dial again before the patience for it runs out.
    session.redial.1 = REDIAL;
    if needs.stamps {
        // One-way times are as good as the clocks are aligned, and those as good as the best recent Ping.
        session.ping_interval = Nanos::from_millis(20);
    }
    Options { near, session, spin, timeout }
}

impl Session {
    /// Attaches to the controller at `target` and waits until it takes commands.
    pub(crate) fn over_tcp(target: &Target, needs: Needs) -> Result<Self, Error> {
        stay_on(target.spin.cpu)?;
        let options = options(needs, target.spin.spin.into(), target.timeout.into());
        let names = [target.url.authority.clone()];
        Self::wait(Attachment::over_tcp(&names, &options)?, &options)
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
        Ok(Self { attachment, controller })
    }

    /// The loop and the engines.
    pub(crate) const fn attachment(&mut self) -> &mut Attachment {
        &mut self.attachment
    }
    pub(crate) const fn near(&self) -> &Near {
        self.attachment.near()
    }
    pub(crate) fn now(&self) -> Instant {
        self.attachment.now()
    }
    /// The controller's place in the hierarchy.
    pub(crate) fn bdf(&self) -> Bdf {
        let mut controllers = self.near().controllers();
        controllers.find(|(index, _)| *index == self.controller).map(|(_, bdf)| bdf).unwrap_or_default()
    }
    /// What the controller said of itself.
    pub(crate) fn identity(&self) -> Result<&Identity, Error> {
        let identity = self.near().driver(self.controller).and_then(|driver| driver.identity());
        identity.ok_or(Error::Attach(AttachError::NoController))
    }
    /// Host memory for the data of commands.
    pub(crate) fn data_region(&self) -> DataRegion {
        let region = self.near().driver(self.controller).map(|driver| driver.data_region());
        region.unwrap_or(DataRegion { base: 0, length: 0 })
    }
    /// The namespace called `wanted`.
    pub(crate) fn namespace(&self, wanted: u32) -> Result<Namespace, Error> {
        let namespaces = &self.identity()?.namespaces;
        namespaces.iter().find(|namespace| namespace.id.0 == wanted).copied().ok_or_else(|| {
            let there: Vec<_> = namespaces.iter().map(|namespace| namespace.id.0.to_string()).collect();
            Error::NoNamespace {
                wanted,
                there: if there.is_empty() { "none".into() } else { there.join(", ") },
            }
        })
    }
    /// The bytes in host memory at `data`, for reading.
    pub(crate) fn bytes(&self, data: Data) -> &[u8] {
        let length = usize::try_from(data.length).expect("32 bits fit");
        self.near()
            .memory()
            .slice(data.address, length)
            .expect("data lies in the region that the driver gave")
    }
    /// The bytes in host memory at `data`, for writing.
    pub(crate) fn bytes_mut(&mut self, data: Data) -> &mut [u8] {
        let length = usize::try_from(data.length).expect("32 bits fit");
        let memory = self.attachment.near_mut().memory_mut();
        memory.slice_mut(data.address, length).expect("data lies in the region that the driver gave")
    }

    /// Submits `submission` for a caller that waits for its [`Completed`].
    pub(crate) fn submit(&mut self, command: &'static str, submission: Submission) -> Result<(), Error> {
        let now = self.now();
        let submitted = self.attachment.near_mut().submit(now, self.controller, submission);
        submitted.map(|_| ()).map_err(|error| Error::Submit { command, error })
    }

    /// The next command that ends, until `deadline`; none when that came first.
    pub(crate) fn next_completed(&mut self, deadline: Option<Instant>) -> Result<Option<Completed>, Error> {
        loop {
            match self.attachment.next_event(deadline)? {
                Some(Event::Completed { completed, .. }) => return Ok(Some(completed)),
                Some(Event::Failed(failure)) => return Err(AttachError::Failed(failure).into()),
                Some(event) => tell(&event),
                None => return Ok(None),
            }
        }
    }

    /// Another command that has ended already.
    pub(crate) fn poll_completed(&mut self) -> Option<Completed> {
        loop {
            match self.attachment.poll_event()? {
                Event::Completed { completed, .. } => return Some(completed),
                event => tell(&event),
            }
        }
    }

    /// Carries out one command and waits for it, while nothing else is under way; returns its data.
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

    /// Carries out an admin command that returns `length` bytes.
    pub(crate) fn admin(
        &mut self,
        command: &'static str,
        entry: SubmissionQueueEntry,
        length: u32,
    ) -> Result<Vec<u8>, Error> {
        let data = (length > 0).then_some(Data { address: self.data_region().base, length });
        self.execute(command, Submission { queue: QueueId::ADMIN, entry, data, cookie: 0 })
    }

    /// Reads a double word of the controller's configuration space, and says how long that took.
    pub(crate) fn config_read(&mut self, offset: u16) -> Result<(u32, Nanos), Error> {
        let (target, started) = (self.bdf(), self.now());
        let near = self.attachment.near_mut();
        if near.config_read(started, target, offset, 0).is_err() {
            return Err(Error::Unanswered { command: "a configuration read", timeout: Nanos::ZERO });
        }
        loop {
            match self.attachment.next_event(Some(started + PATIENCE))? {
                Some(Event::ConfigRead { result, .. }) => {
                    let length = self.now() - started;
                    return result.map(|value| (value, length)).map_err(Error::ConfigRead);
                }
                Some(event) => tell(&event),
                None => return Err(Error::Unanswered { command: "a configuration read", timeout: PATIENCE }),
            }
        }
    }

    /// Lets the engines go on until `at`, with nothing else to do.
    pub(crate) fn idle_until(&mut self, at: Instant) -> Result<(), Error> {
        while self.now() < at {
            if let Some(event) = self.attachment.next_event(Some(at))? {
                tell(&event);
            }
        }
        Ok(())
    }

    /// Lets the engines answer what has come: who says nothing for seconds is taken for lost.
    pub(crate) fn keep_alive(&mut self) -> Result<(), Error> {
        self.idle_until(self.now() + Nanos::from_millis(1))
    }

    /// Ends the session in order.
    pub(crate) fn close(self) -> Result<(), Error> {
        self.attachment.close().map_err(|error| AttachError::Io(error).into())
    }
}

/// Tells a person what happened meanwhile, on standard error.
fn tell(event: &Event) {
    use tunnel::Event as Link;
    match event {
        Event::Link {
            event: event @ (Link::LinkDown { .. } | Link::Interrupted { .. } | Link::Resumed),
            ..
        } => {
            eprintln!("farlane: {event}");
        }
        Event::Resetting { reason, .. } => eprintln!("farlane: the controller is being reset: {reason:?}"),
        _ => {}
    }
}
