//! PSK identities: which key, host and subsystem a TLS handshake is about.

use core::fmt;

use crate::authentication::Hash;
use crate::wire::{NQN_FIELD_LENGTH, NQN_LENGTH_MAX, Nqn};

/// Most bytes of an identity: its head, two names, and the Base64 of a digest of SHA-384.
pub const IDENTITY_MAX: usize = 8 + 2 * (1 + NQN_LENGTH_MAX) + 1 + 64;

/// The version of a PSK identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityVersion {
    /// Version 0 names hash, host and subsystem: a host has one key for a subsystem.
    Zero,
    /// Version 1 adds a digest of the key, so that a key can be replaced while both are in use.
    One,
}

impl IdentityVersion {
    /// Both versions, the better one first.
    pub const ALL: [Self; 2] = [Self::One, Self::Zero];

    /// The digit by which an identity names its version.
    pub(super) const fn digit(self) -> char {
        match self {
            Self::Zero => '0',
            Self::One => '1',
        }
    }
}

/// The content of a PSK identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The version of the identity.
    pub version: IdentityVersion,
    /// The hash function of the TLS cipher suite.
    pub hash: Hash,
    /// NQN of the host.
    pub host: Nqn,
    /// NQN of the subsystem.
    pub subsystem: Nqn,
}

/// Why bytes are not a PSK identity of NVMe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// There are more than [`IDENTITY_MAX`] bytes. Holds their number.
    Long(usize),
    /// The bytes are not text of the form `NVMeVRhh HOSTNQN SUBNQN`, with a digest in version 1.
    Form,
    /// The identity has a version other than 0 and 1. Holds the character.
    Version(char),
    /// The identity is about a generated PSK, which is derived from DH-HMAC-CHAP.
    Generated,
    /// The identity names a hash function other than 01 (SHA-256) and 02 (SHA-384).
    Hash,
    /// A name is not an NQN.
    Name,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(length) => {
                write!(f, "the PSK identity has {length} bytes, and {IDENTITY_MAX} at most are allowed")
            }
            Self::Form => f.write_str(
                "the PSK identity does not have the form NVMe0Rhh HOSTNQN SUBNQN or \
                 NVMe1Rhh HOSTNQN SUBNQN DIGEST",
            ),
            Self::Version(found) => {
                write!(f, "the PSK identity has version {found:?}, and 0 and 1 are known")
            }
            Self::Generated => f.write_str(
                "the PSK identity is of a generated key (secure channel concatenation), and only \
                 configured keys are supported",
            ),
            Self::Hash => f.write_str("the PSK identity names a hash function other than 01 and 02"),
            Self::Name => f.write_str("a name in the PSK identity is no NQN"),
        }
    }
}

impl core::error::Error for IdentityError {}

impl Identity {
    /// Decodes an identity.
    ///
    /// # Errors
    /// When the bytes do not have the form of an identity of a configured key.
    pub fn parse(bytes: &[u8]) -> Result<Self, IdentityError> {
        if bytes.len() > IDENTITY_MAX {
            return Err(IdentityError::Long(bytes.len()));
        }
        let text = core::str::from_utf8(bytes).map_err(|_| IdentityError::Form)?;
        let mut words = text.split(' ');
        let head = words.next().and_then(|head| head.strip_prefix("NVMe")).ok_or(IdentityError::Form)?;
        let (version, kind, hash) = match (head.is_ascii(), head.len()) {
            (true, 4) => (&head[..1], &head[1..2], &head[2..]),
            _ => return Err(IdentityError::Form),
        };
        let version = match version {
            "0" => IdentityVersion::Zero,
            "1" => IdentityVersion::One,
            other => return Err(IdentityError::Version(other.chars().next().unwrap_or_default())),
        };
        match kind {
            "R" => {}
            "G" => return Err(IdentityError::Generated),
            _ => return Err(IdentityError::Form),
        }
        let hash = match hash {
            "01" => Hash::Sha256,
            "02" => Hash::Sha384,
            _ => return Err(IdentityError::Hash),
        };
        let (Some(host), Some(subsystem)) = (words.next(), words.next()) else {
            return Err(IdentityError::Form);
        };
        let has_digest = words.next().is_some_and(|digest| !digest.is_empty());
        if has_digest != (version == IdentityVersion::One) || words.next().is_some() {
            return Err(IdentityError::Form);
        }
        Ok(Self { version, hash, host: name(host)?, subsystem: name(subsystem)? })
    }
}

/// A name in an identity, as lenient as names in a Connect command are.
fn name(text: &str) -> Result<Nqn, IdentityError> {
    let mut field = [0; NQN_FIELD_LENGTH];
    let place = field.get_mut(..text.len()).ok_or(IdentityError::Name)?;
    place.copy_from_slice(text.as_bytes());
    Nqn::parse(&field, "PSK identity").map_err(|_| IdentityError::Name)
}
