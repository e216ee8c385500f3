//! Metrics of a target: its cores, its subsystems, and their hosts.

use super::{Kind, Labels, Page, count, flag, seconds, storage, with};
use crate::{Controller, Core, Strangers, Target};

/// Adds the metrics of a target.
pub(super) fn target(page: &mut Page, of: &Target) {
    of.cores.iter().for_each(|one| core(page, one));
    for subsystem in &of.subsystems {
        let labels: Labels = vec![("subsystem", subsystem.nqn.clone())];
        if let Some(health) = &subsystem.health {
            storage::health(page, &labels, health);
        }
        storage::namespaces(page, &labels, subsystem.activity.as_deref().unwrap_or_default());
    }
    let of_subsystems = of.subsystems.iter().map(|one| (one.nqn.as_str(), &one.controllers));
    for (name, controllers) in of_subsystems.chain([("discovery", &of.discovery)]) {
        controllers.iter().for_each(|one| host(page, name, one));
    }
}

/// Adds the part of a core in connections, memory and unauthenticated hosts.
fn core(page: &mut Page, of: &Core) {
    let labels: Labels = vec![("core", of.thread.to_string())];
    page.add_gauges(
        &labels,
        [
            ("farlane_loop_lag_seconds", "Time until the loop took up this request", seconds(of.lag_ns)),
            ("farlane_connections", "Connections of hosts", count(of.connections)),
            ("farlane_io_queues", "I/O queues whose commands the core executes", count(of.io_queues)),
            (
                "farlane_memory_budget_bytes",
                "Memory that may be held for hosts",
                count(of.memory.budget_bytes),
            ),
            ("farlane_memory_held_bytes", "Memory held for hosts", count(of.memory.used_bytes)),
            ("farlane_memory_waiting", "Connections that wait for memory", count(of.memory.waiting)),
        ],
    );
    page.add_counters(&labels, [("farlane_core_commands", "Commands that the core has taken", of.commands)]);
    let (help, time) = ("Processor time of the core", seconds(of.processor_ns));
    page.add(&labels, [(Kind::Counter, "farlane_core_seconds", help, time)]);
    strangers(page, &labels, &of.strangers);
}

/// Adds the connections of hosts that have not authenticated, and the fate of others.
fn strangers(page: &mut Page, labels: &Labels, of: &Strangers) {
    let work = &of.exponentiations;
    let most = "How many of these there may be";
    let discovery = "How many of these use the discovery service";
    page.add_gauges(
        labels,
        [
            ("farlane_unproven", "Connections whose hosts have not authenticated", count(of.connections)),
            ("farlane_unproven_most", most, count(of.most)),
            ("farlane_unproven_discovery", discovery, count(of.discovery)),
            ("farlane_authentication_waiting", "Exponentiations that wait", count(work.waiting)),
        ],
    );
    for (name, help, counts) in [
        ("farlane_refused", "Hosts that were refused", &of.refused),
        ("farlane_unproven_dropped", "Unproven connections that were closed", &of.dropped),
    ] {
        for (reason, count) in counts {
            page.add_counters(&with(labels, "reason", reason), [(name, help, *count)]);
        }
    }
    page.add_counters(
        labels,
        [
            ("farlane_authentication_done", "Exponentiations for authentications", work.done),
            ("farlane_authentication_refused", "Exponentiations for which there was no room", work.refused),
        ],
    );
    let (help, time) = ("Processor time for exponentiations", seconds(work.processor_ns));
    page.add(labels, [(Kind::Counter, "farlane_authentication_seconds", help, time)]);
}

/// Adds the metrics of a host's controller in the subsystem called `subsystem`.
fn host(page: &mut Page, subsystem: &str, of: &Controller) {
    let labels: Labels = vec![
        ("subsystem", subsystem.to_owned()),
        ("host", of.host.clone()),
        ("controller", of.controller.to_string()),
    ];
    let queues = count(of.queues.len() as u64);
    let outstanding = of.queues.iter().map(|queue| f64::from(queue.outstanding)).sum();
    page.add_gauges(
        &labels,
        [
            ("farlane_host_queues", "Queues of the host, the Admin Queue included", queues),
            ("farlane_host_outstanding", "Commands of the host under way", outstanding),
            ("farlane_host_memory_bytes", "Memory held for the host", count(of.memory_bytes)),
            ("farlane_host_ready", "1 while the host's controller is enabled", flag(of.ready)),
        ],
    );
    let keep_alive = of.keep_alive_ms.map(|ms| count(ms) / 1e3);
    let help = "Keep Alive Timeout of the host";
    page.add_gauges(&labels, keep_alive.map(|time| ("farlane_host_keep_alive_seconds", help, time)));
    if let Some(tcp) = &of.tcp {
        let help = "The longest smoothed TCP round trip of the host's connections";
        page.add_gauges(&labels, [("farlane_host_round_trip_seconds", help, seconds(tcp.round_trip_ns))]);
        let help = "TCP segments that were sent to the host again";
        page.add_counters(&labels, [("farlane_host_retransmissions", help, tcp.retransmissions)]);
    }
    if let Some(activity) = &of.activity {
        storage::host(page, &labels, activity);
    }
}
