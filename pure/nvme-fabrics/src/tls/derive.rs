//! Derives the secret of a TLS handshake from a configured PSK.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{IdentityVersion, TlsKey};
use crate::authentication::Hash;
use crate::wire::Nqn;

/// The text behind the two names in the digest of a key.
const PURPOSE: &str = "NVMe-over-Fabrics";

/// How the labels of HKDF-Expand-Label are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Derivation {
    /// As in the specification and RFC 8446: each part of the label follows its length.
    #[default]
    Specified,
    /// As libnvme did it before version 1.16 (nvme-cli before 2.16): without the lengths of the
    /// parts, and with the length of the key in little-endian order.
    Libnvme,
}

/// The credentials of one end for the TLS handshakes between a host and a subsystem.
#[derive(Clone, Debug)]
pub struct TlsCredentials {
    /// The configured key.
    pub key: TlsKey,
    /// The source of the key, such as the name of a file, for messages.
    pub origin: String,
}

impl PartialEq for TlsCredentials {
    /// Whether the same handshakes succeed, regardless of the source of the keys.
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for TlsCredentials {}

impl TlsCredentials {
    /// The PSKs for handshakes between `host` and `subsystem`, the preferred one first: one for
    /// each identity of the key. The other end knows at least one of them.
    pub fn psks(&self, host: &Nqn, subsystem: &Nqn) -> Vec<Psk> {
        let ways = [
            (IdentityVersion::One, Derivation::Specified),
            (IdentityVersion::One, Derivation::Libnvme),
            (IdentityVersion::Zero, Derivation::Specified),
        ];
        let mut psks: Vec<Psk> = Vec::new();
        for (version, derivation) in ways {
            let psk = self.key.psk(version, derivation, host, subsystem);
            if psks.iter().all(|other| other.identity != psk.identity) {
                psks.push(psk);
            }
        }
        psks
    }
}

/// The secret of one handshake, and its identity.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk {
    /// The PSK identity.
    pub identity: String,
    /// The TLS PSK: 32 bytes with SHA-256, 48 bytes with SHA-384.
    pub secret: Zeroizing<Vec<u8>>,
    /// The hash function of the TLS cipher suite.
    pub hash: Hash,
}

impl fmt::Debug for Psk {
    /// Hides the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl TlsKey {
    /// The PSK of this key for a handshake between `host` and `subsystem`, with its identity.
    pub fn psk(&self, version: IdentityVersion, derivation: Derivation, host: &Nqn, subsystem: &Nqn) -> Psk {
        let hash = self.hash();
        let retained = match self.retained_by() {
            None => Zeroizing::new(self.bytes().to_vec()),
            Some(by) => expand(by, derivation, self.bytes(), "HostNQN", host.as_str()),
        };
        let digit = version.digit();
        let id = hash.id();
        let mut identity = format!("NVMe{digit}R{id:02} {host} {subsystem}");
        let context = match version {
            IdentityVersion::Zero => identity.clone(),
            IdentityVersion::One => {
                let message = format!("{host} {subsystem} {PURPOSE}");
                let digest = STANDARD.encode(&*hash.hmac(&retained, &[message.as_bytes()]));
                identity = format!("{identity} {digest}");
                format!("{id:02} {digest}")
            }
        };
        let secret = expand(hash, derivation, &retained, "nvme-tls-psk", &context);
        Psk { identity, secret, hash }
    }
}

/// HKDF-Extract without salt, then HKDF-Expand-Label to as many bytes as `key` has (RFC 5869,
/// RFC 8446).
fn expand(hash: Hash, derivation: Derivation, key: &[u8], label: &str, context: &str) -> Zeroizing<Vec<u8>> {
    let no_salt = &[0; 64][..hash.length()];
    let extracted = hash.hmac(no_salt, &[key]);
    let length = u16::try_from(key.len()).expect("keys are short");
    let label = format!("tls13 {label}");
    let mut info = Vec::new();
    match derivation {
        Derivation::Specified => {
            info.extend_from_slice(&length.to_be_bytes());
            for part in [label.as_str(), context] {
                // An identity of version 0 with long names exceeds the limit of its length field.
                // Libnvme and GnuTLS keep the low byte, too.
                info.push(part.len().to_le_bytes()[0]);
                info.extend_from_slice(part.as_bytes());
            }
        }
        Derivation::Libnvme => {
            info.extend_from_slice(&length.to_le_bytes());
            info.extend_from_slice(label.as_bytes());
            info.extend_from_slice(context.as_bytes());
        }
    }
    // One block is enough: a key is as long as a hash.
    let mut bytes = hash.hmac(&extracted, &[&info, &[1]]);
    bytes.truncate(key.len());
    bytes
}
