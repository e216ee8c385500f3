//! Packets and messages as bytes.

use super::*;
use crate::icrc::{Route, crc32};
use crate::wire::*;
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
    fn packets_are_what_they_were(header in headers(), queue_pair in 0_u32..1 << 24, number in 0_u32..1 << 24,
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
            // Cut anywhere: an error, or a packet within its bytes.
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
    fn any_message_is_what_it_was(bytes in prop::collection::vec(any::<u8>(), MAD_LENGTH), kind in 0x10_u8..0x17) {
        let mut bytes = bytes;
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&[0, kind]);
        let mad = Mad::parse(&bytes).unwrap();
        let message = Message::parse(&mad).unwrap();
        let again = message.emit(mad.transaction);
        let parsed = Message::parse(&Mad::parse(&again).unwrap()).unwrap();
        // A timeout that is told twice is kept once, an unknown place is not kept.
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
