//! Packets and messages as bytes.

use super::*;
use crate::icrc::Route;
use crate::wire::*;
use engine::crc32;
use proptest::prelude::*;
use rdma::Key;

fn route() -> Route {
    let [from, to] = [0, 1].map(|index| (address(index, false), crate::PORT).into());
    Route { from, to, identification: 0 }
}

fn remotes() -> impl Strategy<Value = Remote> {
    (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(address, key, length)| Remote {
        address,
        key: Key(key),
        length,
    })
}

fn parts() -> impl Strategy<Value = Part> {
    prop_oneof![Just(Part::First), Just(Part::Middle), Just(Part::Last), Just(Part::Only)]
}

fn headers() -> impl Strategy<Value = Header> {
    let acknowledge = (any::<u8>(), 0_u32..1 << 24).prop_map(|(code, messages)| {
        let syndrome = match code >> 5 {
            0 => Syndrome::Acknowledged(code & 31),
            1 => Syndrome::NotReady(code & 31),
            _ => Syndrome::AccessError,
        };
        Acknowledge { syndrome, messages }
    });
    prop_oneof![
        (parts(), any::<Option<u32>>(), any::<bool>()).prop_map(|(part, word, is_key)| {
            let word = word.filter(|_| part.is_last());
            let (immediate, invalidate) = if is_key { (None, word.map(Key)) } else { (word, None) };
            Header::Send { part, immediate, invalidate }
        }),
        (parts(), remotes(), any::<Option<u32>>()).prop_map(|(part, remote, immediate)| Header::Write {
            part,
            remote: part.is_first().then_some(remote),
            immediate: immediate.filter(|_| part.is_last()),
        }),
        remotes().prop_map(Header::ReadRequest),
        (parts(), acknowledge.clone()).prop_map(|(part, one)| Header::ReadResponse {
            part,
            acknowledge: (part != Part::Middle).then_some(one),
        }),
        acknowledge.prop_map(Header::Acknowledge),
        (any::<u32>(), 0_u32..1 << 24).prop_map(|(key, from)| Header::Unconnected { key, from }),
    ]
}

proptest! {
    #[test]
    fn packets_survive_emit_and_parse(header in headers(), queue_pair in 0_u32..1 << 24, number in 0_u32..1 << 24,
                                  acknowledge: bool, payload in prop::collection::vec(any::<u8>(), 0..40)) {
        let base = header.base(queue_pair, number, acknowledge);
        let head = Head::new(base, &header);
        let datagram = Datagram::new(&route(), crc32, head, Buffer::copy_from_slice(&payload));
        let bytes = datagram.slices().concat();
        prop_assert_eq!(bytes.len() % 4, 0);
        prop_assert_eq!(bytes.len(), datagram.len());
        let packet = Packet::parse(&bytes).unwrap();
        prop_assert_eq!((packet.base, packet.header), (base, header));
        prop_assert_eq!(&bytes[packet.payload], &payload[..]);
        for length in 0..bytes.len() {
            // A truncated packet is an error, or a packet within its bytes.
            if let Ok(packet) = Packet::parse(&bytes[..length]) {
                prop_assert!(packet.payload.end + ICRC_LENGTH <= length);
            }
        }
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(Packet::parse(&bytes));
    }

    #[test]
    fn any_message_survives_emit_and_parse(bytes in prop::collection::vec(any::<u8>(), MAD_LENGTH), kind in 0x10_u8..0x17) {
        let mut bytes = bytes;
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&[0, kind]);
        let mad = Mad::parse(&bytes).unwrap();
        let message = Message::parse(&mad).unwrap();
        let again = message.emit(mad.transaction);
        let parsed = Message::parse(&Mad::parse(&again).unwrap()).unwrap();
        // A message has a time-out twice, of which parsing keeps one. Parsing does not keep an
        // unknown place.
        match (message, parsed) {
            (Message::Request(one), Message::Request(other)) => {
                prop_assert_eq!(one.addresses, other.addresses);
                prop_assert_eq!((one.local, one.number, one.data), (other.local, other.number, other.data));
            }
            (one, other) => prop_assert_eq!(one, other),
        }
    }
}

#[test]
fn a_datagram_that_is_no_packet_says_why() {
    let mut bytes = [0; 16];
    bytes[2..4].fill(0xff);
    assert!(Packet::parse(&bytes).is_ok());
    let with = |at: usize, value: u8| {
        let mut bytes = bytes;
        bytes[at] = value;
        Packet::parse(&bytes).unwrap_err()
    };
    assert_eq!(with(1, 1), PacketError::Version(1));
    assert_eq!(with(3, 1), PacketError::Partition(0xff01));
    assert_eq!(with(1, 0x30), PacketError::Pad(3));
    assert_eq!(with(0, 0x30), PacketError::Opcode(0x30));
    assert_eq!(with(0, 12), PacketError::TooShort(16));
    assert_eq!(Packet::parse(&bytes[..15]), Err(PacketError::TooShort(15)));
    assert!(with(3, 1).to_string().contains("0xff01"));
}

/// IPv4 packets that Linux 6.12 (`nvmet-rdma` over `rdma_rxe`) sent to this crate: an
/// acknowledgement, an RDMA READ, a response that invalidates a key, and the beginning of a reply
/// to a connection request, which is padded with zeros up to its CRC.
const LINUX: [&str; 4] = [
    "45000030bce94000401169bf0a0900020a090001c01b12b7001c00001100ffff001200000070f5881f000001b7c0b479",
    "4500003cbcea4000401169b20a0900020a090001c01b12b7002800000c00ffff001200008032b5421b90000000000000\
     1b900000000004008592ffb3",
    "45000040bcec4000401169ac0a0900020a090001c01b12b7002c00001700ffff001200008032b5431b90000001000000\
     000000000100000000000000d89555bc",
    "45000134bce74000401168bd0a0900020a090001d87212b7012000006400ffff00000001800000008001000000000001\
     01070203000000009b3b1a8a727676610013000000000000f4e61093c9fc800000000000000011000000000070f58800\
     001079e0505400fffe12345700002000",
];
/// The length and the CRC of the last of them.
const REPLY_END: (usize, [u8; 4]) = (308, [0x31, 0xb7, 0x19, 0x32]);

fn linux(index: usize) -> Vec<u8> {
    let digits: Vec<_> = LINUX[index].chars().filter_map(|digit| digit.to_digit(16)).collect();
    let mut bytes: Vec<_> = digits.chunks(2).map(|two| u8::try_from(two[0] << 4 | two[1]).unwrap()).collect();
    if index == LINUX.len() - 1 {
        bytes.resize(REPLY_END.0 - ICRC_LENGTH, 0);
        bytes.extend(REPLY_END.1);
    }
    bytes
}

#[test]
fn packets_of_linux_are_understood() {
    let packets: Vec<_> = (0..LINUX.len()).map(linux).collect();
    for packet in &packets {
        let address = |at: usize, port: usize| {
            let octets: [u8; 4] = packet[at..at + 4].try_into().unwrap();
            (octets, u16::from_be_bytes([packet[port], packet[port + 1]])).into()
        };
        let identification = u16::from_be_bytes([packet[4], packet[5]]);
        let known = Route { from: address(12, 20), to: address(16, 22), identification };
        let (body, icrc) = packet[28..].split_last_chunk().unwrap();
        assert!(known.matches(crc32, body, *icrc, false));
        let unknown = Route { identification: 0, ..known };
        assert!(unknown.matches(crc32, body, *icrc, true) && !unknown.matches(crc32, body, *icrc, false));
    }
    let parsed: Vec<_> = packets.iter().map(|packet| Packet::parse(&packet[28..]).unwrap()).collect();
    let reported = Acknowledge { syndrome: Syndrome::Acknowledged(31), messages: 1 };
    assert_eq!(parsed[0].header, Header::Acknowledge(reported));
    let remote = Remote { address: 0x1b90_0000_0000_0000, key: Key(0x1b90_0000), length: 1024 };
    assert_eq!(parsed[1].header, Header::ReadRequest(remote));
    let header = Header::Send { part: Part::Only, immediate: None, invalidate: Some(Key(0x1b90_0000)) };
    assert_eq!((parsed[2].header, parsed[2].payload.len()), (header, 16));
    let reply = &packets[3][28..][parsed[3].payload.clone()];
    let Some(Message::Reply(reply)) = Mad::parse(reply).and_then(|mad| Message::parse(&mad)) else {
        panic!()
    };
    assert_eq!((reply.identifiers.remote, reply.queue_pair, reply.number), (0xc9fc_8000, 17, 0x70_f588));
    assert_eq!((reply.responder_reads, reply.initiator_reads, reply.rnr_retries), (0, 16, 7));
    assert_eq!(reply.data[..4], [0, 0, 32, 0], "RECFMT, and CRQSIZE of NVMe over RDMA");
}

/// The IPv6 packet of an acknowledgement that Linux 6.12 (`rdma_rxe`) sent to this crate.
const LINUX_IPV6: &str = "60000000001c1140fd000000000000000000000000000002fd000000000000000000000000000001\
     c02f12b7001c00001100ffff0038c000005affb81f0000016bb30f27";

#[test]
fn a_packet_of_linux_over_ipv6_has_the_icrc_that_we_compute() {
    let digits: Vec<_> = LINUX_IPV6.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let packet: Vec<_> = digits.chunks(2).map(|two| u8::try_from(two[0] << 4 | two[1]).unwrap()).collect();
    let address = |at: usize, port: usize| {
        let octets: [u8; 16] = packet[at..at + 16].try_into().unwrap();
        (octets, u16::from_be_bytes([packet[port], packet[port + 1]])).into()
    };
    let route = Route { from: address(8, 40), to: address(24, 42), identification: 0 };
    let (body, icrc) = packet[48..].split_last_chunk().unwrap();
    assert_eq!(route.icrc(crc32, [body, &[], &[]]), *icrc);
    let mut wrong = *icrc;
    wrong[0] ^= 1;
    assert!(!route.matches(crc32, body, wrong, true), "IPv6 has no identification that would explain it");
    let reported = Acknowledge { syndrome: Syndrome::Acknowledged(31), messages: 1 };
    assert_eq!(Packet::parse(&packet[48..]).unwrap().header, Header::Acknowledge(reported));
}
