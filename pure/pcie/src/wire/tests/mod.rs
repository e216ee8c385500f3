//! Tests of the codec: vectors from other sources, malformed packets, constructors, ECRC.

use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use super::*;
use engine::Buffer;

mod properties;

type View<'a> = Tlp<&'a [u8]>;

/// Bytes from hexadecimal digits; blanks are ignored.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<char> = digits.chars().filter(|digit| !digit.is_whitespace()).collect();
    let bytes = digits.chunks(2).map(String::from_iter);
    bytes.map(|pair| u8::from_str_radix(&pair, 16).unwrap()).collect()
}

fn bytes_of<P: AsRef<[u8]>>(tlp: &Tlp<P>) -> Vec<u8> {
    let mut bytes = vec![0; tlp.encoded_len()];
    assert_eq!(tlp.emit(&mut bytes), bytes.len());
    bytes
}

/// Source, bytes and text of every golden vector.
fn vectors() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let lines = include_str!("../../../vectors/tlp.txt").lines().filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| line.split(" | ").collect::<Vec<_>>());
    fields.map(|fields| (fields[0], hex(fields[1]), fields[2])).collect()
}

#[test]
fn golden_vectors_parse_print_and_re_encode_to_the_same_bytes() {
    assert!(vectors().len() > 40);
    for (source, bytes, text) in vectors() {
        let tlp = View::parse(&bytes).unwrap_or_else(|error| panic!("{source}: {text}: {error}"));
        assert_eq!(tlp.to_string(), text, "{source}");
        assert_eq!(bytes_of(&tlp), bytes, "{source}: {text}");
        assert_ne!(tlp.ecrc_matches(), Some(false), "{source}: {text}");
        crate::fuzz::tlp(&bytes);
    }
}

#[test]
fn a_packet_shares_the_block_that_it_was_received_in() {
    let bytes = Buffer::copy_from_slice(&hex("40000001 0000000f fdaff040 12345678"));
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.payload.as_ptr(), bytes[12..].as_ptr());
    assert_eq!(packet.data().as_ptr(), bytes[12..].as_ptr());
}

#[test]
fn every_pair_of_fmt_and_type_is_a_tlp_or_an_unknown_type() {
    let known = |code: u8| {
        let (fmt, kind) = (code >> 5, code & 31);
        match kind {
            0 | 0b10000.. if fmt == 4 => true,
            _ if fmt == 4 => true,
            0 => fmt < 4,
            1 => fmt < 2,
            2 | 4 | 5 | 10 | 11 => fmt == 0 || fmt == 2,
            12..=14 => fmt == 2 || fmt == 3,
            16..=23 => fmt == 1 || fmt == 3,
            _ => false,
        }
    };
    for code in 0..=u8::MAX {
        let unknown = View::parse(&[code; 4]) == Err(TlpError::UnknownType { code });
        assert_eq!(unknown, !known(code), "{code:#010b}");
    }
}

#[test]
fn errors_name_the_field_its_value_and_the_expectation() {
    let cases = [
        ("", "the header is cut off: the TLP has 0 B, expected at least 12 B"),
        (
            "20000001 0000000f 00000001 000000",
            "the header is cut off: the TLP has 15 B, expected at least 16 B",
        ),
        ("8e0000", "a TLP prefix is cut off: the TLP has 3 B, expected at least 4 B"),
        (
            "40000002 000000ff 00001000 00000000",
            "the payload is cut off: the TLP has 16 B, expected at least 20 B",
        ),
        (
            "00008001 0000000f 00001000 0000",
            "the digest is cut off: the TLP has 14 B, expected at least 16 B",
        ),
        ("00000001 0000000f 00001000 00000000", "Length and TD say 12 B, but there are 16 B"),
        ("1b000001 0000000f 00001000", "Fmt 0b000 with Type 0b11011 is not a TLP of PCI Express 4.0"),
        ("41000001 0000000f 00001000", "Fmt 0b010 with Type 0b00001 is not a TLP of PCI Express 4.0"),
        ("00000002 000000ff 00001ffc", "Address 0x1ffc with Length 2 DW crosses a 4 KiB boundary"),
        ("00000000 000000ff 00001004", "Address 0x1004 with Length 1024 DW crosses a 4 KiB boundary"),
        ("00000001 000000ff 00001000", "Last DW BE is 0b1111 with Length 1 DW, expected 0b0000"),
        (
            "00000002 000000f0 00001000",
            "First DW BE is 0b0000 with Length 2 DW, expected contiguous up to bit 3",
        ),
        (
            "00000002 0000000f 00001000",
            "Last DW BE is 0b0000 with Length 2 DW, expected contiguous from bit 0",
        ),
        (
            "00000002 000000f5 00001004",
            "First DW BE is 0b0101 with Length 2 DW, expected contiguous up to bit 3",
        ),
        (
            "00000003 000000f7 00001000",
            "First DW BE is 0b0111 with Length 3 DW, expected contiguous up to bit 3",
        ),
        (
            "00000003 000000ef 00001000",
            "Last DW BE is 0b1110 with Length 3 DW, expected contiguous from bit 0",
        ),
        ("4c000003 00000000 00001000", "Length of FetchAdd is 3 DW, expected 1 or 2 DW"),
        ("4e000001 00000000 00001000", "Length of CAS is 1 DW, expected 2, 4 or 8 DW"),
        (
            "4d000002 00000000 00001004",
            "Address 0x1004 of an AtomicOp is not a multiple of its operand's 8 B",
        ),
        ("04000002 0000000f 01000000", "Length is 2 DW, expected 1 DW"),
        ("04000001 000000ff 01000000", "Last DW BE is 0b1111 with Length 1 DW, expected 0b0000"),
        ("02100001 0000000f 00001000", "TC is 1, expected 0 for this type"),
        ("34300000 00000020 00000000 00000000", "TC is 3, expected 0 for this type"),
        ("04042001 0000000f 01000000", "Attr is 0b110, expected 0 for this type"),
        ("04000801 0000000f 01000000", "AT is 0b10, expected 0 for this type"),
        ("90000000 80000000", "local TLP prefix 0x80000000 is behind an end-to-end one, expected before it"),
    ];
    for (bytes, text) in cases {
        let error = View::parse(&hex(bytes)).expect_err(text);
        assert_eq!(error.to_string(), text, "{bytes}");
    }
}

#[test]
fn prefixes_have_a_limit() {
    let header = "00000001 0000000f 00001000";
    let with = |prefixes: &str| View::parse(&hex(&format!("{prefixes}{header}"))).map(|tlp| tlp.prefixes);
    let four = "90000001 90000002 90000003 90000004 ";
    assert_eq!(with(four).unwrap().end_to_end().len(), 4);
    assert_eq!(with(&format!("{four}90000005 ")), Err(TlpError::TooManyPrefixes { prefix: 0x9000_0005 }));
    let five = with(&format!("80000000 {four}")).unwrap();
    assert_eq!((five.local(), five.words().len()), (&[0x8000_0000][..], 5));
    let local = "80000000 80000001 80000002 80000003 80000004 ";
    assert_eq!(with(local).unwrap().local().len(), 5);
    assert_eq!(with(&format!("{local}80000005 ")), Err(TlpError::TooManyPrefixes { prefix: 0x8000_0005 }));
}

#[test]
fn reserved_bits_are_ignored_and_kept() {
    for bytes in [
        "05000001 0000000f 0100f103",
        "02000001 0000000f 00001003",
        "0a000155 01002004 00000780",
        "34000005 01000020 00000000 00000001",
        "4c000001 010000ff 00001003 00000005",
    ] {
        let bytes = hex(bytes);
        let tlp = View::parse(&bytes).unwrap();
        assert_eq!(bytes_of(&tlp), bytes, "{tlp}");
    }
}

#[test]
fn byte_counts_follow_the_table_of_byte_enables() {
    // Table 2-37 for a length of one double word: First DW BE and Byte Count.
    let table = [
        (0b1111, 4),
        (0b1001, 4),
        (0b1011, 4),
        (0b1101, 4),
        (0b0101, 3),
        (0b0111, 3),
        (0b1010, 3),
        (0b1110, 3),
        (0b0011, 2),
        (0b0110, 2),
        (0b1100, 2),
        (0b0001, 1),
        (0b0010, 1),
        (0b0100, 1),
        (0b1000, 1),
        (0b0000, 1),
    ];
    let mut header = Header::memory(MemoryOperation::Read, Bdf::default(), Tag::default(), 0x1000, 4);
    for (enables, count) in table {
        let Kind::Memory(request) = &mut header.kind else { unreachable!("a memory request") };
        request.first_enables = enables;
        assert_eq!(header.byte_count(), count, "{enables:#06b}");
        assert_eq!(header.byte_length() == 0, enables == 0, "{enables:#06b}");
    }
}

#[test]
fn a_zero_length_read_is_answered_with_one_byte() {
    let read = Packet::memory_read(Bdf::new(0, 1, 0), Tag::new(7), 0x2004, 0);
    assert_eq!((read.header.byte_length(), read.header.last_byte_address()), (0, None));
    let answer = Packet::completion_with_data(Bdf::new(1, 0, 0), &read.header, 0, Buffer::zeroed(1));
    assert_eq!(answer.to_string(), "CplD 01:00.0 to 00:01.0 tag 0x07 SC 4 B at 0x04, 1 B to come");
    assert_eq!(answer.payload.len(), 4);
}

#[test]
fn requests_below_4_gib_have_the_32_bit_form() {
    let width = |address| {
        let packet = Packet::memory_read(Bdf::default(), Tag::default(), address, 4);
        packet.encoded_len()
    };
    assert_eq!((width(0xffff_fffc), width(0x1_0000_0000)), (12, 16));
}

#[test]
fn configuration_requests_are_made_for_type_1_and_turned_into_type_0() {
    let data = Buffer::copy_from_slice(&[0xab, 0xcd]);
    let write = Packet::config_write(Bdf::new(0, 0, 0), Tag::new(2), Bdf::new(2, 1, 0), 0x11a, data);
    assert_eq!(bytes_of(&write), hex("45000001 0000020c 02080118 0000abcd"));
    assert_eq!(&*write.data(), [0xab, 0xcd]);
    let write = write.with_config_type(ConfigType::Type0);
    assert_eq!(write.to_string(), "CfgWr0 00:00.0 tag 0x02 02:01.0 0x11a..+2");
    let read = Packet::config_read(Bdf::new(0, 0, 0), Tag::new(1), Bdf::new(1, 0, 0), 0, 4);
    let value = Buffer::copy_from_slice(&[1, 2, 3, 4]);
    let answer = Packet::completion_with_data(Bdf::new(1, 0, 0), &read.header, 0, value);
    assert_eq!(bytes_of(&answer), hex("4a000001 01000004 00000100 01020304"));
    let refused = Packet::completion(Bdf::new(1, 0, 0), CompletionStatus::UnsupportedRequest, &read.header);
    assert_eq!(bytes_of(&refused), hex("0a000000 01002004 00000100"));
}

#[test]
fn atomics_messages_and_io_are_made_as_on_the_wire() {
    let device = Bdf::new(1, 0, 0);
    let add = Packet::atomic(
        MemoryOperation::FetchAdd,
        device,
        Tag::new(9),
        0x1000,
        Buffer::copy_from_slice(&[0, 0, 0, 5]),
    );
    assert_eq!(bytes_of(&add), hex("4c000001 01000900 00001000 00000005"));
    assert_eq!((add.header.byte_count(), add.header.lower_address()), (4, 0));
    let swap =
        Packet::atomic(MemoryOperation::CompareAndSwap, device, Tag::new(9), 0x1000, Buffer::zeroed(16));
    assert_eq!((swap.header.byte_count(), swap.header.byte_length()), (8, 16));
    let interrupt = Packet::message(device, MessageRouting::Local, message::ASSERT_INTA, 0);
    assert_eq!(bytes_of(&interrupt), hex("34000000 01000020 00000000 00000000"));
    let power = Buffer::copy_from_slice(&[0x19, 0, 0, 0]);
    let power = Packet::message_with_data(
        Bdf::default(),
        MessageRouting::Local,
        message::SET_SLOT_POWER_LIMIT,
        0,
        power,
    );
    assert_eq!(bytes_of(&power), hex("74000001 00000050 00000000 00000000 19000000"));
    let write = Packet::io_write(Bdf::default(), Tag::new(4), 0xcf9, Buffer::copy_from_slice(&[6]));
    assert_eq!(bytes_of(&write), hex("42000001 00000402 00000cf8 00060000"));
    let read = Packet::io_read(Bdf::default(), Tag::new(3), 0xe000, 1);
    assert_eq!(bytes_of(&read), hex("02000001 00000301 0000e000"));
}

#[test]
#[should_panic(expected = "crosses a 4 KiB boundary")]
fn a_request_of_ours_across_a_boundary_is_our_fault() {
    Packet::memory_read(Bdf::default(), Tag::default(), 0x1fff, 2);
}

/// The ECRC as in the specification's figure: a shift register that takes one bit at a time.
fn ecrc_by_the_figure(bytes: &[u8]) -> u32 {
    let mut register = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let feedback = (register >> 31) ^ u32::from((byte >> bit) & 1);
            register = (register << 1) ^ if feedback == 1 { 0x04c1_1db7 } else { 0 };
        }
    }
    // Bit 0 of the result is bit 7 of the digest, bit 7 is bit 0, bit 8 is bit 15, and so on.
    (0..32).fold(0, |digest, bit| digest | (((!register >> bit) & 1) << ((bit / 8) * 8 + 7 - bit % 8)))
}

fn covered_by_the_book(tlp: &Packet) -> Vec<u8> {
    let mut bytes = bytes_of(&Tlp { digest: Some(0), ..tlp.clone() });
    bytes.truncate(bytes.len() - 4);
    bytes.drain(..tlp.prefixes.local().len() * 4);
    let header = tlp.prefixes.end_to_end().len() * 4;
    bytes[header] |= 1;
    bytes[header + 2] |= 0x40;
    bytes
}

#[test]
fn the_ecrc_ignores_only_bits_that_a_switch_may_change() {
    let data = Buffer::copy_from_slice(&[1, 2, 3, 4]);
    let write =
        Packet::config_write(Bdf::new(0, 0, 0), Tag::new(2), Bdf::new(2, 1, 0), 0x10, data).with_ecrc();
    assert_eq!(write.ecrc_matches(), Some(true));
    let mut forwarded = write.clone().with_config_type(ConfigType::Type0);
    forwarded.header.traits = forwarded.header.traits.with_poison(true);
    forwarded.prefixes.push(0x8e00_0000).unwrap();
    assert_eq!(forwarded.ecrc_matches(), Some(true));
    let bytes = bytes_of(&write);
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let variant = [0, 2 * 8 + 6].contains(&bit);
        if let Ok(tlp) = View::parse(&changed) {
            assert_eq!(tlp.ecrc_matches(), Some(variant), "bit {bit}");
        }
    }
    forwarded.prefixes.push(0x9100_0005).unwrap();
    assert_eq!(forwarded.ecrc_matches(), Some(false));
    assert_eq!(Packet { digest: None, ..write }.ecrc_matches(), None);
}
