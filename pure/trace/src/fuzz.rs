//! Entry points for fuzzing: any packets in any order.

use engine::{Instant, Nanos};
use pcie::wire::Head;

use crate::fabric::{Datagram, Fabric, Segment};
use crate::fields::{self, Held, Wanted};
use crate::{Analyser, Direction, Seen, Step};

/// Analyses the packets in `bytes`, each behind a byte with its direction and a byte with its
/// length. For any packets, the times of a command's chain add up to its length.
pub fn analyser(mut bytes: &[u8]) {
    let mut analyser = Analyser::remembering();
    let mut at = Instant::ZERO;
    let (mut number, mut commands) = (0, 0);
    while let [direction, length, rest @ ..] = bytes {
        let (packet, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        at = at + Nanos::new(u64::from(*direction >> 1));
        let Ok(head) = Head::parse(packet) else { continue };
        let direction = if direction & 1 == 0 { Direction::Down } else { Direction::Up };
        let payload = packet.get(head.encoded_len()..).unwrap_or_default();
        number += 1;
        analyser.see(&Seen { number, at, direction, header: &head.header, payload });
    }
    analyser.finish();
    while let Some(command) = analyser.poll_command() {
        let sum = command.chain().iter().fold(Nanos::ZERO, |sum, (_, length)| sum + *length);
        assert_eq!(sum, command.length(), "{command:?}");
        assert!(command.latency() <= command.length(), "{command:?}");
        assert_eq!(command.members.len(), command.packets() as usize, "{command:?}");
        assert!(command.members.iter().all(|(_, of)| *of <= number), "{command:?}");
        commands += 1;
    }
    let statistics = analyser.statistics();
    assert_eq!(commands, statistics.known_commands + statistics.inferred_commands);
    assert!(statistics.known + statistics.inferred <= statistics.of_devices, "{statistics:?}");
}

/// The wanted command in a frame, chosen by a byte.
fn wanted(byte: u8) -> Option<Wanted> {
    let step = Step::ALL.get(usize::from(byte >> 4))?;
    Some(Wanted { step: *step, id: u16::from(byte & 0xf) })
}

/// Fields are where there are bytes.
fn check(held: &Held, bytes: &[u8]) {
    for field in &held.fields {
        let place = &field.place;
        assert!(place.start <= place.end && place.end <= bytes.len(), "{field:?} of {} B", bytes.len());
    }
}

/// Analyses the segments in `bytes`, each behind a byte with its direction and its end, two with
/// its position, and one with its length. For any segments, the times of a command's chain add up
/// to its length.
pub fn fabric(mut bytes: &[u8]) {
    let mut fabric = Fabric::remembering();
    let mut at = Instant::ZERO;
    while let [direction, high, low, length, rest @ ..] = bytes {
        let (segment, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        at = at + Nanos::new(u64::from(*direction >> 4));
        let ends = [([0; 16], 4420), ([1; 16], u16::from(*direction >> 2 & 3))];
        let [from, to] = if direction & 1 == 0 { ends } else { [ends[1], ends[0]] };
        let sequence = u32::from(u16::from_be_bytes([*high, *low]));
        let opens = direction & 2 != 0 && segment.is_empty();
        let missing = u32::from(*length) - u32::try_from(segment.len()).unwrap_or(0);
        let number = at.as_nanos();
        let segment = Segment { number, at, from, to, sequence, opens, bytes: segment, missing };
        fabric.see(&segment);
        check(&fields::of_segment(&segment, wanted(*direction), 8), segment.bytes);
    }
    fabric.finish();
    while let Some(command) = fabric.poll_command() {
        let sum = command.chain().iter().fold(Nanos::ZERO, |sum, (_, length)| sum + *length);
        assert_eq!(sum, command.length(), "{command:?}");
        assert!(command.latency() <= command.length(), "{command:?}");
    }
}

/// Analyses the datagrams of RoCE in `bytes`, each behind a byte with its direction and one with
/// its length. For any datagrams, the times of a command's chain add up to its length.
pub fn datagrams(mut bytes: &[u8]) {
    let mut fabric = Fabric::default();
    let mut at = Instant::ZERO;
    while let [direction, length, rest @ ..] = bytes {
        let (datagram, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        at = at + Nanos::new(u64::from(*direction >> 4));
        let ends = [[0; 16], [1; 16]];
        let [from, to] = if direction & 1 == 0 { ends } else { [ends[1], ends[0]] };
        let missing = usize::from(*length) - datagram.len();
        let datagram = Datagram { number: 0, at, from, to, bytes: datagram, missing };
        fabric.see_datagram(&datagram);
        check(&fields::of_datagram(&datagram, wanted(*direction)), datagram.bytes);
    }
    fabric.finish();
    while let Some(command) = fabric.poll_command() {
        let sum = command.chain().iter().fold(Nanos::ZERO, |sum, (_, length)| sum + *length);
        assert_eq!(sum, command.length(), "{command:?}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    /// A memory write, a memory read, or a completion, with few different values of each field, so
    /// that packets meet.
    fn packet() -> impl Strategy<Value = Vec<u8>> {
        let fields = (0..4_u8, 0..3_u8, 0..4_u8, 0..8_u8, any::<bool>(), 0..4_u8);
        fields.prop_map(|(kind, requester, tag, page, up, length)| {
            let mut tlp = match kind {
                0 => std::vec![0x40, 0, 0, length + 1, requester, 0, tag, 0xff, 0, 0, page << 4, length << 4],
                1 => std::vec![0x00, 0, 0, 16, requester, 0, tag, 0xff, 0, 0, page << 4, length << 4],
                2 => std::vec![0x4a, 0, 0, 16, 0, 0, 0, 64, requester, 0, tag, 0],
                // A write of BAR0.
                _ => std::vec![0x44, 0, 0, 1, 0, 0, tag, 0x0f, requester, 0, 0, 0x10],
            };
            tlp.extend([page; 64]);
            let mut bytes = std::vec![u8::from(up) | tag << 1, u8::try_from(tlp.len()).unwrap()];
            bytes.extend(tlp);
            bytes
        })
    }

    /// A segment with the header of a PDU, few different identifiers, and now and then too little
    /// or too much behind it.
    fn segment() -> impl Strategy<Value = Vec<u8>> {
        let kinds = prop::sample::select(std::vec![(4_u8, 72_u8), (5, 24), (6, 24), (7, 24), (9, 24)]);
        (kinds, any::<u8>(), 0..4_u8, 0..8_u16, 0..40_u8).prop_map(
            |((kind, header), way, id, place, more)| {
                let length = header + if more < 30 { 0 } else { more };
                let mut pdu = std::vec![0; usize::from(header + more)];
                (pdu[0], pdu[1], pdu[2], pdu[4]) = (kind, way >> 4, header, length);
                (pdu[8], pdu[10], pdu[20]) = (id, id, id);
                let [high, low] = (place * 72).to_be_bytes();
                [&[way, high, low, header + more], &pdu[..]].concat()
            },
        )
    }

    /// A datagram of RoCE: few queue pairs, numbers, identifiers and keys, so that packets meet.
    fn datagram() -> impl Strategy<Value = Vec<u8>> {
        let opcodes = prop::sample::select(std::vec![0_u8, 2, 4, 6, 8, 10, 12, 13, 15, 16, 17, 23, 0x64]);
        (opcodes, any::<u8>(), 1..4_u8, 0..6_u8, 0..4_u8, 0..150_u8).prop_map(
            |(opcode, way, pair, number, id, length)| {
                let mut bytes = std::vec![0; usize::from(length)];
                for (at, byte) in
                    [(0, opcode), (7, pair), (11, number), (14, id), (23, id), (27, 64), (51, id)]
                {
                    if let Some(place) = bytes.get_mut(at) {
                        *place = byte;
                    }
                }
                [&[way, length][..], &bytes].concat()
            },
        )
    }

    proptest! {
        #[test]
        fn datagrams_in_any_order_are_understood_or_counted(
            datagrams in prop::collection::vec(datagram(), 0..200),
        ) {
            super::datagrams(&datagrams.concat());
        }

        #[test]
        fn chains_add_up_for_any_packets(packets in prop::collection::vec(packet(), 0..200)) {
            super::analyser(&packets.concat());
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            super::analyser(&bytes);
            super::fabric(&bytes);
            super::datagrams(&bytes);
        }

        #[test]
        fn chains_of_a_fabric_add_up_for_any_segments(
            segments in prop::collection::vec(segment(), 0..200),
        ) {
            super::fabric(&segments.concat());
        }
    }
}
