//! Reading the configuration file again: unchanged parts keep their connections.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use live::sys::service;
use nvme_fabrics::wire::Nqn;
use serde_json::Value;

use super::super::config::{self, Listed, PortSpec, Source, SubsystemSpec};
use super::Server;
use super::put::News;
use crate::commands::control::{Reloaded, reply};
use crate::commands::served::changes::resized;
use crate::commands::served::running::Running;

impl Server {
    /// Reads the configuration file again and applies its changes. A change that can't be made is
    /// reported and left out; all others are made.
    pub(in super::super) fn reload(&mut self) -> Result<Value, String> {
        let path = self.config.clone().ok_or("the target was not started with --config")?;
        let mut offer = config::read(Path::new(&path)).map_err(|error| error.to_string())?;
        offer.insecure |= self.insecure;
        offer.check().map_err(|error| error.to_string())?;
        if offer.is_partial {
            self.is_partial = true;
            self.cores.set_partial(true).map_err(|error| error.to_string())?;
        }
        let (mut changes, mut news) = (Vec::new(), News::default());
        let has_other_ports = self.reload_ports(&offer.ports, &mut changes);
        news.is_general = has_other_ports;
        let wanted: HashSet<&Nqn> = offer.subsystems.iter().map(|spec| &spec.nqn).collect();
        let removed: Vec<_> = self.subsystems.extract_if(.., |one| !wanted.contains(&one.spec.nqn)).collect();
        changes.extend(removed.iter().map(|one| format!("{} is no longer offered", one.spec.nqn)));
        // Their files are let go now: a subsystem that is to be offered may have them.
        self.let_go(removed).map_err(|error| error.to_string())?;
        let places = self.subsystems.iter().enumerate().map(|(place, one)| (one.spec.nqn.clone(), place));
        let places: HashMap<Nqn, usize> = places.collect();
        (self.is_partial, self.missing, self.dropped) = (offer.is_partial, BTreeSet::new(), BTreeSet::new());
        for spec in offer.subsystems {
            let name = spec.nqn.clone();
            if let Some(index) = places.get(&name) {
                self.subsystems[*index].text = None;
                self.reload_subsystem(*index, spec, has_other_ports, &mut changes, &mut news);
                continue;
            }
            changes.push(match self.add_subsystem(spec) {
                Ok(()) => {
                    news.put.insert(self.subsystems[self.subsystems.len() - 1].key);
                    format!("{name} is offered")
                }
                Err(error) => {
                    self.missing.insert(name.to_string());
                    format!("{name} can't be offered: {error}")
                }
            });
        }
        if !self.is_discovery_given && self.discovery != offer.discovery {
            changes.push("others may use the discovery service".to_owned());
            news.is_general = true;
            self.discovery = offer.discovery;
        }
        if self.prove_within != offer.prove_within {
            changes.push("another prove-within is used when the target is started again".to_owned());
        }
        if self.wanted_cores != offer.cores {
            self.wanted_cores = offer.cores;
            self.set_cores(offer.cores).map_err(|error| error.to_string())?;
            let all = self.cores.count() as usize;
            changes.push(match offer.cores {
                Some(count) if count > all => {
                    format!("all {all} threads execute commands, {count} when the target is started again")
                }
                Some(count) => format!("{} of {all} threads execute commands", count),
                None => format!("all {all} threads execute commands"),
            });
        }
        if self.referrals != offer.referrals {
            changes.push("referrals have changed".to_owned());
            news.is_general = true;
            self.referrals = offer.referrals;
        }
        self.publish_news(&news).map_err(|error| error.to_string())?;
        for change in &changes {
            info!("{change}");
        }
        reply(&Reloaded { changes })
    }

    /// Listens where the file says. Returns whether hosts may find subsystems at other ports.
    fn reload_ports(&mut self, ports: &[PortSpec], changes: &mut Vec<String>) -> bool {
        let before: Vec<PortSpec> = self.ports.iter().map(|(_, spec, _)| *spec).collect();
        let is_same =
            |one: &PortSpec, other: &PortSpec| (one.listen, one.fabric) == (other.listen, other.fabric);
        let gone = |spec: &PortSpec| !ports.iter().any(|other| is_same(spec, other));
        for (id, spec, address) in self.ports.extract_if(.., |(_, spec, _)| gone(spec)) {
            self.cores.first.driver.remove_port(id);
            service::forget(address);
            changes.push(format!("{} is no longer listened on", spec.listen));
        }
        for spec in ports {
            match self.ports.iter_mut().find(|(_, other, _)| is_same(spec, other)) {
                Some((_, other, _)) => *other = *spec,
                None => changes.push(match self.add_port(*spec) {
                    Ok(()) => format!("{} is listened on", spec.listen),
                    Err(error) => error.to_string(),
                }),
            }
        }
        !self.ports.iter().map(|(_, spec, _)| spec).eq(&before)
    }

    /// Changes a subsystem to its present description. One that is described as before costs a
    /// comparison, unless the ports are others than before.
    pub(super) fn reload_subsystem(
        &mut self,
        index: usize,
        mut spec: SubsystemSpec,
        has_other_ports: bool,
        changes: &mut Vec<String>,
        news: &mut News,
    ) {
        let Source::Listed(wanted) = &mut spec.source else { return };
        let wanted = std::mem::take(wanted);
        let name = spec.nqn.clone();
        if spec.ana_groups != self.subsystems[index].spec.ana_groups {
            changes
                .push(format!("{name}: the number of ANA groups changes when the target is started again"));
            spec.ana_groups = self.subsystems[index].spec.ana_groups;
            spec.access.retain(|one| one.group <= spec.ana_groups);
        }
        if spec.max_transfer != self.subsystems[index].spec.max_transfer {
            changes.push(format!("{name}: max-transfer changes when the target is started again"));
            spec.max_transfer = self.subsystems[index].spec.max_transfer;
        }
        if spec.state != self.subsystems[index].spec.state {
            changes.push(format!("{name}: another state is used when the target is started again"));
            spec.state.clone_from(&self.subsystems[index].spec.state);
        }
        self.reload_namespaces(index, wanted, changes);
        let (offered, before) = (&mut self.subsystems[index], changes.len());
        if offered.spec.hosts != spec.hosts
            || offered.spec.ports != spec.ports
            || offered.spec.model != spec.model
        {
            changes.push(format!("{name} has other hosts, ports or controllers"));
        }
        if offered.spec.terms != spec.terms {
            changes
                .push(format!("{name} has other secrets; hosts whose secret has changed are disconnected"));
        }
        if changes.len() > before {
            news.put.insert(offered.key);
        }
        let has_other_access = offered.spec.access != spec.access;
        if has_other_access {
            changes.push(format!("{name} is reached in other ways (ANA)"));
        }
        offered.spec = spec;
        if (has_other_access || has_other_ports)
            && let Err(error) = self.apply_access(index, None)
        {
            changes.push(format!("{name}: {error}"));
        }
    }

    fn reload_namespaces(&mut self, index: usize, wanted: Vec<Listed>, changes: &mut Vec<String>) {
        let name = self.subsystems[index].spec.nqn.clone();
        let mut listed = Vec::new();
        for one in self.subsystems[index].listed.clone() {
            let now = wanted.iter().find(|other| other.id == one.id);
            if let Some(now) = now
                && self.change_namespace(index, &one, now, changes)
            {
                listed.push(now.clone());
                continue;
            }
            match self.remove_namespace(index, one.id) {
                Ok(()) => changes.push(format!("{name} has namespace {} no more", one.id)),
                Err(error) => changes.push(format!("{name}: namespace {} stays: {error}", one.id)),
            }
        }
        for one in wanted {
            if listed.iter().any(|other| other.id == one.id) {
                continue;
            }
            match self.add_namespace(index, Some(one.id), one.ana_group, &one.backing) {
                Ok(_) => {
                    changes.push(format!("{name} has namespace {}", one.id));
                    listed.push(one);
                }
                Err(error) => changes.push(format!("{name}: namespace {} can't be added: {error}", one.id)),
            }
        }
        self.subsystems[index].listed = listed;
    }

    /// Changes a namespace to the file's present description, if it can stay the same namespace.
    /// Returns whether it can.
    fn change_namespace(
        &mut self,
        index: usize,
        before: &Listed,
        now: &Listed,
        changes: &mut Vec<String>,
    ) -> bool {
        let (name, id) = (self.subsystems[index].spec.nqn.clone(), now.id);
        if now.backing != before.backing {
            let Some(size) = resized(&before.backing, &now.backing) else { return false };
            self.grow(index, id, size, changes);
        }
        if now.ana_group != before.ana_group && now.ana_group <= self.subsystems[index].spec.ana_groups {
            let group = now.ana_group;
            match self.on(index, move |core, key| core.put_into_group(key, id, group)) {
                Ok(()) => changes.push(format!("{name}: namespace {id} is in ANA group {group}")),
                Err(error) => changes.push(format!("{name}: {error}")),
            }
        }
        true
    }
}
