//! The identity of a far end: a key, a self-signed certificate, and the fingerprint by which others
//! recognize it.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;

use rcgen::{CertificateParams, DnType, KeyPair};
use ring::{digest, hmac};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The name in a certificate. Nobody is trusted because of this name.
pub(super) const NAME: &str = "farlane";
/// The most bytes of a file with a key and a certificate.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The labels under which the other keys of an identity are derived.
const RESET_LABEL: &[u8] = b"farlane/1 stateless reset";
const CONNECTION_ID_LABEL: &[u8] = b"farlane/1 connection identifiers";

/// The SHA-256 digest of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate (DER).
    pub(super) fn of(certificate: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, certificate);
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Text that is no fingerprint, with the number of its hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintError {
    digits: usize,
}

impl fmt::Display for FingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a fingerprint is 64 hexadecimal digits (SHA-256), with or without colons; here are {}",
            self.digits
        )
    }
}

impl std::error::Error for FingerprintError {}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        let error =
            FingerprintError { digits: digits.iter().filter(|digit| digit.is_ascii_hexdigit()).count() };
        if digits.len() != 64 {
            return Err(error);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair =
                std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|it| it.is_ascii_hexdigit()));
            *byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(error)?;
        }
        Ok(Self(bytes))
    }
}

/// A private key with its certificate.
pub struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Generates a new key, which nobody knows yet, with its certificate.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> io::Result<Self> {
        let (certificate, key) = sign_anew()?;
        Ok(Self::new(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
    }

    /// Reads the key and the certificate from the file at `path` (PEM). If the file does not exist,
    /// makes it with a new key; only its owner may read it.
    ///
    /// # Errors
    /// When the file can't be read or made, or has no key or no certificate. The error names the
    /// file.
    pub fn keep(path: &Path) -> io::Result<Self> {
        let explain = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        match Self::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (certificate, key) = sign_anew()?;
                let text = certificate.pem() + &key.serialize_pem();
                write_new(path, &text).map_err(explain)?;
                Self::read(path).map_err(explain)
            }
            result => result.map_err(explain),
        }
    }

    fn read(path: &Path) -> io::Result<Self> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        if fs::metadata(path)?.len() > FILE_BYTES_MAX {
            return Err(invalid("too long for a key and a certificate"));
        }
        let text = fs::read(path)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let certificates = certificates
            .ok()
            .filter(|them| !them.is_empty())
            .ok_or_else(|| invalid("no certificate in it (PEM, BEGIN CERTIFICATE)"))?;
        let key = PrivateKeyDer::from_pem_slice(&text)
            .map_err(|_| invalid("no private key in it (PEM, BEGIN PRIVATE KEY)"))?;
        Ok(Self::new(certificates, key))
    }

    fn new(certificates: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        let fingerprint = Fingerprint::of(&certificates[0]);
        Self { certificates, key, fingerprint }
    }

    /// The fingerprint of the certificate, by which others recognize the identity.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(super) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.certificates.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    /// The key of stateless resets, with which a far end says that it has lost its connections.
    /// Peers believe them from a far end that was started again with the same key.
    pub(super) fn reset_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.derive(RESET_LABEL).as_ref())
    }

    /// The key by which an endpoint recognizes its own connection identifiers.
    pub(super) fn connection_id_key(&self) -> u64 {
        let tag = self.derive(CONNECTION_ID_LABEL);
        u64::from_be_bytes(tag.as_ref()[..8].try_into().expect("a tag has 32 bytes"))
    }

    fn derive(&self, label: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.key.secret_der()), label)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

fn sign_anew() -> io::Result<(rcgen::Certificate, KeyPair)> {
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let mut parameters = CertificateParams::new([NAME.to_owned()]).map_err(io::Error::other)?;
    parameters.distinguished_name.push(DnType::CommonName, NAME);
    let certificate = parameters.self_signed(&key).map_err(io::Error::other)?;
    Ok((certificate, key))
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
