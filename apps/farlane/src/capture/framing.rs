//! How a captured frame holds a PCIe packet. `docs/trace.md` describes ours.

use trace::Direction;

/// The link type of our frames: the first of those that are reserved for private use.
pub(super) const LINK: u32 = 147;
/// The link type of Ethernet frames.
const ETHERNET: u32 = 1;
/// The version of our header, and its length in bytes.
const VERSION: u8 = 1;
pub(super) const HEADER: usize = 8;

/// NetTLP's UDP ports: 0x3000 and, for each tag modulo 16, one of those after it.
const NETTLP_PORTS: std::ops::Range<u16> = 0x3000..0x3010;
/// NetTLP's header: a sequence number (2 bytes) and a time stamp (4 bytes).
const NETTLP_HEADER: usize = 6;

/// A PCIe packet in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framed<'a> {
    /// Which way the packet passed, if the frame tells.
    pub(crate) direction: Option<Direction>,
    /// The packet, or as much of it as was captured.
    pub(crate) tlp: &'a [u8],
}

/// The header of our frames.
pub(super) fn header(direction: Direction, port: u8) -> [u8; HEADER] {
    let length = u8::try_from(HEADER).unwrap_or(u8::MAX);
    // The error of the clock is 0 where all stamps are of one clock.
    [VERSION, length, u8::from(direction == Direction::Up), port, 0, 0, 0, 0]
}

/// The PCIe packet in a frame of this link type; none if the frame holds something else.
pub(crate) fn packet_of(link: u32, frame: &[u8]) -> Option<Framed<'_>> {
    match link {
        LINK => ours(frame),
        ETHERNET => nettlp(frame),
        _ => None,
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
fn nettlp(frame: &[u8]) -> Option<Framed<'_>> {
    let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    // A VLAN tag has four bytes.
    let ip = if half(12)? == 0x8100 { 18 } else { 14 };
    let (first, protocol) = (*frame.get(ip)?, *frame.get(ip + 9)?);
    if half(ip - 2)? != 0x0800 || first >> 4 != 4 || protocol != 17 {
        return None;
    }
    let udp = ip + usize::from(first & 0xf) * 4;
    let (source, destination, length) = (half(udp)?, half(udp + 2)?, half(udp + 4)?);
    if !NETTLP_PORTS.contains(&source) || !NETTLP_PORTS.contains(&destination) {
        return None;
    }
    let end = (udp + usize::from(length)).min(frame.len());
    let tlp = frame.get(udp + 8 + NETTLP_HEADER..end)?;
    // The addresses tell one end from the other, but not the host from the device.
    Some(Framed { direction: None, tlp })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_frames_tell_the_direction_and_no_cut_of_them_is_misread() {
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
