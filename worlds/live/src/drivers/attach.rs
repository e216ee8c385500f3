//! A host's use of a device, as an application wants it: attach, wait, submit, close.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use engine::{Engine, Instant, Nanos};
use machine::near::{Config, ControllerIndex, Event, Failure, Near};
use nvme_pcie::function::{self, Function};
use tunnel::session::{self, HandshakeError};

use crate::carrier::route::Transport;
use crate::drivers::attached::{Attached, WaitError};
use crate::drivers::near::{NearDriver, is_somebody_else};
use crate::media::Media;
use crate::reactor::Reactor;
use crate::sys::clock::Clock;
use crate::sys::entropy;

/// How an attachment behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration of the host.
    pub near: Config,
    /// The configuration of the tunnel's end. Its instance is replaced by a random one.
    pub session: session::Config,
    /// How far ends are reached.
    pub transport: Transport,
    /// How long to spin for the next event before sleeping.
    pub spin: Nanos,
    /// How long the far end may take to be there and ready.
    pub timeout: Nanos,
}

/// Why there is no attachment, or no longer one.
#[derive(Debug)]
pub enum AttachError {
    /// The name of a far end has no address.
    Resolve(String, io::Error),
    /// Nothing answers at the address; the error is that of the latest attempt.
    Unreachable(SocketAddr, io::Error),
    /// Something other than the far end answers at the address.
    SomebodyElse(SocketAddr, io::Error),
    /// The far end, or what answers in its place, refuses the handshake.
    Refused(HandshakeError),
    /// The far end was reached, but was not ready within this time.
    TimedOut(Nanos),
    /// The attached device or far end can't be used.
    Failed(Failure),
    /// Enumeration found no NVMe controller.
    NoController,
    /// No process listens at this socket path.
    Socket(PathBuf, io::Error),
    /// The function of another process can't be used, or no longer.
    Device(machine::vfio_user_client::Failure),
    /// A signal ended the wait.
    Interrupted,
    /// The system refuses an operation.
    Io(io::Error),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(name, error) => write!(f, "{name} has no address: {error}"),
            Self::Unreachable(address, error) => write!(f, "no far end answers at {address}: {error}"),
            Self::SomebodyElse(address, error) => {
                write!(f, "what answers at {address} is not the far end: {error}")
            }
            Self::Refused(error) => error.fmt(f),
            Self::TimedOut(length) => write!(f, "the far end was not ready within {length}"),
            Self::Failed(failure) => failure.fmt(f),
            Self::NoController => f.write_str("there is no NVMe controller at the far end"),
            Self::Socket(path, error) => write!(f, "nobody listens at {}: {error}", path.display()),
            Self::Device(failure) => failure.fmt(f),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<WaitError> for AttachError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Interrupted => Self::Interrupted,
            WaitError::Io(error) => Self::Io(error),
        }
    }
}

/// A host of far ends, or of a function in the same process.
pub type Attachment = Attached<NearDriver>;

impl Attached<NearDriver> {
    /// Makes a host whose far ends have these `names` (see [`crate::carrier::route::Name`]). They are
    /// dialled with the first wait.
    ///
    /// # Errors
    /// When a name has no address, or the process has no descriptors left.
    pub fn over_tcp(names: &[String], options: &Options) -> Result<Self, AttachError> {
        let mut routes = Vec::new();
        for name in names {
            let route = options.transport.route(name);
            routes.push(route.map_err(|error| AttachError::Resolve(name.clone(), error))?);
        }
        let mut entropy = entropy::system();
        let mut session = options.session.clone();
        entropy.fill(&mut session.identity.instance.0);
        let sessions = routes.iter().map(|route| route.session(session.clone())).collect();
        let near = Near::over_tunnels(options.near, sessions, entropy);
        let reactor = Reactor::new(Clock::start(), options.spin)?;
        Ok(Self::new(reactor, NearDriver::over_tcp(near, routes)))
    }

    /// Makes a host with the function that `config` describes in the same process, without switch
    /// or tunnel.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn direct(config: function::Config, media: Media, options: &Options) -> Result<Self, AttachError> {
        let clock = Clock::start();
        let reactor = Reactor::new(clock, options.spin)?;
        let function = Function::new(clock.now(), config);
        let near = Near::direct(options.near, clock.now());
        Ok(Self::new(reactor, NearDriver::direct(near, function, media)))
    }

    /// The engines of the host.
    pub const fn near(&self) -> &Near {
        self.driver.near()
    }
    /// The engines of the host, for commands.
    pub const fn near_mut(&mut self) -> &mut Near {
        self.driver.near_mut()
    }

    /// Waits until the hierarchy is enumerated.
    ///
    /// # Errors
    /// When that does not happen within `timeout`, or never will.
    pub fn wait_enumerated(&mut self, timeout: Nanos) -> Result<(), AttachError> {
        self.wait_attached(timeout, |near| near.topology().map(|_| Ok(())))
    }

    /// Waits until the first NVMe controller is ready for commands; returns its index.
    ///
    /// # Errors
    /// When no controller is ready within `timeout`, or none ever will be.
    pub fn wait_ready(&mut self, timeout: Nanos) -> Result<ControllerIndex, AttachError> {
        self.wait_attached(timeout, |near| {
            near.topology()?;
            let Some((controller, _)) = near.controllers().next() else {
                return Some(Err(AttachError::NoController));
            };
            near.driver(controller)?.is_ready().then_some(Ok(controller))
        })
    }

    fn wait_attached<T>(
        &mut self,
        timeout: Nanos,
        mut ready: impl FnMut(&Near) -> Option<Result<T, AttachError>>,
    ) -> Result<T, AttachError> {
        use tunnel::Event as Link;
        let deadline = self.now() + timeout;
        // A person who waits in silence wonders whether anything happens.
        let mut tell_at = Some(self.now() + TELL_AFTER);
        let mut refusal = None;
        let mut news = Vec::new();
        loop {
            if let Some(result) = ready(self.near()) {
                self.driver.tell_again(news);
                return result;
            }
            match self.next_event(Some(tell_at.map_or(deadline, |at| at.min(deadline)))) {
                // Before `tell_at`, nothing comes only where nothing ever will: that ends the wait.
                Ok(None) if tell_at.take().is_some_and(|at| at <= self.now() && at < deadline) => {
                    let why = self.why_late(refusal.as_ref(), TELL_AFTER);
                    crate::sys::telling::tell(format_args!("farlane: {why}; trying for {timeout}"));
                }
                Ok(Some(Event::Failed(failure))) => return Err(AttachError::Failed(failure)),
                Ok(Some(Event::Link { event: Link::HandshakeFailed(error), .. })) if !passes(&error) => {
                    return Err(AttachError::Refused(error));
                }
                Ok(Some(Event::Link { event: Link::HandshakeFailed(error), .. })) => {
                    refusal = Some(error).filter(|error| *error != HandshakeError::Disconnected);
                }
                // These events are for whoever looks at events from now on.
                Ok(Some(event @ Event::Link { event: Link::PathAway(_) | Link::PathBack(_), .. })) => {
                    news.push(event);
                }
                Ok(Some(_)) => {}
                Ok(None) => return Err(self.why_late(refusal.as_ref(), timeout)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn why_late(&self, refusal: Option<&HandshakeError>, timeout: Nanos) -> AttachError {
        if let Some(refusal) = refusal {
            return AttachError::Refused(refusal.clone());
        }
        match self.driver.dial_failure() {
            Some((address, error)) => {
                let copy = || io::Error::new(error.kind(), error.to_string());
                let copy = error.raw_os_error().map_or_else(copy, io::Error::from_raw_os_error);
                if is_somebody_else(error) {
                    AttachError::SomebodyElse(*address, copy)
                } else {
                    AttachError::Unreachable(*address, copy)
                }
            }
            None => AttachError::TimedOut(timeout),
        }
    }

    /// The engines' next deadline, at which the loop wakes at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.near().poll_timeout()
    }
}

/// How long a far end is waited for before a person is told about the wait.
const TELL_AFTER: Nanos = Nanos::from_secs(1);

/// Whether the next attempt, which the engines make by themselves, is worth waiting for.
const fn passes(error: &HandshakeError) -> bool {
    use tunnel::frame::RefuseCode;
    match error {
        HandshakeError::Disconnected => true,
        HandshakeError::RefusedByPeer { code, .. } | HandshakeError::Refused { code, .. } => {
            matches!(code, RefuseCode::Busy | RefuseCode::Deadline | RefuseCode::Damaged)
        }
    }
}
