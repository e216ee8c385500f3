//! The figures of a target, gathered from its cores in small jobs.

use std::time::Instant;

use assemblies::target::{AssociationStatus, StrangersStatus};
use live::reactor::Hirer;
use live::sys::tcp_info::TcpInfo;
use nvme::subsystem::Counters;
use nvme_fabrics::target::SubsystemKey;

use super::core::Core;
use super::hosts_told::each_host;
use crate::metrics::{
    Kind, Labels, Page, add_all_namespaces, add_health, add_host, next_namespaces, seconds,
};

/// The figures that a core reports about itself.
struct Told {
    connections: usize,
    memory: assemblies::target::MemoryStatus,
    strangers: StrangersStatus,
    subsystems: Vec<(SubsystemKey, String, Counters)>,
}

/// Adds the figures of all cores. Returns false when a core has ended.
pub(super) fn add(page: &mut Page, cores: &[Hirer<Core>]) -> bool {
    (0..).zip(cores).all(|(index, core)| add_core(page, index, core).is_some())
}

/// Adds the figures of one core; `None` when it has ended.
fn add_core(page: &mut Page, index: u32, core: &Hirer<Core>) -> Option<()> {
    let asked = Instant::now();
    let (waited, told) = core.run(move |core| (asked.elapsed(), tell(core)))?;
    let labels = vec![("core", index.to_string())];
    let rows = [
        ("farlane_loop_lag_seconds", "Time until the loop took up this request", waited.as_secs_f64()),
        ("farlane_connections", "Connections of hosts", told.connections as f64),
        ("farlane_memory_budget_bytes", "Memory that may be held for hosts", told.memory.budget as f64),
        ("farlane_memory_held_bytes", "Memory held for hosts", told.memory.used as f64),
        ("farlane_memory_waiting", "Connections that wait for memory", told.memory.waiting as f64),
    ];
    page.add_rows(&labels, rows.map(|(name, help, value)| (Kind::Gauge, name, help, value)));
    add_strangers(page, &labels, &told.strangers);
    for (key, name, counters) in &told.subsystems {
        let labels = vec![("subsystem", name.clone())];
        add_health(page, &labels, counters);
        let key = *key;
        // A subsystem that is gone by now has no more figures.
        add_all_namespaces(page, &labels, |after| {
            core.run(move |core| {
                let core = core.driver.target().subsystem(key);
                core.map(|core| next_namespaces(core.tallies(), after)).unwrap_or_default()
            })
        })?;
    }
    add_hosts(page, core, &told.subsystems)
}

/// Adds the resources of connections whose hosts have not authenticated, and the outcome of others.
fn add_strangers(page: &mut Page, labels: &Labels, strangers: &StrangersStatus) {
    let rows = [
        ("farlane_unproven", "Connections whose hosts have not proved who they are", strangers.count),
        ("farlane_unproven_most", "How many of these there may be", strangers.most),
        ("farlane_unproven_discovery", "How many of these use the discovery service", strangers.discovery),
        ("farlane_authentication_waiting", "Exponentiations that wait", strangers.work.waiting),
    ];
    page.add_rows(labels, rows.map(|(name, help, value)| (Kind::Gauge, name, help, value as f64)));
    for (name, help, counts) in [
        ("farlane_refused", "Hosts that were refused", &strangers.refused),
        ("farlane_unproven_dropped", "Unproven connections that were closed", &strangers.dropped),
    ] {
        for (why, count) in counts {
            let labels = [labels.clone(), vec![("reason", (*why).to_owned())]].concat();
            page.family(Kind::Counter, name, help).add(&labels, *count as f64);
        }
    }
    let work = [
        ("farlane_authentication_done", "Exponentiations for authentications", strangers.work.done as f64),
        (
            "farlane_authentication_refused",
            "Exponentiations for which there was no room",
            strangers.work.refused as f64,
        ),
        (
            "farlane_authentication_seconds",
            "Processor time for exponentiations",
            seconds(strangers.work.spent),
        ),
    ];
    page.add_rows(labels, work.map(|(name, help, value)| (Kind::Counter, name, help, value)));
}

fn tell(core: &Core) -> Told {
    let target = core.driver.target();
    let of =
        |key| target.subsystem(key).map(|core| (key, core.config().subsystem_name.clone(), core.counters()));
    let here = target.directory().subsystems.iter().filter(|one| one.is_here);
    Told {
        connections: target.connection_count(),
        memory: target.memory(),
        strangers: target.strangers(),
        subsystems: here.filter_map(|one| of(one.key)).collect(),
    }
}

/// Adds the figures of the hosts of one core; `None` when it has ended.
fn add_hosts(
    page: &mut Page,
    core: &Hirer<Core>,
    subsystems: &[(SubsystemKey, String, Counters)],
) -> Option<()> {
    let tcp = |core: &Core, one: &AssociationStatus| {
        let of = |id| core.driver.tcp_info(id);
        TcpInfo::together(one.connections.iter().filter_map(|connection| of(connection.id)))
    };
    each_host(core, tcp, |one, tcp| add_association(page, &one, tcp, subsystems))
}

fn add_association(
    page: &mut Page,
    one: &AssociationStatus,
    tcp: Option<TcpInfo>,
    subsystems: &[(SubsystemKey, String, Counters)],
) {
    let name =
        subsystems.iter().find(|(key, ..)| Some(*key) == one.subsystem).map(|(_, name, _)| name.as_str());
    let labels: Labels = vec![
        ("subsystem", name.unwrap_or("discovery").to_owned()),
        ("host", one.host.to_string()),
        ("controller", one.controller.0.to_string()),
    ];
    let outstanding: f64 = one.connections.iter().map(|queue| f64::from(queue.outstanding)).sum();
    let rows = [
        ("farlane_host_queues", "Queues of the host, the Admin Queue included", one.connections.len() as f64),
        ("farlane_host_outstanding", "Commands of the host under way", outstanding),
        ("farlane_host_memory_bytes", "Memory held for the host", one.memory as f64),
        ("farlane_host_ready", "1 while the host's controller is enabled", f64::from(u8::from(one.is_ready))),
    ];
    page.add_rows(&labels, rows.map(|(name, help, value)| (Kind::Gauge, name, help, value)));
    if let Some(keep_alive) = one.keep_alive {
        let help = "Keep Alive Timeout of the host";
        page.family(Kind::Gauge, "farlane_host_keep_alive_seconds", help).add(&labels, seconds(keep_alive));
    }
    if let Some(TcpInfo { round_trip, retransmissions }) = tcp {
        let help = "The longest smoothed TCP round trip of the host's connections";
        let round_trip = seconds(round_trip);
        page.family(Kind::Gauge, "farlane_host_round_trip_seconds", help).add(&labels, round_trip);
        let help = "TCP segments that were sent to the host again";
        let again = retransmissions as f64;
        page.family(Kind::Counter, "farlane_host_retransmissions", help).add(&labels, again);
    }
    if let Some(tally) = &one.tally {
        add_host(page, &labels, tally);
    }
}
