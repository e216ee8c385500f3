//! Numbers of packets: lost, doubled and reordered ones, for each kind of header.

use alloc::vec::Vec;
use alloc::{format, vec};

use super::*;

/// Bytes of hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// A tracker's counts for datagrams of one sender, and the loss at the end.
fn track(protocol: Protocol, window: u32, datagrams: &[Vec<u8>]) -> (Loss, Counts) {
    let mut tracker = Tracker::new(protocol, window);
    let mut all = Loss::default();
    datagrams.iter().for_each(|datagram| all.add(tracker.on_datagram(7, datagram).1));
    all.add(tracker.finish());
    (all, tracker.counts())
}

/// RTP as scapy makes it (`RTP(sequence=0xfffe, timestamp=1, sourcesync=0x11223344,
/// payload_type=96) / b"ab"`), with other numbers.
fn rtp(number: u64) -> Vec<u8> {
    let mut packet = hex("8060fffe00000001112233446162");
    packet[2..4].copy_from_slice(&number.to_be_bytes()[6..]);
    packet
}

/// Data with a stream identifier. `tshark -O vrt` shows the same type, stream and count.
fn vita49(number: u64) -> Vec<u8> {
    let mut packet = hex("10 00 00 04 00 00 00 2a 01 02 03 04 05 06 07 08");
    packet[1] |= u8::try_from(number % 16).unwrap();
    packet
}

/// A packet of a block of a camera. `tshark -O gvsp` shows the same block, format and packet.
fn gvsp(block: u16, packet: u32, format: u8) -> Vec<u8> {
    let [_, number @ ..] = packet.to_be_bytes();
    let length = if format == 3 { 1_000 } else { 36 };
    let header = [&[0, 0][..], &block.to_be_bytes(), &[format], &number].concat();
    [header, vec![0; length]].concat()
}

fn gvsp_extended(block: u64, packet: u32, format: u8) -> Vec<u8> {
    let head = [0, 0, 0, 0, 0x80 | format, 0, 0, 0];
    [&head[..], &block.to_be_bytes(), &packet.to_be_bytes(), &[0; 500]].concat()
}

/// A packet of a heap of 80 bytes, which has two, as spead2 4.5.1 sends them with
/// `max_packet_size=104` and flavour 64-40.
fn spead(heap: u64, packet: usize) -> Vec<u8> {
    let mut bytes = hex([
        "5304030500000005 8000010000000001 8000020000000050 8000030000000000 8000040000000038
         0010000000000000 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223
         2425262728292a2b2c2d2e2f3031323334353637",
        "5304030500000004 8000010000000001 8000020000000050 8000030000000038 8000040000000018
         38393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f",
    ][packet]);
    bytes[11..16].copy_from_slice(&heap.to_be_bytes()[3..]);
    bytes
}

const SPEAD: Protocol = Protocol::Spead { step: None };

const FIELD: Protocol = Protocol::Field(Field { offset: 3, bytes: 4, step: 4, little_endian: true });

fn field(number: u64) -> Vec<u8> {
    let number = u32::try_from((number * 4) & 0xffff_ffff).unwrap();
    [&[9; 3][..], &number.to_le_bytes(), &[1; 13]].concat()
}

/// Makes a packet of a number.
type Make = fn(u64) -> Vec<u8>;

#[test]
fn lost_doubled_and_reordered_packets_are_counted_through_the_end_of_numbers() {
    let kinds: [(Protocol, Make, u64, u64); 3] = [
        (Protocol::Rtp, rtp, 65_500, 14),
        (Protocol::Vita49, vita49, 9, 16),
        (FIELD, field, 0x3fff_fff0, 20),
    ];
    for (protocol, make, start, length) in kinds {
        let numbers: Vec<u64> = (start..start + 60).collect();
        let all: Vec<_> = numbers.iter().map(|number| make(*number)).collect();
        assert_eq!(track(protocol, 32, &all), (Loss::default(), Counts::default()), "{protocol:?}");
        // Packets 10, 30, 31 and 32 are lost; 20 comes after 22, 40 twice.
        let order = (0..60_usize).filter(|at| ![10, 20, 30, 31, 32].contains(at));
        let order = order.flat_map(|at| match at {
            22 => vec![22, 20],
            40 => vec![40, 40],
            at => vec![at],
        });
        let some: Vec<_> = order.map(|at| all[at].clone()).collect();
        let counts = Counts { reordered: 1, twice: 1, ..Counts::default() };
        let lost = Loss { packets: 4, bytes: 4 * length };
        assert_eq!(track(protocol, 32, &some), (lost, counts), "{protocol:?}");
    }
}

#[test]
fn with_random_harm_what_is_lost_is_what_did_not_come() {
    for seed in 0..200 {
        let mut rng = engine::Rng::from_seed(seed);
        let start = rng.below(65_536);
        let (mut sent, mut lost, mut twice) = (Vec::new(), 0, 0);
        // The first and the last are there: the tracker cannot know of others.
        for number in 0..3_000_u64 {
            let is_inside = (1..2_999).contains(&number);
            if is_inside && rng.below(20) == 0 {
                lost += 1;
                continue;
            }
            sent.push(number);
            if is_inside && rng.below(30) == 0 {
                sent.push(number);
                twice += 1;
            }
        }
        for _ in 0..200 {
            let at = 1 + usize::try_from(rng.below(sent.len() as u64 - 12)).unwrap();
            sent.swap(at, at + usize::try_from(rng.below(4)).unwrap());
        }
        let datagrams: Vec<_> = sent.iter().map(|number| rtp((start + number) & 0xffff)).collect();
        let (loss, counts) = track(Protocol::Rtp, 64, &datagrams);
        assert_eq!((loss.packets, counts.twice, counts.late), (lost, twice, 0), "seed {seed}");
    }
}

#[test]
fn a_packet_later_than_the_window_was_lost_and_a_new_row_is_no_loss() {
    let order = [0, 1, 3, 4, 5, 6, 2];
    let datagrams: Vec<_> = order.iter().map(|number| rtp(*number)).collect();
    let counts = Counts { late: 1, ..Counts::default() };
    assert_eq!(track(Protocol::Rtp, 3, &datagrams), (Loss { packets: 1, bytes: 14 }, counts));
    // Far from all others: one is a stray, the second of a row begins anew.
    let order = [1, 2, 60_000, 3, 50_000, 50_001, 50_002];
    let datagrams: Vec<_> = order.iter().map(|number| rtp(*number)).collect();
    let counts = Counts { foreign: 2, anew: 1, ..Counts::default() };
    assert_eq!(track(Protocol::Rtp, 32, &datagrams), (Loss::default(), counts));
}

#[test]
fn flows_of_one_socket_are_followed_each_for_itself() {
    let mut tracker = Tracker::new(Protocol::Rtp, 0);
    for flow in 0..100_u8 {
        for number in [0, 1, 3] {
            let mut packet = rtp(number * u64::from(flow + 1));
            packet[11] = flow;
            let expected = match number {
                0 => 0,
                1 => u64::from(flow),
                _ => 2 * u64::from(flow + 1) - 1,
            };
            assert_eq!(tracker.on_datagram(1, &packet).1.packets, expected, "flow {flow}");
        }
    }
    assert_eq!(tracker.flows(), FLOWS_MAX);
}

#[test]
fn blocks_miss_leaders_payload_trailers_and_each_other() {
    type Packet = fn(u64, u32, u8) -> Vec<u8>;
    let short: Packet = |block, packet, format| {
        // Behind block 65535 comes 1.
        gvsp(u16::try_from((block - 1) % 65_535 + 1).unwrap(), packet, format)
    };
    let kinds: [(Packet, u64, u64); 2] = [(short, 65_530, 1_008), (gvsp_extended, 1 << 40, 520)];
    for (packet, start, length) in kinds {
        let block = |number: u64| {
            let format = |at| [1, 3, 3, 3, 3, 2][at as usize];
            (0..6).map(move |at| packet(start + number, at, format(at))).collect::<Vec<_>>()
        };
        let stream: Vec<_> = (0..12).map(block).collect();
        let mut all = stream.clone();
        assert_eq!(track(Protocol::Gvsp, 2, &all.concat()), (Loss::default(), Counts::default()));
        all[3].remove(2);
        assert_eq!(track(Protocol::Gvsp, 2, &all.concat()).0, Loss { packets: 1, bytes: length });
        // Leader of 5, trailer of 7, end of 8, all of 10.
        all[5].remove(0);
        all[7].pop();
        all[8].truncate(3);
        all.remove(10);
        assert_eq!(track(Protocol::Gvsp, 2, &all.concat()).0, Loss { packets: 1 + 1 + 1 + 3 + 6, bytes: 0 });
        let mut twice = stream.concat();
        twice.swap(8, 9);
        twice.insert(20, twice[19].clone());
        let counts = Counts { reordered: 1, twice: 1, ..Counts::default() };
        assert_eq!(track(Protocol::Gvsp, 2, &twice), (Loss::default(), counts));
    }
}

#[test]
fn heaps_miss_bytes_and_each_other() {
    let heaps = |packets: &[(u64, usize)]| -> Vec<_> {
        packets.iter().map(|(heap, packet)| spead(*heap, *packet)).collect()
    };
    let all: Vec<_> = (1..12).flat_map(|heap| [(heap, 0), (heap, 1)]).collect();
    assert_eq!(track(SPEAD, 0, &heaps(&all)), (Loss::default(), Counts::default()));
    let harmed: Vec<_> =
        all.iter().copied().filter(|(heap, packet)| *heap != 5 && (*heap, *packet) != (7, 0)).collect();
    let (loss, _) = track(SPEAD, 0, &heaps(&harmed));
    // Heap 5 has 80 bytes in two packets, and packet 0 of heap 7 has 56; each has a head besides.
    assert_eq!((loss.packets, loss.bytes), (3, 80 + 56 + 3 * 40));
    let order = [(1, 0), (1, 1), (2, 1), (2, 0), (3, 0), (4, 0), (3, 1), (4, 1), (4, 1), (9, 0), (9, 1)];
    let (loss, counts) = track(SPEAD, 0, &heaps(&order));
    assert_eq!((loss.packets, counts.twice), (8, 1), "heaps 5 to 8");
}

/// Datagrams of heaps that are sent `turns` at a time, with numbers in steps of `step`.
fn heaps_in_turns(step: u64, turns: u64) -> Vec<(u64, usize)> {
    let sets = (0..96 / turns).map(|set| (0..turns).map(move |one| 1000 + (set * turns + one) * step));
    sets.flat_map(|set| {
        [0, 1].into_iter().flat_map(move |packet| set.clone().map(move |heap| (heap, packet)))
    })
    .collect()
}

#[test]
fn heaps_have_any_step_and_come_in_turns() {
    let packets = |of: &[(u64, usize)]| of.iter().map(|(heap, at)| spead(*heap, *at)).collect::<Vec<_>>();
    for step in [1, 4, 80] {
        for turns in [1, 2, 8, 16] {
            let all = heaps_in_turns(step, turns);
            let nothing = (Loss::default(), Counts::default());
            assert_eq!(track(SPEAD, 0, &packets(&all)), nothing, "{step} {turns}");
            // A recording begins and ends anywhere.
            for part in [&all[3..], &all[1..20], &all[..all.len() - 3]] {
                assert_eq!(track(SPEAD, 0, &packets(part)), nothing, "{step} {turns} {}", part.len());
            }
            let lost: Vec<_> = all
                .iter()
                .copied()
                .filter(|(heap, at)| *heap != 1000 + 50 * step && (*heap, *at) != (1000 + 40 * step, 1))
                .collect();
            for given in [None, NonZeroU64::new(step)] {
                let (loss, _) = track(Protocol::Spead { step: given }, 0, &packets(&lost));
                // A heap of two packets, and one packet.
                assert_eq!(loss.packets, 3, "{step} {turns} {given:?}");
            }
        }
    }
    // Another step from some heap on, a descriptor with a number of its own, a sender that starts
    // again: nothing was lost.
    let numbers: [&[u64]; 4] = [
        &[40, 80, 120, 160, 200, 280, 360, 440, 520],
        &[80, 160, 240, 320, 360, 400, 440, 480],
        &[1, 80, 160, 240, 320, 400],
        &[9000, 9004, 9008, 9012, 9016, 4, 8, 12, 16],
    ];
    for heaps in numbers {
        let all: Vec<_> = heaps.iter().flat_map(|heap| [(*heap, 0), (*heap, 1)]).collect();
        assert_eq!(track(SPEAD, 0, &packets(&all)).0, Loss::default(), "{heaps:?}");
    }
    // With the step, heaps are missing even if every second one is.
    let every_second: Vec<_> = (0..10).flat_map(|heap| [(heap * 8, 0), (heap * 8, 1)]).collect();
    let given = Protocol::Spead { step: NonZeroU64::new(4) };
    assert_eq!(track(given, 0, &packets(&every_second)).0.packets, 18);
}

#[test]
fn lengths_of_heaps_and_payloads_need_not_be_given() {
    // Each item's first bytes: 80 and the number of the item.
    let without = |packet: Vec<u8>, names: &[u8]| {
        let (head, rest) = packet.split_at(8);
        let (items, payload) = rest.split_at(8 * usize::from(head[7]));
        let kept: Vec<_> =
            items.chunks(8).filter(|item| !names.contains(&item[2]) || item[0] != 0x80).collect();
        let count = u8::try_from(kept.len()).unwrap();
        [&head[..7], &[count], &kept.concat(), payload].concat()
    };
    for names in [&[2][..], &[4], &[2, 4]] {
        let all: Vec<_> = (0..20).flat_map(|heap| [0, 1].map(|at| without(spead(heap, at), names))).collect();
        assert_eq!(track(SPEAD, 0, &all), (Loss::default(), Counts::default()), "{names:?}");
        let mut harmed = all.clone();
        harmed.remove(20);
        assert_eq!(track(SPEAD, 0, &harmed).0.packets, 1, "{names:?}");
    }
}

/// RTP packets with the numbers of two ranges.
fn rtps(first: core::ops::Range<u64>, second: core::ops::Range<u64>) -> Vec<Vec<u8>> {
    first.chain(second).map(rtp).collect()
}

#[test]
fn a_sender_that_starts_again_has_lost_nothing() {
    // RFC 3550, appendix A.1: two numbers in sequence behind a jump of 3,000 are a new beginning.
    let (loss, counts) = track(Protocol::Rtp, 32, &rtps(40_000..40_100, 100..200));
    assert_eq!((loss, counts.anew, counts.foreign), (Loss::default(), 1, 1));
    let (loss, counts) = track(Protocol::Rtp, 32, &rtps(0..100, 3_000..3_100));
    assert_eq!((loss.packets, counts.anew), (2_900, 0), "that much can be lost");
    let (loss, counts) = track(Protocol::Rtp, 32, &rtps(0..100, 3_200..3_300));
    assert_eq!((loss.packets, counts.anew), (0, 1));
    // One packet with a number from elsewhere changes nothing.
    let mut strayed: Vec<_> = (0..200).map(rtp).collect();
    strayed.insert(100, rtp(30_000));
    assert_eq!(track(Protocol::Rtp, 32, &strayed).0, Loss::default());
}

#[test]
fn what_a_camera_no_longer_has_is_lost() {
    let block = |number| {
        let packets = [(0, 1), (1, 3), (2, 3), (3, 3), (4, 2)];
        packets.map(|(packet, format)| gvsp(number, packet, format))
    };
    let all: Vec<_> = (1..5).flat_map(block).collect();
    assert_eq!(track(Protocol::Gvsp, 32, &all).0, Loss::default());
    let mut gone = all.clone();
    gone[7] = gone[7].iter().copied().take(8).collect();
    gone[7][..2].copy_from_slice(&[0x80, 0x0c]);
    let (loss, counts) = track(Protocol::Gvsp, 32, &gone);
    assert_eq!((loss.packets, counts.foreign), (1, 1));
}

#[test]
fn what_the_kernel_dropped_is_not_lost_on_the_wire_again() {
    let mut ledger = Ledger::new(Some(Tracker::new(Protocol::Rtp, 0)));
    assert_eq!(ledger.on_datagram(0, &rtp(10), 0), Losses::default());
    let losses = ledger.on_datagram(0, &rtp(16), 3);
    let loss = |packets| Loss { packets, bytes: packets * 14 };
    assert_eq!((losses.socket, losses.wire), (loss(3), loss(2)));
    assert_eq!(ledger.on_datagram(0, &rtp(18), 0).wire, loss(1));
    assert_eq!(ledger.finish(), Loss::default());
}

#[test]
fn any_bytes_are_taken() {
    let mut rng = engine::Rng::from_seed(1);
    let heads = [rtp(1), vita49(1), gvsp(1, 1, 3), gvsp_extended(1, 1, 3), spead(1, 0), field(1)];
    for protocol in [Protocol::Rtp, Protocol::Vita49, Protocol::Gvsp, SPEAD, FIELD] {
        let mut tracker = Tracker::new(protocol, 100);
        for round in 0..20_000_u64 {
            let mut packet = heads[usize::try_from(rng.below(6)).unwrap()].clone();
            packet.truncate(usize::try_from(rng.below(64)).unwrap());
            for _ in 0..rng.below(4) {
                if let Some(last) = packet.len().checked_sub(1) {
                    let at = usize::try_from(rng.below(last as u64 + 1)).unwrap();
                    packet[at] = u8::try_from(rng.below(256)).unwrap();
                }
            }
            tracker.on_datagram(round % 3, &packet);
        }
        tracker.finish();
        assert!(tracker.counts().foreign > 0, "{}", format!("{protocol:?}"));
    }
}
