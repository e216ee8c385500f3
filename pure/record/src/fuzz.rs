//! Fuzz targets: each takes any bytes and must not panic.

use core::num::NonZeroU64;

use crate::format::{CHUNK_MIN, HEADER_LENGTH, Header, Member, Packets, Trigger, find_chunk_length};
use crate::registers::{Account, Command, Registers, State, Values};
use crate::scan::Scan;
use crate::sequence::{FLOWS_MAX, Field, Protocol, Tracker};

/// Shows bytes to a scan as a medium of the shortest chunks. Digests are always zero, so that
/// random bytes reach further code.
///
/// # Panics
/// When a header that was parsed is not emitted as it was.
pub fn scan(bytes: &[u8]) {
    let crc = |_, _: &[u8]| 0;
    if let Ok((header, payload)) = Header::parse_chunk(0, bytes, crc) {
        let mut again = [&[0; HEADER_LENGTH], payload].concat();
        header.emit(&mut again, crc);
        assert_eq!(Header::parse_chunk(0, &again, crc), Ok((header, payload)));
    }
    find_chunk_length(bytes, crc);
    if let Some(member) = Member::parse(bytes) {
        let mut again = [0; 8];
        assert_eq!(member.emit(&mut again), 8);
        assert_eq!(bytes[..8], again);
    }
    if let Some(trigger) = Trigger::parse(bytes) {
        let mut again = [0; 16];
        assert_eq!(trigger.emit(&mut again), 16);
        assert_eq!(bytes[..16], again);
    }
    let mut scan = Scan::new(CHUNK_MIN, crc);
    // Short pieces, so that few bytes make many chunks.
    for (slot, piece) in (0..).zip(bytes.chunks(HEADER_LENGTH * 2)) {
        scan.on_slot(slot, piece);
    }
    scan.finish().doubt(&[]);
}

/// Reads bytes as a chunk of packets.
///
/// # Panics
/// When a packet that was parsed is not emitted as it was.
pub fn packets(bytes: &[u8]) {
    let mut packets = Packets::of(bytes);
    let mut again = alloc::vec![0; bytes.len()];
    let mut before = bytes.len();
    while let Some(packet) = packets.next() {
        let end = bytes.len() - packets.rest().len();
        let length = packet.emit(&mut again).expect("a record is as long as it was");
        assert!(length <= before - packets.rest().len(), "a record does not overlap the one before");
        assert_eq!(&again[..length], &bytes[end - length..end]);
        before = packets.rest().len();
    }
}

/// Reads bytes as datagrams: the first byte names the protocol; then each has a byte of length
/// before it.
///
/// # Panics
/// When more flows are followed than there may be.
pub fn sequence(bytes: &[u8]) {
    let Some((kind, mut rest)) = bytes.split_first() else { return };
    let field = Field { offset: 2, bytes: 1 + usize::from(kind >> 5), step: 3, little_endian: kind & 8 > 0 };
    let protocol = match kind & 7 {
        0 => Protocol::Rtp,
        1 => Protocol::Vita49,
        2 => Protocol::Gvsp,
        3 => Protocol::Spead { step: NonZeroU64::new(u64::from(kind >> 4)) },
        _ => Protocol::Field(field),
    };
    let mut tracker = Tracker::new(protocol, u32::from(kind >> 4) * 4);
    while let Some((length, behind)) = rest.split_first() {
        let (datagram, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        tracker.on_datagram(u64::from(length % 3), datagram);
        rest = behind;
    }
    assert!(tracker.flows() <= FLOWS_MAX, "{} flows", tracker.flows());
    tracker.finish();
}

/// Reads bytes as a driver's accesses: each has a byte for its kind, two for its offset, and the
/// written bytes.
///
/// # Panics
/// When a command is taken that the state of the moment does not allow.
pub fn registers(bytes: &[u8]) {
    let states = [State::Idle, State::Armed, State::Running, State::Ending, State::Ended, State::Failed];
    let mut registers = Registers::default();
    let mut rest = bytes;
    let mut state = State::Idle;
    while let [kind, low, high, behind @ ..] = rest {
        let (data, behind) = behind.split_at(usize::from(kind & 15).min(behind.len()));
        let offset = u32::from(u16::from_le_bytes([*low, *high]));
        match kind >> 6 {
            0 => registers.read(offset, &mut [0; 16][..usize::from(kind & 15)]),
            1 => match registers.write(offset, data) {
                Some(Command::Start { .. }) => {
                    assert!(matches!(state, State::Idle | State::Ended | State::Failed), "{state:?}");
                }
                Some(Command::Trigger) => assert_eq!(state, State::Armed),
                Some(Command::Stop(_)) => {
                    assert!(matches!(state, State::Armed | State::Running | State::Ending), "{state:?}");
                }
                None => {}
            },
            2 => {
                state = states[usize::from(*low) % states.len()];
                let account = Account { state, bytes: u64::from(*high) << 30, ..Account::default() };
                let (write, read) = (Some(account), (high & 1 > 0).then_some(account));
                let can_address = high & 2 > 0;
                registers.show(Values {
                    model: data.to_vec(),
                    can_address,
                    write,
                    read,
                    ..Values::default()
                });
            }
            _ => registers.reset(),
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of every chunk is zero there: another one would hide what lies behind it.
    #[test]
    fn the_chunks_among_the_seeds_are_understood() {
        let seeds: [&[u8]; 8] = [
            include_bytes!("../../../fuzz/seeds/record_scan/data"),
            include_bytes!("../../../fuzz/seeds/record_scan/superblock"),
            include_bytes!("../../../fuzz/seeds/record_scan/holding"),
            include_bytes!("../../../fuzz/seeds/record_scan/member"),
            include_bytes!("../../../fuzz/seeds/record_scan/pins"),
            include_bytes!("../../../fuzz/seeds/record_scan/ring"),
            include_bytes!("../../../fuzz/seeds/record_scan/too_many_pins"),
            include_bytes!("../../../fuzz/seeds/record_scan/trigger"),
        ];
        for (number, seed) in seeds.iter().enumerate() {
            let (header, payload) = Header::parse_chunk(0, seed, |_, _| 0).unwrap_or_else(|error| {
                panic!("seed {number} is no chunk: {error:?}");
            });
            assert!(header.chunk == CHUNK_MIN && !payload.is_empty(), "seed {number}: {header:?}");
            scan(seed);
        }
    }
}
