//! The keys that may reach the device, known by their fingerprints.

use alloc::vec::Vec;
use core::fmt;
use core::str::{self, FromStr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};

/// Prefix of a fingerprint's text.
const PREFIX: &str = "SHA256:";
/// Length of 32 bytes in base64 without padding.
const TEXT_LENGTH: usize = 43;

/// The fingerprint of a key: SHA-256 of the public key (SubjectPublicKeyInfo, DER).
///
/// Its text is `SHA256:` and 43 characters of base64 without padding, as SSH writes fingerprints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; TEXT_LENGTH];
        let length = STANDARD_NO_PAD.encode_slice(self.0, &mut text).unwrap_or(0);
        write!(f, "{PREFIX}{}", str::from_utf8(&text[..length]).unwrap_or_default())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintError;

impl fmt::Display for FingerprintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "expected {PREFIX} and {TEXT_LENGTH} characters of base64, as farlane setup key show prints it"
        )
    }
}

impl core::error::Error for FingerprintError {}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let text = text.strip_prefix(PREFIX).ok_or(FingerprintError)?;
        let mut bytes = [0; 32];
        match STANDARD_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(length) if length == bytes.len() => Ok(Self(bytes)),
            _ => Err(FingerprintError),
        }
    }
}

/// The hosts that may reach a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Every host that connects, also without a key.
    #[default]
    Anyone,
    /// Hosts that have proved one of these keys.
    Keys(Vec<Fingerprint>),
}

impl Access {
    /// Whether a host that has proved `key`, if any, may reach the device.
    pub fn admits(&self, key: Option<Fingerprint>) -> bool {
        match self {
            Self::Anyone => true,
            Self::Keys(keys) => key.is_some_and(|key| keys.contains(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::ToString;

    #[test]
    fn a_fingerprint_is_written_as_ssh_writes_it() {
        // SHA-256 of the empty string (FIPS 180-4 test value), in base64 by coreutils.
        let text = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";
        let key: Fingerprint = text.parse().unwrap();
        assert_eq!(key.0[..4], [0xe3, 0xb0, 0xc4, 0x42]);
        assert_eq!(key.to_string(), text);
        assert_eq!(format!("{key:?}"), text);
    }

    #[test]
    fn what_is_no_fingerprint_is_refused() {
        for text in [
            "",
            "SHA256:",
            "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
            "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
            "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSu",
            "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFUAA",
            "MD5:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
        ] {
            assert_eq!(text.parse::<Fingerprint>(), Err(FingerprintError), "{text}");
        }
    }

    #[test]
    fn a_list_admits_the_keys_in_it_and_no_host_without_a_key() {
        let (mine, yours) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        let list = Access::Keys(Vec::from([mine]));
        assert!(list.admits(Some(mine)));
        assert!(!list.admits(Some(yours)) && !list.admits(None));
        assert!(Access::Anyone.admits(None) && Access::Anyone.admits(Some(yours)));
        assert!(!Access::Keys(Vec::new()).admits(Some(mine)));
    }
}
