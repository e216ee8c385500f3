//! Configured pre-shared keys of TLS.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use engine::Entropy;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::authentication::Hash;
use crate::interchange::{self, KeyFault, KeyForm, KeyText, KeyTextError};

/// A configured PSK: 32 bytes for SHA-256 or 48 bytes for SHA-384, in the PSK interchange format
/// `NVMeTLSkey-1:hh:BASE64:` (NVM Express TCP Transport Specification 1.1).
#[derive(Clone)]
pub struct TlsKey {
    retained_by: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

impl TlsKey {
    /// A new key with bytes from `entropy`, as long as a hash of `hash`.
    ///
    /// # Panics
    /// When `hash` is not SHA-256 or SHA-384: TLS 1.3 has no other.
    pub fn generate(hash: Hash, entropy: &mut Entropy) -> Self {
        assert!(hash != Hash::Sha512, "TLS 1.3 has cipher suites with SHA-256 and SHA-384 alone");
        let mut key = Zeroizing::new(alloc::vec![0; hash.length()]);
        entropy.fill(&mut key);
        Self { retained_by: Some(hash), key }
    }

    /// The text of the key, for the file that keeps it.
    pub fn emit(&self) -> Zeroizing<String> {
        interchange::emit(KeyForm::TlsKey, self.retained_by, &self.key)
    }

    /// The hash function by which the retained PSK is derived; `None` if the key itself is the
    /// retained PSK.
    pub const fn retained_by(&self) -> Option<Hash> {
        self.retained_by
    }

    /// The hash function of the TLS cipher suite.
    pub fn hash(&self) -> Hash {
        match self.key.len() {
            32 => Hash::Sha256,
            _ => Hash::Sha384,
        }
    }

    /// The bytes of the key.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.key
    }
}

impl FromStr for TlsKey {
    type Err = KeyTextError;

    /// Decodes a key's text. White space around the text is ignored.
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let KeyText { hash, key } = KeyText::parse(KeyForm::TlsKey, text)?;
        match hash {
            Some(hash) if hash.length() != key.len() => {
                Err(KeyTextError { form: KeyForm::TlsKey, fault: KeyFault::KeyLength(key.len()) })
            }
            hash => Ok(Self { retained_by: hash, key }),
        }
    }
}

impl PartialEq for TlsKey {
    /// Compares in a time that does not depend on the keys.
    fn eq(&self, other: &Self) -> bool {
        let same: bool = self.key.ct_eq(&other.key).into();
        same && self.retained_by == other.retained_by
    }
}

impl Eq for TlsKey {}

impl fmt::Debug for TlsKey {
    /// Hides the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey").field("retained_by", &self.retained_by).finish_non_exhaustive()
    }
}
