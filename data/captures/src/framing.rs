//! The content of a captured frame: a PCIe packet or a TCP segment. `docs/trace.md` has Farlane's
//! own frames.

use pcie::wire::Head;
use trace::fabric::{Datagram, Segment};
use trace::{Direction, Seen};

use crate::links::{self, Carries, LINK};
use crate::reader::Frame;

/// The protocol numbers of TCP and UDP.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bytes of UDP's header, and the port to which RoCEv2 sends.
const UDP_HEADER: usize = 8;
const ROCE_PORT: u16 = 4791;
/// The version of our header, and its length in bytes.
const VERSION: u8 = 1;
const HEADER: usize = 8;

/// NetTLP's UDP ports: 0x3000 and, for each tag modulo 16, one of those after it.
const NETTLP_PORTS: std::ops::Range<u16> = 0x3000..0x3010;
/// NetTLP's header: a sequence number (2 bytes) and a time stamp (4 bytes).
const NETTLP_HEADER: usize = 6;

/// A PCIe packet in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Framed<'a> {
    /// The direction of the packet, if the frame has it.
    direction: Option<Direction>,
    /// The packet, or as much of it as was captured.
    tlp: &'a [u8],
}

/// The content of a frame.
#[derive(Debug)]
pub enum Held<'a> {
    /// A PCIe packet.
    Packet(Packet<'a>),
    /// A TCP segment of any protocol.
    Segment(Segment<'a>),
    /// A datagram of RoCEv2.
    Datagram(Datagram<'a>),
    /// A PCIe packet that is malformed.
    Malformed,
    /// Something else.
    Foreign,
    /// A frame of a link type that is not known.
    Unknown,
}

/// A PCIe packet that a frame holds.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The part before the payload.
    pub head: Head,
    /// The direction of the packet, from the frame, or else as usual for a packet of its kind.
    pub direction: Direction,
    /// The payload, or as much of it as was captured.
    pub payload: &'a [u8],
}

impl Packet<'_> {
    /// The packet as `frame` shows it.
    pub const fn seen(&self, frame: &Frame<'_>) -> Seen<'_> {
        let Self { head, direction, payload } = self;
        Seen { number: frame.number, at: frame.at, direction: *direction, header: &head.header, payload }
    }
}

/// The content of `frame`.
pub fn held<'a>(frame: &Frame<'a>) -> Held<'a> {
    let Some(Framed { direction, tlp }) = packet_of(frame.link, frame.bytes) else {
        if links::carried(frame.link, frame.bytes) == Carries::Unknown {
            return Held::Unknown;
        }
        let segment = segment_of(frame).map(Held::Segment);
        return segment.or_else(|| datagram_of(frame).map(Held::Datagram)).unwrap_or(Held::Foreign);
    };
    let Ok(head) = Head::parse(tlp) else { return Held::Malformed };
    let direction = direction.unwrap_or_else(|| Direction::guess(&head.header));
    let payload = tlp.get(head.encoded_len()..).unwrap_or_default();
    let payload = &payload[..payload.len().min(head.header.payload_len())];
    Held::Packet(Packet { head, direction, payload })
}

/// The TCP segment in a frame; none if the frame has other content.
fn segment_of<'a>(frame: &Frame<'a>) -> Option<Segment<'a>> {
    let Frame { number, at, link, bytes: frame, .. } = *frame;
    let Carried { ends: [from, to], bytes: segment, length } = carried(link, frame, TCP)?;
    let word = |at: usize| segment.get(at..at + 4)?.first_chunk().map(|word| u32::from_be_bytes(*word));
    let ports = word(0)?.to_be_bytes();
    let sequence = word(4)?;
    let [offset, flags, ..] = word(12)?.to_be_bytes();
    let start = usize::from(offset >> 4) * 4;
    let whole = length.checked_sub(start)?;
    let bytes = segment.get(start..)?;
    let bytes = &bytes[..bytes.len().min(whole)];
    Some(Segment {
        number,
        at,
        from: (from, u16::from_be_bytes([ports[0], ports[1]])),
        to: (to, u16::from_be_bytes([ports[2], ports[3]])),
        sequence,
        opens: flags & 0x02 != 0,
        bytes,
        missing: u32::try_from(whole - bytes.len()).unwrap_or(0),
    })
}

/// The datagram of RoCEv2 in a frame; none if the frame has other content.
fn datagram_of<'a>(frame: &Frame<'a>) -> Option<Datagram<'a>> {
    let Frame { number, at, link, bytes: frame, .. } = *frame;
    let Carried { ends: [from, to], bytes: datagram, length } = carried(link, frame, UDP)?;
    let to_port = u16::from_be_bytes([*datagram.get(2)?, *datagram.get(3)?]);
    if to_port != ROCE_PORT {
        return None;
    }
    let whole = length.checked_sub(UDP_HEADER)?;
    let bytes = datagram.get(UDP_HEADER..)?;
    let bytes = &bytes[..bytes.len().min(whole)];
    Some(Datagram { number, at, from, to, bytes, missing: whole - bytes.len() })
}

/// The payload of an IP packet.
struct Carried<'a> {
    /// The addresses from which and to which.
    ends: [[u8; 16]; 2],
    /// Its bytes, as far as they were captured, and perhaps trailing bytes.
    bytes: &'a [u8],
    /// Bytes that it has.
    length: usize,
}

/// The payload of the IP packet in a frame, if it is of this protocol.
fn carried(link: u32, frame: &[u8], protocol: u8) -> Option<Carried<'_>> {
    let Carries::Ip(packet) = links::carried(link, frame) else { return None };
    let (ends, start, length) = match packet.first()? >> 4 {
        4 => ipv4(packet, protocol)?,
        6 => ipv6(packet, protocol)?,
        _ => return None,
    };
    Some(Carried { ends, bytes: packet.get(start..)?, length })
}

/// The addresses of a packet, and the offset and the length of its payload.
type Routed = ([[u8; 16]; 2], usize, usize);

fn ipv4(packet: &[u8], protocol: u8) -> Option<Routed> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let length = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    // A fragment that is not the first has no header of the protocol.
    let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x1fff;
    if *packet.get(9)? != protocol || fragment != 0 || header < 20 {
        return None;
    }
    let address = |at: usize| {
        let v4: [u8; 4] = *packet.get(at..)?.first_chunk()?;
        Some(std::net::Ipv4Addr::from(v4).to_ipv6_mapped().octets())
    };
    // Of a packet that the adapter will cut, the kernel may leave the length out.
    let length = if length == 0 { packet.len() } else { length };
    Some(([address(12)?, address(16)?], header, length.checked_sub(header)?))
}

fn ipv6(packet: &[u8], protocol: u8) -> Option<Routed> {
    // Extension headers are not followed.
    if *packet.get(6)? != protocol {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
    let length = if length == 0 { packet.len().checked_sub(40)? } else { length };
    let address = |at: usize| packet.get(at..)?.first_chunk().copied();
    Some(([address(8)?, address(24)?], 40, length))
}

/// The header of our frames: which way the packet behind it passed, and the number of the port.
pub fn header(direction: Direction, port: u8) -> [u8; 8] {
    let length = u8::try_from(HEADER).unwrap_or(u8::MAX);
    // The error of the clock is 0 where all stamps are of one clock.
    [VERSION, length, u8::from(direction == Direction::Up), port, 0, 0, 0, 0]
}

/// The PCIe packet in a frame of this link type; none if the frame has other content.
fn packet_of(link: u32, frame: &[u8]) -> Option<Framed<'_>> {
    match link {
        LINK => ours(frame),
        _ => nettlp(link, frame),
    }
}

fn ours(frame: &[u8]) -> Option<Framed<'_>> {
    let [version, length, direction, ..] = *frame else { return None };
    let length = usize::from(length);
    if version != VERSION || length < HEADER || direction > 1 {
        return None;
    }
    let direction = if direction == 0 { Direction::Down } else { Direction::Up };
    Some(Framed { direction: Some(direction), tlp: frame.get(length..)? })
}

/// The packet in a UDP datagram of NetTLP over IPv4.
fn nettlp(link: u32, frame: &[u8]) -> Option<Framed<'_>> {
    let Carried { bytes: udp, .. } = carried(link, frame, UDP)?;
    let half = |at: usize| Some(u16::from_be_bytes([*udp.get(at)?, *udp.get(at + 1)?]));
    let (source, destination, length) = (half(0)?, half(2)?, half(4)?);
    if !NETTLP_PORTS.contains(&source) || !NETTLP_PORTS.contains(&destination) {
        return None;
    }
    let end = usize::from(length).min(udp.len());
    let tlp = udp.get(UDP_HEADER + NETTLP_HEADER..end)?;
    // The addresses distinguish the two ends, but not the host from the device.
    Some(Framed { direction: None, tlp })
}

#[cfg(test)]
mod tests {
    use engine::Instant;

    use super::*;
    use crate::links::ETHERNET;
    use crate::reader::Place;

    #[test]
    fn our_frames_have_the_direction_and_no_cut_of_them_is_misread() {
        let mut frame = header(Direction::Up, 3).to_vec();
        frame.extend([0x40, 0, 0, 1]);
        let found = packet_of(LINK, &frame).unwrap();
        assert_eq!(found, Framed { direction: Some(Direction::Up), tlp: &[0x40, 0, 0, 1] });
        for length in 0..HEADER {
            assert_eq!(packet_of(LINK, &frame[..length]), None, "{length}");
        }
        frame[0] = 2;
        assert_eq!(packet_of(LINK, &frame), None, "another version");
    }

    #[test]
    fn segments_are_found_in_every_link_type_and_no_cut_is_read_beyond_its_end() {
        let tcp =
            [&[0x11, 0x44, 0xc0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x18][..], &[0; 6], &[1, 2, 3]].concat();
        let v4 = [&[0x45, 0, 0, 43, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..], &tcp].concat();
        let v6 = [&[0x60, 0, 0, 0, 0, 23, 6, 64][..], &[1; 16], &[2; 16], &tcp].concat();
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 5, 8, 0], &v4].concat();
        let cooked = [&[0; 14][..], &[0x86, 0xdd], &v6].concat();
        for (link, frame) in [(ETHERNET, tagged), (101, v4), (229, v6), (113, cooked)] {
            let of = |bytes| {
                segment_of(&Frame {
                    number: 0,
                    place: Place::default(),
                    at: Instant::ZERO,
                    link,
                    bytes,
                    original: bytes.len(),
                })
            };
            let segment = of(&frame).unwrap();
            assert_eq!((segment.from.1, segment.to.1, segment.sequence), (4420, 0xc000, 9));
            assert_eq!((segment.bytes, segment.missing, segment.opens), (&[1, 2, 3][..], 0, false));
            let cut = of(&frame[..frame.len() - 2]).unwrap();
            assert_eq!((cut.bytes, cut.missing), (&[1][..], 2));
            for length in 0..frame.len() - 3 {
                assert!(of(&frame[..length]).is_none(), "{length}");
            }
        }
    }

    #[test]
    fn no_cut_of_a_datagram_is_read_beyond_its_end() {
        let mut frame = vec![0; 14 + 20 + 8 + NETTLP_HEADER + 16];
        (frame[12], frame[14], frame[23]) = (8, 0x45, 17);
        let udp = 34;
        frame[udp..udp + 6].copy_from_slice(&[0x30, 1, 0x30, 1, 0, 30]);
        assert_eq!(packet_of(ETHERNET, &frame).map(|found| found.tlp.len()), Some(16));
        for length in 0..frame.len() {
            let found = packet_of(ETHERNET, &frame[..length]);
            assert!(found.is_none_or(|found| found.tlp.len() < 16), "{length}");
        }
        frame[udp] = 0x40;
        assert_eq!(packet_of(ETHERNET, &frame), None, "another port");
    }
}
