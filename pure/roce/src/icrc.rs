//! The invariant CRC of RoCEv2 packets: over all bytes that routers do not change.

use core::net::{IpAddr, SocketAddr};

use engine::{CRC32_POLYNOMIAL, Crc32};

/// The CRC of the 8 bytes of ones in place of a local route header.
const START: u32 = 0x2144_df1c;
/// Length of the longest headers before the UDP payload in bytes: IPv6 and UDP.
const PSEUDO_MAX: usize = 48;
/// Number of bytes of a packet's first piece that are copied behind those headers, so that the CRC
/// covers one block: transport headers and a short message.
const FIRST_MAX: usize = 80;
/// Offset of the byte in the base transport header that routers change.
const CHANGED: usize = 4;
/// Bytes between the identification of an IPv4 header and the UDP payload.
const AFTER_IDENTIFICATION: usize = 14 + 8;
/// IPv4 flags: don't fragment.
const DONT_FRAGMENT: u16 = 0x4000;
const PROTOCOL_UDP: u8 = 17;

/// Shifts a zero bit through the register: a multiplication by x.
const fn step(register: u32) -> u32 {
    register >> 1 ^ if register & 1 == 1 { CRC32_POLYNOMIAL } else { 0 }
}

/// The headers that the CRC covers besides the UDP payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The sender's address and UDP port.
    pub(crate) from: SocketAddr,
    /// The receiver's address and UDP port.
    pub(crate) to: SocketAddr,
    /// The identification in the IPv4 header.
    pub(crate) identification: u16,
}

impl Route {
    /// Writes the headers before a UDP payload of `length` bytes into `block`. Returns their length
    /// in bytes. Bytes that routers change stay ones.
    fn put(&self, block: &mut [u8; PSEUDO_MAX + FIRST_MAX], length: usize) -> usize {
        let udp = short(8 + length);
        let ports = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                block[0] = 0x45;
                block[2..4].copy_from_slice(&short(28 + length).to_be_bytes());
                block[4..6].copy_from_slice(&self.identification.to_be_bytes());
                block[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                block[9] = PROTOCOL_UDP;
                block[12..16].copy_from_slice(&from.octets());
                block[16..20].copy_from_slice(&to.octets());
                20
            }
            (from, to) => {
                block[0] = 0x6f;
                block[4..6].copy_from_slice(&udp.to_be_bytes());
                block[6] = PROTOCOL_UDP;
                block[8..24].copy_from_slice(&gid(from));
                block[24..40].copy_from_slice(&gid(to));
                40
            }
        };
        block[ports..ports + 2].copy_from_slice(&self.from.port().to_be_bytes());
        block[ports + 2..ports + 4].copy_from_slice(&self.to.port().to_be_bytes());
        block[ports + 4..ports + 6].copy_from_slice(&udp.to_be_bytes());
        ports + 8
    }

    /// The CRC of a packet in pieces, as on the wire. The first piece has the base transport
    /// header.
    pub(crate) fn icrc(&self, crc: Crc32, pieces: [&[u8]; 3]) -> [u8; 4] {
        let length = pieces.iter().map(|piece| piece.len()).sum::<usize>() + 4;
        let mut block = [0xff; PSEUDO_MAX + FIRST_MAX];
        let start = self.put(&mut block, length);
        let [first, rest @ ..] = pieces;
        let (first, behind) = first.split_at(first.len().min(FIRST_MAX));
        let end = start + first.len();
        block[start..end].copy_from_slice(first);
        block[start + CHANGED] = 0xff;
        let mut sum = crc(START, &block[..end]);
        for piece in [behind].into_iter().chain(rest).filter(|piece| !piece.is_empty()) {
            sum = crc(sum, piece);
        }
        sum.to_le_bytes()
    }

    /// Whether `found` is the CRC of `packet`, which excludes it. If the identification of the IPv4
    /// header `is_unknown`: whether any identification yields it.
    pub(crate) fn matches(&self, crc: Crc32, packet: &[u8], found: [u8; 4], is_unknown: bool) -> bool {
        let expected = u32::from_le_bytes(self.icrc(crc, [packet, &[], &[]]));
        let difference = expected ^ u32::from_le_bytes(found);
        difference == 0
            || is_unknown && self.from.is_ipv4() && explains(difference, AFTER_IDENTIFICATION + packet.len())
    }
}

/// Whether a change of 2 bytes with `after` bytes behind them changes the CRC by `difference`.
fn explains(difference: u32, after: usize) -> bool {
    let mut before = difference;
    let bytes = after + 2;
    for (bit, power) in BACK.iter().enumerate() {
        if bytes >> bit & 1 == 1 {
            before = multiply(before, *power);
        }
    }
    before >> 16 == 0
}

/// Division by x to the power 8, 16, 32 and so on, as multiplications.
static BACK: [u32; 17] = {
    let mut powers = [0; 17];
    let mut power = 0x8000_0000_u32;
    let mut bit = 0;
    while bit < 8 {
        // The inverse of `step`.
        power = if power >> 31 == 1 { (power ^ CRC32_POLYNOMIAL) << 1 | 1 } else { power << 1 };
        bit += 1;
    }
    let mut at = 0;
    while at < powers.len() {
        powers[at] = power;
        power = multiply(power, power);
        at += 1;
    }
    powers
};

/// The product of two polynomials, modulo the CRC's.
const fn multiply(one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        if one >> bit & 1 == 1 {
            product ^= other;
        }
        other = step(other);
    }
    product
}

/// The address as a GID: IPv4 addresses mapped into IPv6.
pub(crate) const fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lengths of a datagram fit into 16 bits")]
const fn short(length: usize) -> u16 {
    length as u16
}

#[cfg(test)]
mod tests {
    use engine::crc32;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
    }

    /// Packets of other implementations, from the IPv4 header on, from scapy's tests for RoCE: a
    /// congestion notification captured from a ConnectX-4 Lx, and an unreliable send of rdma_rxe.
    fn strangers() -> [Vec<u8>; 2] {
        let notification = "45c2003c718c4000401191610a0011010a001201 000012b700280000 \
            8100ffff40000118 00000000 00000000000000000000000000000000 82fd002a";
        let send = "4501004004784000 4011b4d5c0a80007c0a80007 c00012b7002caca2 \
            2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3";
        [hex(notification), hex(send)]
    }

    fn route(packet: &[u8]) -> Route {
        let address = |at: usize, port: usize| {
            let octets: [u8; 4] = packet[at..at + 4].try_into().unwrap();
            let port = u16::from_be_bytes(packet[port..port + 2].try_into().unwrap());
            SocketAddr::from((octets, port))
        };
        let identification = u16::from_be_bytes([packet[4], packet[5]]);
        Route { from: address(12, 20), to: address(16, 22), identification }
    }

    #[test]
    fn a_packet_begins_with_the_ones_of_a_local_route_header() {
        assert_eq!(crc32(0, &[0xff; 8]), START);
    }

    #[test]
    fn packets_of_strangers_have_the_icrc_that_we_compute() {
        for packet in strangers() {
            let route = route(&packet);
            let (body, icrc) = packet[28..].split_last_chunk::<4>().unwrap();
            assert_eq!(route.icrc(crc32, [body, &[], &[]]), *icrc);
            let (head, rest) = body.split_at(12);
            assert_eq!(route.icrc(crc32, [head, &rest[..3], &rest[3..]]), *icrc, "in pieces");
        }
    }

    /// A UDP socket does not report the identification: half of the CRC's strength is left.
    #[test]
    fn an_unknown_identification_is_found_and_other_changes_are_not_taken_for_it() {
        let packet = &strangers()[1];
        let known = route(packet);
        let unknown = Route { identification: 0, ..known };
        let (body, icrc) = packet[28..].split_last_chunk::<4>().unwrap();
        assert!(known.matches(crc32, body, *icrc, false));
        assert!(!unknown.matches(crc32, body, *icrc, false));
        assert!(unknown.matches(crc32, body, *icrc, true));
        let mut passed = 0;
        for bit in 0..body.len() * 8 {
            let mut changed = body.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            if bit / 8 == 4 {
                // Reserved bits and the marks that routers set are not covered.
                assert!(known.matches(crc32, &changed, *icrc, false));
                continue;
            }
            assert!(!known.matches(crc32, &changed, *icrc, false), "bit {bit}");
            passed += usize::from(unknown.matches(crc32, &changed, *icrc, true));
        }
        assert_eq!(passed, 0, "no single bit looks like another identification");
    }

    #[test]
    fn ports_addresses_and_families_are_covered() {
        let one = |from: &str, to: &str| {
            let route = Route { from: from.parse().unwrap(), to: to.parse().unwrap(), identification: 0 };
            route.icrc(crc32, [&[0; 12], &[], &[]])
        };
        let base = one("[fd00::1]:4791", "[fd00::2]:4791");
        assert_ne!(base, one("[fd00::1]:4792", "[fd00::2]:4791"));
        assert_ne!(base, one("[fd00::3]:4791", "[fd00::2]:4791"));
        assert_ne!(base, one("10.0.0.1:4791", "10.0.0.2:4791"));
    }
}
