//! Secrets, and the text in which people keep them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use engine::Entropy;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::Hash;
use crate::wire::Nqn;

/// What a secret's text begins with.
const PREFIX: &str = "DHHC-1:";
/// Length of the CRC-32 that follows the key, in bytes.
const CHECK_LENGTH: usize = 4;
/// What follows the NQN in the transformation of a key.
const PURPOSE: &[u8] = b"NVMe-over-Fabrics";
/// Longest text of a secret in bytes: a key of 64 bytes with its CRC-32.
pub const SECRET_TEXT_MAX: usize = 128;

/// A secret of DH-HMAC-CHAP: a key of 32, 48 or 64 bytes, and the hash function that binds the key
/// to the name of the end that it authenticates (NVM Express Base, "Secret representation").
#[derive(Clone)]
pub struct Secret {
    transformation: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

/// Why a text is no secret. The text itself is never part of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretError {
    /// The text is longer than [`SECRET_TEXT_MAX`]. Holds its length in bytes.
    Long(usize),
    /// The text does not begin with `DHHC-1:`, two digits and a colon, or does not end with a
    /// colon.
    Shape,
    /// The two digits name no transformation: 00 to 03 are known. Holds the value.
    Transformation(u8),
    /// What follows is not Base64. Holds the place of the first wrong character after the prefix.
    Base64(usize),
    /// The key has another length than 32, 48 or 64 bytes. Holds the length in bytes.
    KeyLength(usize),
    /// The CRC-32 after the key does not match the key.
    Check,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(length) => {
                write!(f, "a secret has {SECRET_TEXT_MAX} characters at most, and {length} are there")
            }
            Self::Shape => f.write_str(
                "a secret has the form DHHC-1:hh:BASE64: with a colon at its end; \
                 nvme gen-dhchap-key makes one",
            ),
            Self::Transformation(found) => {
                write!(f, "DHHC-1:{found:02x}: names an unknown transformation; 00, 01, 02 and 03 are known")
            }
            Self::Base64(at) => {
                write!(
                    f,
                    "character {} after DHHC-1:hh: is not Base64; a character was lost or changed",
                    at + 1
                )
            }
            Self::KeyLength(length) => {
                write!(f, "the key has {length} bytes, and 32, 48 or 64 are allowed; is the secret cut off?")
            }
            Self::Check => f.write_str(
                "the secret's CRC-32 does not match its key; a character was lost or changed on the way",
            ),
        }
    }
}

impl core::error::Error for SecretError {}

impl Secret {
    /// A new secret with a key from `entropy`. The key is as long as a hash of `transformation`, or
    /// 32 bytes long without a transformation.
    pub fn generate(transformation: Option<Hash>, entropy: &mut Entropy) -> Self {
        let length = transformation.map_or(32, Hash::length);
        let mut key = Zeroizing::new(alloc::vec![0; length]);
        entropy.fill(&mut key);
        Self { transformation, key }
    }

    /// The text of the secret, for the file that keeps it.
    pub fn emit(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.key.len() + CHECK_LENGTH));
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&crc32(&self.key).to_le_bytes());
        let id = self.transformation.map_or(0, Hash::id);
        let encoded = Zeroizing::new(STANDARD.encode(&*bytes));
        Zeroizing::new(alloc::format!("{PREFIX}{id:02x}:{}:", encoded.as_str()))
    }

    /// The hash function that binds the key to a name; `None` where the key is used as it is.
    pub const fn transformation(&self) -> Option<Hash> {
        self.transformation
    }

    /// The key of the end called `name`.
    pub(super) fn key_of(&self, name: &Nqn) -> Zeroizing<Vec<u8>> {
        match self.transformation {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[name.as_str().as_bytes(), PURPOSE]),
        }
    }
}

impl FromStr for Secret {
    type Err = SecretError;

    /// Decodes a secret's text. White space around the text is ignored.
    fn from_str(text: &str) -> Result<Self, SecretError> {
        let text = text.trim_ascii();
        if text.len() > SECRET_TEXT_MAX {
            return Err(SecretError::Long(text.len()));
        }
        let rest = text.strip_prefix(PREFIX).ok_or(SecretError::Shape)?;
        let (digits, rest) = rest.split_once(':').ok_or(SecretError::Shape)?;
        let encoded = rest.strip_suffix(':').ok_or(SecretError::Shape)?;
        if digits.len() != 2 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(SecretError::Shape);
        }
        let id = u8::from_str_radix(digits, 16).map_err(|_| SecretError::Shape)?;
        let transformation = match id {
            0 => None,
            id => Some(Hash::from_id(id).ok_or(SecretError::Transformation(id))?),
        };
        let place = |error| match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => at,
            _ => encoded.len(),
        };
        let decoded = STANDARD.decode(encoded).map_err(|error| SecretError::Base64(place(error)))?;
        let bytes = Zeroizing::new(decoded);
        let length = bytes.len().saturating_sub(CHECK_LENGTH);
        if !matches!(length, 32 | 48 | 64) {
            return Err(SecretError::KeyLength(length));
        }
        let (key, check) = bytes.split_at(length);
        if crc32(key).to_le_bytes() != *check {
            return Err(SecretError::Check);
        }
        Ok(Self { transformation, key: Zeroizing::new(key.to_vec()) })
    }
}

impl PartialEq for Secret {
    /// Compares in a time that does not depend on the keys.
    fn eq(&self, other: &Self) -> bool {
        let same: bool = self.key.ct_eq(&other.key).into();
        same && self.transformation == other.transformation
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    /// Hides the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("transformation", &self.transformation).finish_non_exhaustive()
    }
}

/// The CRC-32 of Ethernet and zlib: polynomial 04C11DB7h, reflected, inverted at both ends.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}
