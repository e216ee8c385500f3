//! Requests and replies.

use alloc::vec::Vec;

use engine::{Buffer, Engine, Nanos};
use rdma::{Disconnected, Endpoint, Event, Exposure, WorkError};

use super::{
    NOW, carry, completions, config, connected, events, give, post, receive, segments, send_of, take,
    terminate_of,
};
use crate::wire::{Enhanced, Fault, FrameKind, Header, Opcode, Revision, Startup};
use crate::{Config, Connection, Input, Output, PRIVATE_DATA_MAX};

fn frame(kind: FrameKind, revision: Revision) -> Startup {
    Startup { kind, markers: false, crc: false, reject: false, enhanced: false, revision, length: 0 }
}

const PART: Enhanced = Enhanced { ird: 4, ord: 3, peer_to_peer: true, send: false, write: true, read: true };

#[test]
fn crcs_are_used_if_one_end_wants_them() {
    for (near, far) in [(false, false), (false, true), (true, false), (true, true)] {
        let ends = (Config { crc: near, ..config(1) }, Config { crc: far, ..config(2) });
        let (near_end, far_end) = connected(ends.0, ends.1);
        assert_eq!((near_end.uses_crc(), far_end.uses_crc()), (near || far, near || far));
    }
}

#[test]
fn each_revision_is_answered_with_itself() {
    for revision in [Revision::One, Revision::Two] {
        let (near, far) = connected(Config { revision, ..config(1) }, config(2));
        assert_eq!(near.read_limits(), (16, 16));
        assert_eq!(far.read_limits(), (16, 16));
    }
}

/// siw's request with two reads each way, no CRC and 32 bytes of NVMe's, and its reply.
#[test]
fn a_request_of_siw_is_answered() {
    let mut far = Connection::accept(NOW, config(2));
    let mut request = b"MPA ID Req Frame\x10\x02\x00\x24\x00\x02\x00\x02".to_vec();
    request.extend_from_slice(&[0x4e; 32]);
    give(&mut far, &request);
    assert_eq!(events(&mut far), [Event::Requested { private_data: std::vec![0x4e; 32] }]);
    far.accept(b"\x01\x02");
    assert_eq!(take(&mut far), b"MPA ID Rep Frame\x50\x02\x00\x06\x00\x02\x00\x02\x01\x02");
    assert_eq!(far.read_limits(), (2, 2));
}

#[test]
fn reads_are_as_many_as_both_ends_take() {
    let near = Config { reads_outstanding_max: 5, reads_answered_max: 9, ..config(1) };
    let far = Config { reads_outstanding_max: 20, reads_answered_max: 3, ..config(2) };
    let (near, far) = connected(near, far);
    assert_eq!((near.read_limits(), far.read_limits()), ((3, 9), (9, 3)));
}

#[test]
fn a_user_rejects() {
    let mut near = Connection::connect(NOW, config(1), b"near");
    let mut far = Connection::accept(NOW, config(2));
    receive(&mut near, 1, 8);
    carry(&mut near, &mut far);
    events(&mut far);
    far.reject(b"full");
    carry(&mut near, &mut far);
    assert_eq!(events(&mut near), [Event::Rejected { private_data: b"full".to_vec() }]);
    assert!(events(&mut far).is_empty() && far.is_over());
    assert_eq!((near.poll_output(), far.poll_output()), (Some(Output::Close), Some(Output::Close)));
    assert_eq!(completions(&mut near), [(1, Err(WorkError::Flushed))]);
}

#[test]
fn a_request_for_markers_is_rejected() {
    let mut far = Connection::accept(NOW, config(2));
    give(&mut far, &Startup { markers: true, ..frame(FrameKind::Request, Revision::One) }.emit(None, b"x"));
    let reply = take(&mut far);
    let reply = Startup::parse(reply.first_chunk().unwrap(), FrameKind::Reply).unwrap();
    assert!(reply.reject && !reply.markers);
    assert_eq!(events(&mut far), [Event::Disconnected(Disconnected::PeerFault("it asks for markers"))]);
}

/// Every refused request ends the connection, without a message to its sender.
#[test]
fn a_broken_request_ends_the_connection() {
    let good = frame(FrameKind::Request, Revision::Two).emit(Some(PART), b"data");
    for (at, value) in [(0, b'X'), (15, 0), (17, 0), (17, 3), (18, 3), (19, 3)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        let mut far = Connection::accept(NOW, config(2));
        give(&mut far, &bytes);
        let all = events(&mut far);
        assert!(matches!(all[..], [Event::Disconnected(Disconnected::PeerFault(_))]), "{at}: {all:?}");
        assert!(far.outbox().is_empty() && far.poll_output() == Some(Output::Close));
    }
    let mut far = Connection::accept(NOW, config(2));
    give(&mut far, &[&good[..], b"more"].concat());
    let all = events(&mut far);
    assert!(matches!(all[..], [Event::Requested { .. }, Event::Disconnected(_)]), "{all:?}");
    far.accept(b"");
    assert!(far.outbox().is_empty(), "it is too late to accept");
}

#[test]
fn a_reply_that_cannot_be_used_is_answered_by_a_terminate() {
    let reply = frame(FrameKind::Reply, Revision::Two);
    let wrong = |bytes: Vec<u8>, config: Config| {
        let mut near = Connection::connect(NOW, config, b"near");
        take(&mut near);
        give(&mut near, &bytes);
        assert!(matches!(events(&mut near)[..], [Event::Disconnected(Disconnected::PeerFault(_))]));
        terminate_of(&mut near).map(|(terminate, _)| terminate.fault)
    };
    let request = frame(FrameKind::Request, Revision::Two);
    assert_eq!(wrong(request.emit(Some(PART), b""), config(1)), Some(Fault::INVALID_STARTUP));
    let markers = Startup { markers: true, ..reply };
    assert_eq!(wrong(markers.emit(Some(PART), b""), config(1)), Some(Fault::INVALID_STARTUP));
    let many = Enhanced { ord: 17, ..PART };
    assert_eq!(wrong(reply.emit(Some(many), b""), config(1)), Some(Fault::INSUFFICIENT_IRD));
    let neither = Enhanced { write: false, read: false, ..PART };
    assert_eq!(wrong(reply.emit(Some(neither), b""), config(1)), Some(Fault::NO_MATCHING_RTR));
    let old = Config { revision: Revision::One, ..config(1) };
    assert_eq!(wrong(reply.emit(Some(PART), b""), old), Some(Fault::INVALID_STARTUP));
}

/// A responder that chooses an empty Read receives one, and the response to it is not delivered as
/// data.
#[test]
fn the_first_message_may_be_a_read() {
    let mut near = Connection::connect(NOW, config(1), b"near");
    let mut far = Connection::accept(NOW, config(2));
    carry(&mut near, &mut far);
    events(&mut far);
    far.accept(b"");
    let mut reply = take(&mut far);
    // The bits of the ORD: no Write, but Read.
    reply[22] = reply[22] & 0x3f | 0x40;
    give(&mut near, &reply);
    carry(&mut near, &mut far);
    let lent = far.register(Exposure::Read(Buffer::copy_from_slice(b"data"))).unwrap();
    post(&mut near, 1, rdma::Operation::Read { remote: lent });
    carry(&mut near, &mut far);
    let read = rdma::Done::Read(Buffer::copy_from_slice(b"data"));
    assert_eq!(completions(&mut near), [(1, Ok(read))]);
}

#[test]
fn private_data_of_every_length_arrive_however_they_are_cut() {
    for length in [0, 1, 56, PRIVATE_DATA_MAX] {
        let data = std::vec![0xa5; length];
        let mut near = Connection::connect(NOW, config(1), &data);
        let request = take(&mut near);
        for cut in 0..request.len() {
            let mut far = Connection::accept(NOW, config(2));
            give(&mut far, &request[..cut]);
            assert!(events(&mut far).is_empty(), "{cut}");
            give(&mut far, &request[cut..]);
            assert_eq!(events(&mut far), [Event::Requested { private_data: data.clone() }]);
            // The stream may also end there.
            let mut far = Connection::accept(NOW, config(2));
            give(&mut far, &request[..cut]);
            far.handle_input(NOW, Input::Closed);
            assert!(matches!(events(&mut far)[..], [Event::Disconnected(Disconnected::PeerFault(_))]));
        }
    }
}

/// siw may miss bytes directly behind its reply. Empty writes wake it, and have no other effect.
#[test]
fn a_silent_peer_is_woken() {
    let (mut near, mut far) = connected(config(1), config(2));
    let mut now = NOW;
    let mut pauses = Vec::new();
    while let Some(at) = near.poll_timeout() {
        near.handle_timeout(at);
        pauses.push(at - now);
        now = at;
        let [(Header::Tagged { opcode: Opcode::Write, last: true, .. }, data)] =
            &segments(&take(&mut near))[..]
        else {
            panic!("no empty write")
        };
        assert!(data.is_empty());
    }
    assert_eq!(pauses, [5, 50, 500].map(Nanos::from_millis));
    let (mut near, _) = connected(config(1), config(2));
    near.handle_timeout(NOW + Nanos::from_millis(5));
    give(&mut far, &take(&mut near));
    assert!(events(&mut far).is_empty());
    post(&mut far, 1, send_of(b"", b"", None));
    receive(&mut near, 1, 8);
    give(&mut near, &take(&mut far));
    assert_eq!(near.poll_timeout(), None, "it is awake");
    assert_eq!(far.poll_timeout(), None);
}

#[test]
fn a_peer_that_does_not_begin_loses_the_connection() {
    let timeout = Nanos::from_millis(5);
    let of = |seed| Config { setup_timeout: timeout, ..config(seed) };
    for mut end in [Connection::connect(NOW, of(1), b""), Connection::accept(NOW, of(2))] {
        assert_eq!(end.poll_timeout(), Some(NOW + timeout));
        end.handle_timeout(NOW);
        assert!(events(&mut end).is_empty());
        end.handle_timeout(NOW + timeout);
        assert_eq!(events(&mut end), [Event::Disconnected(Disconnected::TimedOut)]);
        assert_eq!((end.poll_timeout(), end.poll_output()), (None, Some(Output::Close)));
    }
}
