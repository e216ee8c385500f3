//! Packets in chunks, by hand.

use alloc::vec;
use alloc::vec::Vec;

use engine::{Engine, Instant};

use super::*;
use crate::format::{
    CHUNK_MIN, Cause, Gap, HEADER_LENGTH, Header, Kind, Packets, Reason, TimeSource, capacity,
};
use crate::sequence::{Field, Protocol, Tracker};
use crate::{Config, Output, RawConfig, RawRecorder, Recorder};

const CAPACITY: usize = capacity(CHUNK_MIN);

/// A recorder whose writes are looked at.
fn recorder() -> Recorder {
    let mut config = Config::new([1; 16], vec!["packets".into()]);
    (config.chunk, config.buffer) = (CHUNK_MIN, 32);
    Recorder::new(config, Time::NONE)
}

/// Follows the first byte of each packet.
fn packer(has_heads: bool, window: u32) -> Packer {
    let field = Field { offset: 0, bytes: 1, step: 1, little_endian: true };
    Packer::new(Ledger::new(Some(Tracker::new(Protocol::Field(field), window))), has_heads)
}

fn time(number: u8) -> Time {
    Time { nanos: 1_000 + u64::from(number), source: TimeSource::Kernel }
}

/// Lets packets arrive: each with its number and length, and the number of packets that the kernel
/// has dropped so far.
fn receive(packer: &mut Packer, taker: &mut dyn Taker, packets: &[(u8, usize, Option<u32>)]) {
    let lane = &mut Lane { taker, stream: 0, now: Instant::ZERO };
    let Places { room, slot, head } = packer.places(lane, None);
    let mut rests = Vec::new();
    for ((number, length, _), place) in packets.iter().zip(room.chunks_exact_mut(slot)) {
        let bytes = vec![*number; *length];
        let inside = bytes.len().min(slot - head);
        place[head..][..inside].copy_from_slice(&bytes[..inside]);
        rests.push(bytes[inside..].to_vec());
    }
    assert_eq!(rests.len(), packets.len(), "{slot} B each");
    let arrivals = packets.iter().zip(&rests).map(|((number, length, dropped), rest)| Arrival {
        length: *length,
        sender: 1,
        time: time(*number),
        dropped: *dropped,
        rest,
    });
    assert_eq!(packer.received(lane, arrivals), packets.len());
}

/// The payloads of the data chunks, and the gaps.
fn finish(mut recorder: Recorder) -> (Vec<Vec<u8>>, Vec<Gap>) {
    recorder.finish(Reason::Asked);
    let mut chunks = Vec::new();
    while let Some(output) = recorder.poll_output() {
        if let Output::Write { data, .. } = output
            && let Ok(header) = Header::parse(&data, engine::crc32c)
            && header.kind == Kind::Data
        {
            chunks.push(data[HEADER_LENGTH..][..header.length as usize].to_vec());
        }
    }
    let gaps = recorder.gaps().to_vec();
    (chunks, gaps)
}

/// The number and length of each packet of a chunk.
fn packets(chunk: &[u8]) -> Vec<(u8, usize)> {
    let mut packets = Packets::of(chunk);
    let of = |packet: crate::format::Packet<'_>| {
        let number = packet.bytes.first().copied().unwrap_or(0);
        assert_eq!(packet.time, time(number));
        assert!(packet.bytes.iter().all(|byte| *byte == number), "{number}");
        (number, packet.bytes.len())
    };
    let found = packets.by_ref().map(of).collect();
    assert_eq!(packets.rest(), b"");
    found
}

#[test]
fn packets_lie_one_behind_the_other_whatever_their_lengths() {
    let (mut recorder, mut packer) = (recorder(), packer(true, 0));
    receive(&mut packer, &mut recorder, &[(0, 100, None), (1, 7, None), (2, 1_536, None), (3, 1, None)]);
    receive(&mut packer, &mut recorder, &[(4, 1_000, None)]);
    let (chunks, gaps) = finish(recorder);
    assert_eq!((chunks.len(), gaps.len(), packer.packets()), (1, 0, 5));
    assert_eq!(packets(&chunks[0]), [(0, 100), (1, 7), (2, 1_536), (3, 1), (4, 1_000)]);
}

#[test]
fn a_packet_that_is_longer_than_its_place_is_whole_and_those_behind_it_keep_their_order() {
    let (mut recorder, mut packer) = (recorder(), packer(true, 0));
    receive(&mut packer, &mut recorder, &[(0, 10, None), (1, 5_000, None), (2, 10, None), (3, 1_600, None)]);
    // Each has so much room from now on.
    receive(&mut packer, &mut recorder, &[(4, 5_000, None)]);
    let (chunks, gaps) = finish(recorder);
    assert!(gaps.is_empty(), "{gaps:?}");
    let found: Vec<_> = chunks.iter().flat_map(|chunk| packets(chunk)).collect();
    assert_eq!(found, [(0, 10), (1, 5_000), (2, 10), (3, 1_600), (4, 5_000)]);
}

#[test]
fn a_packet_begins_a_chunk_if_the_last_one_has_no_room_for_it() {
    let (mut recorder, mut packer) = (recorder(), packer(true, 0));
    for number in 0..40 {
        receive(&mut packer, &mut recorder, &[(number, 1_000, None)]);
    }
    let (chunks, gaps) = finish(recorder);
    let counts: Vec<_> = chunks.iter().map(|chunk| packets(chunk).len()).collect();
    // A place for the longest packet that is expected has to be there.
    let each = (CAPACITY - PACKET_HEAD - LENGTH_FIRST) / (PACKET_HEAD + 1_000) + 1;
    assert_eq!((counts, gaps.len()), (vec![each, each, 40 - 2 * each], 0));
}

#[test]
fn lost_packets_take_their_place_where_they_are_missing_and_end_a_chunk() {
    let (mut recorder, mut packer) = (recorder(), packer(true, 0));
    receive(&mut packer, &mut recorder, &[(0, 100, None), (3, 100, None), (4, 100, None), (6, 100, None)]);
    let (chunks, gaps) = finish(recorder);
    let found: Vec<_> = chunks.iter().map(|chunk| packets(chunk)).collect();
    assert_eq!(found, [vec![(0, 100)], vec![(3, 100), (4, 100)], vec![(6, 100)]]);
    let gaps: Vec<_> = gaps.iter().map(|gap| (gap.from, gap.bytes, gap.packets, gap.cause)).collect();
    let one = 100 + PACKET_HEAD as u64;
    assert_eq!(gaps, [(one, 2 * one, 2, Cause::NeverCame), (5 * one, one, 1, Cause::NeverCame)]);
}

/// The kernel's count reports the same losses as the numbers: each packet is lost once.
#[test]
fn what_the_kernel_dropped_was_not_lost_on_the_wire() {
    let (mut recorder, mut packer) = (recorder(), packer(true, 0));
    receive(&mut packer, &mut recorder, &[(0, 100, None), (4, 100, Some(2)), (5, 100, Some(2))]);
    let lane = &mut Lane { taker: &mut recorder, stream: 0, now: Instant::ZERO };
    // It was asked before a packet came that says the same.
    packer.on_dropped(lane, 3, 9);
    packer.on_dropped(lane, 2, 9);
    packer.finish(lane, 9);
    let (_, gaps) = finish(recorder);
    let gaps: Vec<_> = gaps.iter().map(|gap| (gap.packets, gap.place)).collect();
    assert_eq!(gaps, [(2, Place::Socket), (1, Place::Wire), (1, Place::Socket)]);
}

#[test]
fn packets_without_room_are_counted_and_lost_one_by_one() {
    let (mut recorder, mut packer) = (recorder(), packer(true, 0));
    for number in 0..32 {
        receive(&mut packer, &mut recorder, &[(number, 9_000, None)]);
    }
    receive(&mut packer, &mut recorder, &[(32, 20, None), (33, 9_500, None)]);
    assert_eq!(packer.packets(), 34);
    let (chunks, gaps) = finish(recorder);
    assert_eq!(chunks.len(), 32);
    let [gap] = gaps.as_slice() else { panic!("{gaps:?}") };
    let bytes = 2 * PACKET_HEAD as u64 + 9_520;
    assert_eq!((gap.packets, gap.bytes, gap.place, gap.cause), (2, bytes, Place::Ring, Cause::Overflow));
}

#[test]
fn without_a_container_packets_lie_across_chunks_where_their_numbers_say() {
    let mut raw = RawRecorder::new(RawConfig { buffer: 32, ..RawConfig::new(CHUNK_MIN, 0) });
    // A head is of no use there.
    let mut packer = packer(true, 0);
    receive(&mut packer, &mut raw, &[(0, 6_000, None), (2, 6_000, None), (1, 6_000, None), (2, 6_000, None)]);
    receive(&mut packer, &mut raw, &[(3, 6_000, None)]);
    raw.finish(Reason::Asked);
    let mut medium = vec![0xee; 2 * CHUNK_MIN as usize];
    while let Some(output) = raw.poll_output() {
        if let Output::Write { offset, data, .. } = output {
            let offset = usize::try_from(offset).unwrap();
            medium[offset..offset + data.len()].copy_from_slice(&data);
        }
    }
    let expected = [vec![0; 6_000], vec![0; 6_000], vec![2; 6_000], vec![3; 6_000]].concat();
    assert_eq!(medium[..24_000], expected);
    let [gap] = raw.gaps() else { panic!("{:?}", raw.gaps()) };
    assert_eq!((gap.from, gap.bytes, gap.packets, gap.place), (6_000, 6_000, 1, Place::Wire));
}

#[test]
fn a_limit_lets_about_as_many_bytes_come() {
    let (mut recorder, mut packer) = (recorder(), packer(false, 0));
    let lane = &mut Lane { taker: &mut recorder, stream: 0, now: Instant::ZERO };
    let mut places = |left| {
        let Places { room, slot, head } = packer.places(lane, left);
        assert_eq!((slot, head), (LENGTH_FIRST, 0));
        room.len() / slot
    };
    let most = CAPACITY / LENGTH_FIRST;
    assert_eq!([Some(0), Some(4_000), None].map(&mut places), [1, 2, most]);
}

/// The memory for packets that are held or find no room is there once it was needed.
#[test]
fn packets_that_are_held_or_find_no_room_again_take_no_more_memory() {
    let mut packer = packer(true, 0);
    let mut kept = None;
    for round in 0..3 {
        let mut recorder = recorder();
        let mut number = 0_u8;
        while recorder.room(Instant::ZERO, 0).is_some() {
            // One is missing before each.
            number = number.wrapping_add(2);
            receive(&mut packer, &mut recorder, &[(number, 3_000, None)]);
        }
        receive(&mut packer, &mut recorder, &[(number, 3_000, None)]);
        let now = (packer.held.capacity(), packer.held_bytes.capacity(), packer.spare.capacity());
        assert!(round < 2 || kept == Some(now), "{kept:?} {now:?}");
        kept = Some(now);
    }
}
