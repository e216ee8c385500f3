//! The figures of a guest's slot, and of the tunnel or the controller behind it.

use assemblies::guest::Statistics;
use live::carrier::datagrams::Info;
use live::drivers::guest::{Event, GuestDriver};
use live::reactor::Hirer;
use live::sys::clock::Clock;
use live::sys::tcp_info::TcpInfo;
use nvme_lookahead::Statistics as Ahead;
use tunnel::frame::Tally;
use tunnel::session::Session;
use tunnel::upstream::PortIndex;

use crate::metrics::{
    ControllerFigures, Kind, Labels, Link, Page, add_all_namespaces, add_connections, add_datagrams,
    add_reads, next_namespaces,
};

/// The figures that a slot reports about itself.
struct Told {
    statistics: Statistics,
    link: Option<Link>,
    connections: Vec<TcpInfo>,
    datagrams: Vec<Info>,
    reads: Option<Tally>,
    ahead: Option<Ahead>,
    controller: Option<ControllerFigures>,
}

/// Adds the figures of a guest's slot, whose loop `hirer` gives jobs to. Returns false when the
/// loop has ended.
pub(crate) fn add<F: FnMut(Event) + 'static>(
    page: &mut Page,
    clock: Clock,
    hirer: &Hirer<GuestDriver<F>>,
) -> bool {
    let Some(told) = hirer.run(move |driver| tell(clock, driver)) else { return false };
    let none = Labels::new();
    let Statistics { config_accesses, bar_accesses, signals, waited, given_up, .. } = told.statistics;
    let counters = [
        ("farlane_guest_config_accesses", "Accesses of the guest to configuration space", config_accesses),
        ("farlane_guest_register_accesses", "Accesses of the guest to registers", bar_accesses),
        ("farlane_guest_interrupts", "Interrupts given to the guest", signals),
        ("farlane_guest_waits", "Accesses that waited for an answer of the function", waited),
        ("farlane_guest_waits_in_vain", "Accesses that were answered without the function", given_up),
    ];
    page.add_rows(&none, counters.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
    if let Some(link) = told.link {
        link.add(page, &none);
    }
    add_connections(page, &none, &told.connections);
    add_datagrams(page, &none, &told.datagrams);
    if let Some(reads) = told.reads {
        add_reads(page, &none, &reads);
    }
    if let Some(Ahead { commands, entries, bytes, given_up, over_budget, .. }) = told.ahead {
        let counters = [
            ("farlane_lookahead_commands", "I/O commands that have completed", commands),
            ("farlane_lookahead_entries", "Commands that went ahead with their doorbell", entries),
            ("farlane_lookahead_bytes", "Bytes of memory that were sent ahead", bytes),
            ("farlane_lookahead_given_up", "Doorbells that went on without their memory", given_up),
            ("farlane_lookahead_without_room", "Commands whose data had no room", over_budget),
        ];
        page.add_rows(&none, counters.map(|(name, help, value)| (Kind::Counter, name, help, value as f64)));
    }
    let Some(controller) = told.controller else { return true };
    controller.add(page, &none);
    add_all_namespaces(page, &none, |after| {
        let next = move |driver: &mut GuestDriver<F>| {
            driver.controller().map(|one| next_namespaces(one.tallies(), after)).unwrap_or_default()
        };
        hirer.run(next)
    })
    .is_some()
}

fn tell<F: FnMut(Event)>(clock: Clock, driver: &GuestDriver<F>) -> Told {
    let guest = driver.guest();
    let upstream = guest.upstream();
    let session = upstream.and_then(|upstream| upstream.session(PortIndex(0)));
    let interposer = upstream.and_then(|upstream| upstream.interposer());
    Told {
        statistics: *guest.statistics(),
        connections: driver.tcp_info().collect(),
        datagrams: driver.datagrams().collect(),
        link: session.map(|session| Link::of(clock.now(), session)),
        reads: session.and_then(Session::tally).map(|(_, tally)| *tally),
        ahead: interposer.map(|interposer| *interposer.statistics()),
        controller: driver.controller().map(ControllerFigures::of),
    }
}
