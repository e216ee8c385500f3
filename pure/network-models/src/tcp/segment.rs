//! Headers of segments, which travel over the paths. A segment's bytes stay with the sender until
//! they have arrived.

use crate::frame::{CHECK_SEQUENCE, FRAME_MIN, HEADER};

/// Length of an IPv4 header without options, in bytes (RFC 791).
pub(crate) const IP_HEADER: u32 = 20;
/// Length of a TCP header without options, in bytes (RFC 9293).
pub(crate) const TCP_HEADER: u32 = 20;
/// Length of the time stamp option with its padding, in bytes (RFC 7323, appendix A).
pub(crate) const TIMESTAMP_OPTION: u32 = 12;
/// Length of a SYN's options in bytes: maximum segment size 4, window scale 3 and padding 1, SACK
/// permitted 2 and padding 2.
const SYN_OPTIONS: u32 = 12;
/// Maximum number of selective acknowledgements in one segment: four fit the options, or three with
/// time stamps (RFC 2018, section 3).
pub(crate) const BLOCKS_MAX: usize = 4;

/// A position in one direction of a connection. The SYN is number 0, and the first byte is
/// number 1. The numbers are wider than on a wire and never wrap.
pub(crate) type Sequence = u64;

/// The numbers from the first up to, but not including, the second.
pub(crate) type Range = (Sequence, Sequence);

/// Control bits (RFC 9293, section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
}

/// Selective acknowledgements (RFC 2018). The first one may report a duplicate (RFC 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks {
    ranges: [Range; BLOCKS_MAX],
    count: u8,
}

impl Blocks {
    pub(crate) fn as_slice(&self) -> &[Range] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Adds a block if fewer than `most` are present.
    pub(crate) fn push(&mut self, range: Range, most: usize) {
        if usize::from(self.count) < most.min(BLOCKS_MAX) {
            self.ranges[usize::from(self.count)] = range;
            self.count += 1;
        }
    }
}

/// A segment without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) flags: Flags,
    /// The number of the segment's first byte.
    pub(crate) sequence: Sequence,
    /// Number of data bytes in the segment.
    pub(crate) length: u32,
    pub(crate) acknowledgement: Sequence,
    /// Number of bytes that the receiver has room for after the acknowledged ones.
    pub(crate) window: u32,
    pub(crate) blocks: Blocks,
}

impl Segment {
    /// The number after the segment's last byte. SYN and FIN each take one number.
    pub(crate) fn end(&self) -> Sequence {
        self.sequence + u64::from(self.length) + u64::from(self.flags.syn) + u64::from(self.flags.fin)
    }

    /// Length of the Ethernet frame in bytes, including header and check sequence.
    pub(crate) fn frame_length(&self, option_bytes: u32) -> u32 {
        let blocks = u32::from(self.blocks.count);
        let selective = if blocks == 0 { 0 } else { 4 + 8 * blocks };
        let syn = if self.flags.syn { SYN_OPTIONS } else { 0 };
        let packet = IP_HEADER + TCP_HEADER + option_bytes + selective + syn + self.length;
        (HEADER + packet + CHECK_SEQUENCE).max(FRAME_MIN)
    }
}

/// Length in bytes of a header in the models' own form, without blocks.
const HEADER_BYTES: usize = 26;
/// Length of a block in bytes.
const BLOCK_BYTES: usize = 16;
/// Length of the longest header in bytes.
pub(crate) const HEADER_BYTES_MAX: usize = HEADER_BYTES + BLOCKS_MAX * BLOCK_BYTES;

impl Segment {
    /// Writes the header in the models' own form, which has wider numbers than a wire, and returns
    /// its length.
    pub(crate) fn emit(&self, bytes: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        let Flags { syn, ack, fin, rst } = self.flags;
        bytes[0] = u8::from(syn) | u8::from(ack) << 1 | u8::from(fin) << 2 | u8::from(rst) << 3;
        bytes[1] = self.blocks.count;
        bytes[2..10].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[10..18].copy_from_slice(&self.acknowledgement.to_le_bytes());
        bytes[18..22].copy_from_slice(&self.length.to_le_bytes());
        bytes[22..26].copy_from_slice(&self.window.to_le_bytes());
        let mut length = HEADER_BYTES;
        for (start, end) in self.blocks.as_slice() {
            bytes[length..length + 8].copy_from_slice(&start.to_le_bytes());
            bytes[length + 8..length + BLOCK_BYTES].copy_from_slice(&end.to_le_bytes());
            length += BLOCK_BYTES;
        }
        length
    }

    /// Parses a header that [`Segment::emit`] wrote; `None` if it is truncated.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, blocks) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let bit = |bit: u8| header[0] & (1 << bit) != 0;
        let flags = Flags { syn: bit(0), ack: bit(1), fin: bit(2), rst: bit(3) };
        let long = |at: usize| Some(u64::from_le_bytes(header[at..at + 8].try_into().ok()?));
        let short = |at: usize| Some(u32::from_le_bytes(header[at..at + 4].try_into().ok()?));
        let mut segment = Self {
            flags,
            sequence: long(2)?,
            acknowledgement: long(10)?,
            length: short(18)?,
            window: short(22)?,
            blocks: Blocks::default(),
        };
        for block in blocks.chunks_exact(BLOCK_BYTES).take(usize::from(header[1])) {
            let (start, end) = block.split_first_chunk::<8>()?;
            let range = (u64::from_le_bytes(*start), u64::from_le_bytes(end.try_into().ok()?));
            segment.blocks.push(range, BLOCKS_MAX);
        }
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let mut segment = Segment { length: 7, sequence: 1 << 40, window: 9, ..Segment::default() };
        segment.flags = Flags { ack: true, fin: true, ..Flags::default() };
        segment.blocks.push((3, 4), BLOCKS_MAX);
        segment.blocks.push((1 << 50, 1 << 51), BLOCKS_MAX);
        let mut bytes = [0; HEADER_BYTES_MAX];
        let length = segment.emit(&mut bytes);
        assert_eq!(Segment::parse(&bytes[..length]), Some(segment));
        assert_eq!(Segment::parse(&bytes[..HEADER_BYTES - 1]), None);
    }

    #[test]
    fn a_full_segment_fills_the_frame() {
        let segment = Segment { length: 1448, ..Segment::default() };
        assert_eq!(segment.frame_length(TIMESTAMP_OPTION), 1518);
        assert_eq!(Segment::default().frame_length(0), 64);
        let mut blocks = Blocks::default();
        (0..9).for_each(|start| blocks.push((start, start + 1), 3));
        assert_eq!(blocks.as_slice().len(), 3);
        assert_eq!(Segment { blocks, ..segment }.frame_length(TIMESTAMP_OPTION), 1518 + 28);
    }
}
