//! The kernel's packets, which pass through a modelled network between two network namespaces.

use std::cell::{Cell, RefCell};
use std::io;

use distribution::Distribution;
use engine::{Nanos, Rng};
use live::drivers::emulate::packets::{Counters, Event, Namespace, Packets, Settings, Tun};
use live::sys::clock::Clock;
use network_models::Passage;
use scenarios::file::link::Link;
use serde::Serialize;

use super::{Told, Way, reactor, watch};
use crate::args::EmulateArgs;
use crate::commands::{print, print_json};
use crate::error::Error;

pub(super) fn run(args: &EmulateArgs, between: [&str; 2], link: &Link) -> Result<(), Error> {
    let addresses = args.subnet.ends();
    let mtu = link.config().mtu;
    let [near, far] = [0, 1].map(|end| {
        let settings = Settings { address: addresses[end], prefix: args.subnet.prefix(), mtu };
        interface(between[end], settings)
    });
    let interfaces = [near?, far?];
    if args.output.json {
        let line = serde_json::json!({
            "between": between,
            "interfaces": interfaces.each_ref().map(Tun::name),
            "addresses": addresses.map(|address| address.to_string()),
            "seed": args.seed,
        });
        print_json(&line)?;
    } else {
        let [near, far] =
            [0, 1].map(|end| format!("{} ({} in {})", addresses[end], interfaces[end].name(), between[end]));
        print(&format!("{near} reaches {far} through {}\n", args.link.display()))?;
    }

    let clock = Clock::start();
    let mut reactor = reactor(args, clock)?;
    let passage = Passage::new(link.config(), link.paths(&Rng::from_seed(args.seed)));
    let (ticked, late) = (Cell::new(false), RefCell::new(Distribution::new()));
    let mut packets = Packets::new(clock.now(), passage, interfaces, |event| match event {
        Event::Tick => ticked.set(true),
        Event::Written(by) => late.borrow_mut().record(by),
    });
    let every = Nanos::from(args.every);
    if every > Nanos::ZERO {
        packets.tick_every(clock.now(), every);
    }
    watch(&mut reactor, &mut packets, Packets::counters, (&ticked, &late), args.output.json)
}

/// Opens a TUN interface in the network namespace called `namespace`.
fn interface(namespace: &str, settings: Settings) -> Result<Tun, Error> {
    let wrong = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error::NoNetworkAdmin { error },
        _ => Error::Interface { namespace: namespace.to_owned(), error },
    };
    let opened = Namespace::open(namespace).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoNamespaceFile { namespace: namespace.to_owned() },
        _ => wrong(error),
    })?;
    Tun::open(&opened, settings).map_err(wrong)
}

/// The counters as they are printed for machines.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    there: Way,
    back: Way,
    /// Packets that were sent into the interfaces and are no IP packets.
    strange: u64,
    /// Packets that came out of the model and that the interface did not take.
    refused: u64,
    /// How late packets were written, compared with their time in the model.
    late_ns: &'a Distribution,
    end: bool,
}

impl Told for Counters {
    type Line<'a> = Line<'a>;

    fn line(self, late: &Distribution, end: bool) -> Line<'_> {
        let Self { there, back, strange, refused } = self;
        Line { there: there.into(), back: back.into(), strange, refused, late_ns: late, end }
    }

    fn words(self) -> String {
        let [there, back] = [self.there, self.back].map(super::words);
        let mut text = format!("there {there}; back {back}");
        for (count, what) in [(self.strange, "were no IP packets"), (self.refused, "were not taken")] {
            if count > 0 {
                text.push_str(&format!("; {count} {what}"));
            }
        }
        text
    }
}
