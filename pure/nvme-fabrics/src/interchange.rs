//! The text form of keys: `PREFIX:hh:BASE64:`, where the Base64 holds a key and its CRC-32.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use engine::crc32;
use zeroize::Zeroizing;

use crate::authentication::Hash;

/// Length of the CRC-32 that follows the key, in bytes.
const CHECK_LENGTH: usize = 4;
/// Longest text of a key in bytes: 64 bytes with their CRC-32.
pub const KEY_TEXT_MAX: usize = 128;

/// The purpose of a key in text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// A secret of DH-HMAC-CHAP: `DHHC-1:hh:`.
    Secret,
    /// A pre-shared key of TLS: `NVMeTLSkey-1:hh:`.
    TlsKey,
}

impl KeyForm {
    /// The prefix of the text.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Secret => "DHHC-1:",
            Self::TlsKey => "NVMeTLSkey-1:",
        }
    }

    /// The commands that make such a text.
    const fn makers(self) -> &'static str {
        match self {
            Self::Secret => "farlane setup key dhchap and nvme gen-dhchap-key make one",
            Self::TlsKey => "farlane setup key tls and nvme gen-tls-key make one",
        }
    }

    /// The hash functions that the two digits may name.
    const fn hashes(self) -> &'static [Hash] {
        match self {
            Self::Secret => &Hash::ALL,
            Self::TlsKey => &[Hash::Sha256, Hash::Sha384],
        }
    }

    /// The lengths in bytes that the key may have.
    const fn lengths(self) -> &'static [usize] {
        match self {
            Self::Secret => &[32, 48, 64],
            Self::TlsKey => &[32, 48],
        }
    }
}

impl fmt::Display for KeyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "DH-HMAC-CHAP secret",
            Self::TlsKey => "TLS key",
        })
    }
}

/// Why a text holds no key. The text itself is never part of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTextError {
    /// The expected form of the text.
    pub form: KeyForm,
    /// The fault in the text.
    pub fault: KeyFault,
}

/// A fault in the text form of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// The text is longer than [`KEY_TEXT_MAX`]. Holds its length in bytes.
    Long(usize),
    /// The text does not begin with the prefix: it may be of another form.
    Prefix,
    /// Two digits and a colon do not follow the prefix, or there is no colon at the end.
    Shape,
    /// The two digits name no known hash function. Holds the value.
    Hash(u8),
    /// The rest is not Base64. Holds the position of the first wrong character after the prefix.
    Base64(usize),
    /// The key has a length that is not allowed. Holds the length in bytes.
    KeyLength(usize),
    /// The CRC-32 after the key does not match the key.
    Check,
}

impl fmt::Display for KeyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, fault } = self;
        let prefix = form.prefix();
        match fault {
            KeyFault::Long(length) => {
                write!(f, "a {form} has at most {KEY_TEXT_MAX} characters, found {length}")
            }
            KeyFault::Prefix | KeyFault::Shape => write!(
                f,
                "a {form} has the form {prefix}hh:BASE64: with a colon at its end; {}",
                form.makers()
            ),
            KeyFault::Hash(found) => {
                write!(f, "{prefix}{found:02x}: names an unknown hash function; known are 00")?;
                form.hashes().iter().try_for_each(|hash| write!(f, ", {:02}", hash.id()))
            }
            KeyFault::Base64(at) => {
                write!(
                    f,
                    "character {} after {prefix}hh: is not Base64; a character was lost or changed",
                    at + 1
                )
            }
            KeyFault::KeyLength(length) => {
                write!(f, "the key has {length} bytes, and")?;
                for (index, allowed) in form.lengths().iter().enumerate() {
                    write!(f, "{} {allowed}", if index == 0 { "" } else { " or" })?;
                }
                f.write_str(" are allowed; is the text cut off?")
            }
            KeyFault::Check => {
                f.write_str("the CRC-32 does not match the key; a character was lost or changed on the way")
            }
        }
    }
}

impl core::error::Error for KeyTextError {}

/// The parts of a key's text form.
pub(crate) struct KeyText {
    /// The hash function that the two digits name; `None` for 00.
    pub(crate) hash: Option<Hash>,
    /// The key's bytes.
    pub(crate) key: Zeroizing<Vec<u8>>,
}

impl KeyText {
    /// Decodes a text. White space around the text is ignored.
    pub(crate) fn parse(form: KeyForm, text: &str) -> Result<Self, KeyTextError> {
        parse(form, text).map_err(|fault| KeyTextError { form, fault })
    }
}

fn parse(form: KeyForm, text: &str) -> Result<KeyText, KeyFault> {
    let text = text.trim_ascii();
    if text.len() > KEY_TEXT_MAX {
        return Err(KeyFault::Long(text.len()));
    }
    let rest = text.strip_prefix(form.prefix()).ok_or(KeyFault::Prefix)?;
    let (digits, rest) = rest.split_once(':').ok_or(KeyFault::Shape)?;
    let encoded = rest.strip_suffix(':').ok_or(KeyFault::Shape)?;
    if digits.len() != 2 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(KeyFault::Shape);
    }
    let id = u8::from_str_radix(digits, 16).map_err(|_| KeyFault::Shape)?;
    let known = Hash::from_id(id).filter(|hash| form.hashes().contains(hash));
    let hash = if id == 0 { None } else { Some(known.ok_or(KeyFault::Hash(id))?) };
    let place = |error| match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => at,
        _ => encoded.len(),
    };
    let decoded = STANDARD.decode(encoded).map_err(|error| KeyFault::Base64(place(error)))?;
    let bytes = Zeroizing::new(decoded);
    let length = bytes.len().saturating_sub(CHECK_LENGTH);
    if !form.lengths().contains(&length) {
        return Err(KeyFault::KeyLength(length));
    }
    let (key, check) = bytes.split_at(length);
    if crc32(0, key).to_le_bytes() != *check {
        return Err(KeyFault::Check);
    }
    Ok(KeyText { hash, key: Zeroizing::new(key.to_vec()) })
}

/// The text of `key`, whose two digits stand for `hash`.
pub(crate) fn emit(form: KeyForm, hash: Option<Hash>, key: &[u8]) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(key.len() + CHECK_LENGTH));
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&crc32(0, key).to_le_bytes());
    let id = hash.map_or(0, Hash::id);
    let encoded = Zeroizing::new(STANDARD.encode(&*bytes));
    Zeroizing::new(alloc::format!("{}{id:02x}:{}:", form.prefix(), encoded.as_str()))
}
