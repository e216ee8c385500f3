//! `farlane attach`: offers the SSD of a far end to a virtual machine.

use ::status::{Report, Status};
use assemblies::guest::{Config, Guest};
use daemon::{Daemon, OnlyStatus, Opening, Reply, Settings};
use engine::Instant;
use live::carrier::route::Way;
use live::client::AttachError;
use live::drivers::guest::{Event, GuestDriver};
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

struct Attach<'a> {
    args: &'a AttachArgs,
    /// The network's time by the clock.
    time: Option<NetworkTime>,
}

impl Attach<'_> {
    /// The offer as text for people.
    fn text(&self) -> String {
        format!("attaching the function at {} to a guest", self.args.url)
    }
}

impl Daemon for Attach<'_> {
    const KIND: &'static str = "attach";
    const WHAT: &'static str = "the guest's end";
    type Driver = GuestDriver<fn(Event)>;
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
        let mut config = Config { function: args.function, doorbells, ..Config::default() };
        config.root.timeout = args.completion_timeout;
        let guest = Guest::over_tunnel(config, route.session(session), entropy);
        Ok(GuestDriver::over_tcp(guest, route, listener, report))
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
        let slot = status::of_guest(now, &self.args.socket.path, Some(url), driver);
        Reply::Now(Report::of(Status::Attach(slot)))
    }

    fn end(self, driver: Self::Driver) -> Result<(), Error> {
        conclude(self.args.output.json, driver.guest(), None)
    }
}
