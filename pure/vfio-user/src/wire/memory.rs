//! Memory that a client shares.

use super::fields::{Emitter, Fields, ParseError};

/// `VFIO_USER_DMA_MAP`'s payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// Whether the device may read it.
    pub readable: bool,
    /// Whether the device may write it.
    pub writable: bool,
    /// Where it begins in the file that goes with it.
    pub offset: u64,
    /// Where the device sees it.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

impl DmaMap {
    /// Bytes of the payload.
    pub const LENGTH: usize = 32;
    const READABLE: u32 = 1;
    const WRITABLE: u32 = 1 << 1;

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is of another length, says so, or has unknown flags; when the memory is empty or reaches beyond 2^64,
    /// there or in its file.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        ParseError::exact(Self::LENGTH as u64, bytes.len() as u64)?;
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let (argsz, flags) = (fields.u32(), fields.u32());
        let (offset, address, length) = (fields.u64(), fields.u64(), fields.u64());
        check_argsz(argsz, Self::LENGTH)?;
        if flags & !(Self::READABLE | Self::WRITABLE) != 0 {
            return Err(ParseError::value("flags", flags.into()));
        }
        check_range(address, length)?;
        if offset.checked_add(length).is_none() {
            return Err(ParseError::value("offset", offset));
        }
        let (readable, writable) = (flags & Self::READABLE != 0, flags & Self::WRITABLE != 0);
        Ok(Self { readable, writable, offset, address, length })
    }

    /// Whether a file can have a part that begins and ends there.
    pub fn fits_a_file(&self) -> bool {
        self.offset.checked_add(self.length).is_some_and(|end| i64::try_from(end).is_ok())
    }

    /// The payload's bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let flags = [(self.readable, Self::READABLE), (self.writable, Self::WRITABLE)];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, bit)| flags | bit);
        let fixed = Emitter::new().u32(argsz(Self::LENGTH)).u32(flags);
        fixed.u64(self.offset).u64(self.address).u64(self.length).done()
    }
}

/// `VFIO_USER_DMA_UNMAP`'s payload, and its reply's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// The longest payload that the reply may have, as the client says.
    pub argsz: u32,
    /// Whether it is about all of the client's memory; address and length are 0 then.
    pub all: bool,
    /// Where the device saw it.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

impl DmaUnmap {
    /// Bytes of the payload.
    pub const LENGTH: usize = 24;
    const ALL: u32 = 1 << 1;

    /// A payload about one piece of memory.
    pub fn one(address: u64, length: u64) -> Self {
        Self { argsz: argsz(Self::LENGTH), all: false, address, length }
    }
    /// The payload about all of a client's memory.
    pub fn all() -> Self {
        Self { argsz: argsz(Self::LENGTH), all: true, address: 0, length: 0 }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is of another length, says so, or has flags other than the one for all; when the memory is empty or
    /// reaches beyond 2^64.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        ParseError::exact(Self::LENGTH as u64, bytes.len() as u64)?;
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let (argsz, flags, address, length) = (fields.u32(), fields.u32(), fields.u64(), fields.u64());
        check_argsz(argsz, Self::LENGTH)?;
        match flags {
            0 => check_range(address, length)?,
            Self::ALL if address != 0 => return Err(ParseError::value("address", address)),
            Self::ALL if length != 0 => return Err(ParseError::value("size", length)),
            Self::ALL => {}
            flags => return Err(ParseError::value("flags", flags.into())),
        }
        Ok(Self { argsz, all: flags == Self::ALL, address, length })
    }

    /// The payload's bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let flags = if self.all { Self::ALL } else { 0 };
        Emitter::new().u32(self.argsz).u32(flags).u64(self.address).u64(self.length).done()
    }
}

/// What a payload of `length` bytes says of itself.
pub(super) fn argsz(length: usize) -> u32 {
    u32::try_from(length).expect("a payload is shorter than 4 GiB")
}

/// Checks the room that a client says it has against what is needed at least.
pub(super) fn check_argsz(argsz: u32, need: usize) -> Result<(), ParseError> {
    if (argsz as usize) < need { Err(ParseError::value("argsz", argsz.into())) } else { Ok(()) }
}

fn check_range(address: u64, length: u64) -> Result<(), ParseError> {
    match length.checked_sub(1) {
        None => Err(ParseError::value("size", length)),
        Some(before) if address.checked_add(before).is_none() => Err(ParseError::value("address", address)),
        Some(_) => Ok(()),
    }
}
