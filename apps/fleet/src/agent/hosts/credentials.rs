//! The secrets by which this machine proves itself to the owners of volumes.

use std::path::{Path, PathBuf};

use fleet::slice::HostAttachment;
use fleet::{Epoch, Name};
use live::carrier::identity::{Fingerprint, Identity};
use nvme_fabrics::authentication::Secret;
use nvme_fabrics::tls::TlsKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::super::files;
use crate::naming::{epoch_text, parse_epoch, subsystem_nqn};
use crate::wire::{Credential, TunnelCredential, Wire};

/// The most bytes of a secret's text.
const BYTES_MAX: u64 = 1024;

/// The folder with the secrets, each in a file that only its owner may read.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    folder: PathBuf,
}

/// The files with the secrets of an attachment in an epoch.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// The secret of DH-HMAC-CHAP.
    pub(super) dhchap: PathBuf,
    /// The key of TLS.
    pub(super) tls: PathBuf,
    /// The key of a tunnel.
    pub(super) key: PathBuf,
    /// Where the far end of the tunnel is: a [`TunnelPlace`].
    pub(super) tunnel: PathBuf,
}

/// Where the far end of a tunnel is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TunnelPlace {
    /// The port, at the owner's addresses.
    pub(super) port: u16,
    /// The fingerprint of the far end's key.
    pub(super) far: String,
}

impl Credentials {
    /// # Errors
    /// The system's.
    pub(crate) fn open(folder: PathBuf) -> std::io::Result<Self> {
        files::make_folder(&folder)?;
        Ok(Self { folder })
    }

    /// The files of an attachment in an epoch, which need not be there.
    pub(super) fn paths(&self, attachment: &Name, epoch: Epoch) -> Paths {
        // No name of an object has a dot.
        let path = |ending| self.folder.join(format!("{attachment}.{}.{ending}", epoch_text(epoch)));
        Paths { dhchap: path("dhchap"), tls: path("tls"), key: path("key"), tunnel: path("tunnel") }
    }

    /// Keeps the secrets that came with a slice, if they are for its attachments.
    ///
    /// # Errors
    /// In words, for each that can't be kept; the others are kept.
    pub(crate) fn keep(&self, attachments: &[HostAttachment], all: &[Credential]) -> Vec<String> {
        all.iter().filter_map(|one| self.keep_one(attachments, one).err()).collect()
    }

    fn keep_one(&self, attachments: &[HostAttachment], one: &Credential) -> Result<(), String> {
        let (name, epoch) = (&one.attachment.0, one.epoch.0);
        let failed =
            |why: String| format!("the credential of {} in epoch {epoch}: {why}", name.escape_debug());
        let is_it =
            |attachment: &&HostAttachment| attachment.name.as_str() == name && attachment.epoch == epoch;
        let found = attachments.iter().find(is_it);
        let attachment = found.ok_or_else(|| failed("the slice has no such attachment".to_owned()))?;
        let expected = subsystem_nqn(&attachment.volume, attachment.mode, epoch);
        if one.nqn != expected {
            return Err(failed(format!("it is for {}, expected {expected}", one.nqn.escape_debug())));
        }
        let parsed = one.dhchap.parse::<Secret>();
        parsed.map_err(|error| failed(error.to_string()))?;
        let paths = self.paths(&attachment.name, epoch);
        if let Some(key) = &one.tls {
            key.parse::<TlsKey>().map_err(|error| failed(error.to_string()))?;
            keep_text(&paths.tls, key).map_err(|error| failed(error.to_string()))?;
        }
        if let Some(tunnel) = &one.tunnel {
            keep_tunnel(&paths, tunnel).map_err(failed)?;
        }
        keep_text(&paths.dhchap, &one.dhchap).map_err(|error| failed(error.to_string()))
    }

    /// Removes the secrets of an attachment but for those of an epoch.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn remove(&self, attachment: &Name, but: Option<Epoch>) -> std::io::Result<()> {
        for name in files::names(&self.folder)? {
            let mut parts = name.split('.');
            let is_its = parts.next() == Some(attachment.as_str());
            if is_its && parts.next().and_then(parse_epoch).is_none_or(|epoch| but != Some(epoch)) {
                files::remove(&self.folder.join(&name))?;
            }
        }
        Ok(())
    }
}

/// Writes the key of a tunnel, and the place of its far end.
fn keep_tunnel(paths: &Paths, tunnel: &TunnelCredential) -> Result<(), String> {
    tunnel.far.parse::<Fingerprint>().map_err(|error| error.to_string())?;
    let place = TunnelPlace { port: tunnel.port, far: tunnel.far.clone() };
    let place = serde_json::to_string(&place).map_err(|error| error.to_string())?;
    keep_text(&paths.key, &tunnel.key).map_err(|error| error.to_string())?;
    // The reason for a refusal has nothing of the key.
    Identity::read(&paths.key).map_err(|error| error.to_string())?;
    keep_text(&paths.tunnel, &place).map_err(|error| error.to_string())
}

/// Writes a secret, unless the file has it.
fn keep_text(path: &Path, text: &str) -> std::io::Result<()> {
    let known = files::read(path, BYTES_MAX)?.map(Zeroizing::new);
    if known.is_some_and(|known| known.as_slice() == text.as_bytes()) {
        return Ok(());
    }
    files::replace(path, text.as_bytes())
}

/// The credentials of a message, without those that no engine could name.
pub(crate) fn named(all: Vec<Credential>) -> Vec<Credential> {
    all.into_iter().filter(|one| one.attachment.clone().pure().is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;
    use fleet::object::{Mode, Transport};
    use fleet::slice::Wish;
    use std::os::unix::fs::PermissionsExt;

    const SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

    fn attachment(number: u64) -> HostAttachment {
        let name = |text| Name::new(text).unwrap();
        HostAttachment {
            name: name("a"),
            volume: name("v"),
            epoch: Epoch { incarnation: 0, number },
            mode: Mode::Exclusive,
            transport: Transport::default(),
            owner: name("o"),
            addresses: Vec::new(),
            wish: Wish::Connect,
        }
    }

    fn credential(number: u64) -> Credential {
        Credential {
            attachment: wire::Name("a".to_owned()),
            epoch: wire::Epoch(Epoch { incarnation: 0, number }),
            nqn: format!("nqn.2026-01.io.farlane:fleet:v:E0-{number}"),
            dhchap: SECRET.to_owned(),
            tls: None,
            tunnel: None,
        }
    }

    #[test]
    fn secrets_are_kept_for_their_owner_alone_and_go_with_their_epoch() {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::open(directory.path().join("credentials")).unwrap();
        for number in [5, 6] {
            assert_eq!(credentials.keep(&[attachment(number)], &[credential(number)]), [""; 0]);
        }
        let path = |number| credentials.paths(&attachment(number).name, attachment(number).epoch).dhchap;
        assert_eq!(std::fs::read_to_string(path(5)).unwrap(), SECRET);
        assert_eq!(std::fs::metadata(path(5)).unwrap().permissions().mode() & 0o777, 0o600);
        credentials.remove(&attachment(6).name, Some(attachment(6).epoch)).unwrap();
        assert!(!path(5).exists() && path(6).exists());
        credentials.remove(&attachment(6).name, None).unwrap();
        assert!(!path(6).exists());
    }

    #[test]
    fn secrets_for_others_are_refused_without_their_text() {
        let directory = tempfile::tempdir().unwrap();
        let credentials = Credentials::open(directory.path().to_owned()).unwrap();
        let cut = Credential { dhchap: SECRET[..30].to_owned(), ..credential(5) };
        let elsewhere = Credential { nqn: "nqn.2026-01.io.farlane:fleet:w:E0-5".to_owned(), ..credential(5) };
        for (bad, why) in [(credential(6), "no such attachment"), (cut, "form"), (elsewhere, "expected nqn")]
        {
            let refused = credentials.keep(&[attachment(5)], &[bad]);
            assert!(refused.len() == 1 && refused[0].contains(why), "{refused:?}");
            assert!(!refused[0].contains("DHHC-1:01:AA"), "{refused:?}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
