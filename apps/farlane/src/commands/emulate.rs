//! `farlane emulate`: a modelled network in real time between two live ends.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal;

use engine::{Nanos, Rng};
use live::clock::Clock;
use live::emulate::{Counters, Direction, Emulator, Event};
use live::reactor::Reactor;
use live::tcp::{Listener, resolve};
use scenarios::file::link::Link;
use serde::Serialize;

use crate::args::EmulateArgs;
use crate::commands::{print, print_json, stay_on};
use crate::distribution::Distribution;
use crate::error::Error;

pub(crate) fn run(args: &EmulateArgs) -> Result<(), Error> {
    stay_on(args.spin.cpu)?;
    let text = std::fs::read_to_string(&args.link)
        .map_err(|error| Error::File { path: args.link.clone(), error })?;
    let link = Link::parse(&text).map_err(|why| Error::Link { path: args.link.clone(), why })?;
    let to = resolve(&args.connect).map_err(|error| Error::Connect { error })?;
    let listener =
        Listener::bind(args.listen).map_err(|error| Error::Listen { address: args.listen, error })?;
    let address = listener.address();
    if args.output.json {
        let line = serde_json::json!({
            "listening": address.to_string(), "connect": args.connect, "seed": args.seed,
        });
        print_json(&line)?;
    } else {
        print(&format!("{address} is {} through {}\n", args.connect, args.link.display()))?;
    }

    let clock = Clock::start();
    let mut reactor = Reactor::new(clock, Nanos::from(args.spin.spin)).map_err(Error::Output)?;
    reactor.stop().on_signals().map_err(Error::Output)?;
    let network = link.network(&Rng::from_seed(args.seed));
    let (ticked, late) = (Cell::new(false), RefCell::new(Distribution::new()));
    let mut emulator = Emulator::new(clock.now(), network, listener, to, |event| match event {
        Event::Tick => ticked.set(true),
        Event::Written(by) => late.borrow_mut().record(by),
        event => report(&event),
    });
    let every = Nanos::from(args.every);
    if every > Nanos::ZERO {
        emulator.tick_every(clock.now(), every);
    }
    let mut shown = Shown { json: args.output.json, last: Counters::default() };
    loop {
        let outcome = reactor.run_until(&mut emulator, None, |_| ticked.get());
        let outcome = outcome.map_err(|error| Error::Child { what: "the emulated network", error })?;
        if outcome != live::reactor::Outcome::Met {
            break;
        }
        ticked.set(false);
        shown.show(emulator.counters(), &late.borrow())?;
    }
    shown.end(emulator.counters(), &late.borrow())
}

/// Tells a person what happens, on standard error.
fn report(event: &Event) {
    match event {
        Event::Tick | Event::Written(_) => {}
        Event::Accepted(peer) => eprintln!("farlane: {peer}: connected"),
        Event::Refused(peer, error) => eprintln!("farlane: {peer}: refused: the other end: {error}"),
        Event::Ended(peer, why) => {
            let why = match why {
                link::tcp::Gone::Closed => "closed",
                link::tcp::Gone::Refused => "refused",
                link::tcp::Gone::Reset => "reset",
                link::tcp::Gone::TimedOut => "timed out in the modelled network",
            };
            eprintln!("farlane: {peer}: {why}");
        }
        Event::AcceptFailed(error) => eprintln!("farlane: a connection could not be accepted: {error}"),
        Event::TooMany(peer) => {
            let most = link::network::CONNECTIONS_MAX;
            eprintln!("farlane: {peer}: refused: there are {most} connections already");
        }
    }
}

/// Counters as they are printed.
#[derive(Debug, Serialize)]
struct Line<'a> {
    connections: u64,
    open: usize,
    there: Way,
    back: Way,
    retransmitted: u64,
    /// How long after their time in the model bytes were written.
    late_ns: &'a Distribution,
    end: bool,
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

/// What was shown last.
struct Shown {
    json: bool,
    last: Counters,
}

impl Shown {
    /// Shows the counters if anything has passed.
    fn show(&mut self, counters: Counters, late: &Distribution) -> Result<(), Error> {
        if counters == self.last {
            return Ok(());
        }
        self.last = counters;
        if self.json {
            print_json(&line(counters, late, false))
        } else {
            // A person watches; a log has the end.
            if std::io::stderr().is_terminal() {
                eprint!("\r\x1b[K{}", words(counters));
            }
            Ok(())
        }
    }

    fn end(&self, counters: Counters, late: &Distribution) -> Result<(), Error> {
        if self.json {
            return print_json(&line(counters, late, true));
        }
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        eprintln!("farlane: the emulated network has ended");
        print(&format!("{}\nwritten after their time in the model: {late}\n", words(counters)))
    }
}

fn line(counters: Counters, late: &Distribution, end: bool) -> Line<'_> {
    let Counters { open, connections, there, back, retransmitted } = counters;
    Line { connections, open, there: there.into(), back: back.into(), retransmitted, late_ns: late, end }
}

fn words(counters: Counters) -> String {
    let way = |way: Direction| {
        format!("{} B in {} frames, {} lost, {} under way", way.bytes, way.frames, way.lost, way.under_way)
    };
    let Counters { open, connections, there, back, retransmitted } = counters;
    format!(
        "{open} of {connections} connections open; there {}; back {}; {retransmitted} sent again",
        way(there),
        way(back)
    )
}
