//! The form of an engine's state, which a process hands over to its successor.
//!
//! Engines derive [`Serialize`] and [`Deserialize`]. This module has the forms of what a derivation
//! does not know: bytes that are shared, and what belongs to the world of an engine. The world of
//! the successor gives the latter anew: a restored engine has no watchers, its pools are empty, and
//! its digests are computed by [`crc32c`](crate::crc32c) until it is given a faster function.

use alloc::vec::Vec;
use core::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Buffer, BufferMut, Entropy, Pool, Rng, Watch, Watched};

/// The most bytes of one buffer that are allocated before any of them has been read.
const TRUSTED: usize = 1 << 20;

impl Serialize for Buffer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Buffer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Reads bytes, in one piece or one by one.
struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = Buffer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Buffer, E> {
        Ok(Buffer::copy_from_slice(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pieces: A) -> Result<Buffer, A::Error> {
        let mut bytes = Vec::with_capacity(pieces.size_hint().unwrap_or(0).min(TRUSTED));
        while let Some(byte) = pieces.next_element()? {
            bytes.push(byte);
        }
        Ok(Buffer::from(bytes))
    }
}

impl Serialize for BufferMut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for BufferMut {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Buffer::deserialize(deserializer)?;
        if bytes.len() > Pool::LENGTH_MAX {
            return Err(D::Error::custom("a buffer is longer than any that a pool has"));
        }
        // A block of a pool, whose start is aligned like that of the buffer that was handed over.
        let mut buffer = Pool::new(0).take(bytes.len());
        buffer.copy_from_slice(&bytes);
        Ok(buffer)
    }
}

impl Serialize for Pool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.retain().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Pool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        usize::deserialize(deserializer).map(Self::new)
    }
}

impl<W: Watched> Serialize for Watch<W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de, W: Watched> Deserialize<'de> for Watch<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self::new())
    }
}

impl Serialize for Entropy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rng = match self {
            Self::System(_) | Self::Missing => None,
            Self::Seeded(rng) => Some(rng),
        };
        rng.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Entropy {
    /// The system's source becomes [`Entropy::Missing`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rng = Option::<Rng>::deserialize(deserializer)?;
        Ok(rng.map_or(Self::Missing, Self::Seeded))
    }
}

/// The form of a function that computes digests.
pub mod crc32c {
    use serde::{Deserializer, Serializer};

    use crate::Crc32c;

    /// Writes nothing: the function belongs to the world.
    ///
    /// # Errors
    /// When the form can't be written.
    pub fn serialize<S: Serializer>(_: &Crc32c, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }

    /// Returns the function that needs no world.
    ///
    /// # Errors
    /// When the form can't be read.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Crc32c, D::Error> {
        <() as serde::Deserialize>::deserialize(deserializer).map(|()| crate::crc32c as Crc32c)
    }
}

/// The form of a function that computes digests, where there are any.
pub mod crc32c_if_any {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::Crc32c;

    /// Writes whether there are digests.
    ///
    /// # Errors
    /// When the form can't be written.
    pub fn serialize<S: Serializer>(function: &Option<Crc32c>, serializer: S) -> Result<S::Ok, S::Error> {
        function.is_some().serialize(serializer)
    }

    /// Returns the function that needs no world, if there are digests.
    ///
    /// # Errors
    /// When the form can't be read.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Crc32c>, D::Error> {
        Ok(bool::deserialize(deserializer)?.then_some(crate::crc32c as Crc32c))
    }
}

/// The form of a part that no state may have while it is handed over.
pub mod absent {
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes nothing.
    ///
    /// # Errors
    /// When the part is there: the state can be handed over later.
    pub fn serialize<T, S: Serializer>(part: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match part {
            None => serializer.serialize_unit(),
            Some(_) => Err(S::Error::custom("a sequence of steps is under way")),
        }
    }

    /// Returns that the part is not there.
    ///
    /// # Errors
    /// When the form can't be read.
    pub fn deserialize<'de, T, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
        <()>::deserialize(deserializer).map(|()| None)
    }
}

/// The form of an array of any length.
pub mod array {
    use alloc::vec::Vec;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the elements in their order.
    ///
    /// # Errors
    /// When the form can't be written.
    pub fn serialize<T: Serialize, const N: usize, S: Serializer>(
        array: &[T; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(array)
    }

    /// Reads as many elements as the array has.
    ///
    /// # Errors
    /// When the form can't be read, or has more or fewer elements.
    pub fn deserialize<'de, T: Deserialize<'de>, const N: usize, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[T; N], D::Error> {
        let elements = Vec::<T>::deserialize(deserializer)?;
        let length = elements.len();
        elements
            .try_into()
            .map_err(|_| D::Error::invalid_length(length, &"as many elements as the array has"))
    }
}
