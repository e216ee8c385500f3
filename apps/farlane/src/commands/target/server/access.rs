//! The states in which ports and controllers reach groups of namespaces (Asymmetric Namespace
//! Access, ANA).

use std::net::SocketAddr;

use ::status::Access;
use serde_json::Value;

use super::super::config::AccessSpec;
use super::super::core::Core;
use super::super::request::{AccessOf, AccessSet};
use super::super::status::AccessByName;
use super::Server;
use crate::args::AccessState;
use crate::commands::control::reply;
use crate::error::Error;

/// Whose access to a group is meant.
pub(super) enum Whose {
    EveryHost,
    Port(SocketAddr),
    Controller(u16),
}

impl Whose {
    pub(super) fn of(port: Option<SocketAddr>, controller: Option<u16>) -> Self {
        match (port, controller) {
            (_, Some(controller)) => Self::Controller(controller),
            (Some(port), None) => Self::Port(port),
            (None, None) => Self::EveryHost,
        }
    }
}

impl Server {
    /// Sets the ANA state in which all hosts, a port or a controller reach a group.
    pub(super) fn set_access(
        &mut self,
        nqn: Option<&str>,
        group: u32,
        state: AccessState,
        whose: &Whose,
    ) -> Result<Value, String> {
        let index = self.find(nqn)?;
        let spec = &mut self.subsystems[index].spec;
        let name = spec.nqn.clone();
        match spec.ana_groups {
            0 => {
                return Err(format!("{name} has no ANA groups: offer it with --ana-groups or ana-groups ="));
            }
            groups if !(1..=groups).contains(&group) => {
                return Err(format!("{group} is not one of its {groups} ANA groups"));
            }
            _ => {}
        }
        let port = match whose {
            &Whose::Controller(controller) => {
                let set =
                    move |core: &mut Core, key| core.set_controller_access(key, controller, group, state);
                if !self.on(index, set)? {
                    return Err(format!("{name} has no controller {controller}"));
                }
                let of = AccessOf::Controller { controller };
                return reply(&AccessSet { nqn: name.to_string(), group, state, of });
            }
            Whose::Port(port) => {
                let is_meant = |(_, spec, address): &&(_, super::PortSpec, SocketAddr)| {
                    spec.listen == *port || address == port
                };
                let found = self.ports.iter().find(is_meant);
                let (_, spec, address) = found.ok_or(format!("no process listens on {port}"))?;
                // Several ports that the system chose were asked for in the same words.
                Some(if spec.listen.port() == 0 { *address } else { spec.listen })
            }
            Whose::EveryHost => None,
        };
        let spec = &mut self.subsystems[index].spec;
        spec.access.retain(|one| one.group != group || port.is_some() && one.port != port);
        spec.access.push(AccessSpec { port, group, state });
        self.apply_access(index, Some(group)).map_err(|error| error.to_string())?;
        info!("group {group} of {name} is {:?}", state.word());
        reply(&AccessSet { nqn: name.to_string(), group, state, of: AccessOf::Port { port } })
    }

    /// Sets in the engines the ANA state in which each port reaches each group, or group `only`.
    pub(super) fn apply_access(&mut self, index: usize, only: Option<u32>) -> Result<(), Error> {
        let groups = (1..=self.subsystems[index].spec.ana_groups)
            .filter(|group| only.is_none_or(|only| only == *group));
        let mut states = Vec::new();
        for group in groups {
            for (port, (id, ..)) in self.ports.iter().enumerate() {
                states.push((*id, group, self.access_of(index, port, group)));
            }
        }
        let key = self.subsystems[index].key;
        self.cores.on(key, move |core| core.set_access(key, &states))
    }

    fn access_of(&self, index: usize, port: usize, group: u32) -> AccessState {
        let (_, spec, address) = &self.ports[port];
        let is_it = |port| port == spec.listen || port == *address;
        let fits = |one: &&AccessSpec| one.group == group && one.port.is_none_or(is_it);
        let found = self.subsystems[index].spec.access.iter().rfind(fits);
        found.map_or(AccessState::Optimized, |one| one.state)
    }

    /// The ANA state in which each port reaches each group, for each subsystem.
    pub(in crate::commands::target) fn access(&self) -> AccessByName {
        let of = |index: usize| (self.subsystems[index].spec.nqn.to_string(), self.access_status(index));
        (0..self.subsystems.len()).map(of).collect()
    }

    fn access_status(&self, index: usize) -> Vec<Access> {
        let groups = 1..=self.subsystems[index].spec.ana_groups;
        let mut reported = Vec::new();
        for group in groups {
            for (port, (_, _, address)) in self.ports.iter().enumerate() {
                let state = self.access_of(index, port, group);
                reported.push(Access { group, port: address.to_string(), state: state.into() });
            }
        }
        reported
    }
}
