//! The content of a configuration file by which the next start offers the same.

use serde_json::{Value, json};

use super::super::config::AccessSpec;
use super::{Offered, Server};
use crate::commands::save::tell_namespace;

impl Server {
    /// The namespaces of each subsystem, the states of its groups, and the path of the file.
    pub(super) fn tell_offered(&self) -> Result<Value, String> {
        let path = self.config.as_ref().map(std::path::absolute);
        let path = path.transpose().map_err(|error| error.to_string())?;
        let subsystem = |one: &Offered| {
            let namespace = |one: &super::Listed| {
                let mut told = tell_namespace(one.id, &one.backing);
                told["ana_group"] = one.ana_group.into();
                told
            };
            let access =
                |one: &AccessSpec| json!({ "group": one.group, "port": one.port, "state": one.state });
            let namespaces: Vec<_> = one.listed.iter().map(namespace).collect();
            let access: Vec<_> = one.spec.access.iter().map(access).collect();
            json!({ "nqn": one.spec.nqn.as_str(), "namespaces": namespaces, "ana": access })
        };
        let subsystems: Vec<_> = self.subsystems.iter().map(subsystem).collect();
        Ok(json!({ "config": path, "subsystems": subsystems }))
    }
}
