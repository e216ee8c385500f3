//! The objects and messages of a fleet as JSON.
//!
//! Each type mirrors one of `pure/fleet`, which has no serialisation of its own. The store, the
//! channel between controllers and agents, the REST interface and the command line share them.

mod message;
mod object;

use std::collections::BTreeMap;
use std::fmt;

use fleet::NameError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use message::{
    AttachmentReport, CopyReport, Credential, FromAgent, HostAttachment, OwnedCopy, OwnedVolume, PoolReport,
    Report, SavedAttachment, SavedCopy, SavedVolume, Seen, Served, Slice, State, ToAgent, TunnelCredential,
    VolumeReport, Wish,
};
pub use object::{
    Admission, Attachment, Class, Cordon, Data, Epoch, Fleet, Link, Mode, Nanoseconds, Node, Object, Pool,
    Snapshot, Token, Transport, Volume,
};

/// A type that mirrors one of the engines.
pub trait Wire: Sized {
    /// The engine's type.
    type Pure;

    /// The value of an engine, for JSON.
    fn wire(pure: &Self::Pure) -> Self;

    /// The value of JSON, for an engine.
    ///
    /// # Errors
    /// When the engine's type has no such value.
    fn pure(self) -> Result<Self::Pure, Invalid>;
}

/// A value of JSON that no engine takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl From<NameError> for Invalid {
    fn from(error: NameError) -> Self {
        Self(error.to_string())
    }
}

/// Types that JSON and engines have in common.
macro_rules! same {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            type Pure = Self;
            fn wire(pure: &Self) -> Self {
                pure.clone()
            }
            fn pure(self) -> Result<Self, Invalid> {
                Ok(self)
            }
        }
    )*};
}

same!(bool, u64, String);

impl<T: Wire> Wire for Option<T> {
    type Pure = Option<T::Pure>;
    fn wire(pure: &Self::Pure) -> Self {
        pure.as_ref().map(T::wire)
    }
    fn pure(self) -> Result<Self::Pure, Invalid> {
        self.map(T::pure).transpose()
    }
}

impl<T: Wire> Wire for Vec<T> {
    type Pure = Vec<T::Pure>;
    fn wire(pure: &Self::Pure) -> Self {
        pure.iter().map(T::wire).collect()
    }
    fn pure(self) -> Result<Self::Pure, Invalid> {
        self.into_iter().map(T::pure).collect()
    }
}

impl<T: Wire> Wire for [T; 2] {
    type Pure = [T::Pure; 2];
    fn wire(pure: &Self::Pure) -> Self {
        pure.each_ref().map(T::wire)
    }
    fn pure(self) -> Result<Self::Pure, Invalid> {
        let [first, second] = self;
        Ok([first.pure()?, second.pure()?])
    }
}

impl<K: Wire + Ord, T: Wire> Wire for BTreeMap<K, T>
where
    K::Pure: Ord,
{
    type Pure = BTreeMap<K::Pure, T::Pure>;
    fn wire(pure: &Self::Pure) -> Self {
        pure.iter().map(|(key, value)| (K::wire(key), T::wire(value))).collect()
    }
    fn pure(self) -> Result<Self::Pure, Invalid> {
        self.into_iter().map(|(key, value)| Ok((key.pure()?, value.pure()?))).collect()
    }
}

/// The name of an object: 1 to 63 of a-z, 0-9 and -, with a letter or a digit at both ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Name(#[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))] pub String);

impl Wire for Name {
    type Pure = fleet::Name;
    fn wire(pure: &fleet::Name) -> Self {
        Self(pure.as_str().to_owned())
    }
    fn pure(self) -> Result<fleet::Name, Invalid> {
        Ok(fleet::Name::new(&self.0)?)
    }
}

/// Bytes as hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(transparent)]
pub struct Hex<const N: usize>(#[schemars(with = "String")] pub [u8; N]);

impl<const N: usize> Wire for Hex<N> {
    type Pure = [u8; N];
    fn wire(pure: &[u8; N]) -> Self {
        Self(*pure)
    }
    fn pure(self) -> Result<[u8; N], Invalid> {
        Ok(self.0)
    }
}

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = text.parse::<Self>();
        parsed.map_err(serde::de::Error::custom)
    }
}

impl<const N: usize> std::str::FromStr for Hex<N> {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid(format!("\"{}\" is not {} hexadecimal digits", text.escape_debug(), 2 * N));
        if text.len() != 2 * N || !text.is_ascii() {
            return Err(invalid());
        }
        let mut bytes = [0; N];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| invalid())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

/// Defines structs that mirror those of the engines, field by field.
macro_rules! mirrors {
    ($($(#[$meta:meta])* struct $name:ident = $pure:path { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl crate::wire::Wire for $name {
            type Pure = $pure;
            fn wire(pure: &$pure) -> Self {
                Self { $($field: <$type as crate::wire::Wire>::wire(&pure.$field),)* }
            }
            fn pure(self) -> Result<$pure, crate::wire::Invalid> {
                type Pure = $pure;
                Ok(Pure { $($field: crate::wire::Wire::pure(self.$field)?,)* })
            }
        }
    )*};
}
pub(crate) use mirrors;

/// Defines enums that mirror those of the engines, word by word.
macro_rules! words {
    ($($(#[$meta:meta])* enum $name:ident = $pure:path { $($(#[$word_meta:meta])* $word:ident,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$word_meta])* $word,)*
        }

        impl crate::wire::Wire for $name {
            type Pure = $pure;
            fn wire(pure: &$pure) -> Self {
                match pure { $(<$pure>::$word => Self::$word,)* }
            }
            fn pure(self) -> Result<$pure, crate::wire::Invalid> {
                Ok(match self { $(Self::$word => <$pure>::$word,)* })
            }
        }
    )*};
}
pub(crate) use words;

#[cfg(test)]
mod tests;
