//! `farlane model emulate`: a modelled network, in real time, between two live ends.

pub(crate) mod packets;
pub(crate) mod relay;
mod shown;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use ::status::{Emulate, Passed, Report, Status};
use daemon::{Daemon, NoCaptures, OnlyStatus, Opening, Reply, Settings};
use distribution::Distribution;
use engine::Instant;
use live::drivers::emulate::Direction;
use live::reactor::{Context, Driver, Glance, JobSender, Sources, Turn};
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use scenarios::file::link::Link;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::EmulateArgs;
use crate::commands::listening::Listening;
use crate::commands::{OPENED_BY_LISTENER, print, print_json};
use crate::error::Error;
use crate::whole_file;
use shown::Shown;

pub(crate) fn run(args: &EmulateArgs) -> Result<(), Error> {
    let text = whole_file::read(&args.link, texts::FILE_MAX)?;
    let link = Link::parse(&text).map_err(|why| Error::Link { path: args.link.clone(), why })?;
    match (&args.connect, &args.between[..]) {
        (None, [near, far]) => {
            daemon::run(Emulation { args, link, ends: packets::Between::new([near, far]) })
        }
        (Some(connect), _) => daemon::run(Emulation { args, link, ends: relay::Through::new(connect) }),
        (None, _) => unreachable!("the command line asks for one of them"),
    }
}

/// A modelled network that runs, and its counters.
trait Network: Driver {
    /// The counters that are shown.
    type Counters: Counted;

    fn counters(&self) -> Self::Counters;
}

/// Counters of an emulator that are shown while it runs.
trait Counted: Copy + PartialEq + Default + Send + 'static {
    /// The counters as machines read them.
    type Line<'a>: Serialize;

    fn line(self, late: &Distribution, end: bool) -> Self::Line<'_>;

    /// The counters as people read them.
    fn words(self) -> String;

    /// The traffic there and back.
    fn ways(self) -> [Direction; 2];
}

/// The ends that a modelled network joins.
trait Ends {
    type Network: Network + 'static;

    /// Opens the interfaces for which a confined process has no more rights.
    fn prepare(&mut self, args: &EmulateArgs, link: &Link) -> Result<(), Error>;

    fn needs(&self, needs: &mut Needs);

    fn open(
        &mut self,
        clock: Clock,
        args: &EmulateArgs,
        link: &Link,
        noted: Rc<Noted>,
    ) -> Result<Self::Network, Error>;

    /// Where the ends are, as JSON and as text.
    fn places(&self, args: &EmulateArgs) -> (status::Ends, String);
}

/// Reports of a network since the loop last looked.
#[derive(Default)]
struct Noted {
    /// Whether it is time to show the counters.
    has_ticked: Cell<bool>,
    /// How late bytes were written, compared with their time in the model.
    late: RefCell<Distribution>,
}

/// A network whose counters are shown now and then.
struct Watched<N: Network> {
    network: N,
    noted: Rc<Noted>,
    shown: Shown<N::Counters>,
}

impl<N: Network> Driver for Watched<N> {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.network.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let turn = self.network.turn(context)?;
        if self.noted.has_ticked.take() {
            self.shown.show(self.network.counters(), &self.noted.late.borrow()).map_err(io::Error::other)?;
        }
        Ok(turn)
    }

    fn glance(&mut self, context: &Context<'_>) -> Glance {
        self.network.glance(context)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.network.poll_timeout()
    }

    fn on_stop(&mut self, now: Instant) {
        self.network.on_stop(now);
    }
}

struct Emulation<'a, E> {
    args: &'a EmulateArgs,
    link: Link,
    ends: E,
}

impl<E: Ends> Daemon for Emulation<'_, E> {
    const KIND: &'static str = "emulate";
    const WHAT: &'static str = "the emulated network";
    type Driver = Watched<E::Network>;
    type Request = OnlyStatus;
    type Status = Report;
    type Captures = NoCaptures;
    type Error = Error;

    fn settings(&self) -> Settings {
        self.args.daemon.settings(OPENED_BY_LISTENER)
    }

    fn prepare(&mut self, _clock: Clock) -> Result<(), Error> {
        self.ends.prepare(self.args, &self.link)
    }

    fn needs(&self, needs: &mut Needs) {
        self.ends.needs(needs);
    }

    fn open(&mut self, opening: &Opening) -> Result<Self::Driver, Error> {
        let noted = Rc::new(Noted::default());
        let network = self.ends.open(opening.clock, self.args, &self.link, Rc::clone(&noted))?;
        Ok(Watched { network, noted, shown: Shown::new(self.args.output.json) })
    }

    fn announce(&mut self, _driver: &mut Self::Driver) -> Result<(), Error> {
        let (ends, text) = self.ends.places(self.args);
        if !self.args.output.json {
            return print(&text);
        }
        let seed = self.args.seed;
        match ends {
            status::Ends::Relay { listening, connect } => {
                let (connect, seed) = (Some(connect), Some(seed));
                print_json(&Listening { connect, seed, ..Listening::at(listening.concat()) })
            }
            status::Ends::Packets { between, interfaces, addresses } => {
                print_json(&Between { between, interfaces, addresses, seed })
            }
        }
    }

    fn summary(&self, _driver: &Self::Driver) -> String {
        "a modelled network".to_owned()
    }

    fn status(
        &mut self,
        driver: &mut Self::Driver,
        _now: Instant,
        _sender: &JobSender<Self::Driver>,
    ) -> Reply<Report> {
        let (ends, _) = self.ends.places(self.args);
        let [there, back] = driver.network.counters().ways().map(passed);
        let network = self.args.link.to_string_lossy().into_owned();
        let seed = self.args.seed;
        Reply::Now(Report::of(Status::Emulate(Emulate { network, seed, there, back, ends })))
    }

    fn end(self, driver: Self::Driver) -> Result<(), Error> {
        driver.shown.end(driver.network.counters(), &driver.noted.late.borrow())
    }
}

/// Where an emulated network is that joins interfaces, on its first line.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Between {
    between: [String; 2],
    interfaces: [String; 2],
    addresses: [String; 2],
    seed: u64,
}

/// The traffic in one direction, as reports have it.
const fn passed(way: Direction) -> Passed {
    let Direction { frames, frame_bytes, lost, under_way, bytes } = way;
    Passed { bytes, frames, frame_bytes, lost, under_way }
}

fn words(way: Direction) -> String {
    let Direction { bytes, frames, lost, under_way, .. } = way;
    format!("{bytes} B in {frames} frames, {lost} lost, {under_way} under way")
}
