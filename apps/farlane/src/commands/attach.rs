//! `farlane attach`: offers the SSD of a far end to a virtual machine.

use std::path::Path;

use ::status::{Report, Status};
use assemblies::guest::{Config, Guest};
use daemon::{Daemon, OnlyStatus, Opening, Reply, Settings};
use engine::{Instant, Nanos};
use live::carrier::route::Way;
use live::client::AttachError;
use live::drivers::guest::{Event, GuestDriver};
use live::drivers::hot_plug::{self, HotPlugDriver, Plug, Port, Problem};
use live::reactor::JobSender;
use live::sys::clock::Clock;
use live::sys::entropy;
use live::sys::sandbox::Needs;
use tunnel::frame::{Identity, NetworkTime};

use crate::args::{AttachArgs, need_far};
use crate::commands::capture::Captures;
use crate::commands::guest::{announce, conclude, listen, report, spin};
use crate::commands::{OPENED_BY_LISTENER, status};
use crate::error::Error;

pub(crate) fn run(args: &AttachArgs) -> Result<(), Error> {
    daemon::run(Attach { args, time: None })
}

/// How long QEMU may take to say whether it has the port: longer than it may take to greet.
const PORT_MAX: Nanos = Nanos::from_secs(20);

struct Attach<'a> {
    args: &'a AttachArgs,
    /// The network's time by the clock.
    time: Option<NetworkTime>,
}

impl Attach<'_> {
    /// The error for a port that can't be used.
    fn no_port(&self, problem: Problem) -> Error {
        let path = self.args.hot_plug.monitor.clone().unwrap_or_default();
        Error::HotPlug { path, problem }
    }

    /// The offer as text for people.
    fn text(&self) -> String {
        format!("attaching the function at {} to a guest", self.args.url)
    }
}

impl Daemon for Attach<'_> {
    const KIND: &'static str = "attach";
    const WHAT: &'static str = "the guest's end";
    type Driver = HotPlugDriver<fn(Event)>;
    type Request = OnlyStatus;
    type Status = Report;
    type Captures = Captures;
    type Error = Error;

    fn settings(&self) -> Settings {
        let args = self.args;
        Settings { spin: spin(&args.socket, &args.daemon.spin), ..args.daemon.settings(OPENED_BY_LISTENER) }
    }

    fn prepare(&mut self, clock: Clock) -> Result<(), Error> {
        let transport = &self.args.tunnel.transport;
        self.args.tunnel.spread.check_far(&self.args.url, transport)?;
        self.time = transport.ptp.network_time(&clock)?;
        Ok(())
    }

    fn needs(&self, needs: &mut Needs) {
        let transport = &self.args.tunnel.transport;
        need_far(needs, transport.key_file());
        needs.sends_frames = self.args.url.way() == Way::Eth;
        transport.need(needs);
        needs.change_beside(&self.args.socket.path);
    }

    fn open(&mut self, _opening: &Opening) -> Result<Self::Driver, Error> {
        let args = self.args;
        let name = &args.url.name();
        let route = args.tunnel.transport.checked()?.route(name);
        let route = route.map_err(|error| AttachError::without_route(name, error))?;
        let listener = listen(&args.socket.path)?;

        let mut entropy = entropy::system();
        let mut session = tunnel::session::Config {
            hold: args.hold.into(),
            tally: true,
            time: self.time,
            identity: Identity {
                name: format!("farlane attach {}", std::process::id()),
                vendor: "Farlane".to_owned(),
                device: "guest".to_owned(),
                ..Identity::default()
            },
            ..tunnel::session::Config::default()
        };
        args.tunnel.apply(&mut session);
        entropy.fill(&mut session.identity.instance.0);
        let doorbells = args.socket.poll_doorbells;
        let hot_plug = args.hot_plug.given();
        let mut config =
            Config { function: args.function, doorbells, hot_plug: hot_plug.is_some(), ..Config::default() };
        config.root.timeout = args.completion_timeout;
        let guest = Guest::over_tunnel(config, route.session(session), entropy);
        let slot = GuestDriver::over_tcp(guest, route, listener, report as fn(Event));
        let Some((monitor, port)) = hot_plug else { return Ok(HotPlugDriver::cold(slot)) };
        let path = &args.socket.path;
        let socket = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let socket = socket.to_string_lossy().into_owned();
        let port = Port::new(hot_plug::Config { port: port.to_owned(), socket });
        Ok(HotPlugDriver::hot(slot, port, monitor.to_owned(), report_port(monitor)))
    }

    fn settle(&mut self, driver: &mut Self::Driver) -> Result<bool, Error> {
        let Some(port) = driver.port() else { return Ok(true) };
        match port.problem() {
            Some(problem) => Err(self.no_port(problem.clone())),
            None => Ok(port.plug() != Plug::Unknown),
        }
    }

    fn patience(&self) -> Option<Nanos> {
        self.args.hot_plug.given().map(|_| PORT_MAX)
    }

    fn late(&mut self) -> Error {
        self.no_port(Problem::Stalled)
    }

    fn announce(&mut self, _driver: &mut Self::Driver) -> Result<(), Error> {
        announce(self.args.output.json, &self.args.socket.path, &self.text())
    }

    fn summary(&self, _driver: &Self::Driver) -> String {
        self.text()
    }

    fn status(
        &mut self,
        driver: &mut Self::Driver,
        now: Instant,
        _sender: &JobSender<Self::Driver>,
    ) -> Reply<Report> {
        let url = self.args.url.to_string();
        let mut slot = status::of_guest(now, &self.args.socket.path, Some(url), driver.slot());
        slot.port = driver.port().map(status::of_port);
        Reply::Now(Report::of(Status::Attach(slot)))
    }

    fn end(self, driver: Self::Driver) -> Result<(), Error> {
        conclude(self.args.output.json, driver.slot().guest(), None)
    }
}

/// Logs the events of a port of the QEMU whose monitor is at `monitor`.
fn report_port(monitor: &Path) -> impl FnMut(hot_plug::Event) + 'static {
    let monitor = monitor.to_owned();
    move |event| match event {
        hot_plug::Event::Problem(_) | hot_plug::Event::Kept(_) | hot_plug::Event::Removed => {
            warn!("{}: {event}", monitor.display());
        }
        _ => info!("{}: {event}", monitor.display()),
    }
}
