//! The content of a line of 64 bytes: a packet, or a reference to one.
//!
//! The header of 4 bytes is at the end. A processor that stores a line word by word thus stores the
//! header last, and a line with a valid header is complete.

use crate::layout::SLOTS;

/// Length of a line in bytes: the unit that a write-combining buffer sends.
pub(crate) const LINE: usize = 64;
/// The largest packet in bytes that travels in a line.
pub const INLINE_MAX: usize = 60;
/// The smallest packet in bytes: an Ethernet header.
pub const PACKET_MIN: usize = 14;
/// The largest packet in bytes: a jumbo frame.
pub const PACKET_MAX: usize = 9216;

/// In the place of a length: the packet is in host memory.
const BY_REFERENCE: u8 = 0xff;
/// Flag of a transmit slot: report when the packet is on the wire.
const COMPLETION: u8 = 1;
/// Laps are counted from 1 to this number, so that a zeroed line is invalid.
const LAPS: u64 = 0xffff;
/// Offset of the first packet bytes in a line whose packet is in host memory.
const HEAD: usize = 16;
/// The largest number of packet bytes in a line whose packet is in host memory.
pub(crate) const HEAD_MAX: usize = INLINE_MAX - HEAD;

const fn lap(number: u64) -> u16 {
    (number / SLOTS % LAPS) as u16 + 1
}

/// The lap in the header of line `number` in a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The line is still that of the lap before.
    Before,
    Now,
    /// The line is already that of the next lap.
    After,
    Never,
}

fn turn(found: u16, number: u64) -> Turn {
    let before = number.checked_sub(SLOTS).map_or(0, lap);
    match found {
        found if found == lap(number) => Turn::Now,
        found if found == before => Turn::Before,
        found if found == lap(number + SLOTS) => Turn::After,
        _ => Turn::Never,
    }
}

const fn header(bytes: &[u8; LINE]) -> (u8, u8, u16) {
    let [.., length, flags, low, high] = *bytes;
    (length, flags, u16::from_le_bytes([low, high]))
}

fn end(line: &mut [u8; LINE], length: u8, flags: u8, number: u64) {
    let [low, high] = lap(number).to_le_bytes();
    line[INLINE_MAX..].copy_from_slice(&[length, flags, low, high]);
}

fn inline(packet: &[u8]) -> ([u8; LINE], u8) {
    let mut line = [0; LINE];
    line[..packet.len()].copy_from_slice(packet);
    (line, u8::try_from(packet.len()).unwrap_or(BY_REFERENCE))
}

fn place(bytes: &[u8; LINE]) -> (u64, u32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *bytes;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([i, j, k, l]))
}

fn with_place(address: u64, length: u32) -> [u8; LINE] {
    let mut line = [0; LINE];
    line[..8].copy_from_slice(&address.to_le_bytes());
    line[8..12].copy_from_slice(&length.to_le_bytes());
    line
}

const fn inline_length(length: u8) -> Option<usize> {
    let length = length as usize;
    if length >= PACKET_MIN && length <= INLINE_MAX { Some(length) } else { None }
}

/// The number of bytes of a packet in host memory, if it is a valid packet length.
pub(crate) fn packet_length(length: u32) -> Option<usize> {
    usize::try_from(length).ok().filter(|length| (PACKET_MIN..=PACKET_MAX).contains(length))
}

/// The content of a transmit slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Empty,
    /// A packet of `length` bytes at the beginning of the line.
    Inline {
        length: usize,
        completion: bool,
    },
    /// A packet of `length` bytes in host memory.
    Reference {
        address: u64,
        length: usize,
        completion: bool,
    },
    /// The host has stored the next lap's packet over this one.
    Overrun,
    Malformed,
}

impl Slot {
    pub(crate) fn parse(bytes: &[u8; LINE], number: u64) -> Self {
        let (length, flags, found) = header(bytes);
        match turn(found, number) {
            Turn::Before => return Self::Empty,
            Turn::After => return Self::Overrun,
            Turn::Now if flags & !COMPLETION == 0 => {}
            Turn::Now | Turn::Never => return Self::Malformed,
        }
        let completion = flags & COMPLETION != 0;
        if length == BY_REFERENCE {
            let (address, length) = place(bytes);
            return packet_length(length).map_or(Self::Malformed, |length| Self::Reference {
                address,
                length,
                completion,
            });
        }
        inline_length(length).map_or(Self::Malformed, |length| Self::Inline { length, completion })
    }

    /// The line of a packet of at most [`INLINE_MAX`] bytes.
    pub(crate) fn inline(packet: &[u8], completion: bool, number: u64) -> [u8; LINE] {
        let (mut line, length) = inline(packet);
        end(&mut line, length, u8::from(completion) * COMPLETION, number);
        line
    }

    /// The line of a packet that is in host memory.
    pub(crate) fn reference(address: u64, length: u32, completion: bool, number: u64) -> [u8; LINE] {
        let mut line = with_place(address, length);
        end(&mut line, BY_REFERENCE, u8::from(completion) * COMPLETION, number);
        line
    }
}

/// The content of a receive line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Empty,
    /// A packet of this many bytes at the beginning of the line.
    Inline(usize),
    /// A packet of `length` bytes, of which the first `head` are in the line and the others in
    /// host memory.
    Reference {
        address: u64,
        length: usize,
        head: usize,
    },
    Malformed,
}

impl Line {
    pub(crate) fn parse(bytes: &[u8; LINE], number: u64) -> Self {
        let (length, head, found) = header(bytes);
        match turn(found, number) {
            Turn::Before => return Self::Empty,
            Turn::Now => {}
            Turn::After | Turn::Never => return Self::Malformed,
        }
        let head = usize::from(head);
        if length == BY_REFERENCE {
            let (address, length) = place(bytes);
            return packet_length(length)
                .filter(|length| head <= HEAD_MAX && head < *length)
                .map_or(Self::Malformed, |length| Self::Reference { address, length, head });
        }
        inline_length(length).filter(|_| head == 0).map_or(Self::Malformed, Self::Inline)
    }

    /// The packet bytes in a line whose packet is in host memory.
    pub(crate) fn head(bytes: &[u8; LINE], length: usize) -> &[u8] {
        &bytes[HEAD..HEAD + length]
    }

    /// The line of a packet of at most [`INLINE_MAX`] bytes.
    pub(crate) fn inline(packet: &[u8], number: u64) -> [u8; LINE] {
        let (mut line, length) = inline(packet);
        end(&mut line, length, 0, number);
        line
    }

    /// The line of a packet of `length` bytes that begins with `head`, at most [`HEAD_MAX`] bytes,
    /// and continues at `address`.
    pub(crate) fn reference(address: u64, length: u32, head: &[u8], number: u64) -> [u8; LINE] {
        let mut line = with_place(address, length);
        line[HEAD..HEAD + head.len()].copy_from_slice(head);
        end(&mut line, BY_REFERENCE, u8::try_from(head.len()).unwrap_or(u8::MAX), number);
        line
    }
}
