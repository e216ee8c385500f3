//! The content of a configuration file by which the next start offers the same.

use serde_json::Value;

use super::super::config::AccessSpec;
use super::{Listed, Offered, Server};
use crate::commands::control::reply;
use crate::commands::save::offer::{Access, OfferedNamespace, Subsystem, Subsystems};

impl Server {
    /// The namespaces of each subsystem, the states of its groups, and the path of the file.
    pub(super) fn report_offered(&self) -> Result<Value, String> {
        let path = self.config.as_ref().map(std::path::absolute);
        let config = path.transpose().map_err(|error| error.to_string())?;
        let namespace = |one: &Listed| OfferedNamespace {
            ana_group: Some(one.ana_group),
            ..OfferedNamespace::of(one.id, &one.backing)
        };
        let access = |one: &AccessSpec| Access { group: one.group, port: one.port, state: one.state };
        let subsystem = |one: &Offered| Subsystem {
            nqn: one.spec.nqn.to_string(),
            namespaces: one.listed.iter().map(namespace).collect(),
            ana: one.spec.access.iter().map(access).collect(),
            text: one.text.as_deref().map(str::to_owned),
        };
        let subsystems = self.subsystems.iter().map(subsystem).collect();
        let dropped = self.dropped.iter().cloned().collect();
        reply(&Subsystems { config, subsystems, dropped })
    }
}
