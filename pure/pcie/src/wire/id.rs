//! Identifiers on the wire: functions and tags.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Address of a function in the hierarchy: bus, device and function number (Requester ID, Completer
/// ID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bdf(u16);

impl Bdf {
    /// The function `function` (0..8) of device `device` (0..32) on bus `bus`; excess bits are
    /// dropped.
    pub const fn new(bus: u8, device: u8, function: u8) -> Self {
        Self(((bus as u16) << 8) | (((device & 31) as u16) << 3) | ((function & 7) as u16))
    }
    /// Decodes the 16 bits on the wire.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
    /// The 16 bits on the wire.
    pub const fn bits(self) -> u16 {
        self.0
    }
    /// Bus number.
    pub const fn bus(self) -> u8 {
        self.0.to_be_bytes()[0]
    }
    /// Device number, 0..32.
    pub const fn device(self) -> u8 {
        self.0.to_be_bytes()[1] >> 3
    }
    /// Function number, 0..8.
    pub const fn function(self) -> u8 {
        self.0.to_be_bytes()[1] & 7
    }
}

impl fmt::Display for Bdf {
    /// Writes the address as lspci does: `01:00.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus(), self.device(), self.function())
    }
}

/// The tag of a transaction: 5, 8 or 10 bits, as both ends have agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tag(u16);

impl Tag {
    /// The largest tag, which has 10 bits.
    pub const MAX: Self = Self(0x3ff);

    /// The tag with the low 10 bits of `bits`; higher bits are dropped.
    pub const fn new(bits: u16) -> Self {
        Self(bits & Self::MAX.0)
    }
    /// The tag as a number, 0..1024.
    pub const fn get(self) -> u16 {
        self.0
    }
}
