use engine::Instant;
use iwarp::wire::{Header, Opcode};
use nvme::wire::{CommandId, CompletionQueueEntry, IoOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_tcp::wire::{CommandCapsule, CommonHeader, DataHeader, Flags, PduKind, ResponseCapsule};
use rdma::Key;
use std::vec;
use std::vec::Vec;

use super::*;

fn segment(bytes: &[u8]) -> Segment<'_> {
    let (at, from, to) = (Instant::ZERO, ([1; 16], 40_000), ([2; 16], 4420));
    Segment { number: 0, at, from, to, sequence: 1, opens: false, bytes, missing: 0 }
}

fn datagram(bytes: &[u8]) -> Datagram<'_> {
    Datagram { number: 0, at: Instant::ZERO, from: [1; 16], to: [2; 16], bytes, missing: 0 }
}

/// Maximum number of PDUs or frames that these tests describe.
const MOST: usize = 8;

fn value<'a>(held: &'a Held, name: &str) -> (&'a str, Range<usize>) {
    let field = held.fields.iter().find(|field| field.name == name).unwrap();
    (&field.value, field.place.clone())
}

fn common(kind: PduKind, flags: Flags, data: u32) -> CommonHeader {
    let header = u32::try_from(kind.header_length()).unwrap();
    let digest = if flags.has(Flags::DATA_DIGEST) { 4 } else { 0 };
    CommonHeader {
        kind,
        flags,
        header_length: u8::try_from(header).unwrap(),
        data_offset: if data > 0 { u8::try_from(header).unwrap() } else { 0 },
        length: header + data + digest,
    }
}

fn read(id: u16) -> SubmissionQueueEntry {
    SubmissionQueueEntry {
        opcode: IoOpcode::Read.into(),
        command_id: CommandId(id),
        namespace: NamespaceId(1),
        ..SubmissionQueueEntry::default()
    }
}

fn command(id: u16) -> Vec<u8> {
    CommandCapsule { entry: read(id) }.emit(&common(PduKind::CommandCapsule, Flags::NONE, 0)).to_vec()
}

fn data(id: u16, length: u32, digest: u32) -> Vec<u8> {
    let header = DataHeader { command: CommandId(id), tag: 0, offset: 512, length };
    let common = common(PduKind::ControllerData, Flags::DATA_DIGEST.with(Flags::LAST_PDU, true), length);
    // Data that resemble PDUs.
    let bytes = vec![4; length as usize];
    [&header.emit(&common)[..], &bytes, &digest.to_le_bytes()].concat()
}

fn response(id: u16) -> Vec<u8> {
    let entry = CompletionQueueEntry { command_id: CommandId(id), ..CompletionQueueEntry::default() };
    ResponseCapsule { entry }.emit(&common(PduKind::ResponseCapsule, Flags::NONE, 0)).to_vec()
}

#[test]
fn each_pdu_of_a_segment_has_its_fields_at_their_bytes() {
    let bytes = [command(7), data(7, 64, 0x1234_5678), response(7)].concat();
    let held = of_segment(&segment(&bytes), None, MOST);
    assert_eq!(held.names, ["CapsuleCmd", "C2HData", "CapsuleResp"]);
    assert_eq!(value(&held, "PDU"), ("CapsuleCmd", 0..72));
    assert_eq!(value(&held, "identifier (CID)"), ("0x0007", 10..12));
    assert_eq!(value(&held, "offset of the data (DATAO)"), ("512", 84..88));
    assert_eq!(value(&held, "data"), ("64 B", 96..160));
    assert_eq!(value(&held, "data digest (DDGST)"), ("0x12345678", 160..164));
    assert_eq!((held.entry, held.untold), (None, 0));
    let second = held.fields.iter().filter(|field| field.name == "flags").nth(1).unwrap();
    assert_eq!((&*second.value, second.place.clone()), ("0x06 DDGSTF LAST_PDU", 73..74));
}

#[test]
fn the_entry_of_a_command_is_found_behind_the_end_of_another_pdu() {
    let bytes = [data(3, 64, 0), response(3), response(9)].concat();
    for cut in [1, 5, 23, 24, 60, 91] {
        let wanted = Some(Wanted { step: Step::Completion, id: 9 });
        let held = of_segment(&segment(&bytes[cut..]), wanted, MOST);
        let Some(Entry::Completion(entry)) = held.entry else { panic!("{cut}: {held:?}") };
        assert_eq!(entry.command_id, CommandId(9));
        assert_eq!(held.names.last(), Some(&"CapsuleResp"));
        let none = of_segment(&segment(&bytes[cut..]), Some(Wanted { step: Step::Completion, id: 1 }), MOST);
        assert_eq!(none.entry, None);
    }
    let held = of_segment(&segment(&command(5)), Some(Wanted { step: Step::Capsule, id: 5 }), MOST);
    assert_eq!(held.entry, Some(Entry::Submission(read(5))));
}

#[test]
fn bytes_without_a_pdu_have_no_fields() {
    for bytes in [&[][..], &[4], &[0; 200], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096]] {
        assert_eq!(of_segment(&segment(bytes), None, MOST), Held::default());
        assert_eq!(
            of_segment(&segment(bytes), Some(Wanted { step: Step::Data, id: 4 }), MOST),
            Held::default()
        );
    }
}

#[test]
fn a_segment_of_very_many_pdus_counts_those_left_out() {
    let bytes = response(1).repeat(MOST + 9);
    let held = of_segment(&segment(&bytes), None, MOST);
    assert_eq!((held.names.len(), held.untold), (MOST, 9));
}

/// A frame around a header and its payload, without its CRC.
fn frame(header: Header, payload: &[u8]) -> Vec<u8> {
    let header = &header.emit()[..header.length()];
    let length = u16::try_from(header.len() + payload.len()).unwrap();
    let mut frame = [&length.to_be_bytes()[..], header, payload].concat();
    frame.resize(frame.len().next_multiple_of(4) + 4, 0);
    frame
}

#[test]
fn each_frame_of_iwarp_has_its_fields_at_their_bytes() {
    let write = Header::Tagged { opcode: Opcode::Write, last: true, key: Key(0xabcd), address: 0x1000 };
    let opcode = Opcode::Send { invalidates: true, solicited: false };
    let send = Header::Untagged { opcode, last: true, invalidate: Key(0x77), number: 3, offset: 0 };
    let bytes = [frame(write, &[5; 30]), frame(send, &read(8).emit())].concat();
    let held = of_segment(&segment(&bytes), Some(Wanted { step: Step::Capsule, id: 8 }), MOST);
    assert_eq!(held.names, ["RDMA Write", "Send with Invalidate"]);
    assert_eq!(value(&held, "key (STag)"), ("0x0000abcd", 4..8));
    assert_eq!(value(&held, "address (TO)"), ("0x0000000000001000", 8..16));
    assert_eq!(value(&held, "payload"), ("30 B", 16..46));
    assert_eq!(value(&held, "key that ends (STag)"), ("0x00000077", 56..60));
    assert_eq!(value(&held, "message (MSN)"), ("3", 64..68));
    assert_eq!(held.entry, Some(Entry::Submission(read(8))));
}

#[test]
fn each_header_of_roce_has_its_fields_at_their_bytes() {
    // RDMA Write Only: 2 bytes of padding, queue pair 0x11, wants an acknowledgement, PSN 9.
    let mut bytes = vec![10, 0x20, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0, 0, 9];
    bytes.extend([0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 5, 0, 0, 0, 6]);
    bytes.extend([1, 2, 3, 4, 5, 6, 0, 0, 0xde, 0xad, 0xbe, 0xef]);
    let held = of_datagram(&datagram(&bytes), None);
    assert_eq!(held.names, ["RDMA Write Only"]);
    assert_eq!(value(&held, "queue pair (DestQP)"), ("0x000011", 5..8));
    assert_eq!(value(&held, "sequence number (PSN)"), ("9", 9..12));
    assert_eq!(value(&held, "address (VA)"), ("0x0000000000002000", 12..20));
    assert_eq!(value(&held, "bytes (DMALen)"), ("6", 24..28));
    assert_eq!(value(&held, "payload"), ("6 B", 28..34));
    assert_eq!(value(&held, "CRC (ICRC)"), ("0xdeadbeef", 36..40));
    let answer = [17, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2, 0x63, 0, 0, 4, 0, 0, 0, 0];
    let held = of_datagram(&datagram(&answer), None);
    assert_eq!(value(&held, "syndrome"), ("NAK: remote operational error", 12..13));
    assert_eq!(value(&held, "messages done (MSN)"), ("4", 13..16));
    let send = [&[4, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 2][..], &read(2).emit(), &[0; 4]].concat();
    let held = of_datagram(&datagram(&send), Some(Wanted { step: Step::Capsule, id: 2 }));
    assert_eq!(held.entry, Some(Entry::Submission(read(2))));
}
