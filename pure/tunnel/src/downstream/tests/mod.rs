mod keys;
mod trust;

use core::net::Ipv4Addr;
use std::string::ToString;
use std::vec::Vec;

use engine::{Rng, settle};
use proptest::prelude::{any, prop, prop_assert, proptest};

use super::*;
use crate::frame::{Frame, FrameHeader, HEADER_LENGTH, Hello, Sequence, sign};
use crate::test_bench::{config, read, write};

const fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

/// A host and its Hello.
fn hello(name: &str, instance: u8) -> (Session, Buffer) {
    let mut host = Session::upstream(config(name, instance), Rng::from_seed(1));
    host.handle_timeout(at(1));
    assert_eq!(host.poll_output(), Some(session::Output::Connect));
    host.handle_input(at(1), session::Input::Connected);
    let Some(session::Output::Transmit(hello)) = host.poll_output() else { panic!("no Hello") };
    (host, hello)
}

fn drained(downstream: &mut Downstream, now: Instant) -> Vec<Output> {
    let mut outputs = Vec::new();
    settle(downstream, now, |output| outputs.push(output));
    outputs
}

fn receive(downstream: &mut Downstream, now: Instant, connection: u32, bytes: &[u8]) -> Vec<Output> {
    let bytes = Buffer::copy_from_slice(bytes);
    downstream.handle_input(now, Input::Received(ConnectionId(connection), bytes));
    drained(downstream, now)
}

/// Accepts a connection from one of several places.
fn accept_from(downstream: &mut Downstream, now: Instant, connection: u32, place: u8) -> Vec<Output> {
    let address = Ipv4Addr::new(192, 0, 2, place).into();
    downstream.handle_input(now, Input::Accepted(ConnectionId(connection), address));
    drained(downstream, now)
}

fn accept(downstream: &mut Downstream, now: Instant, connection: u32) -> Vec<Output> {
    accept_from(downstream, now, connection, 1)
}

/// Code and text of the Refuse to `connection`, which is then closed.
fn refusal_to(outputs: &[Output], connection: u32) -> (RefuseCode, String) {
    let connection = ConnectionId(connection);
    let [
        Output::Transmit { connection: to, bytes },
        Output::Close { connection: closed },
        Output::Event { .. },
    ] = outputs
    else {
        panic!("no refusal: {outputs:?}")
    };
    assert_eq!((*to, *closed), (connection, connection));
    let header = FrameHeader::parse(bytes.first_chunk().unwrap()).unwrap();
    match Frame::parse(&header, &bytes[HEADER_LENGTH..]).unwrap() {
        Frame::Refuse(code, text) => (code, text.to_string()),
        other => panic!("{other:?}"),
    }
}

fn joined() -> (Downstream, Session) {
    let mut downstream = Downstream::new(config("box", 2), Rng::from_seed(2));
    let (mut host, hello) = hello("host", 1);
    assert_eq!(accept(&mut downstream, at(1), 1), []);
    let outputs = receive(&mut downstream, at(1), 1, &hello);
    let [
        Output::Transmit { bytes, .. },
        Output::DeviceReset,
        Output::Event { event: Event::LinkUp { peer }, .. },
        ..,
    ] = &outputs[..]
    else {
        panic!("{outputs:?}")
    };
    assert_eq!(peer.name, "host");
    host.handle_input(at(1), session::Input::Received(bytes.clone()));
    (downstream, host)
}

/// Asserts that the link still carries packets.
fn assert_alive(downstream: &mut Downstream, host: &mut Session, now: Instant) {
    host.send(now, read(5));
    let mut found = false;
    let mut segments = Vec::new();
    settle(host, now, |output| {
        if let session::Output::Transmit(bytes) = output {
            segments.push(bytes);
        }
    });
    for bytes in segments {
        let outputs = receive(downstream, now, 1, &bytes);
        found |=
            outputs.iter().any(|output| matches!(output, Output::Tlp { packet, .. } if *packet == read(5)));
    }
    assert!(found);
}

/// Like [`joined`], but the device's end has heard from the host that the host knows of the
/// session.
fn confirmed() -> (Downstream, Session) {
    let (mut downstream, mut host) = joined();
    assert_alive(&mut downstream, &mut host, at(2));
    (downstream, host)
}

/// The frames that `host` sends.
fn said(host: &mut Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    settle(host, at(2), |output| {
        if let session::Output::Transmit(piece) = output {
            bytes.extend_from_slice(&piece);
        }
    });
    bytes
}

/// The frames that `downstream` sends over `connection`.
fn sent(outputs: &[Output], connection: u32) -> Vec<u8> {
    let of = |output: &Output| match output {
        Output::Transmit { connection: to, bytes } if *to == ConnectionId(connection) => Some(bytes.to_vec()),
        _ => None,
    };
    outputs.iter().filter_map(of).flatten().collect()
}

#[test]
fn a_tally_that_one_host_asked_for_does_not_go_to_the_next() {
    let mut downstream = Downstream::new(config("far", 9), Rng::from_seed(9));
    drained(&mut downstream, at(1));
    for (number, tally) in [(1, true), (2, false)] {
        accept(&mut downstream, at(2), number);
        let config = session::Config { tally, ..config("host", u8::try_from(number).unwrap()) };
        let mut host = Session::upstream(config, Rng::from_seed(u64::from(number)));
        host.handle_timeout(at(1));
        settle(&mut host, at(1), |_| ());
        host.handle_input(at(2), session::Input::Connected);
        let hello = said(&mut host);
        let welcome = sent(&receive(&mut downstream, at(2), number, &hello), number);
        host.handle_input(at(2), session::Input::Received(Buffer::from(welcome)));
        assert!(host.is_open());
        host.ping(at(2));
        let mut last = said(&mut host);
        if tally {
            // The first host leaves with its question.
            host.close(at(2), "done");
            last.extend(said(&mut host));
        }
        let answer = sent(&receive(&mut downstream, at(2), number, &last), number);
        host.handle_input(at(2), session::Input::Received(Buffer::from(answer)));
        assert_eq!(host.is_open(), !tally, "{host:?}");
    }
}

#[test]
fn a_second_host_learns_that_the_device_is_in_use_and_not_by_whom() {
    let (mut downstream, mut host) = joined();
    let (mut second, bytes) = hello("second", 7);
    accept(&mut downstream, at(4_001), 2);
    let outputs = receive(&mut downstream, at(4_001), 2, &bytes);
    let (code, text) = refusal_to(&outputs, 2);
    assert_eq!((code, text.as_str()), (RefuseCode::InUse, "in use; the far end's status names the user"));
    let Output::Transmit { bytes, .. } = &outputs[0] else { panic!() };
    second.handle_input(at(4_001), session::Input::Received(bytes.clone()));
    assert_eq!(second.poll_output(), Some(session::Output::CloseConnection));
    let Some(session::Output::HandshakeFailed(error)) = second.poll_output() else { panic!() };
    assert!(error.to_string().contains(&text));
    assert_alive(&mut downstream, &mut host, at(4_001));
}

#[test]
fn a_held_session_keeps_the_device_until_the_hold_time_is_over() {
    let (mut downstream, _) = confirmed();
    downstream.handle_input(at(10), Input::Disconnected(ConnectionId(1)));
    drained(&mut downstream, at(10));
    let (_, bytes) = hello("second", 7);
    accept(&mut downstream, at(20), 2);
    let (code, text) = refusal_to(&receive(&mut downstream, at(20), 2, &bytes), 2);
    assert_eq!((code, text.as_str()), (RefuseCode::Busy, "held for a host whose connection was lost"));
    let outputs = drained(&mut downstream, at(10_010));
    assert!(matches!(
        outputs[..],
        [Output::DeviceReset, Output::Event { event: Event::LinkDown { .. }, .. }]
    ));
    accept(&mut downstream, at(10_020), 3);
    assert!(receive(&mut downstream, at(10_020), 3, &bytes).contains(&Output::DeviceReset));
}

#[test]
fn a_host_that_is_held_back_is_not_silent() {
    let (mut downstream, _) = confirmed();
    accept(&mut downstream, at(3), 2);
    assert!(!downstream.hold_back(at(3), ConnectionId(2)), "a stranger is heard");
    let outputs = receive(&mut downstream, at(3), 2, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(refusal_to(&outputs, 2).0, RefuseCode::NotFarlane);
    for second in 1..20 {
        assert!(downstream.hold_back(at(second * 1_000), ConnectionId(1)));
        drained(&mut downstream, at(second * 1_000));
        assert!(downstream.session().is_open(), "after {second} s");
    }
    let outputs = drained(&mut downstream, at(25_000));
    assert!(outputs.contains(&Output::Close { connection: ConnectionId(1) }), "{outputs:?}");
}

#[test]
fn a_host_that_reconnects_first_replaces_its_former_connection() {
    let (mut downstream, mut host) = joined();
    drained(&mut downstream, at(2));
    host.handle_input(at(3), session::Input::Disconnected);
    let mut bytes = None;
    settle(&mut host, at(3), |_| ());
    host.handle_input(at(3), session::Input::Connected);
    settle(&mut host, at(3), |output| {
        if let session::Output::Transmit(hello) = output {
            bytes = Some(hello);
        }
    });
    downstream.send(at(3), write(1, 4));
    accept(&mut downstream, at(3), 9);
    let outputs = receive(&mut downstream, at(3), 9, &bytes.unwrap());
    assert!(outputs.contains(&Output::Close { connection: ConnectionId(1) }), "{outputs:?}");
    assert!(!outputs.contains(&Output::DeviceReset));
    assert_eq!(downstream.session().statistics().resumptions, 1);
    for output in outputs {
        if let Output::Transmit { connection: ConnectionId(9), bytes } = output {
            host.handle_input(at(3), session::Input::Received(bytes));
        }
    }
    let packets = core::iter::from_fn(|| host.poll_output());
    let packets: Vec<_> = packets.filter(|output| matches!(output, session::Output::Tlp { .. })).collect();
    assert_eq!(packets.len(), 1);
}

#[test]
fn strangers_get_the_reason_and_do_no_harm() {
    let (mut downstream, mut host) = joined();
    let (_, hello) = hello("host", 1);
    let with = |offset: usize, change: &[u8]| {
        let mut bytes = hello.to_vec();
        bytes[offset..][..change.len()].copy_from_slice(change);
        sign(engine::crc32c, &mut bytes);
        bytes
    };
    let mut bent = hello.to_vec();
    bent[40] ^= 1;
    let mut ping = [0; 64];
    let length = Frame::Ping(at(0)).emit(Sequence::FIRST, Sequence::FIRST, &mut ping);
    let body = HEADER_LENGTH;
    let cases = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), RefuseCode::NotFarlane, "Farlane"),
        (b"\x16\x03\x01\x02\x00".to_vec(), RefuseCode::NotFarlane, "Farlane"),
        (ping[..length].to_vec(), RefuseCode::NotFarlane, "Ping"),
        (with(body, b"FARLANT\n"), RefuseCode::NotFarlane, "magic"),
        (with(body + 8, &[0, 3, 0, 9]), RefuseCode::Version, "2 to 2 are spoken here, 3 to 9 there"),
        (with(body + 8, &[0, 1, 0, 1]), RefuseCode::Version, "2 to 2 are spoken here, 1 to 1 there"),
        (bent, RefuseCode::Damaged, "CRC32C"),
        (with(body + 12, &[2]), RefuseCode::Role, "Downstream"),
        (with(body + 12, &[5]), RefuseCode::Malformed, "role"),
        (with(body + 48, &[0xff, 0]), RefuseCode::UnknownOption, "0xff00"),
    ];
    for (number, (bytes, code, words)) in cases.iter().enumerate() {
        let connection = 100 + u32::try_from(number).unwrap();
        accept(&mut downstream, at(2), connection);
        let (found, text) = refusal_to(&receive(&mut downstream, at(2), connection, bytes), connection);
        assert_eq!(found, *code, "{text}");
        assert!(text.contains(words), "{text}");
        assert_eq!(receive(&mut downstream, at(2), connection, bytes), [], "nothing more is read");
    }
    assert_alive(&mut downstream, &mut host, at(2));
}

#[test]
fn a_hello_may_come_byte_by_byte_but_not_too_late() {
    let mut downstream = Downstream::new(config("box", 2), Rng::from_seed(2));
    let (_, hello) = hello("host", 1);
    accept(&mut downstream, at(1), 1);
    accept(&mut downstream, at(1), 2);
    for byte in &hello[..hello.len() - 1] {
        assert_eq!(receive(&mut downstream, at(2), 1, &[*byte]), []);
        assert_eq!(receive(&mut downstream, at(2), 2, &[*byte]), []);
    }
    assert!(receive(&mut downstream, at(2), 1, &hello[hello.len() - 1..]).contains(&Output::DeviceReset));
    let outputs = drained(&mut downstream, at(5_001));
    let late: Vec<_> = outputs
        .into_iter()
        .filter(|output| {
            matches!(output, Output::Transmit { connection, .. } | Output::Close { connection } if connection.0 == 2)
                || matches!(output, Output::Event { connection, .. } if *connection == Some(ConnectionId(2)))
        })
        .collect();
    let (code, text) = refusal_to(&late, 2);
    assert_eq!((code, text.as_str()), (RefuseCode::Deadline, "no Hello came within 5 s"));
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 1..20)) {
        let (mut downstream, mut host) = joined();
        accept(&mut downstream, at(2), 50);
        for piece in &pieces {
            receive(&mut downstream, at(2), 50, piece);
        }
        assert_alive(&mut downstream, &mut host, at(2));
    }

    #[test]
    fn a_host_that_goes_mad_is_closed_and_may_come_back(bytes in prop::collection::vec(any::<u8>(), 40..400)) {
        let (mut downstream, _) = joined();
        let outputs = receive(&mut downstream, at(2), 1, &bytes);
        // By chance, the bytes may be the beginning of a frame.
        if outputs.contains(&Output::Close { connection: ConnectionId(1) }) {
            prop_assert!(outputs.contains(&Output::DeviceReset));
            let (_, hello) = hello("host", 1);
            accept(&mut downstream, at(3), 2);
            prop_assert!(receive(&mut downstream, at(3), 2, &hello).contains(&Output::DeviceReset));
        }
    }
}

#[test]
fn hellos_are_of_version_2() {
    let (_, bytes) = hello("host", 1);
    assert_eq!(Hello::versions(&bytes[HEADER_LENGTH..]), Ok((2, 2)));
}
