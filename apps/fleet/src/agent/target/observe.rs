//! What the target does, as the agent's engine sees it.

use std::time::Instant;

use fleet::Name;
use fleet::agent::{Observation, Served};
use fleet::object::{Admission, Mode, Transport};
use status::Subsystem;

use super::Worker;
use super::file::{Offer, volume_path};
use crate::naming::{host_nqn, parse_host, parse_subsystem};

/// The attachment of a host of which the agent knows none.
fn unknown() -> Name {
    Name::new("unknown-attachment").expect("it is a name")
}

impl Worker {
    /// What the target does; without it, what the volumes are.
    pub(super) fn observe(&mut self, target: Option<&status::Target>) -> Observation {
        let mut observation = Observation { number: self.done, ..Observation::default() };
        observation.copies = self.copies.observe(&self.frame);
        self.serving.clear();
        for subsystem in target.iter().flat_map(|target| &target.subsystems) {
            if let Some((volume, _)) = parse_subsystem(&subsystem.nqn) {
                // Media may still carry out requests of hosts whose controllers are gone.
                let gone = subsystem.draining.iter().map(|draining| &draining.host);
                let hosts = subsystem.controllers.iter().map(|controller| &controller.host).chain(gone);
                let attachments = hosts.map(|host| self.attachment(&subsystem.nqn, host));
                observation.associations.extend(attachments.map(|one| (volume.clone(), one)));
                observation.served.push(self.served(&volume, subsystem));
                self.serving.insert(volume);
            }
        }
        self.exports.observe(&mut observation);
        let mut unserved = Vec::new();
        for (volume, known) in &self.known {
            let Some(folder) = self.frame.pool(&known.pool) else { continue };
            let path = volume_path(folder, volume);
            if let Ok(found) = std::fs::metadata(&path) {
                observation.present.push(volume.clone());
                let is_served = observation.served.iter().any(|served| served.name == *volume);
                if !is_served && !self.exports.has(volume) {
                    unserved.push((volume.clone(), known.pool.clone(), path, found.len()));
                }
            }
        }
        for (volume, pool, path, bytes) in unserved {
            // A process that has the file open may be carrying out a host's last requests.
            if self.volumes.is_in_use(&path).unwrap_or(true) {
                observation.associations.push((volume.clone(), self.last_attachment(&volume)));
            }
            let is_to_be = |served: &&Served| served.name == volume && served.admitted.is_empty();
            if self.done == self.number && self.wanted.iter().any(|served| is_to_be(&served)) {
                observation.served.push(Served { name: volume, pool, bytes, admitted: Vec::new() });
            }
        }
        observation
    }

    /// A volume with the hosts that the running target lets in.
    fn served(&self, volume: &Name, subsystem: &Subsystem) -> Served {
        let loaded = self.loaded.as_ref().and_then(|loaded| loaded.content.volumes.get(volume));
        let offer = loaded.filter(|offer| offer.nqn == subsystem.nqn);
        let bytes = subsystem.namespaces.first().map_or(0, |namespace| namespace.bytes);
        let pool = offer.map(|offer| &offer.pool).or_else(|| Some(&self.known.get(volume)?.pool));
        let pool = pool.cloned().unwrap_or_else(|| volume.clone());
        let hosts = subsystem.hosts.as_deref().unwrap_or_default();
        let known = |host: &String| offer?.admitted.iter().find(|one| host_nqn(&one.node) == *host).cloned();
        let let_in = |host: &String| known(host).unwrap_or_else(|| self.stranger(&subsystem.nqn, host));
        let mut admitted: Vec<_> = hosts.iter().map(let_in).collect();
        // The engine compares lists, in the order in which it asked for them.
        let place =
            |one: &Admission| offer.map(|offer: &Offer| offer.admitted.iter().position(|two| two == one));
        admitted.sort_by_key(place);
        Served { name: volume.clone(), pool, bytes, admitted }
    }

    /// A host that the target lets in although its file does not say so.
    fn stranger(&self, nqn: &str, host: &str) -> Admission {
        let attachment = self.attachment(nqn, host);
        let node = parse_host(host).unwrap_or_else(|| attachment.clone());
        let epoch = parse_subsystem(nqn).and_then(|(_, epoch)| epoch);
        let (mode, transport) = (Mode::Exclusive, Transport::NvmeTcp);
        Admission { attachment, node, mode, epoch: epoch.unwrap_or_default(), transport }
    }

    /// The attachment of a host at a subsystem.
    fn attachment(&self, nqn: &str, host: &str) -> Name {
        let past = parse_subsystem(nqn).and_then(|(volume, _)| self.past.get(&volume));
        let past = past.filter(|(known, _)| known == nqn);
        let known = past.and_then(|(_, past)| past.iter().find(|one| host_nqn(&one.node) == host));
        known.map_or_else(unknown, |one| one.attachment.clone())
    }

    /// The attachment that a volume had last.
    fn last_attachment(&self, volume: &Name) -> Name {
        let known = self.past.get(volume).and_then(|(_, past)| past.last());
        known.map_or_else(unknown, |one| one.attachment.clone())
    }

    /// Whether hosts that are not to be let in have something in progress.
    pub(super) fn others_are_in(&self, observation: &Observation) -> bool {
        observation.associations.iter().any(|(volume, attachment)| {
            let list = self.wanted.iter().find(|served| served.name == *volume);
            !list.is_some_and(|list| list.admitted.iter().any(|one| one.attachment == *attachment))
        })
    }

    /// Notes which volumes of the file the running target does not serve, or at another length, and
    /// has it try again. Returns its status then.
    pub(super) fn check_offers(&mut self, target: &status::Target, now: Instant) -> status::Target {
        let mut target = target.clone();
        if self.loaded.as_ref() != Some(&self.written) {
            return target;
        }
        for (volume, offer) in &self.written.content.volumes {
            let mut subsystems = target.subsystems.iter_mut().filter(|one| one.nqn == offer.nqn);
            let namespace = subsystems.next().and_then(|one| one.namespaces.first_mut());
            let Some(namespace) = namespace.filter(|one| one.bytes < offer.bytes) else { continue };
            let name = format!("length of {volume}");
            match self.process.resize(&offer.nqn, namespace.nsid) {
                Ok(()) => {
                    namespace.bytes = offer.bytes;
                    self.problems.end(&name);
                }
                Err(error) => self.problems.note(&name, error.to_string()),
            }
        }
        let is_served = |offer: &Offer| {
            let found = target.subsystems.iter().find(|one| one.nqn == offer.nqn);
            found.is_some_and(|one| !one.namespaces.is_empty())
        };
        let offers = self.written.content.volumes.iter();
        let missing: Vec<_> =
            offers.filter(|(_, offer)| !is_served(offer)).map(|(name, _)| name.clone()).collect();
        for volume in &missing {
            let name = format!("offer of {volume}");
            self.problems.note(&name, "the target does not offer it; its log says why".to_owned());
        }
        let is_missing = |name: &str| missing.iter().any(|volume| name.ends_with(&format!(" {volume}")));
        self.problems.retain(|name| !name.starts_with("offer of ") || is_missing(name));
        if !missing.is_empty() && self.retry.is_due(now) {
            self.retry.fail(now);
            // The next turn has the target read its file again.
            self.loaded = None;
        }
        target
    }
}
