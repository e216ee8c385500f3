//! The block device by the kernel's user-space block driver.

use ::status::Report;
use daemon::Reply;
use live::drivers::ublk::{self, Event, UblkDriver, find};
use live::media::RemoteMedium;
use live::reactor::JobSender;
use live::sys::clock::Clock;
use live::sys::ublk::Control;

use super::block::BlockDriver;
use super::{About, identity, status};
use crate::args::{ConnectArgs, Over};
use crate::capture::{Taps, What};
use crate::commands::capture::{Capturable, notes_of_host};
use crate::error::{BlockError, Error};

type Served = UblkDriver<fn(Event)>;

/// The kernel's user-space block driver.
pub(super) struct Ublk {
    kernel: Option<Control>,
    is_taken_over: bool,
}

impl Ublk {
    pub(super) const fn new(kernel: Control) -> Self {
        Self { kernel: Some(kernel), is_taken_over: false }
    }
}

impl BlockDriver for Ublk {
    const WHAT: &'static str = "the block device";
    // The block device itself stays while it is in use.
    const ENDS: &'static str = "the process of the block device";
    const OVER: Over = Over::Ublk;
    type Served = Served;

    fn serve(&mut self, args: &ConnectArgs, clock: Clock, mut medium: RemoteMedium) -> Result<Served, Error> {
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

    fn is_there(_args: &ConnectArgs, served: &Served) -> Result<bool, Error> {
        Ok(served.is_live())
    }

    fn name(served: &Served) -> String {
        served.name()
    }

    fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    fn status(about: &About, served: &Served, _sender: &JobSender<Served>) -> Reply<Report> {
        Reply::Now(status::of_requests(about, served))
    }

    fn set_unwanted(served: &Served) {
        served.set_unwanted();
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
