//! Structures with little-endian fields at fixed offsets and zeroes elsewhere.

/// A value that a structure can hold as a field.
pub(crate) trait Field: Sized {
    /// Length of the encoded value in bytes.
    const LENGTH: usize;
    /// Decodes the value from exactly [`Self::LENGTH`] bytes.
    fn parse(bytes: &[u8]) -> Self;
    /// Encodes the value into exactly [`Self::LENGTH`] bytes.
    fn emit(&self, bytes: &mut [u8]);
}

macro_rules! integer_fields {
    ($($integer:ty)*) => { $(
        impl Field for $integer {
            const LENGTH: usize = size_of::<Self>();
            fn parse(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<Self>()];
                raw.copy_from_slice(bytes);
                Self::from_le_bytes(raw)
            }
            fn emit(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )* };
}

integer_fields!(u8 u16 u32 u64 u128);

impl<T: Field + Copy, const N: usize> Field for [T; N] {
    const LENGTH: usize = N * T::LENGTH;
    fn parse(bytes: &[u8]) -> Self {
        core::array::from_fn(|index| T::parse(&bytes[index * T::LENGTH..][..T::LENGTH]))
    }
    fn emit(&self, bytes: &mut [u8]) {
        for (place, item) in bytes.chunks_exact_mut(T::LENGTH).zip(self) {
            item.emit(place);
        }
    }
}

/// Whether a field at `offset` ends within a structure of `length` bytes.
pub(crate) const fn fits<T: Field>(offset: usize, length: usize) -> bool {
    offset + T::LENGTH <= length
}

/// Defines a structure by its length and the offset, name and type of each field, with `parse`,
/// `emit` and a `Default` of zeroes. A field beyond the structure's end does not compile.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        $name:ident, $length:expr, {
            $($(#[$field_meta:meta])* $offset:literal $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl $name {
            /// Length of the structure in bytes.
            pub const LENGTH: usize = $length;

            /// Decodes the structure. Every bit pattern is valid.
            pub fn parse(bytes: &[u8; $length]) -> Self {
                Self {
                    $($field: <$type as $crate::wire::layout::Field>::parse(
                        &bytes[$offset..$offset + <$type as $crate::wire::layout::Field>::LENGTH],
                    ),)*
                }
            }

            /// Encodes the structure. Bytes that no field covers become 0.
            pub fn emit(&self, bytes: &mut [u8; $length]) {
                bytes.fill(0);
                $($crate::wire::layout::Field::emit(
                    &self.$field,
                    &mut bytes[$offset..$offset + <$type as $crate::wire::layout::Field>::LENGTH],
                );)*
            }
        }

        $(const _: () = assert!($crate::wire::layout::fits::<$type>($offset, $length));)*

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut raw = [0; $length];
                self.emit(&mut raw);
                serializer.serialize_bytes(&raw)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let bytes = <engine::Buffer as serde::Deserialize>::deserialize(deserializer)?;
                match <&[u8; $length]>::try_from(&*bytes) {
                    Ok(bytes) => Ok(Self::parse(bytes)),
                    Err(_) => Err(serde::de::Error::invalid_length(bytes.len(), &stringify!($length))),
                }
            }
        }

        impl Default for $name {
            /// The structure with all bytes zero.
            fn default() -> Self {
                Self::parse(&[0; $length])
            }
        }

        impl $crate::wire::layout::Field for $name {
            const LENGTH: usize = $length;
            fn parse(bytes: &[u8]) -> Self {
                let mut raw = [0; $length];
                raw.copy_from_slice(bytes);
                Self::parse(&raw)
            }
            fn emit(&self, bytes: &mut [u8]) {
                let mut raw = [0; $length];
                Self::emit(self, &mut raw);
                bytes.copy_from_slice(&raw);
            }
        }
    };
}

pub(crate) use layout;
