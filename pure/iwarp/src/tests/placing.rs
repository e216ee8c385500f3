//! Data of long segments that arrive in pieces.

use alloc::vec::Vec;

use engine::{Buffer, Engine};
use rdma::{AccessError, Disconnected, Done, Endpoint, Event, Exposure, Key, Operation, Remote};

use super::{NOW, carry, completions, config, connected, events, give, part, post, take, terminate_of};
use crate::wire::Fault;
use crate::{Config, Connection, Input};

const LENGTH: usize = 5000;

fn pattern() -> Vec<u8> {
    (0..LENGTH).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

/// Two ends whose segments have 2,000 bytes, and memory that the second lends.
fn ends() -> (Connection, Connection, Remote) {
    let near = Config { segment_bytes: 2000, ..config(1) };
    let (near, mut far) = connected(near, config(2));
    let lent = far.register(Exposure::Write(5000)).unwrap();
    (near, far, lent)
}

fn write(near: &mut Connection, remote: Remote) -> Vec<u8> {
    let data = Buffer::from(pattern()).slice(0..remote.length as usize);
    post(near, 1, Operation::Write { data, remote });
    take(near)
}

/// Receives like a socket that reads into the given place.
fn land(end: &mut Connection, mut bytes: &[u8]) {
    while let Some(place) = end.landing().filter(|_| !bytes.is_empty()) {
        let count = place.len().min(bytes.len());
        place[..count].copy_from_slice(&bytes[..count]);
        end.landed(count);
        bytes = &bytes[count..];
    }
    give(end, bytes);
}

#[test]
fn data_come_straight_to_their_place() {
    let (mut near, mut far, lent) = ends();
    let bytes = write(&mut near, lent);
    // The head, and then the place of exactly the data.
    give(&mut far, &bytes[..20]);
    assert_eq!(far.landing().unwrap().len(), 2000 - 4);
    let first = far.landing().unwrap().as_ptr();
    for piece in bytes[20..].chunks(900) {
        land(&mut far, piece);
    }
    let memory = far.deregister(lent.key).unwrap();
    assert!(memory[..] == pattern()[..]);
    assert_eq!(memory.as_ptr(), first.wrapping_sub(4), "nothing was copied");
}

#[test]
fn a_write_that_is_all_of_the_memory_stays_where_it_came() {
    let (mut near, mut far, _) = ends();
    let lent = far.register(Exposure::Write(1500)).unwrap();
    let block = Buffer::from(write(&mut near, lent));
    let range = block.as_ptr_range();
    far.handle_input(NOW, Input::Received(block));
    let memory = far.deregister(lent.key).unwrap();
    assert!(memory[..] == pattern()[..1500] && range.contains(&memory.as_ptr()));
}

#[test]
fn responses_come_straight_to_their_place() {
    let (mut near, mut far) = connected(config(1), Config { segment_bytes: 2000, ..config(2) });
    let lent = far.register(Exposure::Read(pattern().into())).unwrap();
    for id in [1, 2] {
        post(&mut near, id, Operation::Read { remote: lent });
    }
    give(&mut far, &take(&mut near));
    for piece in take(&mut far).chunks(700) {
        land(&mut near, piece);
    }
    let read = || Ok(Done::Read(pattern().into()));
    assert_eq!(completions(&mut near), [(1, read()), (2, read())]);
}

#[test]
fn data_with_a_wrong_crc_are_never_shown() {
    for at in [20, 1999, 2016, 2017] {
        let (mut near, mut far, lent) = ends();
        post(
            &mut near,
            9,
            Operation::Write { data: Buffer::from(std::vec![7; 40]), remote: part(lent, 0, 40) },
        );
        carry(&mut near, &mut far);
        let mut bytes = write(&mut near, lent);
        bytes[at] ^= 1;
        for piece in bytes.chunks(500) {
            land(&mut far, piece);
        }
        let why = Disconnected::PeerFault(Fault::CRC.describe());
        assert_eq!(events(&mut far), [Event::Disconnected(why)], "{at}");
        assert_eq!(terminate_of(&mut far).unwrap().0.fault, Fault::CRC);
        assert_eq!(far.deregister(lent.key).unwrap().len(), 40, "{at}");
    }
}

#[test]
fn a_wrong_head_is_a_fault_once_the_segment_has_come() {
    let (mut near, mut far, lent) = ends();
    for (remote, why) in [
        (Remote { key: Key(lent.key.0 ^ 1 << 24), ..lent }, AccessError::Key),
        (part(lent, 1, 5000), AccessError::Bounds),
    ] {
        let bytes = write(&mut near, remote);
        for piece in bytes.chunks(500) {
            land(&mut far, piece);
        }
        let reported = events(&mut far);
        assert_eq!(reported, [Event::Disconnected(Disconnected::Access(why))]);
        (near, far, _) = ends();
    }
}

#[test]
fn memory_that_is_wanted_back_is_no_place_any_more() {
    let (mut near, mut far, lent) = ends();
    let bytes = write(&mut near, lent);
    give(&mut far, &bytes[..2020 + 800]);
    assert_eq!(far.deregister(lent.key).unwrap()[..], pattern()[..2000]);
    land(&mut far, &bytes[2820..]);
    let why = Disconnected::Access(AccessError::Key);
    assert_eq!(events(&mut far), [Event::Disconnected(why)]);
}

#[test]
fn a_stream_that_ends_within_data_gives_back_the_written_bytes() {
    let (mut near, mut far, lent) = ends();
    let bytes = write(&mut near, lent);
    give(&mut far, &bytes[..2020 + 800]);
    far.handle_input(NOW, Input::Closed);
    let why = Disconnected::PeerFault("the stream ended within an FPDU");
    assert_eq!(events(&mut far), [Event::Disconnected(why)]);
    assert_eq!(far.deregister(lent.key).unwrap()[..], pattern()[..2000]);
}
