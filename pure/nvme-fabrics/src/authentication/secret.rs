//! Secrets of DH-HMAC-CHAP.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use engine::Entropy;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::Hash;
use crate::interchange::{self, KeyForm, KeyText, KeyTextError};
use crate::wire::Nqn;

/// The text behind the NQN in the transformation of a key.
const PURPOSE: &[u8] = b"NVMe-over-Fabrics";

/// A secret of DH-HMAC-CHAP: a key of 32, 48 or 64 bytes, and the hash function that binds the key
/// to the name of the end that it authenticates (NVM Express Base, "Secret representation").
#[derive(Clone)]
pub struct Secret {
    transformation: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

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
        interchange::emit(KeyForm::Secret, self.transformation, &self.key)
    }

    /// The hash function that binds the key to a name; `None` if the key is used unchanged.
    pub const fn transformation(&self) -> Option<Hash> {
        self.transformation
    }

    /// The length of the key in bytes.
    pub fn length(&self) -> usize {
        self.key.len()
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
    type Err = KeyTextError;

    /// Decodes a secret's text. White space around the text is ignored.
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let KeyText { hash, key } = KeyText::parse(KeyForm::Secret, text)?;
        Ok(Self { transformation: hash, key })
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
