//! The target, and its answers to requests while it runs.

mod access;
mod offered;
mod put;
mod reload;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use assemblies::fabric::Fabric;
use engine::Instant;
use live::carrier::tcp::{self, Listener};
use live::drivers::mdns::Announcer;
use live::media::state::Store;
use live::reactor::{Context, Driver, JobSender, Jobs, Sources, Turn};
use nvme_fabrics::target::{Directory, DiscoveryAccess, Port, Referral, Subsystem, SubsystemKey};
use nvme_fabrics::wire::{Nqn, PortId};
use serde_json::Value;

use super::config::{Listed, Offer, PortSpec, Source, SubsystemSpec};
use super::core::{Added, Core, MANY_SUBSYSTEMS, NewSubsystem};
use super::cores::Cores;
use super::request::{Changed, Request, Resized};
use crate::args::{Backing, Discovery};
use crate::capture::{Taps, What};
use crate::commands::capture::Capturable;
use crate::commands::control::reply;
use crate::commands::listening::Listening;
use crate::commands::served::running::Running;
use crate::commands::{counted, print, print_json};
use crate::error::Error;
use access::Whose;

/// A subsystem that the target offers.
struct Offered {
    key: SubsystemKey,
    serial: String,
    /// Where the subsystem's state is kept.
    store: Option<Store>,
    spec: SubsystemSpec,
    /// Namespaces that the configuration file lists, and namespaces added since.
    listed: Vec<Listed>,
    /// The text that described the subsystem at run time, and may describe others, too.
    text: Option<Arc<str>>,
}

/// Where hosts find a subsystem.
fn url(fabric: Fabric, address: SocketAddr, name: &str) -> String {
    match fabric {
        Fabric::Tcp => format!("nvme-tcp://{address}/{name}"),
        Fabric::Iwarp => format!("nvme-rdma://{address}/{name}?provider=iwarp"),
        Fabric::Roce => format!("nvme-rdma://{address}/{name}?provider=roce"),
        Fabric::Verbs => format!("nvme-rdma://{address}/{name}?provider=verbs"),
    }
}

/// A target: its cores, its offer, and where it takes requests.
pub(super) struct Server {
    cores: Cores,
    config: Option<PathBuf>,
    /// Whether the command line lets in hosts that prove nothing, off loopback.
    insecure: bool,
    /// The hosts that may use the discovery service, and whether the command line names them.
    discovery: Option<Discovery>,
    is_discovery_given: bool,
    /// The configuration file's time for the authentication.
    prove_within: Option<Duration>,
    /// The configuration file's number of cores.
    wanted_cores: Option<usize>,
    /// Announces the discovery service on the network.
    announcer: Option<Announcer>,
    /// The options of connections in the kernel.
    options: tcp::Options,
    /// Jobs for the first core.
    jobs: Option<Jobs<Core>>,
    ports: Vec<(PortId, PortSpec, SocketAddr)>,
    subsystems: Vec<Offered>,
    referrals: Vec<(SocketAddr, Nqn)>,
    /// Whether the configuration file lists less than is meant to be offered, and the subsystems
    /// that it lists and that can't be offered at present.
    is_partial: bool,
    missing: BTreeSet<String>,
    /// Subsystems that were dropped at run time.
    dropped: BTreeSet<String>,
    /// The number of subsystems with which the target has started.
    count_at_start: usize,
    next_key: u32,
    next_port: u16,
}

impl Server {
    pub(super) fn new(
        cores: Cores,
        config: Option<PathBuf>,
        announcer: Option<Announcer>,
        options: tcp::Options,
        offer: Offer,
    ) -> Result<Self, Error> {
        let mut server = Self {
            cores,
            config,
            insecure: offer.insecure,
            discovery: offer.discovery,
            is_discovery_given: false,
            prove_within: offer.prove_within,
            wanted_cores: offer.cores,
            announcer,
            options,
            jobs: None,
            ports: Vec::new(),
            subsystems: Vec::new(),
            referrals: Vec::new(),
            is_partial: offer.is_partial,
            missing: BTreeSet::new(),
            dropped: BTreeSet::new(),
            count_at_start: offer.subsystems.len(),
            next_key: 0,
            next_port: 1,
        };
        for port in offer.ports {
            server.add_port(port)?;
        }
        for subsystem in offer.subsystems {
            server.add_subsystem(subsystem)?;
        }
        server.referrals = offer.referrals;
        server.set_cores(offer.cores)?;
        server.publish()?;
        Ok(server)
    }

    /// Has as many cores execute commands as the configuration file says, up to all of them.
    fn set_cores(&mut self, wanted: Option<usize>) -> Result<(), Error> {
        let all = self.cores.count() as usize;
        self.cores.set_active(wanted.unwrap_or(all).min(all))
    }

    /// Keeps the hosts that may use the discovery service, even if the configuration file changes
    /// later.
    pub(super) const fn keep_discovery(&mut self) {
        self.is_discovery_given = true;
    }

    /// Where state is kept, for each subsystem that keeps its state.
    pub(super) fn stores(&self) -> Vec<Store> {
        self.subsystems.iter().filter_map(|offered| offered.store.clone()).collect()
    }

    #[cfg(test)]
    pub(super) const fn cores(&self) -> &Cores {
        &self.cores
    }

    /// Waits until every core has ended.
    pub(super) fn join(self) -> io::Result<()> {
        self.cores.join()
    }

    /// Has the first core execute the jobs that come by `jobs`, to which `first` is the way.
    /// Returns the ways to all cores.
    pub(super) fn accept_jobs(&mut self, first: JobSender<Core>, jobs: Jobs<Core>) -> Vec<JobSender<Core>> {
        self.jobs = Some(jobs);
        std::iter::once(first).chain(self.cores.senders()).collect()
    }

    /// Prints the offer and its addresses.
    pub(super) fn announce(&mut self, json: bool) -> Result<(), Error> {
        for (_, spec, address) in &self.ports {
            let names = self.subsystems.iter().map(|one| one.spec.nqn.to_string());
            if json {
                let (fabric, subsystems) = (Some(spec.fabric.to_string()), Some(names.collect()));
                print_json(&Listening { fabric, subsystems, ..Listening::at(address) })?;
                continue;
            }
            for (name, offered) in names.zip(&self.subsystems) {
                let key = offered.key;
                let count = self.cores.on(key, move |core| core.namespace_count(key))?;
                let plural = if count == 1 { "" } else { "s" };
                let url = url(spec.fabric, *address, &name);
                print(&format!("offering {count} namespace{plural} at {url}\n"))?;
            }
        }
        Ok(())
    }

    /// The summary of the offer, for the service manager.
    pub(super) fn summary(&self) -> String {
        let (subsystems, ports) = (self.subsystems.len(), self.ports.len());
        let [subsystems, ports] = [(subsystems, "subsystem"), (ports, "port")].map(counted);
        format!("{subsystems} at {ports}")
    }

    fn add_port(&mut self, spec: PortSpec) -> Result<(), Error> {
        let id = PortId(self.next_port);
        let driver = &mut self.cores.first.driver;
        let added = match spec.fabric {
            Fabric::Roce => {
                let precedence = self.options.precedence;
                driver.add_roce_port(id, spec.listen, precedence).map(|()| spec.listen)
            }
            Fabric::Verbs => driver.add_verbs_port(id, spec.listen),
            Fabric::Tcp | Fabric::Iwarp => Listener::bind(spec.listen).map(|listener| {
                let address = listener.address();
                driver.add_port(id, spec.fabric, listener.with(self.options.clone()));
                address
            }),
        };
        let address = added.map_err(|error| Error::Listen { address: spec.listen, error })?;
        self.next_port += 1;
        self.ports.push((id, spec, address));
        Ok(())
    }

    fn add_subsystem(&mut self, mut spec: SubsystemSpec) -> Result<(), Error> {
        let listed = match &spec.source {
            Source::Given(_) => Vec::new(),
            Source::Listed(listed) => listed.clone(),
        };
        let is_one_of_many = self.subsystems.len().max(self.count_at_start) >= MANY_SUBSYSTEMS;
        let source = std::mem::replace(&mut spec.source, Source::Listed(Vec::new()));
        let new = NewSubsystem {
            name: spec.nqn.clone(),
            serial: spec.serial.clone(),
            state: spec.state.clone(),
            ana_groups: spec.ana_groups,
            transfer_bytes_max: spec.max_transfer.0,
            source,
            is_one_of_many,
        };
        // The queue pairs of a port of RoCE or verbs stay with the first core.
        let by_pairs = |port: &PortSpec| matches!(port.fabric, Fabric::Roce | Fabric::Verbs);
        if self.ports.iter().any(|(_, port, _)| by_pairs(port) && spec.is_at(port)) {
            self.next_key = self.next_key.next_multiple_of(self.cores.count());
        }
        let key = SubsystemKey(self.next_key);
        self.next_key += 1;
        let Added { serial, store } = self.cores.on(key, move |core| core.add_subsystem(key, new))??;
        self.subsystems.push(Offered { key, serial, store, spec, listed, text: None });
        self.apply_access(self.subsystems.len() - 1, None)?;
        Ok(())
    }

    /// Whether more is meant to be offered than is.
    fn is_incomplete(&self) -> bool {
        self.is_partial || !self.missing.is_empty()
    }

    /// A subsystem for the engines.
    fn described(&self, offered: &Offered) -> Subsystem {
        let ports = self.ports.iter().filter(|(_, port, _)| offered.spec.is_at(port));
        Subsystem {
            key: offered.key,
            name: offered.spec.nqn.clone(),
            hosts: offered.spec.allowed(),
            terms: offered.spec.terms.clone(),
            model: offered.spec.model.clone(),
            ports: ports.map(|(id, ..)| *id).collect(),
            is_here: true,
        }
    }

    /// Sends the current offer to the engines. The engines notify the hosts.
    fn publish(&mut self) -> Result<(), Error> {
        let port = |(id, spec, address): &(PortId, PortSpec, SocketAddr)| Port {
            id: *id,
            address: spec.fabric.address(spec.advertise.unwrap_or(*address)),
            is_any: spec.advertise.is_none() && address.ip().is_unspecified(),
        };
        let ports: Vec<_> = self.ports.iter().map(port).collect();
        let subsystems = self.subsystems.iter().map(|one| self.described(one)).collect();
        let referral =
            |(address, name): &(SocketAddr, Nqn)| Referral { address: (*address).into(), name: name.clone() };
        let referrals = self.referrals.iter().map(referral).collect();
        let discovery = self.discovery.map_or_else(DiscoveryAccess::default, DiscoveryAccess::from);
        let is_partial = self.is_incomplete();
        let directory = Directory { subsystems, ports, referrals, discovery, is_partial, generation: 0 };
        if let Some(announcer) = &mut self.announcer {
            let of_tcp = self.ports.iter().filter(|(_, spec, _)| spec.fabric == Fabric::Tcp);
            let addresses: Vec<_> = of_tcp.map(|(_, _, address)| *address).collect();
            announcer.set(&addresses, Nqn::DISCOVERY)?;
        }
        self.cores.set_directory(&directory)
    }

    /// Carries out a request.
    pub(super) fn answer(&mut self, request: Request) -> Result<Value, String> {
        match request {
            Request::Add { nqn, namespace, ram, ana_group } => {
                Backing::asked(namespace.as_deref(), ram.as_deref())
                    .and_then(|backing| self.add(nqn.as_deref(), backing, ana_group))
            }
            Request::Remove { nqn, nsid } => {
                self.find(nqn.as_deref()).and_then(|index| self.remove(index, nsid))
            }
            Request::Resize { nqn, nsid, size } => {
                self.find(nqn.as_deref()).and_then(|index| self.resize(index, nsid, size))
            }
            Request::Ana { nqn, group, state, port, controller } => {
                self.set_access(nqn.as_deref(), group, state, &Whose::of(port, controller))
            }
            Request::Put { text } => self.put(&text),
            Request::Drop { nqn } => self.drop_subsystem(&nqn),
            Request::Offered => self.report_offered(),
            Request::Status | Request::Reload => Err("every daemon answers it by itself".to_owned()),
        }
    }

    fn find(&self, nqn: Option<&str>) -> Result<usize, String> {
        match nqn {
            None if self.subsystems.len() == 1 => Ok(0),
            None => Err("there are several subsystems: choose one with --nqn".to_owned()),
            Some(name) => self.place_of(name).ok_or(format!("there is no subsystem {name}")),
        }
    }

    fn add(&mut self, nqn: Option<&str>, backing: Backing, ana_group: Option<u32>) -> Result<Value, String> {
        let index = self.find(nqn)?;
        let ana_group = ana_group.unwrap_or(1);
        let groups = self.subsystems[index].spec.ana_groups.max(1);
        if !(1..=groups).contains(&ana_group) {
            return Err(format!("{ana_group} is not one of its {groups} ANA groups"));
        }
        let id = self.add_namespace(index, None, ana_group, &backing)?;
        self.subsystems[index].listed.push(Listed { id, ana_group, backing });
        self.added(index, id)
    }

    fn add_namespace(
        &mut self,
        index: usize,
        id: Option<u32>,
        ana_group: u32,
        backing: &Backing,
    ) -> Result<u32, String> {
        let (serial, backing) = (self.subsystems[index].serial.clone(), backing.clone());
        self.on(index, move |core, key| core.add_namespace(key, id, ana_group, &backing, &serial))?
    }

    /// Has the core of a subsystem run `job`.
    fn on<T: Send + 'static>(
        &mut self,
        index: usize,
        job: impl FnOnce(&mut Core, SubsystemKey) -> T + Send + 'static,
    ) -> Result<T, String> {
        let key = self.subsystems[index].key;
        self.cores.on(key, move |core| job(core, key)).map_err(|error| error.to_string())
    }
}

impl Running for Server {
    const RESIZES: &'static str = "farlane target resize";

    fn name(&self, index: usize) -> String {
        self.subsystems[index].spec.nqn.to_string()
    }

    fn nqn(&self, index: usize) -> Option<&str> {
        Some(self.subsystems[index].spec.nqn.as_str())
    }

    fn changed(&self, index: usize, nsid: u32) -> Result<Value, String> {
        reply(&Changed { nqn: self.name(index), nsid })
    }

    fn resized(&self, index: usize, nsid: u32, bytes: u64) -> Result<Value, String> {
        reply(&Resized { nqn: self.name(index), nsid, bytes })
    }

    fn listed(&mut self, index: usize) -> impl Iterator<Item = (u32, &mut Backing)> {
        self.subsystems[index].listed.iter_mut().map(|one| (one.id, &mut one.backing))
    }

    fn unlist(&mut self, index: usize, nsid: u32) {
        self.subsystems[index].listed.retain(|one| one.id != nsid);
    }

    fn bytes_of(&mut self, index: usize, nsid: u32) -> Result<Option<u64>, String> {
        self.on(index, move |core, key| core.namespace(key, nsid).map(|one| one.bytes))
    }

    fn remove_namespace(&mut self, index: usize, nsid: u32) -> Result<(), String> {
        self.on(index, move |core, key| core.remove_namespace(key, nsid))?
    }

    fn resize_namespace(&mut self, index: usize, nsid: u32, size: Option<u64>) -> Result<u64, String> {
        self.on(index, move |core, key| core.resize_namespace(key, nsid, size))?
    }
}

impl Capturable for Server {
    fn what(&self) -> What {
        What::Streams
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    fn tap(&mut self, taps: &Taps) -> Result<(), String> {
        if let Err(error) = self.cores.watch(taps) {
            warn!("not all cores are captured: {error}");
        }
        Ok(())
    }
}

impl Driver for Server {
    fn start(&mut self, sources: &Sources) -> io::Result<()> {
        self.cores.first.driver.start(sources)
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let turn = self.cores.first.driver.turn(context)?;
        if context.news
            && let Some(jobs) = &self.jobs
            && jobs.turn(&mut self.cores.first)
            && turn == Turn::Idle
        {
            return Ok(Turn::Busy);
        }
        Ok(turn)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.cores.first.driver.poll_timeout()
    }

    fn on_stop(&mut self, now: Instant) {
        self.cores.stop_others();
        self.cores.first.driver.on_stop(now);
    }
}
