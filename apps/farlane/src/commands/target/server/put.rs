//! Single subsystems that are offered, changed or no longer offered while the target runs. The work
//! and the effect are that subsystem's alone, however many the target offers.

use std::collections::BTreeSet;
use std::sync::Arc;

use nvme_fabrics::target::{SUBSYSTEMS_MAX, SubsystemKey, TLS_KEYS_MAX};
use serde_json::Value;

use super::super::config::{self, PortSpec, SubsystemSpec};
use super::{Offered, Server};
use crate::commands::control::{Reloaded, reply};
use crate::error::Error;

/// With more changed subsystems than this, the whole offer is sent to the engines.
const SINGLE_MAX: usize = 64;

/// The parts of the offer that the engines don't know yet.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Subsystems that are offered, or offered otherwise.
    pub(super) put: BTreeSet<SubsystemKey>,
    /// Everything else has changed, too.
    pub(super) is_general: bool,
}

impl Server {
    /// Offers the subsystems of a text, each in the place of the one with its name if there is one.
    pub(super) fn put(&mut self, text: &str) -> Result<Value, String> {
        let ports: Vec<PortSpec> = self.ports.iter().map(|(_, spec, _)| *spec).collect();
        let specs = config::parse_subsystems(text, &ports)?;
        self.check(&specs, &ports)?;
        let source: Arc<str> = text.into();
        let (mut changes, mut news) = (Vec::new(), News::default());
        for spec in specs {
            let name = spec.nqn.clone();
            let before = changes.len();
            match self.place_of(name.as_str()) {
                Some(index) => {
                    self.reload_subsystem(index, spec, false, &mut changes, &mut news);
                    if changes.len() == before {
                        changes.push(format!("{name} is as before"));
                    }
                }
                None => {
                    if let Err(error) = self.add_subsystem(spec) {
                        // Those before it are offered.
                        self.publish_news(&news).map_err(|error| error.to_string())?;
                        return Err(format!("{name} can't be offered: {error}"));
                    }
                    news.put.insert(self.subsystems[self.subsystems.len() - 1].key);
                    changes.push(format!("{name} is offered"));
                }
            }
            self.missing.remove(name.as_str());
            self.dropped.remove(name.as_str());
            if let Some(index) = self.place_of(name.as_str()) {
                self.subsystems[index].text = Some(source.clone());
            }
        }
        self.publish_news(&news).map_err(|error| error.to_string())?;
        changes.iter().for_each(|change| info!("{change}"));
        reply(&Reloaded { changes })
    }

    /// Offers a subsystem no longer. Its hosts are disconnected, and its files are let go.
    pub(super) fn drop_subsystem(&mut self, nqn: &str) -> Result<Value, String> {
        let index = self.place_of(nqn).ok_or_else(|| format!("there is no subsystem {nqn}"))?;
        let gone = self.subsystems.swap_remove(index);
        self.dropped.insert(nqn.to_owned());
        self.let_go(vec![gone]).map_err(|error| error.to_string())?;
        let change = format!("{nqn} is no longer offered");
        info!("{change}");
        reply(&Reloaded { changes: vec![change] })
    }

    /// Has the engines disconnect the hosts of subsystems that are offered no longer, and close
    /// their files.
    pub(super) fn let_go(&mut self, gone: Vec<Offered>) -> Result<(), Error> {
        let keys: Vec<_> = gone.iter().map(|one| one.key).collect();
        drop(gone);
        if keys.len() > SINGLE_MAX {
            return self.publish();
        }
        keys.into_iter().try_for_each(|key| self.cores.remove_subsystem(key))
    }

    /// Checks that the target may offer `specs`, too.
    fn check(&self, specs: &[SubsystemSpec], ports: &[PortSpec]) -> Result<(), String> {
        let of_others = |other: &&Offered| specs.iter().all(|spec| spec.nqn != other.spec.nqn);
        let others = self.subsystems.iter().filter(of_others);
        let (count, keys) = others.fold((0, 0), |(count, keys), one| (count + 1, keys + one.spec.tls_keys()));
        if count + specs.len() > SUBSYSTEMS_MAX {
            return Err(format!("a target has at most {SUBSYSTEMS_MAX} subsystems; start a second target"));
        }
        let count = keys + specs.iter().map(SubsystemSpec::tls_keys).sum::<usize>();
        if count > TLS_KEYS_MAX {
            return Err(Error::TooManyTlsKeys { count, most: TLS_KEYS_MAX }.to_string());
        }
        let is_insecure = self.insecure;
        specs.iter().try_for_each(|spec| spec.check(ports, is_insecure)).map_err(|error| error.to_string())
    }

    /// The place of a subsystem among those that are offered.
    pub(super) fn place_of(&self, nqn: &str) -> Option<usize> {
        self.subsystems.iter().position(|one| one.spec.nqn.as_str() == nqn)
    }

    /// Sends the changed parts of the offer to the engines, which notify the hosts.
    pub(super) fn publish_news(&mut self, news: &News) -> Result<(), Error> {
        if news.is_general || news.put.len() > SINGLE_MAX {
            return self.publish();
        }
        for index in 0..self.subsystems.len() {
            if news.put.contains(&self.subsystems[index].key) {
                let subsystem = self.described(&self.subsystems[index]);
                self.cores.put_subsystem(&subsystem)?;
            }
        }
        self.cores.set_partial(self.is_incomplete())
    }
}
