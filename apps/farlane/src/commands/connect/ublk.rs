//! The block device by the kernel's user-space block driver.

use ::status::Report;
use daemon::{Daemon, Opening, Reply, Settings};
use engine::Instant;
use live::client::Url;
use live::drivers::ublk::{self, Event, UblkDriver, find};
use live::reactor::{JobSender, Stop};
use live::sys::sandbox::Needs;
use live::sys::ublk::Control;
use serde_json::Value;

use super::{About, Request, announce, identity, status};
use crate::args::{ConnectArgs, Over};
use crate::capture::{Taps, What};
use crate::commands::capture::{Capturable, Captures, notes_of_host};
use crate::error::{BlockError, Error};

pub(super) type Served = UblkDriver<fn(Event)>;

/// A block device that the kernel hands to this process.
pub(super) struct Block<'a> {
    args: &'a ConnectArgs,
    url: Url,
    kernel: Option<Control>,
    about: Option<About>,
    is_taken_over: bool,
}

impl<'a> Block<'a> {
    pub(super) const fn new(args: &'a ConnectArgs, url: Url, kernel: Control) -> Self {
        Self { args, url, kernel: Some(kernel), about: None, is_taken_over: false }
    }

    fn about(&self) -> &About {
        self.about.as_ref().expect("it is known once the medium is open")
    }
}

impl Daemon for Block<'_> {
    const KIND: &'static str = "connect";
    const WHAT: &'static str = "the block device";
    // The block device itself stays while it is in use.
    const ENDS: &'static str = "the process of the block device";
    type Driver = Served;
    type Request = Request;
    type Status = Report;
    type Captures = Captures;
    type Error = Error;

    fn settings(&self) -> Settings {
        super::settings(self.args)
    }

    fn needs(&self, needs: &mut Needs) {
        super::need(needs, self.args, &self.url);
    }

    fn open(&mut self, opening: &Opening) -> Result<Served, Error> {
        let (args, clock) = (self.args, opening.clock);
        let mut medium = super::open(clock, &self.url, args)?;
        self.about = Some(super::about(args, &self.url, Over::Ublk, &medium));
        let settings = ublk::Settings {
            mark: u64::from_be_bytes(identity(&medium).eui64),
            queues: args.queues,
            depth: args.iodepth,
            read_only: args.read_only,
        };
        let mut kernel = self.kernel.take().expect("it is opened once");
        let found = find(&mut kernel, settings, &mut medium).map_err(BlockError::Find)?;
        self.is_taken_over = found.is_taken_over;
        Ok(Served::new(clock, kernel, found, medium, report).map_err(BlockError::Ublk)?)
    }

    fn settle(&mut self, driver: &mut Served) -> Result<bool, Error> {
        Ok(driver.is_live())
    }

    fn announce(&mut self, driver: &mut Served) -> Result<(), Error> {
        let name = driver.name();
        if self.is_taken_over {
            info!("/dev/{name} goes on where another process has left it");
        }
        announce(self.args.printing.is_json(), &name, self.about())
    }

    fn summary(&self, driver: &Served) -> String {
        self.about().text(&driver.name())
    }

    fn status(&mut self, driver: &mut Served, _now: Instant, _sender: &JobSender<Served>) -> Reply<Report> {
        Reply::Now(status::of_requests(self.about(), driver))
    }

    fn answer(&mut self, driver: &mut Served, request: Request, stop: &Stop) -> Result<Value, String> {
        let Request::Disconnect { force } = request else {
            return Err("it is answered elsewhere".to_owned());
        };
        super::disconnect(&driver.name(), force, || {
            driver.set_unwanted();
            stop.ask();
        })
    }

    fn end(self, _driver: Served) -> Result<(), Error> {
        Ok(())
    }
}

impl Capturable for Served {
    fn what(&self) -> What {
        if self.medium().is_fabric() { What::Streams } else { What::Packets }
    }

    fn notes(&self) -> Vec<String> {
        self.medium().near().map(notes_of_host).unwrap_or_default()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        let passing = self.passing();
        passing.ok_or("the device is away, or nothing of it passes that can be shown")?.add(taps.tap(0));
        Ok(())
    }
}

/// Logs an event.
fn report(event: Event) {
    match event {
        Event::Live => {}
        Event::Refused(error) => warn!("the kernel has refused an answer: {error}"),
        Event::Left(users) => warn!(
            "the block device is {}, so it stays: its I/O waits for another farlane connect",
            users.join(", ")
        ),
        Event::Removed => info!("the block device was removed"),
        Event::NotRemoved(error) => warn!("the block device could not be removed: {error}"),
    }
}
