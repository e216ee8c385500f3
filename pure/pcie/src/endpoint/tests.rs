//! Tests of the endpoint.

use super::*;
use crate::config::{ClassCode, aer};
use crate::wire::{ConfigType, Tag};
use engine::Nanos;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const ROOT: Bdf = Bdf::new(0, 0, 0);
const HERE: Bdf = Bdf::new(5, 0, 0);
const BASE: u64 = 0x20_0000_0000;
const NOW: Instant = Instant::ZERO;
const TABLE: u64 = 0x2000;
const PENDING: u64 = 0x3000;

fn fresh() -> Endpoint {
    let identity = Identity {
        vendor: 0x1234,
        device: 1,
        revision: 0,
        class: ClassCode::NVME,
        subsystem_vendor: 0x1234,
        subsystem: 1,
    };
    let mut bars = [None; 6];
    bars[0] = Some(Bar::memory64(16 << 10));
    Endpoint::new(&EndpointConfig {
        identity,
        link: Link::default(),
        serial_number: 7,
        bars,
        msix: Some(MsixLayout {
            bar: BarIndex::ZERO,
            vectors: 70,
            table_offset: 0x2000,
            pending_offset: 0x3000,
        }),
    })
}

fn outputs(endpoint: &mut Endpoint) -> Vec<Output> {
    core::iter::from_fn(|| endpoint.poll_output()).collect()
}

fn input(endpoint: &mut Endpoint, packet: Packet) -> Vec<Output> {
    endpoint.handle_input(NOW, packet);
    outputs(endpoint)
}

fn config_write(endpoint: &mut Endpoint, offset: u16, value: u32) -> Vec<Output> {
    let data = Buffer::copy_from_slice(&value.to_le_bytes());
    let packet = Packet::config_write(ROOT, Tag::new(1), HERE, offset, data);
    input(endpoint, packet.with_config_type(ConfigType::Type0))
}

fn config_read(endpoint: &mut Endpoint, offset: u16) -> u32 {
    let packet = Packet::config_read(ROOT, Tag::new(2), HERE, offset, 4);
    match &input(endpoint, packet.with_config_type(ConfigType::Type0))[..] {
        [Output::Packet(answer)] => u32::from_le_bytes(*answer.payload.first_chunk().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn write(endpoint: &mut Endpoint, address: u64, bytes: &[u8]) -> Vec<Output> {
    input(endpoint, Packet::memory_write(ROOT, address, Buffer::copy_from_slice(bytes)))
}

/// An endpoint with BAR 0 at `BASE`, memory space and bus master enabled, and Max_Payload_Size 256
/// B.
fn configured() -> Endpoint {
    let mut endpoint = fresh();
    for (offset, value) in [(0x10, 0), (0x14, 0x20), (0x04, 0b110), (0x78, 0x5000 | 1 << 5 | 0x10f)] {
        config_write(&mut endpoint, offset, value);
    }
    endpoint
}

fn with_msix(vector: u16, address: u32, data: u32) -> Endpoint {
    let mut endpoint = configured();
    config_write(&mut endpoint, offset::MSIX, 1 << 31);
    let entry = BASE + TABLE + u64::from(vector) * 16;
    let mut bytes = Vec::new();
    for dword in [address, 0, data, 0] {
        bytes.extend_from_slice(&u32::to_le_bytes(dword));
    }
    assert_eq!(write(&mut endpoint, entry, &bytes), []);
    endpoint
}

fn status_of(outputs: &[Output]) -> Option<CompletionStatus> {
    outputs.iter().find_map(|output| match output {
        Output::Packet(Packet { header: Header { kind: Kind::Completion(completion), .. }, .. }) => {
            Some(completion.status)
        }
        _ => None,
    })
}

#[test]
fn it_captures_its_place_from_configuration_writes() {
    let mut endpoint = fresh();
    assert_eq!(config_read(&mut endpoint, 0), 0x0001_1234);
    assert_eq!(endpoint.id(), Bdf::default());
    let answer = config_write(&mut endpoint, 0x3c, 9);
    assert_eq!(endpoint.id(), HERE);
    assert!(matches!(&answer[..], [Output::Packet(packet)] if matches!(packet.header.kind,
        Kind::Completion(completion) if completion.completer == HERE && !completion.data)));
}

#[test]
fn other_functions_and_type_1_requests_are_unsupported() {
    let mut endpoint = configured();
    let read = Packet::config_read(ROOT, Tag::new(2), HERE, 0, 4);
    let ur = Some(CompletionStatus::UnsupportedRequest);
    assert_eq!(status_of(&input(&mut endpoint, read)), ur);
    let other = Packet::config_read(ROOT, Tag::new(2), Bdf::new(5, 0, 1), 0, 4);
    assert_eq!(status_of(&input(&mut endpoint, other.with_config_type(ConfigType::Type0))), ur);
    assert_eq!(status_of(&input(&mut endpoint, Packet::io_read(ROOT, Tag::new(1), 0x80, 4))), ur);
}

#[test]
fn while_held_it_asks_to_be_tried_again() {
    let mut endpoint = fresh();
    endpoint.hold_configuration(true);
    let read = Packet::config_read(ROOT, Tag::new(2), HERE, 0, 4).with_config_type(ConfigType::Type0);
    assert_eq!(status_of(&input(&mut endpoint, read.clone())), Some(CompletionStatus::ConfigRequestRetry));
    endpoint.hold_configuration(false);
    assert_eq!(status_of(&input(&mut endpoint, read)), Some(CompletionStatus::Success));
}

#[test]
fn bar_accesses_reach_the_device_only_with_memory_space_enabled() {
    let mut endpoint = configured();
    let read = Packet::memory_read(ROOT, Tag::new(9), BASE + 0x14, 8);
    let [Output::BarRead { token, bar, offset: 0x14, length: 8 }] = input(&mut endpoint, read.clone())[..]
    else {
        panic!("no BAR read")
    };
    assert_eq!(bar, BarIndex::ZERO);
    endpoint.bar_read_done_bytes(token, &[1, 2, 3, 4, 5, 6, 7, 8]);
    endpoint.bar_read_done_bytes(token, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let answers = outputs(&mut endpoint);
    assert!(matches!(&answers[..], [Output::Packet(packet)]
        if packet.tag() == Tag::new(9) && *packet.payload == [1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(
        write(&mut endpoint, BASE + 0x1002, &[1, 2, 3]),
        [Output::BarWrite { bar: BarIndex::ZERO, offset: 0x1002, data: Buffer::copy_from_slice(&[1, 2, 3]) }]
    );
    config_write(&mut endpoint, 0x04, 0b100);
    assert_eq!(status_of(&input(&mut endpoint, read)), Some(CompletionStatus::UnsupportedRequest));
    assert_eq!(endpoint.statistics().unsupported_requests, 1);
    assert!(endpoint.config().is_set(express::UNSUPPORTED_DETECTED.at(offset::EXPRESS)));
}

#[test]
fn holes_in_byte_enables_make_several_writes() {
    let mut endpoint = configured();
    let mut packet = Packet::memory_write(ROOT, BASE + 8, Buffer::copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7]));
    let Kind::Memory(request) = &mut packet.header.kind else { unreachable!() };
    (request.first_enables, request.last_enables) = (0b1010, 0b0011);
    let found: Vec<_> = input(&mut endpoint, packet)
        .into_iter()
        .map(|output| match output {
            Output::BarWrite { offset, data, .. } => (offset, data.to_vec()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, [(9, vec![1]), (11, vec![3, 4, 5])]);
}

#[test]
fn a_zero_length_read_is_answered_by_the_endpoint() {
    let mut endpoint = configured();
    let answer = input(&mut endpoint, Packet::memory_read(ROOT, Tag::new(3), BASE, 0));
    assert_eq!(status_of(&answer), Some(CompletionStatus::Success));
}

#[test]
fn dma_writes_are_split_and_share_their_block() {
    let mut endpoint = configured();
    let data = Buffer::zeroed(1024);
    endpoint.dma(NOW, Dma::Write { address: 0xf80, data: data.clone() });
    let mut pieces = Vec::new();
    for output in outputs(&mut endpoint) {
        let Output::Packet(packet) = output else { panic!("{output:?}") };
        let start = packet.payload.as_ptr().addr() - data.as_ptr().addr();
        assert_eq!(packet.requester(), HERE);
        pieces.push((packet.header.address().unwrap(), start, packet.payload.len()));
    }
    assert_eq!(
        pieces,
        [(0xf80, 0, 128), (0x1000, 128, 256), (0x1100, 384, 256), (0x1200, 640, 256), (0x1300, 896, 128)]
    );
}

#[test]
fn a_dma_read_ends_in_data_or_in_a_time_out_that_is_reported() {
    let mut endpoint = configured();
    let id = DmaId(77);
    endpoint.dma(NOW, Dma::Read { id, address: 0x1000, length: 8 });
    let [Output::Packet(read)] = &outputs(&mut endpoint)[..] else { panic!("no read") };
    let data = Buffer::copy_from_slice(b"12345678");
    let answer = Packet::completion_with_data(ROOT, &read.header, 0, data.clone());
    assert_eq!(
        input(&mut endpoint, answer.clone()),
        [Output::Dma(DmaResult::Data { id, offset: 0, data, last: true })]
    );
    assert!(matches!(&input(&mut endpoint, answer)[..], []), "advisory errors are masked after reset");
    assert_eq!(endpoint.statistics().unexpected_completions, 1);
    endpoint.dma(NOW, Dma::Read { id, address: 0x1000, length: 8 });
    outputs(&mut endpoint);
    assert!(config_read(&mut endpoint, 0x78) & 1 << 21 != 0, "Transactions Pending");
    let due = endpoint.poll_timeout().unwrap();
    let mut seen = Vec::new();
    assert_eq!(engine::settle(&mut endpoint, due + Nanos::new(1), |output| seen.push(output)), None);
    assert_eq!(seen[0], Output::Dma(DmaResult::Failed { id }));
    assert!(matches!(&seen[1], Output::Packet(packet) if matches!(packet.header.kind,
        Kind::Message(received) if received.code == message::ERR_NONFATAL)));
    assert_eq!(config_read(&mut endpoint, 0x104), 1 << 14);
}

#[test]
fn without_bus_master_nothing_leaves() {
    let mut endpoint = with_msix(0, 0xfee0_0000, 0x41);
    config_write(&mut endpoint, 0x04, 0b010);
    endpoint.dma(NOW, Dma::Write { address: 0x1000, data: Buffer::zeroed(64) });
    endpoint.dma(NOW, Dma::Interrupt { vector: 0 });
    assert_eq!(outputs(&mut endpoint), []);
    endpoint.dma(NOW, Dma::Read { id: DmaId(1), address: 0, length: 4 });
    assert_eq!(outputs(&mut endpoint), [Output::Dma(DmaResult::Failed { id: DmaId(1) })]);
    // The interrupt was only delayed.
    assert_eq!(config_write(&mut endpoint, 0x04, 0b110).len(), 2);
}

#[test]
fn more_reads_than_the_requester_takes_wait_in_line() {
    let mut endpoint = configured();
    let count = u32::try_from(requester::REQUESTS_MAX).unwrap() + 100;
    for id in 0..count {
        endpoint.dma(NOW, Dma::Read { id: DmaId(id), address: 0x1000, length: 4 });
    }
    let mut done = Vec::new();
    while let Some(output) = endpoint.poll_output() {
        match output {
            Output::Packet(read) => {
                let data = Buffer::zeroed(4);
                endpoint.handle_input(NOW, Packet::completion_with_data(ROOT, &read.header, 0, data));
            }
            Output::Dma(DmaResult::Data { id, last: true, .. }) => done.push(id.0),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(done, (0..count).collect::<Vec<_>>());
}

#[test]
fn interrupts_follow_the_writes_before_them() {
    let mut endpoint = with_msix(3, 0xfee0_1000, 0x4242);
    endpoint.dma(NOW, Dma::Write { address: 0x1000, data: Buffer::zeroed(16) });
    endpoint.dma(NOW, Dma::Interrupt { vector: 3 });
    let sent = outputs(&mut endpoint);
    let [Output::Packet(first), Output::Packet(second)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((first.header.address(), second.header.address()), (Some(0x1000), Some(0xfee0_1000)));
    assert_eq!(*second.payload, 0x4242_u32.to_le_bytes());
}

#[test]
fn masked_vectors_become_pending_and_fire_when_unmasked() {
    let mut endpoint = with_msix(69, 0xfee0_1000, 5);
    let control = BASE + TABLE + 69 * 16 + 12;
    write(&mut endpoint, control, &[1, 0, 0, 0]);
    endpoint.dma(NOW, Dma::Interrupt { vector: 69 });
    endpoint.dma(NOW, Dma::Interrupt { vector: 69 });
    assert_eq!(outputs(&mut endpoint), []);
    let read = Packet::memory_read(ROOT, Tag::new(1), BASE + PENDING, 16);
    let [Output::Packet(bits)] = &input(&mut endpoint, read)[..] else { panic!("no answer") };
    assert_eq!(*bits.payload, [0, 0, 0, 0, 0, 0, 0, 0, 0b10_0000, 0, 0, 0, 0, 0, 0, 0]);
    let fired = write(&mut endpoint, control, &[0, 0, 0, 0]);
    assert!(matches!(&fired[..], [Output::Packet(packet)] if packet.header.address() == Some(0xfee0_1000)));
    assert_eq!(write(&mut endpoint, control, &[0, 0, 0, 0]), []);
    let read = Packet::memory_read(ROOT, Tag::new(1), BASE + TABLE + 69 * 16, 16);
    let [Output::Packet(entry)] = &input(&mut endpoint, read)[..] else { panic!("no answer") };
    assert_eq!(entry.payload[..9], [0, 0x10, 0xe0, 0xfe, 0, 0, 0, 0, 5]);
}

#[test]
fn the_function_mask_holds_every_vector_back() {
    let mut endpoint = with_msix(1, 0xfee0_0000, 1);
    config_write(&mut endpoint, offset::MSIX, 0b11 << 30);
    endpoint.dma(NOW, Dma::Interrupt { vector: 1 });
    assert_eq!(outputs(&mut endpoint), []);
    let answers = config_write(&mut endpoint, offset::MSIX, 1 << 31);
    assert_eq!(answers.len(), 2, "the completion and the interrupt");
    config_write(&mut endpoint, offset::MSIX, 0);
    endpoint.dma(NOW, Dma::Interrupt { vector: 1 });
    endpoint.dma(NOW, Dma::Interrupt { vector: 999 });
    assert_eq!((outputs(&mut endpoint), endpoint.statistics().interrupts_lost), (vec![], 2));
}

#[test]
fn a_function_level_reset_forgets_everything_but_its_place_and_payload_size() {
    let mut endpoint = with_msix(0, 0xfee0_0000, 1);
    let read = Packet::memory_read(ROOT, Tag::new(9), BASE, 8);
    let [Output::BarRead { token, .. }] = input(&mut endpoint, read)[..] else { panic!("no read") };
    endpoint.dma(NOW, Dma::Read { id: DmaId(1), address: 0x1000, length: 4096 });
    outputs(&mut endpoint);
    let answers = config_write(&mut endpoint, 0x78, 0x8000 | 0x5000 | 1 << 5);
    assert_eq!(status_of(&answers[..1]), Some(CompletionStatus::Success));
    assert_eq!(answers[1..], [Output::Reset(Reset::FunctionLevel)]);
    endpoint.bar_read_done(token, Some(Buffer::zeroed(8)));
    assert_eq!((outputs(&mut endpoint), endpoint.poll_timeout()), (vec![], None));
    assert_eq!(config_read(&mut endpoint, 0x04) & 0x7, 0);
    assert_eq!((endpoint.id(), config_read(&mut endpoint, 0x78) & 0x80f0), (HERE, 0x30));
    endpoint.hot_reset();
    assert_eq!(outputs(&mut endpoint), [Output::Reset(Reset::Hot)]);
    assert_eq!((endpoint.id(), endpoint.config().payload_size()), (Bdf::default(), 128));
}

#[test]
fn coming_back_from_d3hot_resets_the_function() {
    let mut endpoint = configured();
    assert_eq!(config_write(&mut endpoint, 0x44, 3).len(), 1);
    let read = Packet::memory_read(ROOT, Tag::new(9), BASE, 8);
    assert_eq!(status_of(&input(&mut endpoint, read)), Some(CompletionStatus::UnsupportedRequest));
    let answers = config_write(&mut endpoint, 0x44, 0);
    assert_eq!(answers[1], Output::Reset(Reset::PowerState));
    assert_eq!(config_read(&mut endpoint, 0x14), 0);
}

#[test]
fn poisoned_writes_are_dropped_and_too_long_ones_are_malformed() {
    let mut endpoint = configured();
    let mut poisoned = Packet::memory_write(ROOT, BASE, Buffer::zeroed(8));
    poisoned.header.traits = poisoned.header.traits.with_poison(true);
    let sent = input(&mut endpoint, poisoned);
    assert!(matches!(&sent[..], [Output::Packet(packet)] if matches!(packet.header.kind,
        Kind::Message(received) if received.code == message::ERR_NONFATAL)));
    let sent = write(&mut endpoint, BASE, &[0; 512]);
    assert!(matches!(&sent[..], [Output::Packet(packet)] if matches!(packet.header.kind,
        Kind::Message(received) if received.code == message::ERR_FATAL)));
    let statistics = endpoint.statistics();
    assert_eq!((statistics.poisoned, statistics.malformed), (1, 1));
    assert!(endpoint.config().is_set(aer::UNCORRECTABLE_STATUS.at(offset::AER)));
}

#[test]
fn pme_turn_off_is_acknowledged() {
    let mut endpoint = configured();
    let routing = MessageRouting::BroadcastFromRootComplex;
    let answer = input(&mut endpoint, Packet::message(ROOT, routing, message::PME_TURN_OFF, 0));
    assert!(matches!(&answer[..], [Output::Packet(packet)] if matches!(packet.header.kind,
        Kind::Message(received) if received.code == message::PME_TO_ACK)));
}

/// Any packet that the codec parses, from arbitrary bytes.
fn any_packet() -> impl Strategy<Value = Packet> {
    let codes = prop::sample::select(vec![
        0x00_u8, 0x20, 0x01, 0x40, 0x60, 0x02, 0x42, 0x04, 0x44, 0x05, 0x45, 0x30, 0x34, 0x70, 0x74, 0x0a,
        0x4a, 0x4b, 0x4c, 0x6d, 0x4e,
    ]);
    let words = (codes, any::<u16>(), 1_u8..20, any::<u32>(), 0_u32..0x8000, any::<bool>());
    words.prop_filter_map("malformed", |(code, bits, length, second, third, wide)| {
        let [high, low] = bits.to_be_bytes();
        let mut bytes = vec![code, high & 0x7e, low & 0x70, length];
        bytes.extend_from_slice(&second.to_be_bytes());
        let wide_address = wide || code & 0x20 != 0;
        if wide_address {
            bytes.extend_from_slice(&0x20_u32.to_be_bytes());
        }
        bytes.extend_from_slice(&(third & !3).to_be_bytes());
        bytes.resize(bytes.len() + if code & 0x40 != 0 { usize::from(length) * 4 } else { 0 }, 0xa5);
        Packet::parse(&Buffer::from(bytes)).ok()
    })
}

proptest! {
    #[test]
    fn any_packet_is_answered_once_and_never_twice(packets in prop::collection::vec(any_packet(), 1..60)) {
        let mut endpoint = with_msix(0, 0xfee0_0000, 1);
        for packet in packets {
            let asked = packet.is_non_posted();
            let header = packet.header;
            let mut remaining = None;
            endpoint.handle_input(NOW, packet);
            while let Some(output) = endpoint.poll_output() {
                match output {
                    Output::BarRead { token, length, .. } => {
                        endpoint.bar_read_done(token, Some(Buffer::zeroed(length as usize)));
                    }
                    Output::Packet(Packet { header: Header { kind: Kind::Completion(c), .. }, payload, .. }) => {
                        prop_assert_eq!((c.requester, c.tag), (header.requester(), header.tag()));
                        let expected = remaining.unwrap_or(c.byte_count);
                        prop_assert!(asked && c.byte_count == expected, "{} for {}", c.byte_count, header);
                        let carried = payload.len() - usize::from(c.lower_address & 3).min(payload.len());
                        let left = expected.saturating_sub(u16::try_from(carried).unwrap());
                        remaining = Some(if c.data { left } else { 0 });
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(remaining, asked.then_some(0), "{}", header);
        }
    }
}

proptest! {
    #[test]
    fn any_stream_of_packets_is_survived(packets in prop::collection::vec(any_packet(), 0..40), noise: Vec<u8>) {
        let mut bytes = Vec::new();
        for packet in packets {
            let start = bytes.len();
            bytes.resize(start + packet.encoded_len(), 0);
            packet.emit(&mut bytes[start..]);
        }
        bytes.extend(noise);
        fuzz::packets(&bytes);
    }
}
