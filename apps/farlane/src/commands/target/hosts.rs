//! The hosts of a subsystem that must prove who they are, as the configuration file names them.

use std::path::{Path, PathBuf};

use live::drivers::controller::SecretFiles;
use live::drivers::secret_file::{self, SecretFileError};
use nvme_fabrics::authentication::{Credentials, Group, Hash};
use nvme_fabrics::target::HostTerms;
use nvme_fabrics::tls::TlsCredentials;
use nvme_fabrics::wire::Nqn;
use serde::Deserialize;
use toml::Spanned;

use super::config::{Text, Wrong};

/// A host that may connect, and by which secrets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HostTable {
    nqn: Text<Nqn>,
    dhchap_secret_file: Option<PathBuf>,
    dhchap_controller_secret_file: Option<PathBuf>,
    dhchap_hashes: Option<Vec<String>>,
    dhchap_groups: Option<Vec<String>>,
    tls_key_file: Option<PathBuf>,
}

/// What each host must prove. Adds the hosts to those that are allowed.
pub(super) fn hosts(
    tables: Vec<Spanned<HostTable>>,
    allowed: &mut Vec<Nqn>,
) -> Result<Vec<(Nqn, HostTerms)>, Wrong> {
    let mut found: Vec<(Nqn, HostTerms)> = Vec::new();
    for table in tables {
        let Text(nqn) = &table.get_ref().nqn;
        if found.iter().any(|(other, _)| other == nqn) {
            return Err(Wrong::at(&table, "host", format!("{nqn} has its secrets already")));
        }
        let terms = terms(&table)?;
        if terms == HostTerms::default() {
            let why = format!("{nqn} proves nothing: expected dhchap-secret-file, tls-key-file or both");
            return Err(Wrong::at(&table, "host", why));
        }
        if !allowed.contains(nqn) {
            allowed.push(nqn.clone());
        }
        found.push((nqn.clone(), terms));
    }
    Ok(found)
}

/// What a host must prove, with the secrets that its files hold.
fn terms(table: &Spanned<HostTable>) -> Result<HostTerms, Wrong> {
    let host = table.get_ref();
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
            None => Ok(HostTerms { credentials: None, tls }),
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
    Ok(HostTerms { credentials: Some(credentials), tls })
}

/// The TLS key in the file at `path`.
fn tls(path: &Path) -> Result<TlsCredentials, SecretFileError> {
    Ok(TlsCredentials { key: secret_file::read(path)?, origin: path.display().to_string() })
}

/// What every host of a target on the command line must prove, by the secrets in `files`.
pub(super) fn shared_terms(files: &SecretFiles) -> Result<HostTerms, SecretFileError> {
    let of = |path: &PathBuf| credentials(path, files.controller.as_deref());
    let credentials = files.host.as_ref().map(of).transpose()?;
    Ok(HostTerms { credentials, tls: files.tls.as_deref().map(tls).transpose()? })
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
