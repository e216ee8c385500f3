//! The kernel's packets, which pass through a modelled network between two network namespaces.

use std::io;
use std::rc::Rc;

use distribution::Distribution;
use engine::{Nanos, Rng};
use live::drivers::emulate::Direction;
use live::drivers::emulate::packets::{Counters, Event, Namespace, Packets, Settings, Tun};
use live::sys::clock::Clock;
use live::sys::sandbox::Needs;
use network_models::Passage;
use scenarios::file::link::Link;
use schemars::JsonSchema;
use serde::Serialize;
use status::Passed;

use super::{Counted, Ends, Network, Noted, passed};
use crate::args::EmulateArgs;
use crate::error::Error;

/// Two network namespaces, each with an interface.
pub(super) struct Between<'a> {
    names: [&'a str; 2],
    /// The interfaces until the network has them, and their names.
    interfaces: Option<[Tun; 2]>,
    called: [String; 2],
}

impl<'a> Between<'a> {
    pub(super) fn new(names: [&'a str; 2]) -> Self {
        Self { names, interfaces: None, called: Default::default() }
    }
}

impl Network for Packets<Box<dyn FnMut(Event)>> {
    type Counters = Counters;

    fn counters(&self) -> Counters {
        Self::counters(self)
    }
}

impl Ends for Between<'_> {
    type Network = Packets<Box<dyn FnMut(Event)>>;

    fn prepare(&mut self, args: &EmulateArgs, link: &Link) -> Result<(), Error> {
        let (addresses, mtu) = (args.subnet.ends(), link.config().mtu);
        let [near, far] = [0, 1].map(|end| {
            let settings = Settings { address: addresses[end], prefix: args.subnet.prefix(), mtu };
            interface(self.names[end], settings)
        });
        let interfaces = [near?, far?];
        self.called = interfaces.each_ref().map(|one| one.name().to_owned());
        self.interfaces = Some(interfaces);
        Ok(())
    }

    fn needs(&self, _needs: &mut Needs) {}

    fn open(
        &mut self,
        clock: Clock,
        args: &EmulateArgs,
        link: &Link,
        noted: Rc<Noted>,
    ) -> Result<Self::Network, Error> {
        let interfaces = self.interfaces.take().expect("prepared once, and opened once");
        let passage = Passage::new(link.config(), link.paths(&Rng::from_seed(args.seed)));
        let report: Box<dyn FnMut(Event)> = Box::new(move |event| match event {
            Event::Tick => noted.has_ticked.set(true),
            Event::Written(by) => noted.late.borrow_mut().record(by),
        });
        let mut packets = Packets::new(clock.now(), passage, interfaces, report);
        let every = Nanos::from(args.every);
        if every > Nanos::ZERO {
            packets.tick_every(clock.now(), every);
        }
        Ok(packets)
    }

    fn places(&self, args: &EmulateArgs) -> (status::Ends, String) {
        let addresses = args.subnet.ends();
        let ends = status::Ends::Packets {
            between: self.names.each_ref().map(ToString::to_string),
            interfaces: self.called.each_ref().map(ToString::to_string),
            addresses: addresses.map(|address| address.to_string()),
        };
        let [near, far] =
            [0, 1].map(|end| format!("{} ({} in {})", addresses[end], self.called[end], self.names[end]));
        (ends, format!("{near} reaches {far} through {}\n", args.link.display()))
    }
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

/// The traffic of an emulated network of interfaces, once a second and at the end.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Line<'a> {
    there: Passed,
    back: Passed,
    /// Packets that were sent into the interfaces and are no IP packets.
    strange: u64,
    /// Packets that came out of the model and that the interface did not take.
    refused: u64,
    /// How late packets were written, compared with their time in the model.
    late_ns: &'a Distribution,
    end: bool,
}

impl Counted for Counters {
    type Line<'a> = Line<'a>;

    fn line(self, late: &Distribution, end: bool) -> Line<'_> {
        let Self { there, back, strange, refused } = self;
        Line { there: passed(there), back: passed(back), strange, refused, late_ns: late, end }
    }

    fn ways(self) -> [Direction; 2] {
        [self.there, self.back]
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
