//! Reads and writes of regions and of a client's memory.

use super::fields::{Emitter, Fields, ParseError};

/// The fixed part of `VFIO_USER_REGION_READ`, `VFIO_USER_REGION_WRITE` and their replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// Offset of the first byte in the region.
    pub offset: u64,
    /// Number of the region.
    pub region: u32,
    /// How many bytes to read or write.
    pub count: u32,
}

impl RegionAccess {
    /// Length of the encoded structure in bytes.
    pub const LENGTH: usize = 16;

    /// Decodes the structure from the start of `bytes`, and returns the bytes behind it, too.
    ///
    /// # Errors
    /// When `bytes` is too short.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let access = Self { offset: fields.u64(), region: fields.u32(), count: fields.u32() };
        Ok((access, fields.rest()))
    }
    /// Encodes the structure.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        Emitter::new().u64(self.offset).u32(self.region).u32(self.count).done()
    }
}

/// The fixed part of `VFIO_USER_DMA_READ`, `VFIO_USER_DMA_WRITE` and their replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaAccess {
    /// Address of the first byte.
    pub address: u64,
    /// How many bytes to read or write.
    pub count: u64,
}

impl DmaAccess {
    /// Length of the encoded structure in bytes.
    pub const LENGTH: usize = 16;

    /// Decodes the structure from the start of `bytes`, and returns the bytes behind it, too.
    ///
    /// # Errors
    /// When `bytes` is too short.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let access = Self { address: fields.u64(), count: fields.u64() };
        Ok((access, fields.rest()))
    }
    /// Encodes the structure.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        Emitter::new().u64(self.address).u64(self.count).done()
    }
}

/// One write of a [`WriteMultiple`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleWrite {
    /// Where to write, and how many bytes: at most 8.
    pub access: RegionAccess,
    /// The bytes to write, at the start of the array.
    pub data: [u8; 8],
}

impl SingleWrite {
    /// Length of the encoded structure in bytes.
    pub const LENGTH: usize = 24;

    /// The bytes to write: as many as `access` counts, at most 8.
    pub fn data(&self) -> &[u8] {
        &self.data[..self.data.len().min(self.access.count as usize)]
    }
    /// Encodes the structure.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let fixed = Emitter::new().u64(self.access.offset).u32(self.access.region).u32(self.access.count);
        fixed.u64(u64::from_le_bytes(self.data)).done()
    }
}

/// The payload of `VFIO_USER_REGION_WRITE_MULTI`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMultiple<'a> {
    writes: &'a [u8],
}

impl<'a> WriteMultiple<'a> {
    /// Length of the payload's fixed part, and of the reply's payload, in bytes.
    pub const LENGTH: usize = 8;

    /// Decodes a payload.
    ///
    /// # Errors
    /// When the length of `bytes` does not match the count of writes, or when a write has no bytes
    /// or more than 8.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let count = fields.u64();
        let multiple = Self { writes: fields.rest() };
        let need = count.checked_mul(SingleWrite::LENGTH as u64).ok_or(ParseError::value("wr_cnt", count))?;
        ParseError::exact(need, multiple.writes.len() as u64)?;
        for write in multiple.writes() {
            if !(1..=8).contains(&write.access.count) {
                return Err(ParseError::value("count", write.access.count.into()));
            }
        }
        Ok(multiple)
    }
    /// Number of writes.
    pub const fn count(&self) -> usize {
        self.writes.len() / SingleWrite::LENGTH
    }
    /// The writes, in order.
    pub fn writes(&self) -> impl Iterator<Item = SingleWrite> + use<'a> {
        self.writes.as_chunks::<{ SingleWrite::LENGTH }>().0.iter().map(|bytes| {
            let mut fields = Fields::new(bytes, SingleWrite::LENGTH).expect("an array of a write's length");
            let access = RegionAccess { offset: fields.u64(), region: fields.u32(), count: fields.u32() };
            SingleWrite { access, data: fields.bytes() }
        })
    }
}
