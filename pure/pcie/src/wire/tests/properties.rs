//! Properties of the codec, for arbitrary packets and bytes.

use proptest::prelude::*;
use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;

fn any_tag() -> impl Strategy<Value = Tag> {
    (0..=Tag::MAX.get()).prop_map(Tag::new)
}

fn any_id() -> impl Strategy<Value = Bdf> {
    any::<u16>().prop_map(Bdf::from_bits)
}

/// Byte enables that the rules allow for `length` double words.
fn any_enables(length: u16) -> BoxedStrategy<(u8, u8)> {
    let contiguous = (
        prop::sample::select(vec![0b1111, 0b1110, 0b1100, 0b1000]),
        prop::sample::select(vec![0b1111, 0b0111, 0b0011, 0b0001]),
    );
    if length == 1 { (0..16_u8, Just(0)).boxed() } else { contiguous.boxed() }
}

fn any_read_or_write() -> impl Strategy<Value = (Kind, u16)> {
    let operation = prop::sample::select(vec![
        MemoryOperation::Read,
        MemoryOperation::ReadLocked,
        MemoryOperation::Write,
    ]);
    let place = (0..1024_u16).prop_flat_map(|first| (Just(first), 1..=(1024 - first).min(64)));
    let place = prop_oneof![9 => place, 1 => Just((0, 1024))];
    let place = place.prop_flat_map(|(first, length)| (Just(first), Just(length), any_enables(length)));
    (operation, any_id(), any_tag(), place, any::<u64>()).prop_map(
        |(operation, requester, tag, (first, length, (first_enables, last_enables)), page)| {
            let address = (page & !0xfff) | (u64::from(first) * 4);
            let width = if page & 1 == 0 { Width::Bits64 } else { Width::Bits32 };
            let address = if width == Width::Bits32 { address & 0xffff_ffff } else { address };
            let request =
                MemoryRequest { operation, requester, tag, first_enables, last_enables, address, width };
            (Kind::Memory(request), length)
        },
    )
}

fn any_atomic() -> impl Strategy<Value = (Kind, u16)> {
    let operations = vec![
        (MemoryOperation::FetchAdd, 1),
        (MemoryOperation::FetchAdd, 2),
        (MemoryOperation::Swap, 1),
        (MemoryOperation::Swap, 2),
        (MemoryOperation::CompareAndSwap, 2),
        (MemoryOperation::CompareAndSwap, 4),
        (MemoryOperation::CompareAndSwap, 8),
    ];
    let operations = prop::sample::select(operations);
    (operations, any_id(), any_tag(), any::<u64>(), any::<u8>()).prop_map(
        |((operation, length), requester, tag, address, enables)| {
            let request = MemoryRequest {
                operation,
                requester,
                tag,
                first_enables: enables & 15,
                last_enables: enables >> 4,
                address: address & !15,
                width: Width::Bits64,
            };
            (Kind::Memory(request), length)
        },
    )
}

fn any_single() -> impl Strategy<Value = (Kind, u16)> {
    (any::<bool>(), 0..3_u8, any_id(), any_id(), any_tag(), 0..16_u8, any::<u32>()).prop_map(
        |(write, kind, requester, target, tag, enables, place)| {
            let routing = if kind == 0 { ConfigType::Type0 } else { ConfigType::Type1 };
            let [.., high, low] = place.to_be_bytes();
            let offset = u16::from_be_bytes([high & 15, low & !3]);
            let io = IoRequest { write, requester, tag, enables, address: place & !3 };
            let config = ConfigRequest { write, routing, requester, tag, enables, target, offset };
            (if kind == 2 { Kind::Io(io) } else { Kind::Config(config) }, 1)
        },
    )
}

fn any_message() -> impl Strategy<Value = (Kind, u16)> {
    (0..8_u8, any_id(), any_tag(), any::<u8>(), any::<bool>(), any::<u64>(), 0..32_u16).prop_map(
        |(routing, requester, tag, code, data, body, length)| {
            let routing = MessageRouting::from(routing);
            let length = if data { length.max(1) } else { length };
            (Kind::Message(Message { routing, requester, tag, code, data, body }), length)
        },
    )
}

fn any_completion() -> impl Strategy<Value = (Kind, u16)> {
    let ids = (any_id(), any_id(), any_tag());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (ids, flags, 0..8_u8, 1..=4096_u16, 0..128_u8, 0..64_u16).prop_map(
        |(
            (completer, requester, tag),
            (data, locked, byte_count_modified),
            status,
            byte_count,
            lower_address,
            length,
        )| {
            let status = CompletionStatus::from(status);
            let completion = Completion {
                completer,
                status,
                byte_count_modified,
                byte_count,
                requester,
                tag,
                lower_address,
                data,
                locked,
            };
            (Kind::Completion(completion), if data { length.max(1) } else { length })
        },
    )
}

fn any_kind() -> impl Strategy<Value = (Kind, u16)> {
    prop_oneof![any_read_or_write(), any_atomic(), any_single(), any_message(), any_completion()]
}

prop_compose! {
    fn any_header()(
        (kind, length) in any_kind(),
        traffic_class in 0..8_u8,
        attributes in 0..8_u8,
        address_type in 0..4_u8,
        (poisoned, processing_hint, lightweight_notification) in any::<(bool, bool, bool)>(),
        hint in 0..4_u8,
        reserved in 0..64_u8,
    ) -> Header {
        let plain = matches!(kind, Kind::Io(_) | Kind::Config(_));
        let fixed = matches!(kind, Kind::Message(Message { code: 0..=0x7d, .. }));
        let traits = Traits::NONE
            .with_traffic_class(if plain || fixed { 0 } else { traffic_class })
            .with_attributes(Attributes::from(if plain { 0 } else { attributes }))
            .with_address_type(AddressType::from(if plain { 0 } else { address_type }))
            .with_poison(poisoned)
            .with_hinted(processing_hint)
            .with_hint(if matches!(kind, Kind::Memory(_)) { hint } else { 0 })
            .with_lightweight(lightweight_notification);
        Header {
            traits,
            reserved: reserved & match kind {
                Kind::Config(_) => 63,
                Kind::Io(_) => 3,
                Kind::Completion(_) => 1,
                _ => 0,
            },
            length,
            kind,
        }
    }
}

prop_compose! {
    fn any_packet()(
        header in any_header(),
        local in prop::option::weighted(0.1, 0..16_u32),
        end_to_end in prop::collection::vec(0..16_u32, 0..=Prefixes::END_TO_END_MAX),
        digest in any::<Option<u32>>(),
        fill in any::<u8>(),
    ) -> Packet {
        let mut prefixes = Prefixes::NONE;
        let end_to_end = end_to_end.into_iter().map(|kind| 0x9000_0000 | kind << 24);
        for word in local.map(|kind| 0x8000_0000 | kind << 24).into_iter().chain(end_to_end) {
            prefixes.push(word).unwrap();
        }
        let payload = Buffer::copy_from_slice(&vec![fill; header.payload_len()]);
        Packet { prefixes, header, payload, digest }
    }
}

proptest! {
    #[test]
    fn any_packet_survives_a_round_trip(packet in any_packet()) {
        let bytes = bytes_of(&packet);
        prop_assert_eq!(&View::parse(&bytes).unwrap().to_packet(), &packet);
        prop_assert_eq!(&Packet::parse(&Buffer::copy_from_slice(&bytes)).unwrap(), &packet);
        prop_assert_eq!(Head::parse(&bytes).unwrap(), packet.head());
        prop_assert_eq!(packet.head().tlp_len(), bytes.len());
        crate::fuzz::tlp(&bytes);
    }

    #[test]
    fn every_truncation_names_the_missing_part(packet in any_packet()) {
        let bytes = bytes_of(&packet);
        for have in (0..bytes.len()).step_by(1 + bytes.len() / 300) {
            match View::parse(&bytes[..have]) {
                Err(TlpError::Truncated { need, have: had, .. }) => {
                    prop_assert!(had == have && need > have && need <= bytes.len());
                }
                other => prop_assert!(false, "{have} B of {packet}: {other:?}"),
            }
        }
    }

    #[test]
    fn trailing_bytes_are_returned_or_refused(packet in any_packet(), more in 1..9_usize) {
        let mut bytes = bytes_of(&packet);
        let need = bytes.len();
        bytes.extend(vec![0; more]);
        prop_assert_eq!(View::parse(&bytes), Err(TlpError::TrailingBytes { need, have: need + more }));
        let (first, rest) = View::parse_first(&bytes).unwrap();
        prop_assert_eq!((first.to_packet(), rest.len()), (packet, more));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        crate::fuzz::tlp(&bytes);
    }

    #[test]
    fn no_flipped_bit_makes_it_panic(packet in any_packet(), bit in 0..160_usize) {
        let mut bytes = bytes_of(&packet);
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        crate::fuzz::tlp(&bytes);
    }

    #[test]
    fn the_ecrc_is_the_figure_s(packet in any_packet()) {
        prop_assert_eq!(packet.ecrc(), ecrc_by_the_figure(&covered_by_the_book(&packet)));
        prop_assert_eq!(packet.with_ecrc().ecrc_matches(), Some(true));
    }

    #[test]
    fn requests_mean_the_bytes_that_they_were_made_for(
        page in any::<u64>(),
        first in 0..4096_u32,
        length in 1..=4096_u32,
    ) {
        let length = length.min(4096 - first);
        let address = (page & !0xfff) | u64::from(first);
        let read = Packet::memory_read(Bdf::new(0, 2, 0), Tag::new(5), address, length);
        prop_assert_eq!(read.header.first_byte_address(), Some(address));
        prop_assert_eq!(read.header.last_byte_address(), Some(address + u64::from(length) - 1));
        prop_assert_eq!(read.header.byte_length(), length);
        prop_assert_eq!(u32::from(read.header.byte_count()), length);
        prop_assert_eq!(read.to_string(), format!("MRd 00:02.0 tag 0x05 {address:#x}..+{length}"));
        let enables = (0..read.header.length).map(|index| read.header.enables_of(index));
        let enabled: u32 = enables.map(u8::count_ones).sum();
        prop_assert_eq!(enabled, length);
        crate::fuzz::tlp(&bytes_of(&read));
        View::parse(&bytes_of(&read)).unwrap();
        let data: Vec<u8> = (0..length).map(|byte| byte.to_be_bytes()[3]).collect();
        let write = Packet::memory_write(Bdf::new(0, 2, 0), address, Buffer::copy_from_slice(&data));
        prop_assert_eq!(&*write.data(), &data[..]);
        View::parse(&bytes_of(&write)).unwrap();
    }

    #[test]
    fn completions_carry_their_part_of_the_read(
        first in 0..4096_u32,
        length in 1..=4096_u32,
        cut in 0..4096_u32,
    ) {
        let length = length.min(4096 - first);
        let cut = cut % length;
        let read = Packet::memory_read(Bdf::new(0, 2, 0), Tag::new(0x155), u64::from(first), length);
        let data: Vec<u8> = (0..length).map(|byte| byte.to_be_bytes()[3]).collect();
        let data = Buffer::copy_from_slice(&data);
        for (start, end) in [(0, cut), (cut, length)].into_iter().filter(|(start, end)| start < end) {
            let part = data.slice(start as usize..end as usize);
            let answer = Packet::completion_with_data(Bdf::new(1, 0, 0), &read.header, start, part.clone());
            let bytes = bytes_of(&answer);
            let answer = View::parse(&bytes).unwrap();
            let Kind::Completion(completion) = answer.header.kind else { unreachable!("a completion") };
            prop_assert_eq!(u32::from(completion.lower_address), (first + start) % 128);
            prop_assert_eq!(u32::from(completion.byte_count), length - start);
            prop_assert_eq!((completion.requester, completion.tag), (Bdf::new(0, 2, 0), Tag::new(0x155)));
            prop_assert_eq!(&answer.data_bytes()[..part.len()], &*part);
        }
    }
}
