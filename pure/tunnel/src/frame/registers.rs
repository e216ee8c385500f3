//! The frame that shows registers: what a device's end tells of its function, so that the host's end can answer for it.

use alloc::vec::Vec;

use super::{FrameError, FrameHeader, FrameKind, Reader, Writer};

/// The most registers of a frame.
pub const REGISTERS_MAX: usize = 512;
/// Bytes of the body before the registers.
pub(super) const REGISTERS_HEAD: usize = 4;
/// Bytes of a register in the body: its value and what of it can be written.
pub(super) const REGISTER_BYTES: usize = 8;
/// The longest body.
pub(super) const REGISTERS_BODY_MAX: usize = REGISTERS_HEAD + REGISTERS_MAX * REGISTER_BYTES;

/// Where in the body the fields are that can be wrong.
const FUNCTION_OFFSET: usize = 0;
const SPACE_OFFSET: usize = 1;
const PLACE_OFFSET: usize = 2;
/// A device has eight functions.
const FUNCTIONS: u8 = 8;
/// A function has six BARs.
const BARS: u8 = 6;
/// Beyond the last place that can be shown.
const PLACE_END: usize = 4096;

/// Where registers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterSpace {
    /// Configuration space.
    Configuration,
    /// The memory of this BAR, 0..6.
    Bar(u8),
}

/// A double word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Register {
    /// What it reads as.
    pub value: u32,
    /// Bits that become what is written to them, and stay so until something else is written or the function is reset.
    pub writable: u32,
}

/// What a Registers frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The function's number, 0..8.
    pub function: u8,
    /// Where they are.
    pub space: RegisterSpace,
    /// Byte offset of the first one, a multiple of 4.
    pub offset: u16,
    /// One behind the other; at least one, at most [`REGISTERS_MAX`], none beyond the first 4 KiB.
    pub registers: Vec<Register>,
}

impl Registers {
    /// Decodes the body that belongs to `header`.
    ///
    /// # Errors
    /// When it breaks the rules of its kind.
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

    /// The body.
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

    /// Bytes of the body.
    pub(crate) const fn length(&self) -> usize {
        REGISTERS_HEAD + self.registers.len() * REGISTER_BYTES
    }
}
