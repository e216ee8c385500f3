use std::vec::Vec;

use super::*;
use crate::wire::{Attributes, Completion, CompletionStatus, MemoryRequest, Tag, Width};
use engine::Buffer;

fn packet(kind: Kind, attributes: Attributes, payload: usize) -> Packet {
    let length = u16::try_from(payload / 4).unwrap();
    let mut header = Header::new(kind, length);
    header.traits = header.traits.with_attributes(attributes);
    Packet::new(header, Buffer::zeroed(payload))
}

fn memory(operation: MemoryOperation, requester: u16, attributes: Attributes, payload: usize) -> Packet {
    let request = MemoryRequest {
        operation,
        requester: Bdf::from_bits(requester),
        tag: Tag::new(0),
        first_enables: 15,
        last_enables: 0,
        address: 0x1000,
        width: Width::Bits32,
    };
    packet(Kind::Memory(request), attributes, payload)
}

fn write(requester: u16) -> Packet {
    memory(MemoryOperation::Write, requester, Attributes::default(), 32)
}

fn read(requester: u16, attributes: Attributes) -> Packet {
    memory(MemoryOperation::Read, requester, attributes, 0)
}

fn completion(tag: u16, attributes: Attributes) -> Packet {
    let completion = Completion {
        completer: Bdf::from_bits(7),
        status: CompletionStatus::Success,
        byte_count_modified: false,
        byte_count: 4,
        requester: Bdf::from_bits(1),
        tag: Tag::new(tag),
        lower_address: 0,
        data: true,
        locked: false,
    };
    packet(Kind::Completion(completion), attributes, 4)
}

const STRICT: Attributes = Attributes { relaxed_ordering: false, no_snoop: false, id_ordering: false };
const RELAXED: Attributes = Attributes { relaxed_ordering: true, ..STRICT };
const BY_ID: Attributes = Attributes { id_ordering: true, ..STRICT };

#[test]
fn the_table_is_the_specifications() {
    use Passing::{May, Must, Never};
    let swap = |attributes| memory(MemoryOperation::Swap, 1, attributes, 4);
    let columns = [write(1), read(2, STRICT), swap(STRICT), completion(1, STRICT)];
    let rows = [
        (write(1), [Never, Must, Must, May]),
        (read(1, STRICT), [Never, May, May, May]),
        (read(1, RELAXED), [Never, May, May, May]),
        (read(3, BY_ID), [May, May, May, May]),
        (read(1, BY_ID), [Never, May, May, May]),
        (swap(STRICT), [Never, May, May, May]),
        (swap(RELAXED), [May, May, May, May]),
        (completion(2, STRICT), [Never, Must, Must, May]),
        (completion(2, RELAXED), [May, Must, Must, May]),
        (completion(2, BY_ID), [May, Must, Must, May]),
        (completion(1, RELAXED), [May, Must, Must, Never]),
    ];
    for (row, (later, expected)) in rows.iter().enumerate() {
        let found = columns.each_ref().map(|earlier| passing(&later.header, &earlier.header));
        assert_eq!(found, *expected, "row {row}");
    }
}

fn credits(posted: u32, non_posted: u32, completion: u32) -> Credits {
    let lane = |headers| Credit { headers, data: Credit::UNLIMITED };
    Credits::new(lane(posted), lane(non_posted), lane(completion))
}

#[test]
fn with_credits_packets_leave_as_they_came() {
    let packets = [read(1, STRICT), write(1), completion(1, STRICT), write(2), read(2, STRICT)];
    let mut queue = Queue::new();
    packets.iter().for_each(|packet| queue.push(packet.clone()));
    assert_eq!((queue.len(), queue.bytes()), (5, 68));
    assert_eq!(queue.peek(), Some(&packets[0]));
    let popped: Vec<_> = core::iter::from_fn(|| queue.pop(&mut Unbounded)).collect();
    assert_eq!(popped, packets);
    assert_eq!((queue.is_empty(), queue.bytes()), (true, 0));
}

#[test]
fn posted_writes_and_completions_pass_reads_that_have_no_credit() {
    let mut queue = Queue::new();
    [read(1, STRICT), write(1), completion(1, STRICT)].into_iter().for_each(|packet| queue.push(packet));
    let mut credits = credits(9, 0, 9);
    assert_eq!(queue.pop(&mut credits), Some(write(1)));
    assert_eq!(queue.pop(&mut credits), Some(completion(1, STRICT)));
    assert_eq!(queue.pop(&mut credits), None);
    credits.give(Lane::NonPosted, Credit { headers: 1, data: 0 });
    assert_eq!(queue.pop(&mut credits), Some(read(1, STRICT)));
}

#[test]
fn nothing_strict_passes_a_posted_write_that_has_no_credit() {
    let mut queue = Queue::new();
    [write(1), read(1, STRICT), completion(1, STRICT)].into_iter().for_each(|packet| queue.push(packet));
    let mut none = credits(0, 9, 9);
    assert_eq!(queue.pop(&mut none), None);
    queue.clear();
    [write(1), read(1, STRICT), completion(1, RELAXED)].into_iter().for_each(|packet| queue.push(packet));
    assert_eq!(queue.pop(&mut none), Some(completion(1, RELAXED)));
    assert_eq!(queue.pop(&mut none), None);
}

#[test]
fn id_ordering_looks_at_every_write_ahead_and_gives_up_where_there_are_many() {
    let mut none = credits(0, 9, 9);
    for (writers, passes) in
        [(&[1, 2][..], true), (&[1, 3], false), (&[1; ID_ORDERING_SEARCH_MAX + 1], false)]
    {
        let mut queue = Queue::new();
        writers.iter().for_each(|writer| queue.push(write(*writer)));
        queue.push(read(3, BY_ID));
        assert_eq!(queue.pop(&mut none).is_some(), passes, "{writers:?}");
    }
}

#[test]
fn credits_count_headers_and_sixteen_byte_units() {
    assert_eq!(data_credits(&write(1)), 2);
    assert_eq!(data_credits(&completion(1, STRICT)), 1);
    let mut credits = Credits::new(Credit { headers: 2, data: 3 }, Credit::INFINITE, Credit::default());
    assert!(credits.take(Lane::Posted, 2));
    assert!(!credits.take(Lane::Posted, 2), "one data credit is left");
    assert_eq!(credits.of(Lane::Posted), Credit { headers: 1, data: 1 });
    assert!(credits.take(Lane::NonPosted, 1_000_000));
    assert_eq!(credits.of(Lane::NonPosted), Credit::INFINITE);
    credits.give(Lane::Posted, Credit { headers: Credit::UNLIMITED, data: 1 });
    assert_eq!(credits.of(Lane::Posted), Credit { headers: Credit::UNLIMITED - 1, data: 2 });
}
