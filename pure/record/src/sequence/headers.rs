//! Where the headers of packets have their numbers.

use super::{Field, blocks, heaps};

/// A flow and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// A number that distinguishes flows of one sender.
    pub(super) flow: u64,
    pub(super) number: u64,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The sequence number of RTP and its synchronization source (RFC 3550, section 5.1).
pub(super) fn rtp(packet: &[u8]) -> Option<Mark> {
    let header = packet.first_chunk::<12>()?;
    let (version, sources) = (header[0] >> 6, usize::from(header[0] & 0x0f));
    // RTCP on the same port (RFC 5761, section 4): payload types 64 to 95 are its.
    let is_control = (64..96).contains(&(header[1] & 0x7f));
    let is_rtp = version == 2 && !is_control && packet.len() >= 12 + 4 * sources;
    is_rtp.then(|| Mark { flow: number(&header[8..12]), number: number(&header[2..4]) })
}

/// The packet count of VITA 49 and the stream identifier (ANSI/VITA 49.2, section 5.1.1). Data,
/// context and command packets of a stream are counted each for themselves.
pub(super) fn vita49(packet: &[u8]) -> Option<Mark> {
    let word = packet.first_chunk::<4>()?;
    let (kind, count) = (word[0] >> 4, word[1] & 0x0f);
    let length = usize::from(u16::from_be_bytes([word[2], word[3]])) * 4;
    // Types 0 and 2 are data without a stream identifier; types from 8 on are reserved.
    let stream = if matches!(kind, 0 | 2) { 0 } else { number(packet.get(4..8)?) };
    let is_packet = kind < 8 && length >= 4 && length <= packet.len();
    is_packet.then(|| Mark { flow: u64::from(kind) << 32 | stream, number: u64::from(count) })
}

/// The number in a field that the user named.
pub(super) fn field(packet: &[u8], field: &Field) -> Option<Mark> {
    let end = field.offset.checked_add(field.bytes)?;
    let bytes = packet.get(field.offset..end)?;
    let number = match field.little_endian {
        false => number(bytes),
        true => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    };
    Some(Mark { flow: 0, number })
}

/// Status of a GVSP packet that stands for one which the camera no longer has: it is unavailable,
/// or was removed from memory, alone or with those before it (GigE Vision 2.0, table 14-1).
const UNAVAILABLE: [[u8; 2]; 3] = [[0x80, 0x0c], [0x80, 0x11], [0x80, 0x12]];

/// Block and packet of a GigE Vision stream (GVSP). Returns whether they are the extended ones. A
/// notice that the camera no longer has a packet is no packet.
pub(super) fn gvsp(packet: &[u8]) -> Option<(bool, blocks::Piece)> {
    let header = packet.first_chunk::<8>()?;
    if UNAVAILABLE.iter().any(|status| header.starts_with(status)) {
        return None;
    }
    let (is_extended, format) = (header[4] & 0x80 != 0, header[4] & 0x0f);
    let (block, number) = match is_extended {
        false => (number(&header[2..4]), number(&header[5..8])),
        true => (number(packet.get(8..16)?), number(packet.get(16..20)?)),
    };
    // Formats: 1 leader, 2 trailer, 4 leader, payload and trailer in one; the others are payload.
    let (is_last, is_payload) = (matches!(format, 2 | 4), matches!(format, 3 | 5..=7));
    // Blocks are counted from 1: a block 0 is no stream's.
    let block = block.checked_sub(1)?;
    let is_packet = is_last || is_payload || format == 1;
    is_packet.then_some((is_extended, blocks::Piece { block, packet: number, is_payload, is_last }))
}

/// The most items of a SPEAD packet that are looked at.
const ITEMS_MAX: usize = 64;

/// Place of a SPEAD packet in its heap, and the number of bits of a heap's number.
pub(super) fn spead(packet: &[u8]) -> Option<(u32, heaps::Piece)> {
    let header = packet.first_chunk::<8>()?;
    let (name_bytes, value_bytes) = (usize::from(header[2]), usize::from(header[3]));
    let is_spead =
        header[..2] == [0x53, 4] && name_bytes + value_bytes == 8 && (1..=7).contains(&value_bytes);
    if !is_spead {
        return None;
    }
    let count = usize::from(u16::from_be_bytes([header[6], header[7]]));
    let items = packet.get(8..8 + 8 * count)?;
    let bits = u32::try_from(value_bytes * 8).ok()?;
    let (mut heap, mut size, mut offset, mut length) = (None, None, None, None);
    let (items, _) = items.as_chunks::<8>();
    for item in items.iter().take(ITEMS_MAX) {
        let item = u64::from_be_bytes(*item);
        let (name, value) = (item >> bits, item & ((1 << bits) - 1));
        // The highest bit says that the value stands here, not behind the items.
        let Some(name) = name.checked_sub(1 << (63 - bits)) else { continue };
        match name {
            1 => heap = Some(value),
            2 => size = Some(value),
            3 => offset = Some(value),
            4 => length = Some(value),
            _ => {}
        }
    }
    // Without an item of its own, the payload stands behind the items.
    let behind = packet.len() as u64 - 8 - 8 * count as u64;
    let length = length.unwrap_or(behind);
    let piece = heaps::Piece { heap: heap?, size, offset: offset.unwrap_or(0), length };
    let end = piece.offset.checked_add(length)?;
    let is_inside = size.is_none_or(|size| end <= size);
    (length <= behind && is_inside).then_some((bits, piece))
}
