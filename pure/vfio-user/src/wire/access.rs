//! Reads and writes of regions and of a client's memory.

use super::fields::{Emitter, Fields, ParseError};

/// What `VFIO_USER_REGION_READ`, `VFIO_USER_REGION_WRITE` and their replies begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// Bytes from the region's start.
    pub offset: u64,
    /// The region's number.
    pub region: u32,
    /// Bytes.
    pub count: u32,
}

impl RegionAccess {
    /// Bytes of it.
    pub const LENGTH: usize = 16;

    /// Reads it, and returns what follows.
    ///
    /// # Errors
    /// When there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let access = Self { offset: fields.u64(), region: fields.u32(), count: fields.u32() };
        Ok((access, fields.rest()))
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        Emitter::new().u64(self.offset).u32(self.region).u32(self.count).done()
    }
}

/// What `VFIO_USER_DMA_READ`, `VFIO_USER_DMA_WRITE` and their replies begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaAccess {
    /// The first byte's address.
    pub address: u64,
    /// Bytes.
    pub count: u64,
}

impl DmaAccess {
    /// Bytes of it.
    pub const LENGTH: usize = 16;

    /// Reads it, and returns what follows.
    ///
    /// # Errors
    /// When there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let access = Self { address: fields.u64(), count: fields.u64() };
        Ok((access, fields.rest()))
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        Emitter::new().u64(self.address).u64(self.count).done()
    }
}

/// One of the writes of a [`WriteMultiple`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SingleWrite {
    /// Where, and how many bytes: at most 8.
    pub access: RegionAccess,
    /// The bytes, from the first one on.
    pub data: [u8; 8],
}

impl SingleWrite {
    /// Bytes of it.
    pub const LENGTH: usize = 24;

    /// The bytes to be written.
    pub fn data(&self) -> &[u8] {
        &self.data[..self.data.len().min(self.access.count as usize)]
    }
    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        let fixed = Emitter::new().u64(self.access.offset).u32(self.access.region).u32(self.access.count);
        fixed.u64(u64::from_le_bytes(self.data)).done()
    }
}

/// `VFIO_USER_REGION_WRITE_MULTI`'s payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMultiple<'a> {
    writes: &'a [u8],
}

impl<'a> WriteMultiple<'a> {
    /// Bytes of its fixed part, and of the reply's payload.
    pub const LENGTH: usize = 8;

    /// Reads a payload.
    ///
    /// # Errors
    /// When it is not as long as it says, or one of the writes has no bytes or more than 8.
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
    /// How many writes.
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
