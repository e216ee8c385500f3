//! The options for keys: the identity of this end, and the peers that it admits.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use live::carrier::Acceptor;
use live::carrier::identity::{Admission, Fingerprint, Grant, Identity, Pin};
use live::carrier::route::{Name, Way};
use live::sys::sandbox::Needs;

use super::Output;
use super::headings::TRUST;
use crate::error::{CarrierError, Error};

pub(super) const EXAMPLES: &str = "Examples:
  farlane setup key new
  farlane setup key show --json
  farlane setup key tls host.tls
  farlane setup key dhchap host.key --hash sha384
  farlane setup key test host.tls
  farlane setup key trust far.example:4430 SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU
  farlane setup key trust 'tcp://far.example:4430?key=SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU'";

/// The commands for keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyAction {
    /// Make a new key, and print its fingerprint
    New(KeyArgs),
    /// Print the fingerprint of a key, and the far ends that this user remembers
    Show(KeyArgs),
    /// Remember the key of a far end, so that tcp://HOST:PORT alone leads to it
    Trust(TrustArgs),
    /// Make a key by which a host and a target of NVMe/TCP encrypt (TLS 1.3), as nvme gen-tls-key
    /// does
    Tls(NewTlsArgs),
    /// Make a secret by which a host or a controller of NVMe/TCP authenticates (DH-HMAC-CHAP), as
    /// nvme gen-dhchap-key does
    Dhchap(NewDhchapArgs),
    /// Test the key or secret in a file: its form, its CRC-32, and its permissions
    Test(KeyTestArgs),
}

/// The TLS key to make.
#[derive(Debug, Args)]
pub(crate) struct NewTlsArgs {
    /// The file to make. Only its owner may read it; both ends get the same file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The hash function of the cipher suite
    #[arg(long, value_name = "HASH", default_value = "sha256")]
    pub(crate) hash: TlsHash,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A hash function that TLS 1.3 knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsHash {
    /// TLS_AES_128_GCM_SHA256, with a key of 32 bytes
    Sha256,
    /// TLS_AES_256_GCM_SHA384, with a key of 48 bytes
    Sha384,
}

/// The secret for authentication to make.
#[derive(Debug, Args)]
pub(crate) struct NewDhchapArgs {
    /// The file to make. Only its owner may read it; both ends get the same file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The hash function that binds the secret to the name of the end that it authenticates
    #[arg(long, value_name = "HASH", default_value = "sha256")]
    pub(crate) hash: DhchapHash,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How a secret is bound to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DhchapHash {
    /// The secret is used as it is; it has 32 bytes
    None,
    /// SHA-256, with a secret of 32 bytes
    Sha256,
    /// SHA-384, with a secret of 48 bytes
    Sha384,
    /// SHA-512, with a secret of 64 bytes
    Sha512,
}

/// The file to test.
#[derive(Debug, Args)]
pub(crate) struct KeyTestArgs {
    /// The file with the key or secret
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The key to show.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The file with the key (PEM) [default: farlane/key.pem in the user's configuration directory]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl KeyArgs {
    pub(crate) fn path(&self) -> PathBuf {
        self.file.clone().unwrap_or_else(Identity::default_path)
    }
}

/// The far end to remember.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Where the far end listens: HOST:PORT, exactly as later URLs name it, or the URL that farlane
    /// export prints
    #[arg(value_name = "HOST:PORT|URL", value_parser = parse_far_name)]
    pub(crate) far: FarName,
    /// The fingerprint of the far end's key, as its owner's farlane setup key show prints it
    /// [default: the one behind ?key= in the URL]
    #[arg(value_name = "FINGERPRINT")]
    key: Option<Fingerprint>,
    /// Remember this key even if another key is remembered for the far end
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl TrustArgs {
    /// The key to remember.
    ///
    /// # Errors
    /// When none is given, or two that differ.
    pub(crate) fn key(&self) -> Result<Fingerprint, Error> {
        match (self.far.key, self.key) {
            (Some(one), Some(other)) if one != other => Err(CarrierError::TwoKeys { one, other }.into()),
            (Some(key), _) | (None, Some(key)) => Ok(key),
            (None, None) => Err(CarrierError::NoKey { name: self.far.name.clone() }.into()),
        }
    }
}

/// A far end whose key is to be remembered.
#[derive(Clone, Debug)]
pub(crate) struct FarName {
    /// Its name in later URLs, without the scheme.
    pub(crate) name: String,
    /// Whether it is `HOST:PORT`, which several schemes reach.
    pub(crate) is_address: bool,
    /// The key in its URL.
    key: Option<Fingerprint>,
}

fn parse_far_name(text: &str) -> Result<FarName, String> {
    let name: Name = text.strip_prefix("tcp://").unwrap_or(text).parse()?;
    if name.way == Way::Shm {
        return Err("shm: stays within this machine and has no keys".to_owned());
    }
    if !name.precedence.is_none() {
        return Err("leave priority= and dscp= out: only the key is remembered".to_owned());
    }
    let key = match name.pin {
        None => None,
        Some(Pin::Key(key)) => Some(key),
        Some(Pin::Any) => return Err("key=any names no key that could be remembered".to_owned()),
    };
    let is_address = name.way != Way::Eth;
    let host = name.authority.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
    if is_address && host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
        return Err(format!(
            "{host} stands for every address of the far machine: expected one of its addresses"
        ));
    }
    Ok(FarName { name: name.authority, is_address, key })
}

/// The identity of a far end, and the hosts that it admits.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Trust {
    /// Admit the host with this key; may be given again.
    ///
    /// Hosts without an admitted key are refused, and connections are encrypted (TLS 1.3). Each
    /// host's farlane setup key show prints its fingerprint. Append ,nsid=1+3 to show the host
    /// these namespaces only, and ,readonly to let it read only. Such a host can't format or manage
    /// namespaces, either. ,iops=5000 and ,bandwidth=100MiB limit the host's commands and bytes in
    /// a second
    #[arg(long, value_name = "FINGERPRINT[,name=TEXT][,nsid=N[+N]][,readonly][,iops=N][,bandwidth=SIZE]", help_heading = TRUST)]
    allow: Vec<Grant>,
    /// Admit the hosts whose keys this file lists, one value of --allow on each line.
    ///
    /// The file is read again when it changes. A host that is no longer in it loses its session
    #[arg(long, value_name = "FILE", help_heading = TRUST)]
    allow_file: Option<PathBuf>,

    /// Prove this end's identity with the key in this file (PEM) [default: farlane/key.pem in the
    /// user's configuration directory].
    ///
    /// A file that does not exist is made
    #[arg(long, value_name = "FILE", help_heading = TRUST)]
    key: Option<PathBuf>,
    /// Offer the device off loopback to every host, without authentication
    #[arg(long, conflicts_with_all = ["allow", "allow_file"], help_heading = TRUST)]
    insecure: bool,
}

/// A far end's key and list, ready for use.
pub(crate) struct Trusted {
    /// This end's key, if it is needed.
    pub(crate) identity: Option<Identity>,
    pub(crate) admission: Admission,
}

impl Trusted {
    /// The TLS settings of TCP listeners, if there is a key.
    pub(crate) fn acceptor(&self) -> Result<Option<Acceptor>, Error> {
        self.identity.as_ref().map(Acceptor::new).transpose().map_err(Error::Output)
    }
}

impl Trust {
    /// Whether hosts must prove a key.
    pub(crate) const fn has_list(&self) -> bool {
        !self.allow.is_empty() || self.allow_file.is_some()
    }

    /// Whether every host may be admitted from any address.
    pub(crate) const fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// Adds the files of the key and the list to the files that the process needs.
    pub(crate) fn need(&self, needs: &mut Needs) {
        needs.change_beside(&self.key.clone().unwrap_or_else(Identity::default_path));
        // Editors often replace a file when they change it.
        self.allow_file.iter().for_each(|path| needs.read_beside(path));
    }

    /// Checks that the options say which hosts are admitted, if one of `addresses` is off loopback.
    ///
    /// # Errors
    /// When every host would be admitted there.
    pub(crate) fn check(&self, addresses: &[SocketAddr]) -> Result<(), Error> {
        let exposed = addresses.iter().find(|address| !address.ip().is_loopback());
        match (exposed, self.has_list(), self.insecure) {
            (Some(address), false, false) => Err(Error::Exposed { address: *address }),
            _ => Ok(()),
        }
    }

    /// Reads the key and the list. The key is needed for a list, and over QUIC.
    ///
    /// # Errors
    /// When a file can't be used, or one of `addresses` is off loopback and every host would be
    /// admitted there.
    pub(crate) fn open(&self, addresses: &[SocketAddr], has_quic: bool) -> Result<Trusted, Error> {
        self.check(addresses)?;
        let admission = Admission::new(self.allow.clone(), self.allow_file.clone())?;
        let is_needed = self.has_list() || has_quic || self.key.is_some();
        let identity = if is_needed { Some(identity(self.key.clone())?) } else { None };
        Ok(Trusted { identity, admission })
    }
}

/// The key in the file at `path`, or else the user's own. A file that does not exist is made.
fn identity(path: Option<PathBuf>) -> Result<Identity, Error> {
    let path = path.unwrap_or_else(Identity::default_path);
    let (identity, made) = Identity::keep(&path)?;
    if made {
        info!("made a new key in {}: {}", path.display(), identity.fingerprint());
    }
    Ok(identity)
}
