//! `farlane export --vfio-user`: a far end whose device is in another process.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ::status::Report;
use assemblies::external_device::{self, Config, ExternalDevice, Summary};
use assemblies::far::Far;
use daemon::{Daemon, OnlyStatus, Opening, Reply, Settings};
use engine::{Instant, Nanos};
use live::carrier::tcp::Listener;
use live::drivers::far::{Event, FarDriver, Server};
use live::reactor::JobSender;
use live::sys::clock::Clock;
use live::sys::entropy;
use live::sys::sandbox::Needs;
use live::sys::unix::PATH_MAX;
use tunnel::frame::NetworkTime;

use super::listeners::Listeners;
use super::{Places, open_trust, report, session, with_tls};
use crate::args::ExportArgs;
use crate::commands::capture::Captures;
use crate::commands::listening::Listening;
use crate::commands::{print, print_json, status};
use crate::error::Error;

/// The facts about the device so far.
#[derive(Debug, Default)]
struct Known {
    summary: Option<Summary>,
    /// Why there is no summary yet.
    trouble: Option<String>,
}

impl Known {
    fn learn(&mut self, event: &Event) {
        match event {
            Event::ExternalDevice(external_device::Event::Ready(summary)) => self.summary = Some(*summary),
            Event::ExternalDevice(external_device::Event::Without(_)) => {}
            Event::ExternalDevice(event) => self.trouble = Some(event.to_string()),
            Event::NoServer(error) => self.trouble = Some(error.to_string()),
            _ => {}
        }
    }
}

/// Checks that one host at a time can reach the device at `path`.
///
/// # Errors
/// When `args` offer it at several addresses.
pub(super) fn check(args: &ExportArgs, path: &Path) -> Result<(), Error> {
    match args.listen.len() {
        1 => Ok(()),
        count => Err(Error::OneDevice { path: path.to_owned(), count }),
    }
}

/// A far end whose device another process has at `path`.
pub(super) struct External<'a> {
    args: &'a ExportArgs,
    path: &'a Path,
    config: Option<&'a PathBuf>,
    /// The network's time by the clock.
    time: Option<NetworkTime>,
    known: Rc<RefCell<Known>>,
    places: Option<Places>,
}

impl<'a> External<'a> {
    pub(super) fn new(args: &'a ExportArgs, path: &'a Path, config: Option<&'a PathBuf>) -> Self {
        Self { args, path, config, time: None, known: Rc::default(), places: None }
    }

    fn absent(&self, why: String) -> Error {
        Error::NoDevice { path: self.path.to_owned(), why }
    }
}

impl Daemon for External<'_> {
    const KIND: &'static str = "export";
    const WHAT: &'static str = "the far end";
    type Driver = FarDriver<Box<dyn FnMut(Event)>, Server>;
    type Request = OnlyStatus;
    type Status = Report;
    type Captures = Captures;
    type Error = Error;

    fn settings(&self) -> Settings {
        super::settings(self.args)
    }

    fn prepare(&mut self, clock: Clock) -> Result<(), Error> {
        self.time = super::prepare(self.args, clock)?;
        Ok(())
    }

    fn needs(&self, needs: &mut Needs) {
        super::need(needs, self.args, self.config);
    }

    fn open(&mut self, opening: &Opening) -> Result<Self::Driver, Error> {
        let (args, path, clock) = (self.args, self.path, opening.clock);
        let length = path.as_os_str().len();
        if length > PATH_MAX {
            let why = format!("the path has {length} bytes, a socket's at most {PATH_MAX}");
            return Err(self.absent(why));
        }
        let &[listen] = args.listen.as_slice() else {
            return Err(Error::OneDevice { path: path.to_owned(), count: args.listen.len() });
        };
        let listener = Listener::bind(listen).map_err(|error| Error::Listen { address: listen, error })?;
        let trusted = open_trust(args)?;
        // Another process has the namespaces, if there are any.
        let admission = trusted.admission.clone().only_whole()?;
        let listener = with_tls(listener.with(args.tcp.options()?), trusted.acceptor()?);
        let address = listener.address();

        let listeners = Listeners::open(args, &trusted, clock.now())?;
        self.places = Some(Places::of(address, &listeners, &trusted));
        let mut entropy = entropy::system();
        let name = format!("farlane export {}", path.display());
        let mut session = session(args.hold.into(), &mut entropy, name, "PCIe device of another process");
        session.time = self.time;
        let device = ExternalDevice::new(Config::default());
        let far = Far::around(clock.now(), session, device, entropy);
        let server = Server::new(path).map_err(Error::Output)?;
        let known = Rc::clone(&self.known);
        let report: Box<dyn FnMut(Event)> = Box::new(move |event| {
            known.borrow_mut().learn(&event);
            report(event);
        });
        let driver = FarDriver::external_device(far, listener, server, report);
        Ok(listeners.join(driver.with_admission(clock.now(), admission)))
    }

    fn settle(&mut self, _driver: &mut Self::Driver) -> Result<bool, Error> {
        Ok(self.known.borrow().summary.is_some())
    }

    fn patience(&self) -> Option<Nanos> {
        Some(self.args.timeout.into())
    }

    fn late(&mut self) -> Error {
        let why = self.known.borrow_mut().trouble.take();
        self.absent(why.unwrap_or_else(|| "its server does not answer".to_owned()))
    }

    fn announce(&mut self, _driver: &mut Self::Driver) -> Result<(), Error> {
        let known = self.known.borrow();
        match (&known.summary, &self.places) {
            (Some(summary), Some(places)) => announce(self.args, places, self.path, summary),
            _ => Ok(()),
        }
    }

    fn summary(&self, _driver: &Self::Driver) -> String {
        format!("the device at {}", self.path.display())
    }

    fn status(
        &mut self,
        driver: &mut Self::Driver,
        now: Instant,
        _sender: &JobSender<Self::Driver>,
    ) -> Reply<Report> {
        Reply::Now(status::of_far_ends(vec![status::of_far(now, driver, |_| None)]))
    }

    fn end(self, _driver: Self::Driver) -> Result<(), Error> {
        Ok(())
    }
}

fn announce(args: &ExportArgs, places: &Places, path: &Path, summary: &Summary) -> Result<(), Error> {
    if args.output.json {
        print_json(&Listening {
            device: Some(format!("{:04x}:{:04x}", summary.vendor, summary.device)),
            class: Some(summary.class.to_string()),
            socket: Some(path.to_string_lossy().into_owned()),
            ..places.listening()
        })?;
    } else {
        print(&format!("exporting {summary} of {} at {}\n", path.display(), places.urls()))?;
    }
    places.warn("this device");
    Ok(())
}
