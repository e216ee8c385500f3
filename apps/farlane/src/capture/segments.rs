//! Pieces of a connection's stream as the frames of a network: Ethernet, IP and TCP around them, so
//! that any analyser of networks reads the capture.
//!
//! The headers are made here: a target sees the streams, and the plaintext of TLS. Addresses, ports
//! and sequence numbers are those of the connection as the target has it, counted from 1.

use std::net::{IpAddr, SocketAddr};

use trace::Direction;

use super::queue::Streamed;

/// The most bytes of one segment, as a kernel hands them to an adapter that cuts them.
const SEGMENT_MAX: usize = 32 << 10;
/// Bytes of the headers of Ethernet, TCP and IPv4.
const ETHERNET: usize = 14;
const TCP: usize = 20;
const IPV4: usize = 20;
/// The number of TCP among the protocols of IP, and the hops that are left (TTL).
const PROTOCOL: u8 = 6;
const HOPS: u8 = 64;
/// Flags of TCP: PSH and ACK. The window is as wide as it can be.
const FLAGS: u8 = 0x18;
const WINDOW: u16 = u16::MAX;

/// Shows to `show` a frame for each segment of a piece of a stream, `kept` bytes of which are there
/// and which has `original` bytes; and the length of the whole frame.
pub(super) fn frames<E>(
    direction: Direction,
    stream: &Streamed,
    (kept, original): (&[u8], usize),
    frame: &mut Vec<u8>,
    mut show: impl FnMut(&[u8], usize) -> Result<(), E>,
) -> Result<(), E> {
    let (host, controller) = (stream.ends.host, stream.ends.controller);
    let (from, to) = if direction == Direction::Down { (host, controller) } else { (controller, host) };
    for start in (0..original.max(1)).step_by(SEGMENT_MAX) {
        let length = SEGMENT_MAX.min(original - start);
        let bytes = &kept[kept.len().min(start)..kept.len().min(start + length)];
        let offset = u32::try_from(start).unwrap_or(0);
        let numbers = [stream.sequence.wrapping_add(offset), stream.acknowledged];
        frame.clear();
        put_headers(frame, from, to, length, numbers);
        let headers = frame.len();
        frame.extend_from_slice(bytes);
        if bytes.len() == length {
            put_checksum(frame, headers - TCP);
        }
        show(frame, headers + length)?;
    }
    Ok(())
}

/// Appends the headers of a segment with `length` bytes.
fn put_headers(frame: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, length: usize, numbers: [u32; 2]) {
    let total = |header: usize| u16::try_from(header + TCP + length).unwrap_or(u16::MAX);
    // Addresses of Ethernet that no other device has: locally administered, by the end's port.
    let mac = |of: SocketAddr| [&[0x02, 0, 0, 0][..], &of.port().to_be_bytes()].concat();
    frame.extend([mac(to), mac(from)].concat());
    match (from.ip().to_canonical(), to.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([0x08, 0x00]);
            let start = frame.len();
            frame.extend([0x45, 0]);
            frame.extend(total(IPV4).to_be_bytes());
            // Identification 0, not to be fragmented.
            frame.extend([0, 0, 0x40, 0, HOPS, PROTOCOL, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            let sum = !folded(sum_of(&frame[start..]));
            frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        }
        (from, to) => {
            let octets = |of: IpAddr| match of {
                IpAddr::V4(of) => of.to_ipv6_mapped().octets(),
                IpAddr::V6(of) => of.octets(),
            };
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(total(0).to_be_bytes());
            frame.extend([PROTOCOL, HOPS]);
            frame.extend([octets(from), octets(to)].concat());
        }
    }
    frame.extend([from.port(), to.port()].map(u16::to_be_bytes).concat());
    frame.extend(numbers.map(u32::to_be_bytes).concat());
    let words = u8::try_from(TCP / 4).unwrap_or(0);
    frame.extend([words << 4, FLAGS]);
    frame.extend(WINDOW.to_be_bytes());
    frame.extend([0; 4]);
}

/// Puts TCP's checksum into a frame whose TCP header begins at `tcp` (RFC 9293, section 3.1).
fn put_checksum(frame: &mut [u8], tcp: usize) {
    let addresses = if tcp == ETHERNET + IPV4 { tcp - 8 } else { tcp - 32 };
    let length = u64::try_from(frame.len() - tcp).unwrap_or(0);
    let pseudo = sum_of(&frame[addresses..tcp]) + u64::from(PROTOCOL) + length;
    let sum = !folded(pseudo + sum_of(&frame[tcp..]));
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}

/// The sum of 16-bit words, the last one filled with zero.
fn sum_of(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |last| u64::from(*last) << 8);
    pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum::<u64>() + last
}

/// A sum in one's complement arithmetic of 16 bits.
fn folded(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum >> 16) + (sum & u64::from(u16::MAX));
    }
    u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use assemblies::watch::Ends;
    use captures::{Frame, Held, Place, held};
    use engine::Instant;
    use trace::fabric::Segment;

    use super::*;

    fn segment_of<'a>(frame: &Frame<'a>) -> Option<Segment<'a>> {
        match held(frame) {
            Held::Segment(segment) => Some(segment),
            _ => None,
        }
    }

    fn ethernet(bytes: &[u8]) -> Frame<'_> {
        let (place, at, original) = (Place::default(), Instant::ZERO, bytes.len());
        Frame { number: 0, place, at, link: 1, bytes, original }
    }

    fn stream(host: &str, controller: &str) -> Streamed {
        let ends = Ends { host: host.parse().unwrap(), controller: controller.parse().unwrap(), queue: None };
        Streamed { ends, sequence: u32::MAX - 5, acknowledged: 77 }
    }

    #[test]
    fn what_is_written_is_what_the_reader_finds_in_segments_with_good_checksums() {
        let bytes: Vec<u8> = (0..70_001_u32).map(|at| at.to_le_bytes()[1]).collect();
        for (host, controller) in [("10.0.0.9:40000", "10.0.0.1:4420"), ("[fd00::9]:40000", "[fd00::1]:4420")]
        {
            let stream = stream(host, controller);
            let (mut frame, mut found) = (Vec::new(), Vec::new());
            frames(Direction::Up, &stream, (&bytes, bytes.len()), &mut frame, |frame, length| {
                assert_eq!(frame.len(), length);
                let segment = segment_of(&ethernet(frame)).ok_or("no segment")?;
                assert_eq!((segment.from.1, segment.to.1, segment.missing), (4420, 40_000, 0));
                let number = stream.sequence.wrapping_add(u32::try_from(found.len()).unwrap());
                assert_eq!(segment.sequence, number);
                found.extend_from_slice(segment.bytes);
                // With its checksum in it, all that is summed up gives all ones.
                let tcp = frame.len() - segment.bytes.len() - TCP;
                let addresses = if tcp == 34 { 26 } else { 22 };
                let length = u64::try_from(frame.len() - tcp).unwrap();
                let sum = sum_of(&frame[addresses..tcp]) + 6 + length + sum_of(&frame[tcp..]);
                assert_eq!(folded(sum), u16::MAX);
                Ok::<_, &str>(())
            })
            .unwrap();
            assert!(found == bytes);
        }
    }

    #[test]
    fn a_piece_of_which_only_the_beginning_was_kept_says_how_much_is_missing() {
        let mut missing = Vec::new();
        let stream = stream("10.0.0.9:40000", "10.0.0.1:4420");
        frames(Direction::Down, &stream, (&[7; 100], 40_000), &mut Vec::new(), |frame, length| {
            let segment = segment_of(&ethernet(frame)).ok_or(())?;
            assert_eq!(frame.len() + segment.missing as usize, length);
            missing.push((segment.bytes.len(), segment.missing));
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(missing, [(100, 32_668), (0, 7_232)]);
    }
}
