//! The block device by the kernel's user-space block driver.

use ::status::Report;
use daemon::{Opening, Reply};
use live::client::Url;
use live::drivers::ublk::{self, Event, StartError, Threads, UblkDriver, find};
use live::media::RemoteMedium;
use live::media::remote::Place;
use live::reactor::JobSender;
use live::sys::ublk::Control;

use super::block::BlockDriver;
use super::{About, PATIENCE, identity, log, status, unopened};
use crate::args::{ConnectArgs, Over};
use crate::capture::{Taps, What};
use crate::commands::capture::{Capturable, notes_of_host};
use crate::error::{BlockError, Error, ThreadError};

type Served = UblkDriver;

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

    fn hosts(args: &ConnectArgs, url: &Url) -> usize {
        if url.takes_many_hosts() { args.queues().into() } else { 1 }
    }

    fn serve(
        &mut self,
        args: &ConnectArgs,
        opening: &Opening,
        place: Place,
        mut medium: RemoteMedium,
    ) -> Result<Served, Error> {
        let settings = ublk::Settings {
            mark: u64::from_be_bytes(identity(&medium).eui64),
            queues: args.queues(),
            depth: args.iodepth,
            read_only: args.read_only,
        };
        let mut kernel = self.kernel.take().expect("it is opened once");
        let found = find(&mut kernel, settings, &mut medium).map_err(BlockError::Find)?;
        self.is_taken_over = found.is_taken_over;
        let spin = &args.daemon.spin;
        let threads = Threads {
            place,
            patience: PATIENCE,
            log,
            spin: spin.spin.into(),
            processor: spin.cpu,
            stop: opening.stop.clone(),
        };
        let threads = medium.takes_many_hosts().then_some(&threads);
        let queues = found.info.queues.into();
        Served::new(opening.clock, kernel, found, medium, threads, report).map_err(|error| match error {
            StartError::Driver(error) => BlockError::Ublk(error).into(),
            StartError::System(error) => Error::System(error),
            StartError::Queue { queue, error } => {
                let error = Box::new(unopened(error));
                ThreadError::Failed { thread: 1 + usize::from(queue), of: queues, error }.into()
            }
        })
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
        status::of_requests(about, served)
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
        let taps = taps.clone();
        match self.watch(move |watch| watch.add(taps.tap(0))) {
            true => Ok(()),
            false => Err("the device is away, or nothing of it passes that can be shown".to_owned()),
        }
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
        Event::Resized(bytes) => info!("the namespace has {bytes} B by now, and so has the block device"),
        Event::NotResized(bytes, None) => warn!(
            "the namespace has {bytes} B by now, and the block device keeps its size: this kernel's \
             user-space block driver resizes none (Linux 6.16 or newer does); farlane use disconnect, then \
             farlane connect, for the new size"
        ),
        Event::NotResized(bytes, Some(error)) => warn!(
            "the namespace has {bytes} B by now, and the block device keeps its size: {error}; farlane use \
             disconnect, then farlane connect, for the new size"
        ),
        Event::Removed => info!("the block device was removed"),
        Event::NotRemoved(error) => warn!("the block device could not be removed: {error}"),
    }
}
