//! The resources that a stranger can take from a host, and that a host can take back.

use super::*;
use crate::frame::{HELLO_BODY_MAX, InstanceId, Member, Secret, SessionId};

/// The Hello in `bytes` with a `change`.
fn changed(bytes: &[u8], change: impl FnOnce(&mut Hello<'_>)) -> Vec<u8> {
    let (head, body) = bytes.split_first_chunk().unwrap();
    let header = FrameHeader::parse(head).unwrap();
    let Ok(Frame::Hello(mut hello)) = Frame::parse(&header, body) else { panic!("no Hello") };
    change(&mut hello);
    let mut changed = std::vec![0; HEADER_LENGTH + HELLO_BODY_MAX];
    let length = Frame::Hello(hello).emit(header.sequence, header.acknowledge, &mut changed);
    changed.truncate(length);
    sign(engine::crc32c, &mut changed);
    changed
}

/// The first message of `host` on its next connection.
fn next_hello(host: &mut Session, now: Instant) -> Buffer {
    host.handle_input(now, session::Input::Disconnected);
    let mut said = None;
    settle(host, now, |_| ());
    host.handle_input(now, session::Input::Connected);
    settle(host, now, |output| {
        if let session::Output::Transmit(hello) = output {
            said = Some(hello);
        }
    });
    said.expect("a host says Hello")
}

fn said_to(outputs: &[Output], to: u32) -> Vec<u8> {
    let of = |output: &Output| match output {
        Output::Transmit { connection, bytes } if connection.0 == to => bytes.to_vec(),
        _ => Vec::new(),
    };
    outputs.iter().flat_map(of).collect()
}

#[test]
fn a_stranger_that_knows_all_names_evicts_no_host() {
    let (mut downstream, mut host) = confirmed();
    let session = downstream.session().id().unwrap();
    let (_, plain) = hello("stranger", 1);
    let wrong = Some(Secret([0; 16]));
    let attempts = [
        changed(&plain, |_| ()),
        changed(&plain, |hello| hello.secret = wrong),
        changed(&plain, |hello| hello.session = session),
        changed(&plain, |hello| (hello.session, hello.secret) = (session, wrong)),
        changed(&plain, |hello| hello.instance = InstanceId([7; 16])),
    ];
    for (number, bytes) in (50..).zip(&attempts) {
        accept(&mut downstream, at(3), number);
        let (code, text) = refusal_to(&receive(&mut downstream, at(3), number, bytes), number);
        assert_eq!(code, RefuseCode::InUse, "{text}");
        let instance = InstanceId([1; 16]).to_string();
        assert!(!text.contains("host") && !text.contains(&instance), "{text}");
        assert_alive(&mut downstream, &mut host, at(3));
    }
    // The stranger learns no more while the host is away.
    downstream.handle_input(at(4), Input::Disconnected(ConnectionId(1)));
    drained(&mut downstream, at(4));
    for (number, bytes) in (60..).zip(&attempts) {
        accept(&mut downstream, at(5), number);
        let (code, text) = refusal_to(&receive(&mut downstream, at(5), number, bytes), number);
        assert_eq!((code, text.as_str()), (RefuseCode::Busy, "held for a host whose connection was lost"));
    }
    let back = next_hello(&mut host, at(6));
    accept(&mut downstream, at(6), 70);
    receive(&mut downstream, at(6), 70, &back);
    assert_eq!(downstream.session().statistics().resumptions, 1);
}

#[test]
fn a_stranger_is_no_strand_of_a_link() {
    let host = Config { strands: 4, ..config("host", 1) };
    let mut downstream = Downstream::new(config("box", 2), Rng::from_seed(2));
    let (mut host, first) = hello_of(host);
    accept(&mut downstream, at(1), 1);
    let welcome = said_to(&receive(&mut downstream, at(1), 1, &first), 1);
    host.handle_input(at(1), session::Input::Received(Buffer::from(welcome)));
    assert_alive(&mut downstream, &mut host, at(2));
    let session = downstream.session().id().unwrap();
    let secret = host.secret();
    let of_strand = |secret: Option<Secret>, session: SessionId| {
        let member = Some(Member { session, strand: 1 });
        changed(&first, |hello| (hello.member, hello.secret) = (member, secret))
    };
    let other = SessionId(session.0 ^ 1);
    let attempts =
        [of_strand(None, session), of_strand(Some(Secret([0; 16])), session), of_strand(secret, other)];
    for (number, bytes) in (50..).zip(&attempts) {
        accept(&mut downstream, at(3), number);
        let (code, text) = refusal_to(&receive(&mut downstream, at(3), number, bytes), number);
        assert_eq!((code, text.as_str()), (RefuseCode::Busy, "there is no such link to be a strand of"));
    }
    accept(&mut downstream, at(3), 60);
    let outputs = receive(&mut downstream, at(3), 60, &of_strand(secret, session));
    let welcome = said_to(&outputs, 60);
    let header = FrameHeader::parse(welcome.first_chunk().unwrap()).unwrap();
    assert_eq!(header.kind, crate::frame::FrameKind::Welcome, "a host with the secret is admitted");
}

/// A host with these settings, and its Hello.
fn hello_of(config: Config) -> (Session, Buffer) {
    let mut host = Session::upstream(config, Rng::from_seed(1));
    host.handle_timeout(at(1));
    assert_eq!(host.poll_output(), Some(session::Output::Connect));
    host.handle_input(at(1), session::Input::Connected);
    let Some(session::Output::Transmit(hello)) = host.poll_output() else { panic!("no Hello") };
    (host, hello)
}

#[test]
fn a_host_whose_link_is_down_takes_its_former_session_over_by_its_secret() {
    let (mut downstream, mut host) = confirmed();
    // The device's end does not hear of the end.
    host.close(at(10), "to begin again");
    settle(&mut host, at(10), |_| ());
    host.restart(at(10));
    host.handle_timeout(at(10));
    let again = next_hello(&mut host, at(11));
    accept(&mut downstream, at(11), 2);
    let outputs = receive(&mut downstream, at(11), 2, &again);
    assert!(outputs.contains(&Output::Close { connection: ConnectionId(1) }), "{outputs:?}");
    assert!(outputs.contains(&Output::DeviceReset));
}

#[test]
fn a_welcome_that_was_lost_locks_no_host_out() {
    // The device's end takes the connection for alive when the same host comes again.
    let (mut downstream, _) = joined();
    let (_, again) = hello("host", 1);
    let (_, other) = hello("other", 7);
    accept(&mut downstream, at(5), 2);
    assert_eq!(refusal_to(&receive(&mut downstream, at(5), 2, &other), 2).0, RefuseCode::InUse);
    accept(&mut downstream, at(5), 3);
    assert!(receive(&mut downstream, at(5), 3, &again).contains(&Output::DeviceReset));
    // The device's end has noticed the end of the connection. It holds nothing for a host that is
    // not known to have a session.
    downstream.handle_input(at(6), Input::Disconnected(ConnectionId(3)));
    drained(&mut downstream, at(6));
    accept(&mut downstream, at(7), 4);
    assert!(receive(&mut downstream, at(7), 4, &other).contains(&Output::DeviceReset));
}

#[test]
fn a_session_that_its_host_has_and_the_box_does_not_know_resumes() {
    let (mut downstream, mut host) = joined();
    settle(&mut host, at(2), |_| ());
    downstream.handle_input(at(2), Input::Disconnected(ConnectionId(1)));
    drained(&mut downstream, at(2));
    let back = next_hello(&mut host, at(3));
    accept(&mut downstream, at(3), 2);
    receive(&mut downstream, at(3), 2, &back);
    assert_eq!(downstream.session().statistics().resumptions, 1);
}

#[test]
fn a_host_that_was_killed_waits_until_its_former_session_is_lost_and_no_longer_held() {
    let (mut downstream, _) = confirmed();
    let (_, again) = hello("host", 9);
    let silence = 5_000 + 2;
    for (number, now, code) in
        [(2, 100, RefuseCode::InUse), (3, silence - 1, RefuseCode::InUse), (4, silence + 1, RefuseCode::Busy)]
    {
        drained(&mut downstream, at(now));
        accept(&mut downstream, at(now), number);
        assert_eq!(refusal_to(&receive(&mut downstream, at(now), number, &again), number).0, code, "{now}");
    }
    let over = silence + 10_000 + 1;
    drained(&mut downstream, at(over));
    accept(&mut downstream, at(over), 5);
    assert!(receive(&mut downstream, at(over), 5, &again).contains(&Output::DeviceReset));
}

#[test]
fn a_silent_connection_keeps_no_host_out() {
    for (strangers, place) in [(20, 1), (10_000, 1), (20, 9), (10_000, 9)] {
        let (mut downstream, mut host) = confirmed();
        let mut closed = 0;
        for number in 100..100 + strangers {
            let outputs = accept_from(&mut downstream, at(3), number, place);
            let left = outputs.iter().filter(|output| matches!(output, Output::Close { .. }));
            closed += u32::try_from(left.count()).unwrap();
        }
        let most = u32::try_from(WAITING_PER_ADDRESS_MAX).unwrap();
        assert_eq!(strangers - closed, most, "the most connections of one address wait");
        // Among all these connections, the host comes back, and another host hears that it is too
        // late.
        let back = next_hello(&mut host, at(4));
        accept(&mut downstream, at(4), 2);
        for number in 20_000..20_000 + most - 1 {
            accept_from(&mut downstream, at(4), number, place);
        }
        let outputs = receive(&mut downstream, at(4), 2, &back);
        assert_eq!(downstream.session().statistics().resumptions, 1, "{outputs:?}");
        let (_, other) = hello("other", 7);
        accept(&mut downstream, at(4), 3);
        assert_eq!(refusal_to(&receive(&mut downstream, at(4), 3, &other), 3).0, RefuseCode::InUse);
    }
}

#[test]
fn the_places_at_the_gate_are_shared_among_addresses() {
    let (mut downstream, mut host) = confirmed();
    // Each of many addresses has a few connections, and the host's address has one slow connection.
    let back = next_hello(&mut host, at(3));
    accept(&mut downstream, at(3), 2);
    assert_eq!(receive(&mut downstream, at(3), 2, &back[..20]), []);
    let mut closed = Vec::new();
    for number in 0..1_000_u32 {
        let place = u8::try_from(2 + number % 200).unwrap();
        let outputs = accept_from(&mut downstream, at(3), 100 + number, place);
        closed.extend(outputs.into_iter().filter_map(|output| match output {
            Output::Close { connection } => Some(connection.0),
            _ => None,
        }));
    }
    assert_eq!(closed.len(), 1_000 + 1 - WAITING_MAX);
    assert!(!closed.contains(&2), "from where the session's host came there is always room");
    receive(&mut downstream, at(4), 2, &back[20..]);
    assert_eq!(downstream.session().statistics().resumptions, 1);
}

#[test]
fn those_who_have_begun_to_speak_outlast_those_who_are_silent() {
    let mut downstream = Downstream::new(config("box", 2), Rng::from_seed(2));
    let (_, hello) = hello("host", 1);
    accept(&mut downstream, at(1), 1);
    assert_eq!(receive(&mut downstream, at(1), 1, &hello[..1]), []);
    let most = u32::try_from(WAITING_PER_ADDRESS_MAX).unwrap();
    for number in 2..=most {
        assert_eq!(accept(&mut downstream, at(1), number), []);
    }
    assert_eq!(refusal_to(&accept(&mut downstream, at(1), most + 1), 2).0, RefuseCode::Busy);
    assert!(receive(&mut downstream, at(1), 1, &hello[1..]).contains(&Output::DeviceReset));
}

#[test]
fn a_network_of_ipv6_is_one_address() {
    use core::net::Ipv6Addr;
    use engine::Origin;
    let of = |text: &str| Origin::of(text.parse::<Ipv6Addr>().unwrap().into());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert!(of("2001:db8::1") != of("2001:db8:0:1::1"));
    assert_eq!(of("::ffff:192.0.2.1"), Origin::of(Ipv4Addr::new(192, 0, 2, 1).into()));
    assert!(of("::ffff:192.0.2.1") != of("::ffff:192.0.2.2"));
}
