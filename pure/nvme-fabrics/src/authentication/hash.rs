//! Hash functions, and HMAC with them.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// A hash function (HashID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// SHA-256 (01h).
    Sha256,
    /// SHA-384 (02h).
    Sha384,
    /// SHA-512 (03h).
    Sha512,
}

impl Hash {
    /// Every hash function, in the order in which this project's ends prefer them.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// The identifier (HashID).
    pub const fn id(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
            Self::Sha512 => 3,
        }
    }

    /// The hash function with that identifier (HashID), if it is one of [`Hash::ALL`].
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.id() == id)
    }

    /// The function's name in SPDK and this project.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Length of a hash in bytes.
    pub const fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The hash of `bytes`.
    pub(crate) fn hash(self, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        })
    }

    /// The HMAC of `parts`, one after the other, with `key`.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Sha256 => authenticate::<Hmac<Sha256>>(key, parts),
            Self::Sha384 => authenticate::<Hmac<Sha384>>(key, parts),
            Self::Sha512 => authenticate::<Hmac<Sha512>>(key, parts),
        }
    }
}

fn authenticate<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC accepts a key of any length");
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Hash {
    type Err = super::UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|one| one.name() == text).ok_or(super::UnknownName)
    }
}
