//! Information about a region and its mappable areas.

use alloc::vec::Vec;

use super::fields::{Emitter, Fields, ParseError, flags};
use super::memory::{argsz, check_argsz};
use crate::index::Area;
use crate::limits::AREAS_MAX;

/// The reply to `VFIO_USER_DEVICE_GET_REGION_INFO`. The request has the form of the fixed part,
/// with zeros except for the index and argsz.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    /// In a request, the longest payload that the reply may have. In a reply, the length of its
    /// whole payload. In bytes.
    pub argsz: u32,
    /// Number of the region.
    pub index: u32,
    /// Whether the region may be read.
    pub readable: bool,
    /// Whether the region may be written.
    pub writable: bool,
    /// Whether the region may be mapped: its areas, or all of it if it has none.
    pub mappable: bool,
    /// Length of the region in bytes.
    pub size: u64,
    /// Offset of the region in the file whose descriptor is sent with the reply.
    pub offset: u64,
    /// The areas that may be mapped (the sparse mmap capability).
    pub areas: Vec<Area>,
}

const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const MMAP: u32 = 1 << 2;
const CAPS: u32 = 1 << 3;
/// ID of the capability that lists areas (`VFIO_REGION_INFO_CAP_SPARSE_MMAP`), and its version.
const SPARSE: u16 = 1;
const SPARSE_VERSION: u16 = 1;
/// Bytes of a capability's header, of everything before the areas, and of an area.
const CAPABILITY: usize = 8;
const SPARSE_HEAD: usize = CAPABILITY + 8;
const AREA: usize = 16;
/// How many capabilities are examined before the list counts as endless.
const CAPABILITIES_MAX: usize = 16;

impl RegionInfo {
    /// Length of the fixed part in bytes.
    pub const LENGTH: usize = 32;

    /// Length of the whole payload in bytes, areas included.
    pub fn full_length(&self) -> usize {
        match self.areas.len() {
            0 => Self::LENGTH,
            count => Self::LENGTH + SPARSE_HEAD + count * AREA,
        }
    }

    /// Decodes a request or a reply. A reply may be cut after its fixed part: [`RegionInfo::argsz`]
    /// is then more than the length of the payload, and there are no areas.
    ///
    /// # Errors
    /// When `bytes` is too short, or a capability lies outside it.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let (argsz, flags, index, at) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        check_argsz(argsz, Self::LENGTH)?;
        let is = |bit| flags & bit != 0;
        let mut info = Self {
            argsz,
            index,
            readable: is(READ),
            writable: is(WRITE),
            mappable: is(MMAP),
            size: fields.u64(),
            offset: fields.u64(),
            areas: Vec::new(),
        };
        if is(CAPS) && argsz as usize <= bytes.len() {
            info.areas = parse_capabilities(bytes, at)?;
        }
        Ok(info)
    }

    /// Encodes the reply: all of it, or the fixed part alone if all of it is longer than `room`
    /// bytes. Both forms have the offset of the capability.
    pub fn emit(&self, room: u32) -> Vec<u8> {
        let full = self.full_length();
        let flags = flags([
            (self.readable, READ),
            (self.writable, WRITE),
            (self.mappable, MMAP),
            (!self.areas.is_empty(), CAPS),
        ]);
        let at = if self.areas.is_empty() { 0 } else { argsz(Self::LENGTH) };
        let fixed = Emitter::<{ Self::LENGTH }>::new().u32(argsz(full)).u32(flags).u32(self.index).u32(at);
        let mut bytes = Vec::with_capacity(full);
        bytes.extend_from_slice(&fixed.u64(self.size).u64(self.offset).done());
        if self.areas.is_empty() || (room as usize) < full {
            return bytes;
        }
        let head = Emitter::<SPARSE_HEAD>::new().u16(SPARSE).u16(SPARSE_VERSION).u32(0);
        bytes.extend_from_slice(&head.u32(argsz(self.areas.len())).u32(0).done());
        for area in &self.areas {
            bytes.extend_from_slice(&Emitter::<AREA>::new().u64(area.offset).u64(area.length).done());
        }
        bytes
    }

    /// Encodes a request for region `index`, with room for `room` bytes in the reply.
    pub fn emit_request(index: u32, room: u32) -> [u8; Self::LENGTH] {
        Emitter::new().u32(room).u32(0).u32(index).u32(0).u64(0).u64(0).done()
    }
}

/// The areas of the capability that lists them, if it is in the list that begins at `at`.
fn parse_capabilities(bytes: &[u8], mut at: u32) -> Result<Vec<Area>, ParseError> {
    for _ in 0..CAPABILITIES_MAX {
        if at == 0 {
            return Ok(Vec::new());
        }
        let outside = ParseError::value("cap_offset", at.into());
        if (at as usize) < RegionInfo::LENGTH {
            return Err(outside);
        }
        let capability = bytes.get(at as usize..).ok_or(outside)?;
        let mut fields = Fields::new(capability, CAPABILITY)?;
        let (id, _version, next) = (fields.u16(), fields.u16(), fields.u32());
        if id == SPARSE {
            return parse_areas(fields.rest());
        }
        at = next;
    }
    Err(ParseError::value("next", at.into()))
}

fn parse_areas(bytes: &[u8]) -> Result<Vec<Area>, ParseError> {
    let mut fields = Fields::new(bytes, SPARSE_HEAD - CAPABILITY)?;
    let (count, _reserved) = (fields.u32(), fields.u32());
    if count as usize > AREAS_MAX {
        return Err(ParseError::value("nr_areas", count.into()));
    }
    let mut fields = Fields::new(fields.rest(), count as usize * AREA)?;
    Ok((0..count).map(|_| Area { offset: fields.u64(), length: fields.u64() }).collect())
}

/// The fixed part of `VFIO_USER_DEVICE_GET_REGION_IO_FDS`, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionIoDescriptors {
    /// Number of the region.
    pub index: u32,
    /// How many entries follow.
    pub count: u32,
}

impl RegionIoDescriptors {
    /// Length of the encoded structure in bytes.
    pub const LENGTH: usize = 16;

    /// Decodes the fixed part.
    ///
    /// # Errors
    /// When `bytes` or its field argsz is too short for the fixed part, or there are flags.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut fields = Fields::new(bytes, Self::LENGTH)?;
        let (argsz, flags, index, count) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        check_argsz(argsz, Self::LENGTH)?;
        if flags != 0 {
            return Err(ParseError::value("flags", flags.into()));
        }
        Ok(Self { index, count })
    }
    /// Encodes the fixed part, with no entries behind it.
    pub fn emit(&self) -> [u8; Self::LENGTH] {
        Emitter::new().u32(argsz(Self::LENGTH)).u32(0).u32(self.index).u32(self.count).done()
    }
}
