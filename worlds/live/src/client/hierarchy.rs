//! A host's PCIe hierarchy: the far ends of tunnels below one switch, or a function of
//! this process.

use std::io;

use assemblies::near::{ControllerIndex, Event, Near};
use assemblies::watch::Port;
use engine::{Nanos, Watch};
use nvme_pcie::function::{self, Function};
use tunnel::frame::NetworkTime;
use tunnel::session::HandshakeError;

use super::error::{AttachError, Failure};
use super::options::Options;
use crate::carrier::route::Route;
use crate::drivers::near::{NearDriver, is_somebody_else};
use crate::media::Media;
use crate::reactor::Reactor;
use crate::reactor::blocking::Blocking;
use crate::sys::clock::Clock;
use crate::sys::entropy;
use crate::sys::ptp::{self, Daemon};

/// A host of far ends, or of a function in the same process, together with the loop of its driver.
pub type Hierarchy = Blocking<NearDriver>;

/// The network's time by `clock`. Without it, exchanges measure the offset of the clocks.
///
/// # Errors
/// When the `daemon` that the user named does not answer.
fn network_time(clock: &Clock, daemon: Option<&Daemon>) -> Result<Option<NetworkTime>, AttachError> {
    match (ptp::network_time(clock, daemon), daemon) {
        (Ok(found), _) => Ok(Some(found.time)),
        (Err(error), Some(daemon)) => Err(AttachError::NoTime(daemon.socket.clone(), error)),
        (Err(_), None) => Ok(None),
    }
}

impl Blocking<NearDriver> {
    /// Makes a host whose far ends have these `names` (see [`crate::carrier::route::Name`]). The
    /// far ends are dialled with the first wait.
    ///
    /// # Errors
    /// When a name has no address, the process has no descriptors left, or the PTP daemon that the
    /// options name does not answer.
    pub fn over_tunnels(names: &[String], options: &Options) -> Result<Self, AttachError> {
        let mut routes = Vec::new();
        for name in names {
            let route = options.transport.route(name);
            routes.push(route.map_err(|error| AttachError::without_route(name, error))?);
        }
        Self::over_routes(routes, options)
    }

    /// Makes a host of the far ends to which `routes` lead. They are dialled with the first wait.
    ///
    /// # Errors
    /// When the process has no descriptors left, or the PTP daemon that the options name does not
    /// answer.
    pub(super) fn over_routes(routes: Vec<Route>, options: &Options) -> Result<Self, AttachError> {
        let mut entropy = entropy::system();
        let mut session = options.session();
        entropy.fill(&mut session.identity.instance.0);
        let clock = options.clock;
        session.time = network_time(&clock, options.transport.ptp.as_ref())?;
        let sessions = routes.iter().map(|route| route.session(session.clone())).collect();
        let near = Near::over_tunnels(options.near(), sessions, entropy);
        let reactor = Reactor::new(clock, options.spin)?;
        Ok(Self::new(reactor, NearDriver::over_tcp(near, routes)))
    }

    /// Makes a host with the function that `config` describes in the same process, without switch
    /// or tunnel.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub(super) fn direct(
        config: function::Config,
        media: Media,
        options: &Options,
    ) -> Result<Self, AttachError> {
        let clock = options.clock;
        let reactor = Reactor::new(clock, options.spin)?;
        let function = Function::new(clock.now(), config);
        let near = Near::direct(options.near(), clock.now());
        Ok(Self::new(reactor, NearDriver::direct(near, function, media)))
    }

    /// The engines of the host.
    pub const fn near(&self) -> &Near {
        self.driver.near()
    }
    /// The engines of the host, for commands.
    pub(super) const fn near_mut(&mut self) -> &mut Near {
        self.driver.near_mut()
    }

    /// The watchers of the packets that pass the host's port.
    pub const fn watch(&mut self) -> &mut Watch<Port> {
        self.near_mut().watch()
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
    pub(super) fn wait_ready(&mut self, timeout: Nanos) -> Result<ControllerIndex, AttachError> {
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
        // A long wait is reported, because a silent one looks like a hang.
        let mut report_at = Some(self.now() + REPORT_AFTER);
        let mut refusal = None;
        let mut news = Vec::new();
        loop {
            if let Some(result) = ready(self.near()) {
                self.driver.report_again(news);
                return result;
            }
            match self.next_event(Some(report_at.map_or(deadline, |at| at.min(deadline)))) {
                // Before `report_at`, nothing comes only where nothing ever will: that ends the
                // wait.
                Ok(None) if report_at.take().is_some_and(|at| at <= self.now() && at < deadline) => {
                    let why = self.why_late(refusal.as_ref(), REPORT_AFTER);
                    tracing::warn!("{why}; trying for {timeout}");
                }
                Ok(Some(Event::Failed(failure))) => return Err(AttachError::Failed(Failure::Pcie(failure))),
                Ok(Some(Event::Link { event: Link::HandshakeFailed(error), .. })) if !passes(&error) => {
                    return Err(AttachError::Refused(error));
                }
                Ok(Some(Event::Link { event: Link::HandshakeFailed(error), .. })) => {
                    refusal = Some(error).filter(|error| *error != HandshakeError::Disconnected);
                }
                // These events are for callers that take events from now on.
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
}

/// How long a far end is waited for before the wait is reported.
const REPORT_AFTER: Nanos = Nanos::from_secs(1);

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
