//! The key pair of one end, and the file that keeps it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use aws_lc_rs::{digest, hmac};
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use tunnel::Fingerprint;

use super::proof::SCHEMES;
use crate::sys::durable::sync_folder_of;
use crate::sys::secrets::keep_from_dumps;

/// The most bytes of a file with a key.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The permissions of a key's file that only its owner may have.
const OTHERS: u32 = 0o077;
/// The labels under which the other keys of an identity are derived.
const RESET_LABEL: &[u8] = b"farlane/2 stateless reset";
const CONNECTION_ID_LABEL: &[u8] = b"farlane/2 connection identifiers";

/// Why there is no key.
#[derive(Debug)]
pub enum KeyError {
    /// The file can't be read, made or written.
    File(PathBuf, io::Error),
    /// Others than the file's owner may read or change it. The permission bits follow.
    Open(PathBuf, u32),
    /// The file has no private key that can sign.
    NoKey(PathBuf),
    /// The key in the file is not of the kind that signs recordings.
    OtherKind(PathBuf),
    /// The file exists, and a new key was to be written to it.
    Exists(PathBuf),
    /// The system has no randomness.
    NoRandomness,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Open(path, mode) => {
                write!(f, "{}: its mode is {mode:04o}, and others may use the key", path.display())
            }
            Self::NoKey(path) => {
                write!(f, "{}: no private key in it that can sign (PEM, BEGIN PRIVATE KEY)", path.display())
            }
            Self::OtherKind(path) => {
                write!(f, "{}: the key is of another kind: expected one of Ed25519", path.display())
            }
            Self::Exists(path) => write!(f, "{}: there is a key already", path.display()),
            Self::NoRandomness => f.write_str("the system has no randomness for a key"),
        }
    }
}

impl std::error::Error for KeyError {}

impl KeyError {
    /// The remedy, as a sentence.
    pub fn help(&self) -> String {
        match self {
            Self::File(path, error) if error.kind() == io::ErrorKind::NotFound => {
                format!("farlane setup key new {} makes it", path.display())
            }
            Self::File(..) => "name another file, which this user may read and make".to_owned(),
            Self::Open(path, _) => format!("chmod 600 {}", path.display()),
            Self::NoKey(_) | Self::OtherKind(_) => {
                "farlane setup key new FILE makes one; openssl genpkey -algorithm ed25519 does, too"
                    .to_owned()
            }
            Self::Exists(_) => {
                "farlane setup key show prints it; to have another one, give another file or remove this one"
                    .to_owned()
            }
            Self::NoRandomness => "is getrandom(2) allowed here?".to_owned(),
        }
    }
}

/// The bytes before the 32 bytes of a public key of Ed25519 (SubjectPublicKeyInfo, RFC 8410).
const ED25519_PUBLIC: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The bytes before the 32 bytes of a private key of Ed25519 (PKCS #8 version 1, RFC 8410).
const ED25519_PRIVATE: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The key pair of one end. It is known to others by its fingerprint.
pub struct Identity {
    secret: PrivateKeyDer<'static>,
    proof: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Makes a new key pair (Ed25519), which no file has yet.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> Result<Self, KeyError> {
        keep_from_dumps();
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::NoRandomness)?;
        let secret = PrivatePkcs8KeyDer::from(document.as_ref().to_vec()).into();
        Self::new(secret).ok_or(KeyError::NoRandomness)
    }

    /// The key pair (Ed25519) whose private key is `seed`, for keys that are derived from a secret.
    ///
    /// # Errors
    /// When the cryptography refuses the key, which it does for none.
    pub fn of_seed(seed: &[u8; 32]) -> Result<Self, KeyError> {
        keep_from_dumps();
        let secret = PrivatePkcs8KeyDer::from([&ED25519_PRIVATE[..], seed].concat()).into();
        Self::new(secret).ok_or(KeyError::NoRandomness)
    }

    /// The private key as a file has it (PEM).
    pub fn private_pem(&self) -> String {
        pem::encode(&pem::Pem::new("PRIVATE KEY", self.secret.secret_der()))
    }

    /// Where the key of this user is kept unless another file is named:
    /// `$XDG_CONFIG_HOME/farlane/key.pem`, or `.config/farlane/key.pem` in the home directory, or
    /// `/etc/farlane/key.pem` for a user without one.
    pub fn default_path() -> PathBuf {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let directory = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
        directory.unwrap_or_else(|| PathBuf::from("/etc")).join("farlane/key.pem")
    }

    /// Reads the private key from the file at `path` (PEM).
    ///
    /// # Errors
    /// When the file can't be read, has no key, or may be used by others than its owner.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        keep_from_dumps();
        let explain = |error| KeyError::File(path.to_owned(), error);
        let file = File::open(path).map_err(explain)?;
        let metadata = file.metadata().map_err(explain)?;
        if metadata.is_file() && metadata.mode() & OTHERS != 0 {
            return Err(KeyError::Open(path.to_owned(), metadata.mode() & 0o7777));
        }
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(explain)?;
        let secret = PrivateKeyDer::from_pem_slice(&text).ok();
        secret.and_then(Self::new).ok_or_else(|| KeyError::NoKey(path.to_owned()))
    }

    /// Reads the key with which recordings are to be signed from the file at `path`.
    ///
    /// # Errors
    /// As [`Identity::read`]; also when the key is of another kind than Ed25519.
    pub fn read_to_sign(path: &Path) -> Result<Self, KeyError> {
        let identity = Self::read(path)?;
        match identity.sign(&[]) {
            Some(_) => Ok(identity),
            None => Err(KeyError::OtherKind(path.to_owned())),
        }
    }

    /// Makes a new key in a new file at `path`, which only its owner may read. Makes the file's
    /// directory, too.
    ///
    /// # Errors
    /// When there is a file already, it can't be written, or the system has no randomness.
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        let identity = Self::generate()?;
        let explain = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
            _ => KeyError::File(path.to_owned(), error),
        };
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(explain)?;
        }
        let text = identity.private_pem();
        // A whole file gets the name: a file with this name has a key, also after a crash.
        let mark: String = identity.fingerprint.0[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let new = path.with_extension(format!("new-{mark}"));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(explain)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let named = written.and_then(|()| fs::hard_link(&new, path));
        let _ = fs::remove_file(&new);
        named.and_then(|()| sync_folder_of(path)).map_err(explain)?;
        Ok(identity)
    }

    /// Reads the key from the file at `path`. Makes the file with a new key if there is none;
    /// returns whether it did.
    ///
    /// # Errors
    /// As [`Identity::read`] and [`Identity::create`].
    pub fn keep(path: &Path) -> Result<(Self, bool), KeyError> {
        match Self::read(path) {
            Err(KeyError::File(_, error)) if error.kind() == io::ErrorKind::NotFound => {
                match Self::create(path) {
                    // Another process has made one meanwhile.
                    Err(KeyError::Exists(_)) => Self::read(path).map(|identity| (identity, false)),
                    result => result.map(|identity| (identity, true)),
                }
            }
            result => result.map(|identity| (identity, false)),
        }
    }

    fn new(secret: PrivateKeyDer<'static>) -> Option<Self> {
        let key = any_supported_type(&secret).ok()?;
        // Peers would reject a signature by a key of another kind.
        key.choose_scheme(&SCHEMES)?;
        let public = key.public_key()?.to_vec();
        let fingerprint = fingerprint_of(&public);
        let proof = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Some(Self { secret, proof, fingerprint })
    }

    /// The fingerprint of the public key, by which others know this end.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Signs `message` (Ed25519). Returns the public key and the signature; `None` if the key is of
    /// another kind.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<([u8; 32], [u8; 64])> {
        let public = self.proof.cert.first()?.strip_prefix(&ED25519_PUBLIC)?;
        let signer = self.proof.key.choose_scheme(&[SignatureScheme::ED25519])?;
        let signature = signer.sign(message).ok()?;
        Some((public.try_into().ok()?, signature.try_into().ok()?))
    }

    /// The key as TLS takes it.
    pub(super) fn proof(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.proof)
    }

    /// The key of QUIC's stateless resets, with which a far end says that it has lost its
    /// connections. Peers believe them from a far end that was started again with the same key.
    pub(crate) fn reset_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.derive(RESET_LABEL).as_ref())
    }

    /// The key by which a QUIC endpoint recognizes its own connection identifiers.
    pub(crate) fn connection_id_key(&self) -> u64 {
        let tag = self.derive(CONNECTION_ID_LABEL);
        u64::from_be_bytes(tag.as_ref()[..8].try_into().expect("a tag has 32 bytes"))
    }

    fn derive(&self, label: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.secret.secret_der()), label)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

/// Whose key `public` (Ed25519) is, if `signature` is that of `message` by it.
pub(crate) fn signer_of(message: &[u8], public: &[u8; 32], signature: &[u8; 64]) -> Option<Fingerprint> {
    UnparsedPublicKey::new(&ED25519, public).verify(message, signature).ok()?;
    Some(fingerprint_of(&[&ED25519_PUBLIC[..], public].concat()))
}

/// The fingerprint of a public key (SubjectPublicKeyInfo, DER).
pub(super) fn fingerprint_of(public: &[u8]) -> Fingerprint {
    let digest = digest::digest(&digest::SHA256, public);
    Fingerprint(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/key.pem");
        let (first, made) = Identity::keep(&path).unwrap();
        assert!(made);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let (second, made) = Identity::keep(&path).unwrap();
        assert!(!made);
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert!(matches!(Identity::create(&path), Err(KeyError::Exists(_))));
        assert_ne!(Identity::generate().unwrap().fingerprint(), first.fingerprint());
    }

    #[test]
    fn who_comes_at_the_same_time_gets_the_same_key() {
        const COUNT: usize = 8;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        let start = std::sync::Barrier::new(COUNT);
        let keep = || {
            start.wait();
            Identity::keep(&path).unwrap().0.fingerprint()
        };
        let found: Vec<Fingerprint> = std::thread::scope(|scope| {
            let threads = [(); COUNT].map(|()| scope.spawn(keep));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_key_that_others_may_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        Identity::create(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Identity::read(&path).unwrap_err();
            assert!(matches!(error, KeyError::Open(_, found) if found == mode), "{error}");
            assert!(error.help().contains("chmod 600"));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        Identity::read(&path).unwrap();
    }

    /// A key that `openssl genpkey -algorithm ed25519` made. The fingerprint is the output of
    /// `openssl pkey -pubout -outform DER | openssl dgst -sha256 -binary | base64` for it.
    const BY_OPENSSL: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEIC5BZV62LQVQwpfM+o2loD0zcn7QNaFCVx1l6VLEVmqT\n\
        -----END PRIVATE KEY-----\n";

    #[test]
    fn a_key_of_a_seed_is_written_as_openssl_writes_it() {
        let text: String = BY_OPENSSL.lines().nth(1).unwrap().to_owned();
        let der = pem::parse(BY_OPENSSL).unwrap().into_contents();
        let seed = der[16..].try_into().unwrap();
        let identity = Identity::of_seed(&seed).unwrap();
        assert_eq!(identity.fingerprint().to_string(), "SHA256:gcl5TDX9JWh/U0O0/ayx7yX3OS45ViLnpfAjQVcUd+o");
        assert!(identity.private_pem().contains(&text));
    }

    #[test]
    fn a_key_of_openssl_has_the_fingerprint_that_openssl_computes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(BY_OPENSSL.as_bytes()).unwrap();
        let identity = Identity::read(&path).unwrap();
        assert_eq!(identity.fingerprint().to_string(), "SHA256:gcl5TDX9JWh/U0O0/ayx7yX3OS45ViLnpfAjQVcUd+o");
    }

    #[test]
    fn a_key_of_another_kind_signs_no_recording() {
        use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        Identity::create(&path).unwrap();
        Identity::read_to_sign(&path).unwrap();
        let random = SystemRandom::new();
        let other = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let other: &[u8] = other.as_ref();
        // The file keeps its mode.
        fs::write(&path, pem::encode(&pem::Pem::new("PRIVATE KEY", other))).unwrap();
        Identity::read(&path).unwrap();
        let error = Identity::read_to_sign(&path).unwrap_err();
        assert!(matches!(error, KeyError::OtherKind(_)) && error.to_string().contains("Ed25519"), "{error}");
    }

    #[test]
    fn a_key_that_no_peer_takes_is_no_key() {
        use aws_lc_rs::signature::{ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair};
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P521_SHA512_ASN1_SIGNING, &random).unwrap();
        assert!(Identity::new(PrivatePkcs8KeyDer::from(key.as_ref().to_vec()).into()).is_none());
    }

    #[test]
    fn garbage_is_no_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        for text in ["", "nothing", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let _ = fs::remove_file(&path);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert!(matches!(Identity::read(&path), Err(KeyError::NoKey(_))), "{text:?}");
        }
        assert!(matches!(Identity::read(Path::new("/nowhere/key")), Err(KeyError::File(..))));
    }
}
