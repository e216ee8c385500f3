//! The status of a target.
//!
//! The state of subsystems is reported in one piece. Hosts may be thousands: another thread takes
//! them from the cores in small jobs.

use std::collections::{BTreeMap, HashMap};

use ::status::{Controller, DiscoveryAccess, Exponentiations, Memory, Queue, Strangers, Subsystem, Target};
use assemblies::fabric::Parameters;
use assemblies::target::{AssociationStatus, ConnectionStatus, StrangersStatus};
use live::drivers::fabrics::target::TargetDriver;
use live::reactor::Hirer;
use nvme_fabrics::target::{self, Hosts};

use super::core::Core;
use super::hosts_told::each_host;
use crate::counters;

/// The report of one core but for hosts.
pub(super) fn of<F: FnMut(live::drivers::fabrics::target::Event)>(driver: &TargetDriver<F>) -> Target {
    let target = driver.target();
    let subsystem = |one: &target::Subsystem| {
        let core = target.subsystem(one.key);
        Subsystem {
            nqn: one.name.as_str().to_owned(),
            hosts: match &one.hosts {
                Hosts::Any => None,
                Hosts::Listed(hosts) => Some(hosts.iter().map(|host| host.as_str().to_owned()).collect()),
            },
            ssd: core.map(|core| counters::ssd(core.config())),
            namespaces: core.map(counters::namespaces).unwrap_or_default(),
            space_errors: core.map(|core| core.counters().space_errors),
            activity: core.map(|core| counters::activity(core.tallies())),
            controllers: Vec::new(),
            ana: Vec::new(),
        }
    };
    let (directory, memory) = (target.directory(), target.memory());
    Target {
        listening: driver.addresses().map(|(_, address)| address.to_string()).collect(),
        fabrics: driver.addresses().map(|(fabric, _)| fabric.to_string()).collect(),
        generation: directory.generation,
        connections: target.connection_count() as u64,
        memory: Memory {
            budget_bytes: memory.budget,
            used_bytes: memory.used,
            waiting: memory.waiting as u64,
        },
        strangers: strangers(&target.strangers()),
        discovery_access: match directory.discovery {
            target::DiscoveryAccess::Open => DiscoveryAccess::Open,
            target::DiscoveryAccess::Keyed => DiscoveryAccess::Keyed,
            target::DiscoveryAccess::Closed => DiscoveryAccess::Closed,
        },
        subsystems: directory.subsystems.iter().filter(|one| one.is_here).map(subsystem).collect(),
        discovery: Vec::new(),
    }
}

/// Adds to `all` another core's report of its own subsystems.
pub(super) fn join(all: &mut Target, other: Target) {
    all.connections += other.connections;
    all.memory.budget_bytes += other.memory.budget_bytes;
    all.memory.used_bytes += other.memory.used_bytes;
    all.memory.waiting += other.memory.waiting;
    join_strangers(&mut all.strangers, other.strangers);
    all.subsystems.extend(other.subsystems);
}

/// Connections whose hosts have not authenticated, and the outcome of others.
fn strangers(status: &StrangersStatus) -> Strangers {
    let counts = |counts: &[(&'static str, u64)]| -> BTreeMap<String, u64> {
        counts.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect()
    };
    Strangers {
        connections: status.count as u64,
        most: status.most as u64,
        discovery: status.discovery as u64,
        discovery_most: status.discovery_most as u64,
        refused: counts(&status.refused),
        dropped: counts(&status.dropped),
        exponentiations: Exponentiations {
            waiting: status.work.waiting as u64,
            done: status.work.done,
            refused: status.work.refused,
            processor_ns: status.work.spent.get(),
        },
    }
}

/// Adds the numbers of `other` to those of `all`.
fn join_strangers(all: &mut Strangers, other: Strangers) {
    all.connections += other.connections;
    all.most += other.most;
    all.discovery += other.discovery;
    all.discovery_most += other.discovery_most;
    for (all, other) in [(&mut all.refused, other.refused), (&mut all.dropped, other.dropped)] {
        for (why, count) in other {
            *all.entry(why).or_default() += count;
        }
    }
    let (all, other) = (&mut all.exponentiations, other.exponentiations);
    all.waiting += other.waiting;
    all.done += other.done;
    all.refused += other.refused;
    all.processor_ns += other.processor_ns;
}

/// Adds the hosts of all cores to the reports of the cores; `None` when one has ended.
pub(super) fn add_hosts(all: &mut Target, cores: &[Hirer<Core>]) -> Option<()> {
    let name = |core: &Core, one: &AssociationStatus| {
        let subsystem = one.subsystem.and_then(|key| core.driver.target().subsystem(key));
        subsystem.map(|core| core.config().subsystem_name.clone())
    };
    let mut of_subsystem = HashMap::<Option<String>, Vec<Controller>>::new();
    for core in cores {
        each_host(core, name, |one, name| of_subsystem.entry(name).or_default().push(controller(&one)))?;
    }
    all.discovery = of_subsystem.remove(&None).unwrap_or_default();
    for subsystem in &mut all.subsystems {
        subsystem.controllers = of_subsystem.remove(&Some(subsystem.nqn.clone())).unwrap_or_default();
    }
    Some(())
}

fn controller(one: &AssociationStatus) -> Controller {
    Controller {
        controller: one.controller.0,
        host: one.host.as_str().to_owned(),
        host_id: one.host_id.to_string(),
        ready: one.is_ready,
        memory_bytes: one.memory,
        activity: one.tally.as_ref().map(counters::host_activity),
        keep_alive_ms: one.keep_alive.map(|timeout| timeout.get() / 1_000_000),
        queues: one.connections.iter().map(queue).collect(),
    }
}

fn queue(one: &ConnectionStatus) -> Queue {
    let tcp = one.parameters.and_then(Parameters::tcp);
    Queue {
        queue: one.queue.0,
        entries: one.entries,
        peer: one.peer.to_string(),
        header_digest: tcp.is_some_and(|agreed| agreed.header_digest),
        data_digest: tcp.is_some_and(|agreed| agreed.data_digest),
        commands: one.statistics.commands,
        refused: one.statistics.refused,
        outstanding: one.outstanding,
    }
}
