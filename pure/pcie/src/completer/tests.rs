use std::vec::Vec;

use super::*;
use crate::wire::Tag;

const US: Bdf = Bdf::new(4, 0, 0);
const THEM: Bdf = Bdf::new(0, 0, 0);

fn completer(boundary: u32, payload_size: u32) -> Completer {
    Completer::new(Settings { id: US, boundary, payload_size })
}

fn pattern(length: usize) -> Buffer {
    Buffer::from((0..length).map(|index| u8::try_from(index % 251).unwrap()).collect::<Vec<_>>())
}

/// Lower address, byte count and payload length of each completion.
fn cut(completer: &mut Completer, request: &Packet, bytes: &Buffer) -> Vec<(u8, u16, usize)> {
    let mut pieces = Vec::new();
    completer.data(&request.header, bytes, |packet| {
        let Kind::Completion(completion) = packet.header.kind else { panic!("{packet:?}") };
        assert_eq!(usize::from(packet.header.length) * 4, packet.payload.len());
        assert_eq!((completion.requester, completion.tag, completion.completer), (THEM, Tag::new(9), US));
        pieces.push((completion.lower_address, completion.byte_count, packet.payload.len()));
    });
    pieces
}

fn read(address: u64, length: u32) -> Packet {
    Packet::memory_read(THEM, Tag::new(9), address, length)
}

#[test]
fn an_aligned_page_is_cut_by_max_payload_size() {
    let bytes = pattern(4096);
    assert_eq!(cut(&mut completer(64, 4096), &read(0x1000, 4096), &bytes), [(0, 4096, 4096)]);
    let pieces = cut(&mut completer(64, 2048), &read(0x1000, 4096), &bytes);
    assert_eq!(pieces, [(0, 4096, 2048), (0, 2048, 2048)]);
}

#[test]
fn pieces_end_at_the_read_completion_boundary() {
    // The example of section 2.3.1.1: a read of 100h bytes from 10020h.
    let pieces = cut(&mut completer(64, 128), &read(0x1_0020, 0x100), &pattern(0x100));
    assert_eq!(pieces, [(0x20, 0x100, 0x60), (0, 0xa0, 0x80), (0, 0x20, 0x20)]);
    let pieces = cut(&mut completer(128, 256), &read(0x1_0020, 0x100), &pattern(0x100));
    assert_eq!(pieces, [(0x20, 0x100, 0xe0), (0, 0x20, 0x20)]);
}

#[test]
fn the_last_bytes_of_all_addresses_are_answered_too() {
    let pieces = cut(&mut completer(64, 128), &read(u64::MAX - 3, 4), &pattern(4));
    assert_eq!(pieces, [(0x7c, 4, 4)]);
    let pieces = cut(&mut completer(128, 128), &read(u64::MAX - 0x10f, 0x100), &pattern(0x100));
    assert_eq!(pieces, [(0x70, 0x100, 0x10), (0, 0xf0, 0x80), (0, 0x70, 0x70)]);
}

#[test]
fn unaligned_ends_are_padded_and_the_middle_is_shared() {
    let bytes = pattern(200);
    let request = read(0x1003, 200);
    let mut payloads = Vec::new();
    completer(64, 128).data(&request.header, &bytes, |packet| payloads.push(packet.payload));
    let lengths: Vec<_> = payloads.iter().map(|payload| payload.len()).collect();
    assert_eq!(lengths, [128, 76]);
    assert_eq!(payloads[0][..3], [0; 3]);
    assert_eq!(payloads[0][3..], bytes[..125]);
    assert_eq!(payloads[1][..75], bytes[125..]);

    let request = read(0x1003, 300);
    let bytes = pattern(300);
    payloads.clear();
    completer(64, 128).data(&request.header, &bytes, |packet| payloads.push(packet.payload));
    assert_eq!(payloads[1].as_ptr(), bytes[125..].as_ptr(), "the middle is a slice of the source");
}

#[test]
fn whole_double_words_may_be_given_for_unaligned_reads() {
    let bytes = pattern(8);
    let mut payloads = Vec::new();
    completer(64, 128).data(&read(0x1002, 4).header, &bytes, |packet| payloads.push(packet.payload));
    assert_eq!(payloads.len(), 1);
    assert_eq!(payloads[0].as_ptr(), bytes.as_ptr());
    assert_eq!(cut(&mut completer(64, 128), &read(0x1002, 4), &bytes), [(2, 4, 8)]);
}

#[test]
fn a_zero_length_read_gets_one_double_word_and_byte_count_one() {
    assert_eq!(cut(&mut completer(64, 128), &read(0x1044, 0), &Buffer::EMPTY), [(0x44, 1, 4)]);
}

#[test]
fn failures_carry_the_remaining_byte_count_and_no_data() {
    let completer = completer(64, 128);
    for status in [CompletionStatus::UnsupportedRequest, CompletionStatus::CompleterAbort] {
        let packet = completer.status(&read(0x1041, 30).header, status);
        let Kind::Completion(completion) = packet.header.kind else { panic!() };
        assert_eq!((completion.status, completion.byte_count, completion.lower_address), (status, 30, 0x41));
        assert_eq!((completion.data, packet.header.length, packet.payload.len()), (false, 0, 0));
    }
}

#[test]
fn configuration_requests_are_answered_whole() {
    let request = Packet::config_read(THEM, Tag::new(9), US, 0x10, 4);
    assert_eq!(cut(&mut completer(64, 128), &request, &pattern(4)), [(0, 4, 4)]);
    let packet = completer(64, 128).status(&request.header, CompletionStatus::ConfigRequestRetry);
    let Kind::Completion(completion) = packet.header.kind else { panic!() };
    assert_eq!((completion.byte_count, completion.status), (4, CompletionStatus::ConfigRequestRetry));
}
