//! Connections that pass through a modelled network, TCP included.

use std::cell::{Cell, RefCell};

use distribution::Distribution;
use engine::{Nanos, Rng};
use live::carrier::tcp::{Listener, resolve};
use live::drivers::emulate::relay::{Counters, Event, Relay};
use live::sys::clock::Clock;
use scenarios::file::link::Link;
use serde::Serialize;

use super::{Told, Way, reactor, watch};
use crate::args::EmulateArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

pub(super) fn run(args: &EmulateArgs, connect: &str, link: &Link) -> Result<(), Error> {
    // Signals are handled before the address is printed: whoever reads it may end the process in
    // good order.
    let clock = Clock::start();
    let mut reactor = reactor(args, clock)?;
    let to = resolve(connect).map_err(|error| Error::Connect { error })?;
    let address = args.listen;
    let listener = Listener::bind(address).map_err(|error| Error::Listen { address, error })?;
    let address = listener.address();
    if args.output.json {
        let line = serde_json::json!({
            "listening": address.to_string(), "connect": connect, "seed": args.seed,
        });
        print_json(&line)?;
    } else {
        print(&format!("{address} is {connect} through {}\n", args.link.display()))?;
    }

    let network = link.network(&Rng::from_seed(args.seed));
    let (ticked, late) = (Cell::new(false), RefCell::new(Distribution::new()));
    let mut relay = Relay::new(clock.now(), network, listener, to, |event| match event {
        Event::Tick => ticked.set(true),
        Event::Written(by) => late.borrow_mut().record(by),
        event => report(&event),
    });
    let every = Nanos::from(args.every);
    if every > Nanos::ZERO {
        relay.tick_every(clock.now(), every);
    }
    watch(&mut reactor, &mut relay, Relay::counters, (&ticked, &late), args.output.json)
}

/// Tells a person about an event, on standard error.
fn report(event: &Event) {
    match event {
        Event::Tick | Event::Written(_) => {}
        Event::Accepted(peer) => info!(%peer, "{peer}: connected"),
        Event::Refused(peer, error) => warn!(%peer, "{peer}: refused: the other end: {error}"),
        Event::Ended(peer, why) => {
            let why = match why {
                network_models::tcp::Gone::Closed => "closed",
                network_models::tcp::Gone::Refused => "refused",
                network_models::tcp::Gone::Reset => "reset",
                network_models::tcp::Gone::TimedOut => "timed out in the modelled network",
            };
            info!(%peer, "{peer}: {why}");
        }
        Event::AcceptFailed(error) => warn!("a connection could not be accepted: {error}"),
        Event::TooMany(peer) => {
            let most = network_models::network::CONNECTIONS_MAX;
            warn!(%peer, "{peer}: refused: there are {most} connections already");
        }
    }
}

/// The counters as they are printed for machines.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    connections: u64,
    open: usize,
    there: Way,
    back: Way,
    retransmitted: u64,
    /// How late bytes were written, compared with their time in the model.
    late_ns: &'a Distribution,
    end: bool,
}

impl Told for Counters {
    type Line<'a> = Line<'a>;

    fn line(self, late: &Distribution, end: bool) -> Line<'_> {
        let Self { open, connections, there, back, retransmitted } = self;
        Line { connections, open, there: there.into(), back: back.into(), retransmitted, late_ns: late, end }
    }

    fn words(self) -> String {
        let Self { open, connections, there, back, retransmitted } = self;
        let [there, back] = [there, back].map(super::words);
        format!(
            "{open} of {connections} connections open; there {there}; back {back}; {retransmitted} sent again"
        )
    }
}
