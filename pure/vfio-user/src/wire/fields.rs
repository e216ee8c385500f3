//! Little-endian fields at fixed places.

use core::fmt;

/// Why a payload cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The payload is shorter than its fixed part, or shorter than its length field.
    Truncated {
        /// How many bytes the payload must have.
        need: u64,
        /// How many bytes the payload has.
        have: u64,
    },
    /// The payload is longer than its length field.
    Excess {
        /// How many bytes the payload should have.
        need: u64,
        /// How many bytes the payload has.
        have: u64,
    },
    /// A field has a value that is not allowed.
    Value {
        /// Name of the field in the specification.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
}

impl ParseError {
    /// Checks that a payload of `have` bytes has exactly `need`.
    pub(crate) const fn exact(need: u64, have: u64) -> Result<(), Self> {
        if have < need {
            Err(Self::Truncated { need, have })
        } else if have > need {
            Err(Self::Excess { need, have })
        } else {
            Ok(())
        }
    }
    pub(crate) const fn value(field: &'static str, value: u64) -> Self {
        Self::Value { field, value }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, have } => write!(f, "a payload of {have} B where {need} B are needed"),
            Self::Excess { need, have } => write!(f, "a payload of {have} B with a length field of {need} B"),
            Self::Value { field, value } => write!(f, "{field} {value:#x} is not allowed"),
        }
    }
}

/// The word of those bits that are set.
pub(super) fn flags<const N: usize>(bits: [(bool, u32); N]) -> u32 {
    bits.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit)
}

/// Reads fields one after another.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Reads from `bytes`, which must have at least `need` bytes. No more than these may be read as
    /// fields.
    pub(crate) fn new(bytes: &'a [u8], need: usize) -> Result<Self, ParseError> {
        if bytes.len() < need {
            return Err(ParseError::Truncated { need: need as u64, have: bytes.len() as u64 });
        }
        Ok(Self(bytes))
    }
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        *field
    }
    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        self.take()
    }
    /// The bytes behind the fields that have been read.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

/// Writes fields one after another into an array, which they must fill.
pub(crate) struct Emitter<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Emitter<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }
    fn put(mut self, field: &[u8]) -> Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }
    pub(crate) fn u16(self, value: u16) -> Self {
        self.put(&value.to_le_bytes())
    }
    pub(crate) fn u32(self, value: u32) -> Self {
        self.put(&value.to_le_bytes())
    }
    pub(crate) fn u64(self, value: u64) -> Self {
        self.put(&value.to_le_bytes())
    }
    pub(crate) fn done(self) -> [u8; N] {
        assert_eq!(self.at, N, "a structure's fields fill it");
        self.bytes
    }
}
