//! The secrets of attachments, which an owner derives from a master secret (HKDF, RFC 5869).
//!
//! Neither the store nor a controller has the master secret. A secret is valid for one host, one
//! attachment and one epoch: the host that was let in before has another.

use std::{fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::crc32;
use fleet::Name;
use fleet::object::Admission;
use hkdf::Hkdf;
use live::carrier::identity::{Fingerprint, Identity};
use live::sys::entropy;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::state::Folder;
use super::{AgentError, files};
use crate::naming;
use crate::wire::{self, Credential, TunnelCredential, Wire};

/// Bytes of the master secret, and of each key.
const BYTES: usize = 32;
/// What separates these keys from others that may one day be derived from the same secret.
const SALT: &[u8] = b"farlane fleet: keys of attachments, version 1";

/// The keys of a far end.
pub(crate) struct Far {
    /// Its private key (PEM).
    pub(crate) key: Zeroizing<String>,
    /// The fingerprint of the only host that it admits.
    pub(crate) host: Fingerprint,
}

/// The master secret of an owner.
pub(crate) struct Master {
    secret: Zeroizing<[u8; BYTES]>,
    encrypt: bool,
}

impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Master").field("encrypt", &self.encrypt).finish_non_exhaustive()
    }
}

impl Master {
    /// The master secret of a folder. A new folder gets one; with `is_used`, the folder must have
    /// one. With `encrypt`, hosts get keys of TLS, too.
    ///
    /// # Errors
    /// When the secret is lost or damaged, or the system refuses.
    pub(crate) fn of(folder: &Folder, is_used: bool, encrypt: bool) -> Result<Self, AgentError> {
        let path = folder.join("master.key");
        let damaged = |why: String| AgentError::Master { path: path.clone(), why };
        let mut secret = Zeroizing::new([0; BYTES]);
        match files::read(&path, BYTES as u64).map_err(|error| damaged(error.to_string()))? {
            Some(bytes) => {
                let bytes = Zeroizing::new(bytes);
                let whole: &[u8; BYTES] = bytes
                    .as_slice()
                    .try_into()
                    .map_err(|_| damaged(format!("it has {} bytes, expected {BYTES}", bytes.len())))?;
                secret.copy_from_slice(whole);
            }
            None if is_used => return Err(damaged("there is no such file".to_owned())),
            None => {
                entropy::system().fill(secret.as_mut_slice());
                files::replace(&path, secret.as_slice())?;
            }
        }
        Ok(Self { secret, encrypt })
    }

    /// The credential of a host that was let in, for the target.
    pub(crate) fn credential(&self, volume: &Name, admission: &Admission) -> Credential {
        let Admission { attachment, mode, epoch, .. } = admission;
        Credential {
            attachment: wire::Name::wire(attachment),
            epoch: wire::Epoch::wire(epoch),
            nqn: naming::subsystem_nqn(volume, *mode, *epoch),
            dhchap: text("DHHC-1", &self.derive("dhchap", volume, admission)),
            tls: self.encrypt.then(|| text("NVMeTLSkey-1", &self.derive("tls", volume, admission))),
            tunnel: None,
        }
    }

    /// What a host needs to reach the far end of a volume at this port.
    ///
    /// # Errors
    /// When the cryptography refuses a key, which it does for none.
    pub(crate) fn tunnel(
        &self,
        volume: &Name,
        admission: &Admission,
        port: u16,
    ) -> io::Result<TunnelCredential> {
        let far = self.identity("tunnel far end", volume, admission)?.fingerprint();
        let key = self.identity("tunnel host", volume, admission)?.private_pem();
        Ok(TunnelCredential { port, far: far.to_string(), key })
    }

    /// The key of a volume's far end, and that of its host.
    ///
    /// # Errors
    /// When the cryptography refuses a key, which it does for none.
    pub(crate) fn far(&self, volume: &Name, admission: &Admission) -> io::Result<Far> {
        let key = Zeroizing::new(self.identity("tunnel far end", volume, admission)?.private_pem());
        Ok(Far { key, host: self.identity("tunnel host", volume, admission)?.fingerprint() })
    }

    fn identity(&self, purpose: &str, volume: &Name, admission: &Admission) -> io::Result<Identity> {
        Identity::of_seed(&self.derive(purpose, volume, admission)).map_err(io::Error::other)
    }

    fn derive(&self, purpose: &str, volume: &Name, admission: &Admission) -> Zeroizing<[u8; BYTES]> {
        let Admission { attachment, node, epoch, .. } = admission;
        // No name has the separator, so that no two lists of names have one text.
        let info = format!("{purpose}\0{volume}\0{attachment}\0{node}\0{epoch}");
        let mut key = Zeroizing::new([0; BYTES]);
        let expanded = Hkdf::<Sha256>::new(Some(SALT), &*self.secret).expand(info.as_bytes(), &mut *key);
        expanded.expect("HKDF-SHA256 has up to 255 times 32 bytes");
        key
    }
}

/// A key in its interchange form, as nvme-cli writes it, for use with SHA-256.
fn text(form: &str, key: &[u8; BYTES]) -> String {
    let mut bytes = Zeroizing::new(key.to_vec());
    bytes.extend_from_slice(&crc32(0, key).to_le_bytes());
    format!("{form}:01:{}:", STANDARD.encode(&*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::Epoch;
    use fleet::object::{Mode, Transport};
    use nvme_fabrics::authentication::Secret;
    use nvme_fabrics::tls::TlsKey;
    use std::os::unix::fs::PermissionsExt;

    fn admission(attachment: &str, node: &str, number: u64) -> Admission {
        let [attachment, node] = [attachment, node].map(|text| Name::new(text).unwrap());
        let (mode, transport) = (Mode::Exclusive, Transport::default());
        Admission { attachment, node, mode, epoch: Epoch { incarnation: 0, number }, transport }
    }

    #[test]
    fn each_host_and_epoch_has_a_secret_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let master = Master::of(&folder, false, true).unwrap();
        let [v, w] = ["v", "w"].map(|text| Name::new(text).unwrap());
        let made = [
            master.credential(&v, &admission("a", "h", 1)),
            master.credential(&v, &admission("a", "h", 2)),
            master.credential(&v, &admission("a", "i", 1)),
            master.credential(&v, &admission("b", "h", 1)),
            master.credential(&w, &admission("a", "h", 1)),
        ];
        let mut texts: Vec<_> = made.iter().map(|one| one.dhchap.clone()).collect();
        texts.extend(made.iter().filter_map(|one| one.tls.clone()));
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 10);
        made[0].dhchap.parse::<Secret>().unwrap();
        made[0].tls.as_ref().unwrap().parse::<TlsKey>().unwrap();
        assert!(!format!("{made:?}{master:?}").contains("DHHC"));

        let again = Master::of(&folder, true, false).unwrap();
        let credential = again.credential(&v, &admission("a", "h", 1));
        assert_eq!((credential.dhchap, credential.tls), (made[0].dhchap.clone(), None));
        let mode = std::fs::metadata(directory.path().join("master.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_lost_master_secret_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        let error = Master::of(&folder, true, false).unwrap_err().to_string();
        assert!(error.contains("master.key") && error.contains("put back"), "{error}");
        std::fs::write(directory.path().join("master.key"), "short").unwrap();
        for is_used in [false, true] {
            let error = Master::of(&folder, is_used, false).unwrap_err().to_string();
            assert!(error.contains("has 5 bytes, expected 32"), "{error}");
        }
    }
}
