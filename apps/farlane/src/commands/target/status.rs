//! The status of a target.
//!
//! Namespaces and hosts may be thousands: another thread takes them from the cores in small jobs.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use ::status::{
    Access, Controller, DiscoveryAccess, Draining, Exponentiations, Memory, Queue, Strangers, Subsystem,
    Target,
};
use assemblies::fabric::Parameters;
use assemblies::target::{AssociationStatus, ConnectionStatus, StrangersStatus};
use live::drivers::fabrics::target::{Event, TargetDriver};
use live::reactor::JobSender;
use live::sys::tcp_info::TcpInfo;
use live::sys::usage::thread_time;
use nvme_fabrics::target::{self, Hosts, SubsystemKey};

use super::core::Core;
use super::each_host::{each_guest, each_host};
use crate::counters::{self, next_tallies};

/// The ANA states of subsystems, by their names.
pub(super) type AccessByName = HashMap<String, Vec<Access>>;

/// The status of a target with these cores, which is made of small jobs of each core. `None` when
/// all have ended.
pub(super) fn of_cores(cores: &[JobSender<Core>], mut access: AccessByName) -> Option<Target> {
    let mut all: Option<Target> = None;
    for (thread, core) in (0..).zip(cores) {
        let asked = Instant::now();
        let ask = move |core: &mut Core| {
            let target = core.driver.target();
            let work = (target.io_queues() as u64, target.commands(), thread_time().get());
            (asked.elapsed(), work, of_core(&core.driver))
        };
        let Some((lag, (io_queues, commands, processor_ns), (keys, mut part))) = core.run(ask) else {
            // A thread that has failed was no subsystem's home: the target goes on without it.
            continue;
        };
        for (key, subsystem) in keys.into_iter().zip(&mut part.subsystems) {
            // A subsystem that is gone by now has no more tallies.
            let next = move |core: &mut Core, after| {
                let core = core.driver.target().subsystem(key);
                core.map(|core| next_tallies(core.tallies(), after)).unwrap_or_default()
            };
            subsystem.activity = Some(counters::activity(core, next)?);
            subsystem.ana = access.remove(&subsystem.nqn).unwrap_or_default();
        }
        let share = ::status::Core {
            thread,
            lag_ns: u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX),
            connections: part.connections,
            io_queues,
            commands,
            processor_ns,
            memory: part.memory,
            strangers: part.strangers.clone(),
        };
        let all = match &mut all {
            None => all.insert(part),
            Some(all) => {
                join(all, part);
                all
            }
        };
        all.cores.push(share);
    }
    let mut all = all?;
    add_hosts(&mut all, cores);
    // A host whose last controller ends meanwhile is found here, as it was not found there.
    add_draining(&mut all, cores);
    Some(all)
}

/// The report of one core but for the counts of namespaces and for hosts, and the keys of its
/// subsystems.
fn of_core<F: FnMut(Event)>(driver: &TargetDriver<F>) -> (Vec<SubsystemKey>, Target) {
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
            health: core.map(|core| counters::health(&core.counters())),
            activity: None,
            controllers: Vec::new(),
            draining: Vec::new(),
            ana: Vec::new(),
        }
    };
    let (directory, memory) = (target.directory(), target.memory());
    let here: Vec<_> = directory.subsystems.iter().filter(|one| one.is_here).collect();
    let keys = here.iter().map(|one| one.key).collect();
    let part = Target {
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
        cores: Vec::new(),
        subsystems: here.into_iter().map(subsystem).collect(),
        discovery: Vec::new(),
    };
    (keys, part)
}

/// Adds the hosts that are gone but for requests.
fn add_draining(all: &mut Target, cores: &[JobSender<Core>]) {
    let of_core = |core: &mut Core| -> Vec<(String, Vec<Draining>)> {
        let target = core.driver.target();
        let here = target.directory().subsystems.iter().filter_map(|one| target.subsystem(one.key));
        let of = |core: &nvme::subsystem::Subsystem| {
            let one = |(host, requests): (&str, usize)| (host.to_owned(), requests as u64);
            let hosts = core.draining().map(one).map(|(host, requests)| Draining { host, requests });
            (core.config().subsystem_name.clone(), hosts.collect::<Vec<_>>())
        };
        here.map(of).filter(|(_, hosts)| !hosts.is_empty()).collect()
    };
    let mut found: HashMap<_, _> = cores.iter().filter_map(|core| core.run(of_core)).flatten().collect();
    for subsystem in &mut all.subsystems {
        subsystem.draining = found.remove(&subsystem.nqn).unwrap_or_default();
    }
}

/// Adds to `all` another core's report of its own subsystems.
fn join(all: &mut Target, other: Target) {
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

/// Adds the hosts of all cores to the reports of the cores, with their queues on other cores.
fn add_hosts(all: &mut Target, cores: &[JobSender<Core>]) {
    let mut of_subsystem = HashMap::<Option<String>, Vec<(Controller, Vec<TcpInfo>)>>::new();
    for core in cores {
        each_host(core, tcp_of, |one, (name, tcp)| {
            of_subsystem.entry(name).or_default().push((controller(&one), tcp));
        });
    }
    for core in cores {
        each_guest(core, |guest| {
            let controllers = guest.subsystem.and_then(|name| of_subsystem.get_mut(&Some(name)));
            let meant = |(one, _): &&mut (Controller, Vec<TcpInfo>)| one.controller == guest.controller;
            // A host may have left since.
            if let Some((one, tcp)) = controllers.and_then(|all| all.iter_mut().find(meant)) {
                one.memory_bytes += guest.memory;
                one.queues.extend(guest.queues.iter().map(queue));
                one.queues.sort_by_key(|queue| queue.queue);
                tcp.extend(guest.tcp);
            }
        });
    }
    let whole = |(one, tcp): (Controller, Vec<TcpInfo>)| {
        let tcp = TcpInfo::together(tcp).map(counters::tcp);
        Controller { tcp, ..one }
    };
    let mut take = |name| of_subsystem.remove(&name).into_iter().flatten().map(whole).collect();
    all.discovery = take(None);
    for subsystem in &mut all.subsystems {
        subsystem.controllers = take(Some(subsystem.nqn.clone()));
    }
}

/// The name of the subsystem of a host, and the kernel's information on the host's connections.
fn tcp_of(core: &Core, one: &AssociationStatus) -> (Option<String>, Vec<TcpInfo>) {
    let subsystem = one.subsystem.and_then(|key| core.driver.target().subsystem(key));
    let of = |connection: &ConnectionStatus| core.driver.tcp_info(connection.id);
    let tcp = one.connections.iter().filter_map(of).collect();
    (subsystem.map(|core| core.config().subsystem_name.clone()), tcp)
}

fn controller(one: &AssociationStatus) -> Controller {
    Controller {
        controller: one.controller.0,
        host: one.host.as_str().to_owned(),
        host_id: one.host_id.to_string(),
        ready: one.is_ready,
        memory_bytes: one.memory,
        activity: one.tally.as_ref().map(counters::host_activity),
        tcp: None,
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
