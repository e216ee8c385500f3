//! `farlane emulate`: a modelled network, in real time, between two live ends.

mod packets;
mod relay;

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;

use distribution::Distribution;
use engine::Nanos;
use live::drivers::emulate::Direction;
use live::reactor::{Driver, Outcome, Reactor};
use live::sys::clock::Clock;
use live::sys::{logging, service};
use scenarios::file::link::Link;
use serde::Serialize;

use crate::args::EmulateArgs;
use crate::commands::{OPENED_BY_LISTENER, begin_serving, report_json};
use crate::error::Error;
use crate::whole_file;

pub(crate) fn run(args: &EmulateArgs) -> Result<(), Error> {
    begin_serving(args.spin.cpu, OPENED_BY_LISTENER)?;
    let text = whole_file::read(&args.link, texts::FILE_MAX)?;
    let link = Link::parse(&text).map_err(|why| Error::Link { path: args.link.clone(), why })?;
    match (&args.connect, &args.between[..]) {
        (None, [near, far]) => packets::run(args, [near, far], &link),
        (Some(connect), _) => relay::run(args, connect, &link),
        (None, _) => unreachable!("the command line asks for one of them"),
    }
}

/// The loop of an emulator, which SIGINT and SIGTERM end.
fn reactor(args: &EmulateArgs, clock: Clock) -> Result<Reactor, Error> {
    let reactor = Reactor::new(clock, Nanos::from(args.spin.spin)).map_err(Error::System)?;
    reactor.stop().on_signals().map_err(Error::System)?;
    Ok(reactor)
}

/// Counters of an emulator that are shown while it runs.
trait Told: Copy + PartialEq + Default {
    /// The counters as machines read them.
    type Line<'a>: Serialize;

    fn line(self, late: &Distribution, end: bool) -> Self::Line<'_>;

    /// The counters as people read them.
    fn words(self) -> String;
}

/// Runs an emulator to its end. Shows its counters whenever it has `ticked`, and at the end.
fn watch<D: Driver, C: Told>(
    reactor: &mut Reactor,
    driver: &mut D,
    counters: impl Fn(&D) -> C,
    (ticked, late): (&Cell<bool>, &RefCell<Distribution>),
    json: bool,
) -> Result<(), Error> {
    let mut shown = Shown { json, last: C::default() };
    service::ready("a modelled network");
    reactor.serve();
    loop {
        let outcome = reactor.run_until(driver, None, |_| ticked.get());
        let outcome = outcome.map_err(|error| Error::Child { what: "the emulated network", error })?;
        if outcome != Outcome::Met {
            break;
        }
        ticked.set(false);
        shown.show(counters(driver), &late.borrow())?;
    }
    shown.end(counters(driver), &late.borrow())
}

/// The counters that were shown last.
struct Shown<C> {
    json: bool,
    last: C,
}

impl<C: Told> Shown<C> {
    /// Shows the counters if anything has passed since the last time.
    fn show(&mut self, counters: C, late: &Distribution) -> Result<(), Error> {
        if counters == self.last {
            return Ok(());
        }
        self.last = counters;
        if self.json {
            report_json(&counters.line(late, false))
        } else {
            // A person watches the counters change; for a log, those at the end are enough.
            if std::io::stderr().is_terminal() {
                logging::show(format!("\r\x1b[K{}", counters.words()));
            }
            Ok(())
        }
    }

    fn end(&self, counters: C, late: &Distribution) -> Result<(), Error> {
        if self.json {
            return report_json(&counters.line(late, true));
        }
        if std::io::stderr().is_terminal() {
            logging::show("\r\x1b[K".to_owned());
        }
        info!("the emulated network has ended");
        logging::report(format!("{}\nwritten after their time in the model: {late}", counters.words()));
        Ok(())
    }
}

#[derive(Debug, Serialize)]
struct Way {
    bytes: u64,
    frames: u64,
    frame_bytes: u64,
    lost: u64,
    under_way: u64,
}

impl From<Direction> for Way {
    fn from(way: Direction) -> Self {
        let Direction { frames, frame_bytes, lost, under_way, bytes } = way;
        Self { bytes, frames, frame_bytes, lost, under_way }
    }
}

fn words(way: Direction) -> String {
    let Direction { bytes, frames, lost, under_way, .. } = way;
    format!("{bytes} B in {frames} frames, {lost} lost, {under_way} under way")
}
