//! The frame in which the device's end shows registers of its function, so that the host's end can
//! answer for the function.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{FrameError, FrameHeader, FrameKind, Reader, Writer};

/// The most registers in a frame.
pub const REGISTERS_MAX: usize = 512;
/// Bytes of the body before the registers.
pub(super) const REGISTERS_HEAD: usize = 4;
/// Bytes of a register in the body: its value and its writable bits.
pub(super) const REGISTER_BYTES: usize = 8;
/// The longest body of a Registers frame, in bytes.
pub(super) const REGISTERS_BODY_MAX: usize = REGISTERS_HEAD + REGISTERS_MAX * REGISTER_BYTES;

/// Offsets in the body of fields that can have wrong values.
const FUNCTION_OFFSET: usize = 0;
const SPACE_OFFSET: usize = 1;
const PLACE_OFFSET: usize = 2;
/// A device has eight functions.
const FUNCTIONS: u8 = 8;
/// A function has six BARs.
const BARS: u8 = 6;
/// Byte offset behind the last register that can be shown.
const PLACE_END: usize = 4096;

/// The address space of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegisterSpace {
    /// Configuration space.
    Configuration,
    /// The memory of the BAR with this number, 0..6.
    Bar(u8),
}

/// A register of 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Value that a read returns.
    pub value: u32,
    /// Bits that take a written value and keep it until the next write or a reset of the function.
    pub writable: u32,
}

/// The contents of a Registers frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// Number of the function, 0..8.
    pub function: u8,
    /// Address space of the registers.
    pub space: RegisterSpace,
    /// Byte offset of the first register, a multiple of 4.
    pub offset: u16,
    /// Consecutive registers: at least one, at most [`REGISTERS_MAX`], none beyond the first 4 KiB.
    pub registers: Vec<Register>,
}

impl Registers {
    /// Decodes the body that belongs to `header`.
    ///
    /// # Errors
    /// When `body` breaks the rules of a Registers frame.
    pub(crate) fn parse(header: &FrameHeader, body: &[u8]) -> Result<Self, FrameError> {
        let kind = FrameKind::Registers;
        let wrong = |offset| FrameError::Reserved { kind, offset };
        let mut reader = Reader::new(body);
        let function = reader.u8()?;
        let space = match reader.u8()? {
            0 => RegisterSpace::Configuration,
            number @ 1..=BARS => RegisterSpace::Bar(number - 1),
            _ => return Err(wrong(SPACE_OFFSET)),
        };
        let offset = reader.u16()?;
        if function >= FUNCTIONS {
            return Err(wrong(FUNCTION_OFFSET));
        }
        if !offset.is_multiple_of(4) {
            return Err(wrong(PLACE_OFFSET));
        }
        let (places, rest) = reader.rest.as_chunks::<REGISTER_BYTES>();
        if places.is_empty() || !rest.is_empty() || usize::from(offset) + places.len() * 4 > PLACE_END {
            return Err(FrameError::Length { kind, length: header.length });
        }
        let register = |[v0, v1, v2, v3, w0, w1, w2, w3]: &[u8; REGISTER_BYTES]| Register {
            value: u32::from_be_bytes([*v0, *v1, *v2, *v3]),
            writable: u32::from_be_bytes([*w0, *w1, *w2, *w3]),
        };
        Ok(Self { function, space, offset, registers: places.iter().map(register).collect() })
    }

    /// Encodes the body.
    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        let space = match self.space {
            RegisterSpace::Configuration => 0,
            RegisterSpace::Bar(number) => number + 1,
        };
        writer.put(&[self.function, space]);
        writer.put(&self.offset.to_be_bytes());
        for register in &self.registers {
            writer.put(&register.value.to_be_bytes());
            writer.put(&register.writable.to_be_bytes());
        }
    }

    /// Length of the body, in bytes.
    pub(crate) const fn length(&self) -> usize {
        REGISTERS_HEAD + self.registers.len() * REGISTER_BYTES
    }
}
