//! The hosts of a subsystem that must authenticate, as the configuration file names them.

use std::path::{Path, PathBuf};

use live::drivers::secret_file::{self, SecretFileError};
use nvme_fabrics::authentication::{Credentials, Group, Hash};
use nvme_fabrics::wire::Nqn;
use serde::Deserialize;
use toml::Spanned;

use super::config::{Text, Wrong};

/// A host that may connect, and by which secrets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HostTable {
    nqn: Text<Nqn>,
    dhchap_secret_file: PathBuf,
    dhchap_controller_secret_file: Option<PathBuf>,
    dhchap_hashes: Option<Vec<String>>,
    dhchap_groups: Option<Vec<String>>,
}

/// What each host must authenticate with. Adds the hosts to those that are allowed.
pub(super) fn hosts(
    tables: Vec<Spanned<HostTable>>,
    allowed: &mut Vec<Nqn>,
) -> Result<Vec<(Nqn, Credentials)>, Wrong> {
    let mut found: Vec<(Nqn, Credentials)> = Vec::new();
    for table in tables {
        let HostTable { nqn: Text(nqn), dhchap_hashes, dhchap_groups, .. } = table.get_ref();
        if found.iter().any(|(other, _)| other == nqn) {
            return Err(Wrong::at(&table, "host", format!("{nqn} has its secret already")));
        }
        let files = (&table.get_ref().dhchap_secret_file, &table.get_ref().dhchap_controller_secret_file);
        let mut credentials = credentials(files.0, files.1.as_deref())
            .map_err(|error| Wrong::at(&table, "host", error.to_string()))?;
        if let Some(names) = dhchap_hashes {
            let known = Hash::ALL.map(Hash::name);
            credentials.hashes =
                choice(names, &known).map_err(|why| Wrong::at(&table, "dhchap-hashes", why))?;
        }
        if let Some(names) = dhchap_groups {
            let known = Group::ALL.map(Group::name);
            credentials.groups =
                choice(names, &known).map_err(|why| Wrong::at(&table, "dhchap-groups", why))?;
        }
        if !allowed.contains(nqn) {
            allowed.push(nqn.clone());
        }
        found.push((nqn.clone(), credentials));
    }
    Ok(found)
}

/// The credentials whose secrets are in these files.
pub(super) fn credentials(host: &Path, controller: Option<&Path>) -> Result<Credentials, SecretFileError> {
    let mut credentials = Credentials::new(secret_file::read(host)?);
    credentials.controller = controller.map(secret_file::read).transpose()?;
    credentials.origin = host.display().to_string();
    Ok(credentials)
}

/// The things that `names` stand for, in that order.
fn choice<T: std::str::FromStr>(names: &[String], known: &[&str]) -> Result<Vec<T>, String> {
    let expected = || format!("expected one or more of {}", known.join(", "));
    if names.is_empty() {
        return Err(format!("none is accepted; {}", expected()));
    }
    let parse = |name: &String| name.parse().map_err(|_| format!("'{name}' is unknown; {}", expected()));
    names.iter().map(parse).collect()
}
