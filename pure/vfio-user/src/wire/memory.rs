//! Memory that a client shares.

use super::fields::{Emitter, Fields, ParseError, flags};

/// The payload of `VFIO_USER_DMA_MAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// Whether the device may read the memory.
    pub readable: bool,
    /// Whether the device may write the memory.
    pub writable: bool,
    /// Offset of the memory in the file whose descriptor is sent with the message.
    pub offset: u64,
    /// Address of the memory as the device sees it.
    pub address: u64,
    /// Length of the memory in bytes.
    pub length: u64,
}

impl DmaMap {
    /// Length of the payload in bytes.
    pub const LENGTH: usize = 32;
    const READABLE: u32 = 1;
    const WRITABLE: u32 = 1 << 1;

    /// Decodes a payload.
    ///
    /// # Errors
    /// When `bytes` has another length, argsz is too small, or a flag is unknown. When the memory
    /// is empty, or reaches beyond 2^64 in the address space or in its file.
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

    /// Whether a file can have a part at this offset with this length.
    pub fn fits_a_file(&self) -> bool {
        self.offset.checked_add(self.length).is_some_and(|end| i64::try_from(end).is_ok())
    }

    /// Encodes the payload.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let flags = flags([(self.readable, Self::READABLE), (self.writable, Self::WRITABLE)]);
        let fixed = Emitter::new().u32(argsz(Self::LENGTH)).u32(flags);
        fixed.u64(self.offset).u64(self.address).u64(self.length).done()
    }
}

/// The payload of `VFIO_USER_DMA_UNMAP` and of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// The longest payload, in bytes, that the client accepts in the reply.
    pub argsz: u32,
    /// Whether all of the client's memory is concerned. Address and length are then 0.
    pub all: bool,
    /// Address of the memory as the device saw it.
    pub address: u64,
    /// Length of the memory in bytes.
    pub length: u64,
}

impl DmaUnmap {
    /// Length of the payload in bytes.
    pub const LENGTH: usize = 24;
    const ALL: u32 = 1 << 1;

    /// Creates the payload for one piece of memory.
    pub fn one(address: u64, length: u64) -> Self {
        Self { argsz: argsz(Self::LENGTH), all: false, address, length }
    }
    /// Creates the payload for all of a client's memory.
    pub fn all() -> Self {
        Self { argsz: argsz(Self::LENGTH), all: true, address: 0, length: 0 }
    }

    /// Decodes a payload.
    ///
    /// # Errors
    /// When `bytes` has another length, argsz is too small, or there is a flag other than the one
    /// for all memory. When the memory is empty or reaches beyond 2^64.
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

    /// Encodes the payload.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let flags = if self.all { Self::ALL } else { 0 };
        Emitter::new().u32(self.argsz).u32(flags).u64(self.address).u64(self.length).done()
    }
}

/// The field argsz of a payload of `length` bytes.
pub(super) fn argsz(length: usize) -> u32 {
    u32::try_from(length).expect("a payload is shorter than 4 GiB")
}

/// Checks that a client's argsz leaves at least `need` bytes of room.
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
