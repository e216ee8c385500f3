//! The frames of lookahead: host memory that a device is about to read, and keys of such memory
//! that is no longer useful.

use super::{FrameError, FrameHeader, FrameKind, Reader, Writer};
use pcie::switch::{Ahead, AheadKey};
use pcie::wire::Bdf;

/// Bytes of the body of an Ahead before the memory.
pub const AHEAD_HEAD: usize = 16;
/// The most memory in an Ahead, in bytes.
pub const AHEAD_MAX: usize = 4096;
/// The most keys in a Forget.
pub const FORGET_KEYS_MAX: usize = 256;

/// Offsets in the body of fields that can have wrong values.
const ADDRESS_OFFSET: usize = 0;
const KEY_OFFSET: usize = 8;
const PAYLOAD_OFFSET: usize = 14;
const FLAGS_OFFSET: usize = 15;
/// The longest Max_Payload_Size, as its code: 4096 B.
const PAYLOAD_CODE_MAX: u8 = 5;
const PAYLOAD_LEAST: u16 = 128;
const FLAG_ONCE: u8 = 1;
const KEY_BYTES: usize = 4;

/// The keys of a Forget, encoded as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys<'a>(pub &'a [u8]);

impl Keys<'_> {
    /// The keys one after the other.
    pub fn iter(&self) -> impl Iterator<Item = AheadKey> {
        self.0.as_chunks::<KEY_BYTES>().0.iter().map(|bytes| AheadKey(u32::from_be_bytes(*bytes)))
    }
}

/// Decodes the body of an Ahead: its fields, and the memory.
pub(super) fn parse<'a>(header: &FrameHeader, body: &'a [u8]) -> Result<(Ahead, &'a [u8]), FrameError> {
    let kind = FrameKind::Ahead;
    let wrong = |offset| FrameError::Reserved { kind, offset };
    let mut reader = Reader::new(body);
    let address = reader.u64()?;
    let key = AheadKey(reader.u32()?);
    let completer = Bdf::from_bits(reader.u16()?);
    let code = reader.u8()?;
    let flags = reader.u8()?;
    if !address.is_multiple_of(4) {
        return Err(wrong(ADDRESS_OFFSET));
    }
    if key == AheadKey::ALL {
        return Err(wrong(KEY_OFFSET));
    }
    if code > PAYLOAD_CODE_MAX {
        return Err(wrong(PAYLOAD_OFFSET));
    }
    if flags & !FLAG_ONCE != 0 {
        return Err(wrong(FLAGS_OFFSET));
    }
    if address.checked_add(reader.rest.len() as u64).is_none() {
        return Err(FrameError::Length { kind, length: header.length });
    }
    let payload_size = PAYLOAD_LEAST << code;
    Ok((Ahead { address, key, completer, payload_size, once: flags == FLAG_ONCE }, reader.rest))
}

pub(super) fn emit(writer: &mut Writer<'_>, ahead: &Ahead, bytes: &[u8]) {
    let code = (ahead.payload_size / PAYLOAD_LEAST).max(1).ilog2().to_be_bytes()[3];
    let head = u128::from(ahead.address) << 64
        | u128::from(ahead.key.0) << 32
        | u128::from(ahead.completer.bits()) << 16
        | u128::from(u16::from_be_bytes([code, u8::from(ahead.once)]));
    writer.put_array(&head.to_be_bytes());
    writer.put(bytes);
}
