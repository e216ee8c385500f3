//! The hosts of a subsystem, as the configuration file describes them: their authentication and
//! their permissions.

use std::path::{Path, PathBuf};

use live::client::SecretFiles;
use live::drivers::secret_file::{self, SecretFileError};
use nvme::rate::Rate;
use nvme::subsystem::{NAMESPACE_ID_MAX, Permit};
use nvme::wire::NamespaceId;
use nvme_fabrics::authentication::{Credentials, Group, Hash};
use nvme_fabrics::target::HostTerms;
use nvme_fabrics::tls::TlsCredentials;
use nvme_fabrics::wire::Nqn;
use serde::Deserialize;
use toml::Spanned;

use super::values::{Size, Text, Wrong};

/// A host that may connect, with its secrets and its permissions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HostTable {
    nqn: Text<Nqn>,
    dhchap_secret_file: Option<PathBuf>,
    dhchap_controller_secret_file: Option<PathBuf>,
    dhchap_hashes: Option<Vec<String>>,
    dhchap_groups: Option<Vec<String>>,
    tls_key_file: Option<PathBuf>,
    #[serde(default)]
    nsid: Vec<u32>,
    #[serde(default)]
    readonly: bool,
    iops: Option<u64>,
    bandwidth: Option<Text<Size>>,
}

impl HostTable {
    /// The files with the host's secrets.
    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.dhchap_secret_file, &self.dhchap_controller_secret_file, &self.tls_key_file]
            .into_iter()
            .flatten()
    }
}

/// The authentication and the permissions of each host. Adds the hosts to the allowed hosts.
pub(super) fn hosts(
    tables: Vec<Spanned<HostTable>>,
    allowed: &mut Vec<Nqn>,
) -> Result<Vec<(Nqn, HostTerms)>, Wrong> {
    let mut found: Vec<(Nqn, HostTerms)> = Vec::new();
    for table in tables {
        let Text(nqn) = &table.get_ref().nqn;
        if found.iter().any(|(other, _)| other == nqn) {
            return Err(Wrong::at(&table, "host", format!("{nqn} is described already")));
        }
        let terms = terms(&table)?;
        if !allowed.contains(nqn) {
            allowed.push(nqn.clone());
        }
        found.push((nqn.clone(), terms));
    }
    Ok(found)
}

/// The permissions of a host.
fn permit(table: &Spanned<HostTable>) -> Result<Permit, Wrong> {
    let HostTable { nsid, readonly, iops, bandwidth, .. } = table.get_ref();
    if let Some(wrong) = nsid.iter().find(|id| !(1..=NAMESPACE_ID_MAX).contains(*id)) {
        return Err(Wrong::at(table, "nsid", format!("{wrong} is not in 1..={NAMESPACE_ID_MAX}")));
    }
    let bytes = bandwidth.as_ref().map(|Text(Size(bytes))| *bytes);
    for (key, value) in [("iops", *iops), ("bandwidth", bytes)] {
        if value == Some(0) {
            return Err(Wrong::at(table, key, "expected more than 0 a second"));
        }
    }
    let namespaces = (!nsid.is_empty()).then(|| nsid.iter().copied().map(NamespaceId).collect());
    Ok(Permit { namespaces, read_only: *readonly, rate: Rate { operations: *iops, bytes } })
}

/// The authentication of a host, with the secrets that its files hold, and its permissions.
fn terms(table: &Spanned<HostTable>) -> Result<HostTerms, Wrong> {
    let host = table.get_ref();
    let permit = permit(table)?;
    let wrong = |error: SecretFileError| Wrong::at(table, "host", error.to_string());
    let tls = host.tls_key_file.as_deref().map(tls).transpose().map_err(wrong)?;
    let Some(path) = &host.dhchap_secret_file else {
        let lonely = [
            ("dhchap-controller-secret-file", host.dhchap_controller_secret_file.is_some()),
            ("dhchap-hashes", host.dhchap_hashes.is_some()),
            ("dhchap-groups", host.dhchap_groups.is_some()),
        ];
        return match lonely.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(Wrong::at(table, key, "is of use only with dhchap-secret-file")),
            None => Ok(HostTerms { credentials: None, tls, permit }),
        };
    };
    let controller = host.dhchap_controller_secret_file.as_deref();
    let mut credentials = credentials(path, controller).map_err(wrong)?;
    if let Some(names) = &host.dhchap_hashes {
        let known = Hash::ALL.map(Hash::name);
        credentials.hashes = choice(names, &known).map_err(|why| Wrong::at(table, "dhchap-hashes", why))?;
    }
    if let Some(names) = &host.dhchap_groups {
        let known = Group::ALL.map(Group::name);
        credentials.groups = choice(names, &known).map_err(|why| Wrong::at(table, "dhchap-groups", why))?;
    }
    Ok(HostTerms { credentials: Some(credentials), tls, permit })
}

/// The TLS key in the file at `path`.
fn tls(path: &Path) -> Result<TlsCredentials, SecretFileError> {
    Ok(TlsCredentials { key: secret_file::read(path)?, origin: path.display().to_string() })
}

/// The authentication of every host of a target on the command line, by the secrets in `files`.
pub(super) fn shared_terms(files: &SecretFiles) -> Result<HostTerms, SecretFileError> {
    let of = |path: &PathBuf| credentials(path, files.controller.as_deref());
    let credentials = files.host.as_ref().map(of).transpose()?;
    let tls = files.tls.as_deref().map(tls).transpose()?;
    Ok(HostTerms { credentials, tls, permit: Permit::default() })
}

/// The credentials whose secrets are in these files.
fn credentials(host: &Path, controller: Option<&Path>) -> Result<Credentials, SecretFileError> {
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
