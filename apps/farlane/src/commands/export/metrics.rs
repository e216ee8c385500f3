//! The figures of far ends.

use live::carrier::datagrams::Info;
use live::drivers::far::{Backing, Event, FarDriver};
use live::reactor::Hirer;
use live::sys::clock::Clock;
use live::sys::tcp_info::TcpInfo;
use tunnel::downstream::Callers;
use tunnel::frame::Tally;

use super::server::Server;
use crate::metrics::{
    ControllerFigures, Kind, Labels, Link, Page, add_all_namespaces, add_connections, add_datagrams,
    add_reads, next_namespaces,
};

/// The figures that a far end reports about itself.
pub(super) struct Told {
    labels: Labels,
    link: Link,
    connections: Vec<TcpInfo>,
    datagrams: Vec<Info>,
    reads: Tally,
    is_owned: bool,
    callers: Callers,
}

impl Told {
    pub(super) fn of<F: FnMut(Event), B: Backing>(clock: Clock, driver: &FarDriver<F, B>) -> Self {
        let downstream = driver.far().downstream();
        Self {
            labels: vec![("far_end", format!("tcp://{}", driver.address()))],
            link: Link::of(clock.now(), downstream.session()),
            connections: driver.tcp_info().collect(),
            datagrams: driver.datagrams().collect(),
            reads: *downstream.store().tally(),
            is_owned: downstream.owner().is_some(),
            callers: downstream.callers(),
        }
    }

    pub(super) fn add(&self, page: &mut Page) {
        let help = "1 while a host that proved its key has the device";
        page.family(Kind::Gauge, "farlane_far_end_owned", help)
            .add(&self.labels, f64::from(u8::from(self.is_owned)));
        self.add_callers(page);
        self.link.add(page, &self.labels);
        add_connections(page, &self.labels, &self.connections);
        add_datagrams(page, &self.labels, &self.datagrams);
        add_reads(page, &self.labels, &self.reads);
    }
}

impl Told {
    /// Adds the outcome of connections whose hosts had not authenticated.
    fn add_callers(&self, page: &mut Page) {
        let Callers { waiting, accepted, admitted, refused, late, displaced } = self.callers;
        let help = "Connections whose hosts have not said Hello yet";
        page.family(Kind::Gauge, "farlane_strangers_waiting", help).add(&self.labels, waiting as f64);
        let counters = [
            ("farlane_strangers_accepted", "Connections accepted", accepted),
            ("farlane_strangers_admitted", "Connections that carried a session", admitted),
            ("farlane_strangers_refused", "Connections refused for their Hello, or its key", refused),
            ("farlane_strangers_late", "Connections refused since no Hello came in time", late),
            ("farlane_strangers_displaced", "Connections closed to make room for later ones", displaced),
        ];
        page.add_rows(
            &self.labels,
            counters.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)),
        );
    }
}

/// Adds the figures of far ends, to whose loop `hirer` gives jobs. Returns false once it has ended.
pub(super) fn add(page: &mut Page, clock: Clock, hirer: &Hirer<Server>) -> bool {
    let tell = move |server: &mut Server| {
        let one = |driver: &FarDriver<fn(Event)>| {
            let controller = driver.far().function().controller();
            (Told::of(clock, driver), ControllerFigures::of(controller))
        };
        server.far_ends().iter().map(one).collect::<Vec<_>>()
    };
    let Some(told) = hirer.run(tell) else { return false };
    for (index, (told, controller)) in told.iter().enumerate() {
        told.add(page);
        controller.add(page, &told.labels);
        let added = add_all_namespaces(page, &told.labels, |after| {
            hirer.run(move |server| {
                let driver = server.far_ends().iter().nth(index);
                let tallies = driver.map(|driver| driver.far().function().controller().tallies());
                tallies.map(|tallies| next_namespaces(tallies, after)).unwrap_or_default()
            })
        });
        if added.is_none() {
            return false;
        }
    }
    true
}
