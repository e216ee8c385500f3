//! Link types: where the Ethernet frame or the IP packet lies in a frame of a capture
//! (<https://www.tcpdump.org/linktypes.html>).

/// The link type of our frames: the first of those that are reserved for private use.
pub const LINK: u32 = 147;
/// The link type of Ethernet frames.
pub const ETHERNET: u32 = 1;

/// Link types of IP packets behind a word that names their version, in the order of bytes of the
/// capturing machine or of the network.
const NULL: u32 = 0;
const LOOP: u32 = 108;
/// Link types of PPP, without and with the framing of HDLC.
const PPP: u32 = 9;
const PPP_HDLC: u32 = 50;
/// Link types of IP packets without a header before them; two numbers are those of some systems.
const RAW_IP: [u32; 5] = [12, 14, 101, 228, 229];
/// Linux' cooked captures of all interfaces (`-i any`), of both versions.
const LINUX_COOKED: u32 = 113;
const LINUX_COOKED_2: u32 = 276;
/// Per-Packet Information, before a frame of the link type that it names.
const PPI: u32 = 192;
/// Endace's records.
const ERF: u32 = 197;
/// Ethernet frames with their preamble (IEEE 802.3br).
const MPACKET: u32 = 274;

/// The EtherTypes of IP, and of headers that may precede it.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN_TAGS: [u16; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];
const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPPOE_SESSION: u16 = 0x8864;
/// From this number on, the word behind the addresses is an EtherType; a smaller one is a length.
const ETHERTYPE_MIN: u16 = 0x600;
/// LLC and SNAP before an EtherType (IEEE 802.2; RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
/// PPP's protocols of IP, and the address and control bytes that may precede them (RFC 1662).
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_FRAMING: [u8; 2] = [0xff, 3];
/// The systems' numbers for IPv4 and IPv6 in the word of a loopback interface (AF_INET, AF_INET6).
const FAMILIES: [u32; 6] = [2, 10, 23, 24, 28, 30];
/// Bytes of an Ethernet header without tags, and of the preamble and start delimiter before it.
const ETHERNET_HEADER: usize = 14;
const PREAMBLE: usize = 8;
/// Bytes of the header of a PPI and an ERF record.
const PPI_HEADER: usize = 8;
const ERF_HEADER: usize = 16;
/// ERF's types of Ethernet frames, which follow a pad of two bytes, and of IP packets.
const ERF_ETHERNET: [u8; 4] = [2, 11, 16, 20];
const ERF_IP: [u8; 2] = [22, 23];
/// How often a link type may name another one.
const NESTED_MAX: usize = 2;

/// The content of a frame of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries<'a> {
    /// An IP packet, and perhaps trailing bytes.
    Ip(&'a [u8]),
    /// Something else, or less than a header.
    Other,
    /// The link type is not known.
    Unknown,
}

/// The content of a frame of the link type `link`.
pub(crate) fn carried(link: u32, frame: &[u8]) -> Carries<'_> {
    let found = match link {
        ETHERNET | MPACKET | NULL | LOOP | PPP | PPP_HDLC | LINUX_COOKED | LINUX_COOKED_2 | PPI | ERF
        | LINK => ip(link, frame, NESTED_MAX),
        link if RAW_IP.contains(&link) => ip(link, frame, NESTED_MAX),
        _ => return Carries::Unknown,
    };
    found.map_or(Carries::Other, Carries::Ip)
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// The IP packet in a frame of a link type that may refer to another one, `nested` times at most.
fn ip(link: u32, frame: &[u8], nested: usize) -> Option<&[u8]> {
    match link {
        ETHERNET => tagged(frame, ETHERNET_HEADER - 2),
        MPACKET => tagged(frame.get(PREAMBLE..)?, ETHERNET_HEADER - 2),
        LINUX_COOKED => tagged(frame, 14),
        // The protocol comes first, and the header has 20 bytes.
        LINUX_COOKED_2 => of_type(half(frame, 0)?, frame.get(20..)?),
        NULL | LOOP => {
            let word: [u8; 4] = *frame.first_chunk()?;
            let family = [u32::from_be_bytes(word), u32::from_le_bytes(word)];
            family.iter().any(|one| FAMILIES.contains(one)).then(|| frame.get(4..))?
        }
        PPP | PPP_HDLC => ppp(frame.strip_prefix(&PPP_FRAMING).unwrap_or(frame)),
        PPI => {
            let length = usize::from(u16::from_le_bytes(*frame.get(2..)?.first_chunk()?));
            let inner = u32::from_le_bytes(*frame.get(4..)?.first_chunk()?);
            ip(inner, frame.get(length.max(PPI_HEADER)..)?, nested.checked_sub(1)?)
        }
        ERF => erf(frame),
        link if RAW_IP.contains(&link) => Some(frame),
        _ => None,
    }
}

/// The IP packet in an Endace record.
fn erf(frame: &[u8]) -> Option<&[u8]> {
    let kind = *frame.get(8)?;
    let (mut start, mut more) = (ERF_HEADER, kind & 0x80 != 0);
    while more {
        // The first bit of an extension header of 8 bytes says whether another one follows.
        more = frame.get(start)? & 0x80 != 0;
        start += 8;
    }
    let record = frame.get(start..)?;
    match kind & 0x7f {
        kind if ERF_ETHERNET.contains(&kind) => tagged(record.get(2..)?, ETHERNET_HEADER - 2),
        kind if ERF_IP.contains(&kind) => Some(record),
        _ => None,
    }
}

/// The IP packet behind an EtherType at `at`.
fn tagged(frame: &[u8], at: usize) -> Option<&[u8]> {
    of_type(half(frame, at)?, frame.get(at + 2..)?)
}

/// The IP packet behind an EtherType.
fn of_type(mut kind: u16, mut rest: &[u8]) -> Option<&[u8]> {
    // Each tag, label or header consumes bytes, so the loop ends.
    loop {
        match kind {
            IPV4 | IPV6 => return Some(rest),
            kind_of_tag if VLAN_TAGS.contains(&kind_of_tag) => {
                kind = half(rest, 2)?;
                rest = rest.get(4..)?;
            }
            label if MPLS.contains(&label) => {
                let is_last = rest.get(2)? & 1 != 0;
                rest = rest.get(4..)?;
                if is_last {
                    return Some(rest);
                }
            }
            PPPOE_SESSION => return ppp(rest.get(6..)?),
            length if length < ETHERTYPE_MIN => {
                let inner = rest.strip_prefix(&SNAP)?;
                kind = half(inner, 0).filter(|kind| *kind >= ETHERTYPE_MIN)?;
                rest = inner.get(2..)?;
            }
            _ => return None,
        }
    }
}

/// The IP packet behind PPP's address and control bytes.
fn ppp(frame: &[u8]) -> Option<&[u8]> {
    match half(frame, 0)? {
        PPP_IPV4 | PPP_IPV6 => frame.get(2..),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 4] = [0x45, 1, 2, 3];

    /// A frame of each link type, and of each kind of header, that carries [`PACKET`].
    fn frames() -> Vec<(u32, Vec<u8>)> {
        let ethernet = |kinds: &[u8]| [&[0; 12][..], kinds, &PACKET].concat();
        let erf = |kind: u8, more: &[u8]| [&[0; 8][..], &[kind], &[0; 7], more, &PACKET].concat();
        vec![
            (ETHERNET, ethernet(&[8, 0])),
            (ETHERNET, ethernet(&[0x81, 0, 0, 5, 8, 0])),
            (ETHERNET, ethernet(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x86, 0xdd])),
            (ETHERNET, ethernet(&[0x91, 0, 0, 1, 0x91, 0, 0, 2, 0x81, 0, 0, 2, 8, 0])),
            (ETHERNET, ethernet(&[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64])),
            (ETHERNET, ethernet(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 6, 0, 0x21])),
            (ETHERNET, ethernet(&[0, 12, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0])),
            (MPACKET, [&[0x55; 8][..], &ethernet(&[8, 0])].concat()),
            (NULL, [&[2, 0, 0, 0][..], &PACKET].concat()),
            (NULL, [&[0, 0, 0, 30][..], &PACKET].concat()),
            (LOOP, [&[0, 0, 0, 24][..], &PACKET].concat()),
            (PPP, [&[0, 0x57][..], &PACKET].concat()),
            (PPP_HDLC, [&[0xff, 3, 0, 0x21][..], &PACKET].concat()),
            (101, PACKET.to_vec()),
            (12, PACKET.to_vec()),
            (LINUX_COOKED, [&[0; 14][..], &[8, 0], &PACKET].concat()),
            (LINUX_COOKED, [&[0; 14][..], &[0x81, 0, 0, 7, 8, 0], &PACKET].concat()),
            (LINUX_COOKED_2, [&[8, 0][..], &[0; 18], &PACKET].concat()),
            (LINUX_COOKED_2, [&[0x81, 0][..], &[0; 18], &[0, 7, 8, 0], &PACKET].concat()),
            (PPI, [&[0, 0, 12, 0, 1, 0, 0, 0, 9, 9, 9, 9][..], &ethernet(&[8, 0])].concat()),
            (ERF, erf(2, &[&[0; 14][..], &[8, 0]].concat())),
            (ERF, erf(22, &[])),
            (ERF, erf(0x80 | 23, &[&[0x80][..], &[0; 7], &[0], &[0; 7]].concat())),
        ]
    }

    #[test]
    fn the_packet_is_found_in_every_link_type() {
        for (link, frame) in frames() {
            assert_eq!(carried(link, &frame), Carries::Ip(&PACKET), "{link}: {frame:?}");
        }
        assert_eq!(carried(195, &PACKET), Carries::Unknown);
    }

    #[test]
    fn no_cut_or_change_of_a_frame_is_read_beyond_its_end() {
        for (link, frame) in frames() {
            for length in 0..frame.len() {
                let found = carried(link, &frame[..length]);
                assert!(!matches!(found, Carries::Ip(packet) if packet.len() >= PACKET.len()), "{link}");
            }
            for place in 0..frame.len() {
                let mut changed = frame.clone();
                changed[place] ^= 0xff;
                let _ = carried(link, &changed);
            }
        }
    }

    #[test]
    fn a_record_that_names_itself_ends() {
        let nested = [0, 0, 8, 0, 192, 0, 0, 0].repeat(50);
        assert_eq!(carried(PPI, &nested), Carries::Other);
    }
}
