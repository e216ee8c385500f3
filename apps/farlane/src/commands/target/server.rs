//! The target and what is asked of it while it runs.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use engine::Instant;
use live::control::Control;
use live::reactor::{Context, Driver, Turn};
use live::tcp::Listener;
use nvme_fabrics::target::{Directory, Hosts, Port, Referral, Subsystem, SubsystemKey};
use nvme_fabrics::wire::{Nqn, PortId};
use serde_json::{Value, json};

use super::config::{self, Backing, Offer, PortSpec, Source, SubsystemSpec};
use super::cores::Cores;
use super::request::{Answer, Request};
use super::status;
use crate::commands::{print, print_json};
use crate::error::Error;

/// A subsystem that is offered.
struct Offered {
    key: SubsystemKey,
    serial: String,
    spec: SubsystemSpec,
    /// Namespaces of the file, and those added since.
    listed: Vec<(u32, Backing)>,
}

/// See the module.
pub(super) struct Server {
    cores: Cores,
    config: Option<PathBuf>,
    control: Option<Control>,
    ports: Vec<(PortId, PortSpec, SocketAddr)>,
    subsystems: Vec<Offered>,
    referrals: Vec<(SocketAddr, Nqn)>,
    next_key: u32,
    next_port: u16,
}

impl Server {
    pub(super) fn new(cores: Cores, config: Option<PathBuf>, offer: Offer) -> Result<Self, Error> {
        let mut server = Self {
            cores,
            config,
            control: None,
            ports: Vec::new(),
            subsystems: Vec::new(),
            referrals: Vec::new(),
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
        server.publish()?;
        Ok(server)
    }

    /// Waits until every core has ended.
    pub(super) fn join(self) -> io::Result<()> {
        self.cores.join()
    }

    pub(super) fn set_control(&mut self, control: Control) {
        self.control = Some(control);
    }

    /// Says what is offered where.
    pub(super) fn announce(&mut self, json: bool) -> Result<(), Error> {
        for (_, _, address) in &self.ports {
            let names = self.subsystems.iter().map(|one| one.spec.nqn.to_string());
            if json {
                let names: Vec<_> = names.collect();
                print_json(&json!({ "listening": address.to_string(), "subsystems": names }))?;
                continue;
            }
            for (name, offered) in names.zip(&self.subsystems) {
                let key = offered.key;
                let count = self.cores.on(key, move |core| core.namespace_count(key))?;
                let plural = if count == 1 { "" } else { "s" };
                print(&format!("offering {count} namespace{plural} at nvme-tcp://{address}/{name}\n"))?;
            }
        }
        Ok(())
    }

    fn add_port(&mut self, spec: PortSpec) -> Result<(), Error> {
        let listener =
            Listener::bind(spec.listen).map_err(|error| Error::Listen { address: spec.listen, error })?;
        let id = PortId(self.next_port);
        self.next_port += 1;
        self.ports.push((id, spec, listener.address()));
        self.cores.first.driver.add_port(id, listener);
        Ok(())
    }

    fn add_subsystem(&mut self, mut spec: SubsystemSpec) -> Result<(), Error> {
        let listed = match &spec.source {
            Source::Given(_) => Vec::new(),
            Source::Listed(listed) => listed.clone(),
        };
        let source = std::mem::replace(&mut spec.source, Source::Listed(Vec::new()));
        let (name, serial) = (spec.nqn.clone(), spec.serial.clone());
        let key = SubsystemKey(self.next_key);
        self.next_key += 1;
        let serial = self.cores.on(key, move |core| core.add_subsystem(key, &name, serial, source))??;
        self.subsystems.push(Offered { key, serial, spec, listed });
        Ok(())
    }

    /// Tells the engines, and by them the hosts, what is offered now.
    fn publish(&mut self) -> Result<(), Error> {
        let port = |(id, spec, address): &(PortId, PortSpec, SocketAddr)| Port {
            id: *id,
            address: spec.advertise.unwrap_or(*address).into(),
            is_any: spec.advertise.is_none() && address.ip().is_unspecified(),
        };
        let ports: Vec<_> = self.ports.iter().map(port).collect();
        let reached = |spec: &SubsystemSpec| {
            let of = |(_, port, _): &&(PortId, PortSpec, SocketAddr)| {
                spec.ports.is_empty() || spec.ports.contains(&port.listen)
            };
            self.ports.iter().filter(of).map(|(id, ..)| *id).collect()
        };
        let subsystem = |offered: &Offered| Subsystem {
            key: offered.key,
            name: offered.spec.nqn.clone(),
            hosts: match &offered.spec.hosts {
                hosts if hosts.is_empty() => Hosts::Any,
                hosts => Hosts::Listed(hosts.clone()),
            },
            model: offered.spec.model.clone(),
            ports: reached(&offered.spec),
            is_here: true,
        };
        let subsystems = self.subsystems.iter().map(subsystem).collect();
        let referral =
            |(address, name): &(SocketAddr, Nqn)| Referral { address: (*address).into(), name: name.clone() };
        let referrals = self.referrals.iter().map(referral).collect();
        let directory = Directory { subsystems, ports, referrals, generation: 0 };
        self.cores.set_directory(&directory)
    }

    /// Answers a line of the control socket.
    fn answer(&mut self, line: &str) -> String {
        let result = match serde_json::from_str(line) {
            Err(error) => Err(format!("that is no request: {error}")),
            Ok(Request::Status) => self.status(),
            Ok(Request::Add { nqn, namespace, ram }) => {
                self.add(nqn.as_deref(), namespace.as_deref(), ram.as_deref())
            }
            Ok(Request::Remove { nqn, nsid }) => self.remove(nqn.as_deref(), nsid),
            Ok(Request::Reload) => self.reload(),
        };
        let answer = result.map_or_else(Answer::Failed, Answer::Done);
        serde_json::to_string(&answer).unwrap_or_else(|error| format!("{{\"failed\":\"{error}\"}}"))
    }

    /// What every core has to tell, in the order of the directory.
    fn status(&mut self) -> Result<Value, String> {
        let told = self.cores.each(|core| status::of(&core.driver)).map_err(|error| error.to_string())?;
        let mut told = told.into_iter();
        let mut all = told.next().unwrap_or_default();
        for other in told {
            status::join(&mut all, other);
        }
        Ok(all)
    }

    fn find(&self, nqn: Option<&str>) -> Result<usize, String> {
        match nqn {
            None if self.subsystems.len() == 1 => Ok(0),
            None => Err("there are several subsystems: say which with --nqn".to_owned()),
            Some(name) => {
                let found = self.subsystems.iter().position(|one| one.spec.nqn.as_str() == name);
                found.ok_or(format!("there is no subsystem {name}"))
            }
        }
    }

    fn add(
        &mut self,
        nqn: Option<&str>,
        namespace: Option<&str>,
        ram: Option<&str>,
    ) -> Result<Value, String> {
        let index = self.find(nqn)?;
        let backing = match (namespace, ram) {
            (Some(text), None) => Backing::File(text.parse()?),
            (None, Some(text)) => Backing::Ram(text.parse()?),
            _ => return Err("either namespace or ram is wanted".to_owned()),
        };
        let id = self.add_namespace(index, None, &backing)?;
        let offered = &mut self.subsystems[index];
        offered.listed.push((id, backing));
        eprintln!("farlane: {} has namespace {id}", offered.spec.nqn);
        Ok(json!({ "nqn": offered.spec.nqn.as_str(), "nsid": id }))
    }

    fn add_namespace(&mut self, index: usize, id: Option<u32>, backing: &Backing) -> Result<u32, String> {
        let Offered { key, serial, .. } = &self.subsystems[index];
        let (key, serial, backing) = (*key, serial.clone(), backing.clone());
        let added = self.cores.on(key, move |core| core.add_namespace(key, id, &backing, &serial));
        added.map_err(|error| error.to_string())?
    }

    fn remove(&mut self, nqn: Option<&str>, nsid: u32) -> Result<Value, String> {
        let index = self.find(nqn)?;
        self.remove_namespace(index, nsid)?;
        let offered = &mut self.subsystems[index];
        offered.listed.retain(|(id, _)| *id != nsid);
        eprintln!("farlane: {} has namespace {nsid} no more", offered.spec.nqn);
        Ok(json!({ "nqn": offered.spec.nqn.as_str(), "nsid": nsid }))
    }

    fn remove_namespace(&mut self, index: usize, nsid: u32) -> Result<(), String> {
        let key = self.subsystems[index].key;
        let removed = self.cores.on(key, move |core| core.remove_namespace(key, nsid));
        removed.map_err(|error| error.to_string())?
    }

    /// Reads the file again. What can't be done is left as it is, and said; everything else is.
    fn reload(&mut self) -> Result<Value, String> {
        let path = self.config.clone().ok_or("the target was not started with --config")?;
        let offer = config::read(Path::new(&path)).map_err(|error| error.to_string())?;
        let mut changes = Vec::new();
        self.reload_ports(&offer.ports, &mut changes);
        let gone = |one: &Offered| !offer.subsystems.iter().any(|other| other.nqn == one.spec.nqn);
        for one in self.subsystems.extract_if(.., |one| gone(one)) {
            changes.push(format!("{} is no longer offered", one.spec.nqn));
        }
        for spec in offer.subsystems {
            let name = spec.nqn.clone();
            match self.subsystems.iter().position(|one| one.spec.nqn == name) {
                Some(index) => self.reload_subsystem(index, spec, &mut changes),
                None => changes.push(match self.add_subsystem(spec) {
                    Ok(()) => format!("{name} is offered"),
                    Err(error) => format!("{name} can't be offered: {error}"),
                }),
            }
        }
        if self.referrals != offer.referrals {
            changes.push("referrals have changed".to_owned());
            self.referrals = offer.referrals;
        }
        self.publish().map_err(|error| error.to_string())?;
        for change in &changes {
            eprintln!("farlane: {change}");
        }
        Ok(json!({ "changes": changes }))
    }

    fn reload_ports(&mut self, ports: &[PortSpec], changes: &mut Vec<String>) {
        let gone = |spec: &PortSpec| !ports.iter().any(|other| other.listen == spec.listen);
        for (id, spec, _) in self.ports.extract_if(.., |(_, spec, _)| gone(spec)) {
            self.cores.first.driver.remove_port(id);
            changes.push(format!("{} is no longer listened on", spec.listen));
        }
        for spec in ports {
            match self.ports.iter_mut().find(|(_, other, _)| other.listen == spec.listen) {
                Some((_, other, _)) => *other = *spec,
                None => changes.push(match self.add_port(*spec) {
                    Ok(()) => format!("{} is listened on", spec.listen),
                    Err(error) => error.to_string(),
                }),
            }
        }
    }

    fn reload_subsystem(&mut self, index: usize, mut spec: SubsystemSpec, changes: &mut Vec<String>) {
        let Source::Listed(wanted) = &mut spec.source else { return };
        let wanted = std::mem::take(wanted);
        let name = spec.nqn.clone();
        let before = self.subsystems[index].listed.clone();
        let mut listed = Vec::new();
        for (id, backing) in before {
            if wanted.contains(&(id, backing.clone())) {
                listed.push((id, backing));
                continue;
            }
            match self.remove_namespace(index, id) {
                Ok(()) => changes.push(format!("{name} has namespace {id} no more")),
                Err(error) => changes.push(format!("{name}: namespace {id} stays: {error}")),
            }
        }
        for (id, backing) in wanted {
            if listed.iter().any(|(other, _)| *other == id) {
                continue;
            }
            match self.add_namespace(index, Some(id), &backing) {
                Ok(_) => {
                    changes.push(format!("{name} has namespace {id}"));
                    listed.push((id, backing));
                }
                Err(error) => changes.push(format!("{name}: namespace {id} can't be added: {error}")),
            }
        }
        let offered = &mut self.subsystems[index];
        if offered.spec.hosts != spec.hosts
            || offered.spec.ports != spec.ports
            || offered.spec.model != spec.model
        {
            changes.push(format!("{name} has other hosts, ports or controllers"));
        }
        offered.spec = spec;
        offered.listed = listed;
    }
}

impl Driver for Server {
    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        let turn = self.cores.first.driver.turn(context)?;
        if context.news
            && let Some(mut control) = self.control.take()
        {
            let result = control.turn(context.sources(), |line| self.answer(line));
            self.control = Some(control);
            if result? && turn == Turn::Idle {
                return Ok(Turn::Busy);
            }
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
