//! The record of an attachment: where a program finds the volume.

use std::io;
use std::path::{Path, PathBuf};

use fleet::Name;
use fleet::agent::SavedAttachment;
use fleet::object::Transport;
use nvme_fabrics::wire::HostId;
use serde::{Deserialize, Serialize};

use super::super::files;
use super::credentials::{Paths, TunnelPlace};
use crate::naming::{host_identifier, host_nqn, subsystem_nqn};
use crate::wire::{self, Wire};

/// The most bytes of a record.
const BYTES_MAX: u64 = 1 << 20;
/// The most bytes of an address.
const ADDRESS_MAX: usize = 300;

/// How a volume becomes usable on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The kernel's NVMe/TCP initiator makes a block device.
    Kernel,
    /// `farlane connect` makes a block device, through the kernel's driver for devices in user
    /// space.
    Ublk,
    /// Programs connect by themselves: the record has all that they need.
    User,
    /// `farlane attach` gives a virtual machine an SSD: the device is the socket for its monitor.
    Guest,
}

/// Where a program finds the volume of an attachment. The record has no secrets: it names their
/// files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The attachment.
    pub attachment: wire::Name,
    /// The volume.
    pub volume: wire::Name,
    /// The machine that owns the volume.
    pub owner: wire::Name,
    /// The epoch in which the host was let in.
    pub epoch: wire::Epoch,
    /// What the host may do beside others.
    pub mode: wire::Mode,
    /// What carries the commands.
    #[serde(default = "nvme_tcp")]
    pub transport: wire::Transport,
    /// How the volume becomes usable.
    pub way: Way,
    /// The URL for programs of Farlane, without the secrets' files.
    pub url: String,
    /// The NVMe Qualified Name of the subsystem.
    pub nqn: String,
    /// Addresses of the owner, as `HOST:PORT`.
    pub addresses: Vec<String>,
    /// The NVMe Qualified Name of this machine as a host.
    pub host_nqn: String,
    /// The Host Identifier of this machine, as a UUID.
    pub host_identifier: String,
    /// The file with the secret of DH-HMAC-CHAP.
    pub dhchap_secret_file: PathBuf,
    /// The file with the key of TLS, if the host must encrypt.
    #[serde(default)]
    pub tls_key_file: Option<PathBuf>,
    /// The file with the host's key of a tunnel.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The block device, if there is one; for a virtual machine, the socket for its monitor.
    #[serde(default)]
    pub device: Option<PathBuf>,
}

impl Record {
    /// The record of an attachment on the machine `node`.
    ///
    /// # Errors
    /// In words, when the secret or an address is missing or not valid.
    pub(super) fn new(
        (node, way): (&Name, Way),
        name: &Name,
        saved: &SavedAttachment,
        paths: Paths,
    ) -> Result<Self, String> {
        if !paths.dhchap.exists() {
            return Err(format!("no credential of epoch {} has come from a controller yet", saved.epoch));
        }
        if saved.addresses.is_empty() {
            return Err(format!("{} has no address", saved.owner));
        }
        if let Some(bad) = saved.addresses.iter().find(|address| !is_address(address)) {
            return Err(format!("the owner's address \"{}\" is not HOST:PORT", bad.escape_debug()));
        }
        let tunnel = match saved.transport {
            Transport::NvmeTcp => None,
            Transport::Tunnel => Some(tunnel_url(name, saved, &paths)?),
        };
        let (nqn, host) = (subsystem_nqn(&saved.volume, saved.mode, saved.epoch), host_nqn(node));
        let (identifier, addresses) = (HostId(host_identifier(node)).to_string(), saved.addresses.clone());
        let fabrics =
            || format!("nvme-tcp://{}/{nqn}?hostnqn={host}&hostid={identifier}", addresses.join(","));
        Ok(Self {
            url: tunnel.unwrap_or_else(fabrics),
            attachment: wire::Name::wire(name),
            volume: wire::Name::wire(&saved.volume),
            owner: wire::Name::wire(&saved.owner),
            epoch: wire::Epoch::wire(&saved.epoch),
            mode: wire::Mode::wire(&saved.mode),
            transport: wire::Transport::wire(&saved.transport),
            way,
            key_file: (saved.transport == Transport::Tunnel).then_some(paths.key),
            nqn,
            addresses,
            host_nqn: host,
            host_identifier: identifier,
            tls_key_file: paths.tls.exists().then_some(paths.tls),
            dhchap_secret_file: paths.dhchap,
            device: None,
        })
    }

    /// The options of `farlane` that name the files with secrets.
    pub fn secrets(&self) -> Vec<&std::ffi::OsStr> {
        if let Some(key) = &self.key_file {
            return vec!["--key".as_ref(), key.as_os_str()];
        }
        let mut options = vec!["--dhchap-secret-file".as_ref(), self.dhchap_secret_file.as_os_str()];
        if let Some(key) = &self.tls_key_file {
            options.extend(["--tls-key-file".as_ref(), key.as_os_str()]);
        }
        options
    }

    /// Whether this is the same use of the same volume.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (&self.nqn, &self.epoch, self.way, self.transport)
            == (&other.nqn, &other.epoch, other.way, other.transport)
    }

    pub(super) fn path(folder: &Path, attachment: &Name) -> PathBuf {
        // No name of an object has a dot.
        folder.join(format!("{attachment}.json"))
    }

    /// The record of an attachment; `None` without one that this version can read.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn read(folder: &Path, attachment: &Name) -> io::Result<Option<Self>> {
        let path = Self::path(folder, attachment);
        let Some(bytes) = files::read(&path, BYTES_MAX)? else { return Ok(None) };
        match serde_json::from_slice(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                tracing::warn!("{}: {error}; the attachment is connected again", path.display());
                Ok(None)
            }
        }
    }

    /// Makes the record durable.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write(&self, folder: &Path, attachment: &Name) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        files::replace(&Self::path(folder, attachment), &text)
    }

    /// The attachments that have records.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn all(folder: &Path) -> io::Result<Vec<Name>> {
        let names = files::names(folder)?;
        Ok(names.iter().filter_map(|name| Name::new(name.strip_suffix(".json")?).ok()).collect())
    }
}

/// The transport of records that do not say.
const fn nvme_tcp() -> wire::Transport {
    wire::Transport::NvmeTcp
}

/// The URL of the far end of an attachment: at the owner's first address, with the far end's port.
fn tunnel_url(name: &Name, saved: &SavedAttachment, paths: &Paths) -> Result<String, String> {
    let text = files::read(&paths.tunnel, BYTES_MAX).map_err(|error| error.to_string())?.ok_or_else(|| {
        let (owner, epoch) = (&saved.owner, saved.epoch);
        format!(
            "no key of a tunnel has come for {name} in epoch {epoch}: the agent of {owner} and the controllers \
             must be of this version"
        )
    })?;
    let place: TunnelPlace = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let first = saved.addresses.first().and_then(|address| address.rsplit_once(':'));
    let (host, _) = first.ok_or_else(|| format!("{} has no address", saved.owner))?;
    Ok(format!("tcp://{host}:{}?key={}", place.port, place.far))
}

/// Whether a text is an address, without any character that has a meaning in a URL or for the
/// kernel.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
            !host.is_empty() && host.bytes().all(is_good)
        }
    };
    text.len() <= ADDRESS_MAX && is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_no_special_characters() {
        for good in ["192.0.2.1:4420", "[2001:db8::1]:4420", "owner-1.example:1"] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "192.0.2.1",
            ":4420",
            "h:0",
            "h:65536",
            "h:1,nqn=x:2",
            "h/x:1",
            "h?x=1:2",
            "[::1:1",
            "h\n:1",
            "[fe80::1%eth0]:1",
            "a@b:1",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
