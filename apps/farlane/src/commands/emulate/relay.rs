//! Connections that pass through a modelled network, TCP included.

use std::net::SocketAddr;
use std::rc::Rc;

use distribution::Distribution;
use engine::{Nanos, Rng};
use live::carrier::tcp::{Listener, resolve};
use live::drivers::emulate::Direction;
use live::drivers::emulate::relay::{Counters, Event, Relay};
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use scenarios::file::link::Link;
use schemars::JsonSchema;
use serde::Serialize;
use status::Passed;

use super::{Counted, Ends, Noted, passed};
use crate::args::EmulateArgs;
use crate::error::Error;

/// Connections to an address, which go on to another one.
pub(super) struct Through<'a> {
    connect: &'a str,
    address: Option<SocketAddr>,
}

impl<'a> Through<'a> {
    pub(super) const fn new(connect: &'a str) -> Self {
        Self { connect, address: None }
    }
}

impl super::Network for Relay<Box<dyn FnMut(Event)>> {
    type Counters = Counters;

    fn counters(&self) -> Counters {
        Self::counters(self)
    }
}

impl Ends for Through<'_> {
    type Network = Relay<Box<dyn FnMut(Event)>>;

    fn prepare(&mut self, _args: &EmulateArgs, _link: &Link) -> Result<(), Error> {
        Ok(())
    }

    fn needs(&self, needs: &mut Needs) {
        needs.dials = true;
    }

    fn open(
        &mut self,
        clock: Clock,
        args: &EmulateArgs,
        link: &Link,
        noted: Rc<Noted>,
    ) -> Result<Self::Network, Error> {
        let to = resolve(self.connect).map_err(|error| Error::Connect { error })?;
        let address = args.listen;
        let listener = Listener::bind(address).map_err(|error| Error::Listen { address, error })?;
        self.address = Some(listener.address());
        let network = link.network(&Rng::from_seed(args.seed));
        let report: Box<dyn FnMut(Event)> = Box::new(move |event| match event {
            Event::Tick => noted.has_ticked.set(true),
            Event::Written(by) => noted.late.borrow_mut().record(by),
            event => report(&event),
        });
        let mut relay = Relay::new(clock.now(), network, listener, to, report);
        let every = Nanos::from(args.every);
        if every > Nanos::ZERO {
            relay.tick_every(clock.now(), every);
        }
        Ok(relay)
    }

    fn places(&self, args: &EmulateArgs) -> (status::Ends, String) {
        let address = self.address.unwrap_or(args.listen);
        let connect = self.connect;
        let ends = status::Ends::Relay { listening: vec![address.to_string()], connect: connect.to_string() };
        (ends, format!("{address} is {connect} through {}\n", args.link.display()))
    }
}

/// Logs an event.
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

/// The traffic of an emulated network, once a second and at the end.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Line<'a> {
    connections: u64,
    open: usize,
    there: Passed,
    back: Passed,
    retransmitted: u64,
    /// How late bytes were written, compared with their time in the model.
    late_ns: &'a Distribution,
    end: bool,
}

impl Counted for Counters {
    type Line<'a> = Line<'a>;

    fn line(self, late: &Distribution, end: bool) -> Line<'_> {
        let Self { open, connections, there, back, retransmitted } = self;
        Line {
            connections,
            open,
            there: passed(there),
            back: passed(back),
            retransmitted,
            late_ns: late,
            end,
        }
    }

    fn ways(self) -> [Direction; 2] {
        [self.there, self.back]
    }

    fn words(self) -> String {
        let Self { open, connections, there, back, retransmitted } = self;
        let [there, back] = [there, back].map(super::words);
        format!(
            "{open} of {connections} connections open; there {there}; back {back}; {retransmitted} sent again"
        )
    }
}
