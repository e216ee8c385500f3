//! Encrypted connections over loopback.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant as Real};

use super::*;
use crate::carrier::identity::{Fingerprint, Identity, Pin};
use crate::carrier::route::Trust;

const PATIENCE: Duration = Duration::from_secs(30);

fn identity() -> Arc<Identity> {
    Arc::new(Identity::generate().unwrap())
}

fn listen(identity: &Identity) -> Listener {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    listener.with_tls(Acceptor::new(identity).unwrap())
}

fn route(to: SocketAddr, identity: Arc<Identity>, pin: Pin) -> Route {
    let trust = Some(Trust { identity, pin });
    Route {
        addresses: vec![to],
        others: Vec::new(),
        tcp: Options::default(),
        quic: None,
        trust,
        digests: false,
        shm: None,
        datagrams: None,
    }
}

/// Makes one attempt, while `listener` serves it. Returns the far end's side, too.
fn meet(listener: &Listener, near: Arc<Identity>, pin: Pin) -> io::Result<(Connection, Connection)> {
    let clock = Clock::start();
    let route = route(listener.address(), near, pin);
    let mut dialer = Dialer::along(&route, &route.addresses, clock.now());
    let (mut far, mut pool) = (None, Pool::default());
    let start = Real::now();
    while start.elapsed() < PATIENCE {
        if far.is_none() {
            far = listener.accept()?;
        }
        if let Some(far) = &mut far {
            let _ = far.receive(&mut pool);
            let _ = far.flush();
        }
        match dialer.poll(clock.now()) {
            Dialled::Connected(near) => return Ok((near, far.expect("the far end has answered"))),
            Dialled::Failed(_, error) => return Err(error),
            Dialled::Waiting | Dialled::Began(_) => {}
        }
    }
    panic!("no outcome");
}

fn pair_with_keys() -> (Connection, Connection, [Fingerprint; 2]) {
    let (near, far) = (identity(), identity());
    let keys = [near.fingerprint(), far.fingerprint()];
    let (near, far) = meet(&listen(&far), near, Pin::Key(keys[1])).unwrap();
    (near, far, keys)
}

/// Received bytes until `length` of them are there.
fn collect(from: &mut Connection, other: &mut Connection, length: usize) -> Vec<u8> {
    let (mut pool, mut arrived, start) = (Pool::default(), Vec::new(), Real::now());
    while arrived.len() < length {
        assert!(start.elapsed() < PATIENCE, "{} of {length} B", arrived.len());
        other.flush().unwrap();
        match from.receive(&mut pool).unwrap() {
            Received::Data(data) => arrived.extend_from_slice(&data),
            Received::Nothing => {}
            Received::Closed => panic!("neither end closed"),
        }
    }
    arrived
}

#[test]
fn both_ends_know_whose_stream_it_is_and_it_arrives_whole() {
    let (mut near, mut far, keys) = pair_with_keys();
    let mut rng = Rng::from_seed(1);
    for length in [1, 12, 4096, 16_384, 16_385, 131_088, 3 << 20] {
        let mut sent = vec![0; length];
        rng.fill(&mut sent);
        for chunk in sent.chunks(length.min(40_000)) {
            near.send(Buffer::copy_from_slice(chunk)).unwrap();
        }
        assert!(collect(&mut far, &mut near, length) == sent, "{length} B");
        assert_eq!(near.unsent(), 0);
        far.send(Buffer::copy_from_slice(&sent)).unwrap();
        assert!(collect(&mut near, &mut far, length) == sent, "{length} B back");
    }
    assert_eq!((far.key(), near.key()), (Some(keys[0]), Some(keys[1])));
}

#[test]
fn a_close_is_seen_behind_all_bytes() {
    let (mut near, mut far, _) = pair_with_keys();
    let mut pool = Pool::default();
    near.send(Buffer::copy_from_slice(b"last words")).unwrap();
    near.flush().unwrap();
    near.close();
    assert_eq!(collect(&mut far, &mut near, 10), b"last words");
    let start = Real::now();
    while far.receive(&mut pool).unwrap() != Received::Closed {
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn another_key_than_the_expected_one_is_refused_with_both() {
    let (far, expected) = (identity(), identity());
    let error = meet(&listen(&far), identity(), Pin::Key(expected.fingerprint())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    let text = error.to_string();
    for key in [far.fingerprint(), expected.fingerprint()] {
        assert!(text.contains(&key.to_string()), "{text}");
    }
    meet(&listen(&far), identity(), Pin::Any).unwrap();
}

#[test]
fn a_host_that_speaks_without_tls_continues_without_a_key() {
    let listener = listen(&identity());
    let mut near = dial(
        &mut Dialer::new(vec![listener.address()], Options::default(), Instant::ZERO),
        Nanos::from_secs(5),
    );
    near.send(Buffer::copy_from_slice(&[1, 0, 0, 48])).unwrap();
    near.flush().unwrap();
    let mut far = loop {
        if let Some(far) = listener.accept().unwrap() {
            break far;
        }
    };
    assert_eq!(collect(&mut far, &mut near, 4), [1, 0, 0, 48]);
    assert_eq!(far.key(), None);
}

#[test]
fn a_far_end_without_tls_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clock = Clock::start();
    let route = route(address, identity(), Pin::Any);
    let mut dialer = Dialer::along(&route, &route.addresses, clock.now());
    while !matches!(dialer.poll(clock.now()), Dialled::Began(_)) {}
    // Such a far end answers with a Refuse of the tunnel protocol.
    listener.accept().unwrap().0.write_all(&[3, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]).unwrap();
    let error = loop {
        match dialer.poll(clock.now()) {
            Dialled::Failed(_, error) => break error.to_string(),
            Dialled::Connected(_) => panic!("it proves nothing"),
            _ => {}
        }
    };
    assert!(error.contains("without TLS") && error.contains("--allow"), "{error}");
}

/// Records that a near end sent, and those that a far end answered, as an observer between the two
/// sees them.
fn recorded(listener: &Listener, near: Arc<Identity>) -> Vec<u8> {
    let between = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let clock = Clock::start();
    let route = route(between.local_addr().unwrap(), near, Pin::Any);
    let mut dialer = Dialer::along(&route, &route.addresses, clock.now());
    while !matches!(dialer.poll(clock.now()), Dialled::Began(_)) {}
    let mut left = between.accept().unwrap().0;
    let mut right = std::net::TcpStream::connect(listener.address()).unwrap();
    for side in [&left, &right] {
        side.set_nonblocking(true).unwrap();
    }
    let (mut near, mut far, mut record, mut pool) = (None::<Connection>, None, Vec::new(), Pool::default());
    let (mut arrived, start) = (Vec::new(), Real::now());
    while arrived.len() < 9 {
        assert!(start.elapsed() < PATIENCE);
        let mut bytes = [0; 4096];
        if let Ok(count) = left.read(&mut bytes) {
            record.extend_from_slice(&bytes[..count]);
            right.write_all(&bytes[..count]).unwrap();
        }
        if let Ok(count) = right.read(&mut bytes) {
            left.write_all(&bytes[..count]).unwrap();
        }
        far = far.or_else(|| listener.accept().unwrap());
        if let Some(far) = &mut far
            && let Received::Data(data) = far.receive(&mut pool).unwrap()
        {
            arrived.extend_from_slice(&data);
        }
        if near.is_none()
            && let Dialled::Connected(connection) = dialer.poll(clock.now())
        {
            let near = near.insert(connection);
            near.send(Buffer::copy_from_slice(b"old block")).unwrap();
            near.flush().unwrap();
        }
    }
    assert_eq!(arrived, b"old block");
    record
}

/// Everything that a connection accepts of `bytes`.
fn accepted(listener: &Listener, bytes: &[u8]) -> Vec<u8> {
    let mut stranger = std::net::TcpStream::connect(listener.address()).unwrap();
    stranger.write_all(bytes).unwrap();
    stranger.shutdown(Shutdown::Write).unwrap();
    let (start, mut pool, mut arrived) = (Real::now(), Pool::default(), Vec::new());
    let mut far = loop {
        if let Some(far) = listener.accept().unwrap() {
            break far;
        }
    };
    while start.elapsed() < PATIENCE {
        match far.receive(&mut pool) {
            Ok(Received::Data(data)) => arrived.extend_from_slice(&data),
            Ok(Received::Nothing) => {}
            Ok(Received::Closed) | Err(_) => return arrived,
        }
    }
    panic!("a connection that has ended goes on");
}

#[test]
fn recorded_bytes_that_are_sent_again_say_nothing() {
    let listener = listen(&identity());
    let record = recorded(&listener, identity());
    assert_eq!(accepted(&listener, &record), b"", "the whole record");
    let mut rng = Rng::from_seed(7);
    for _ in 0..50 {
        let from = usize::try_from(rng.below(record.len() as u64)).unwrap();
        let mut bent = record[from..].to_vec();
        // The first byte distinguishes TLS from other bytes.
        bent[0] = 22;
        assert_eq!(accepted(&listener, &bent), b"", "from byte {from}");
    }
}

#[test]
fn a_bit_that_changes_on_the_way_ends_the_connection() {
    for bit in 0..60_usize {
        let (near, mut far, _) = pair_with_keys();
        let (mut session, mut socket) = near.into_parts();
        session.writer().write_all(&[7; 4096]).unwrap();
        let mut records = Vec::new();
        session.write_tls(&mut records).unwrap();
        let place = bit * 1_001 % (records.len() * 8);
        records[place / 8] ^= 1 << (place % 8);
        socket.set_nonblocking(false).unwrap();
        socket.write_all(&records).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let (mut pool, start) = (Pool::default(), Real::now());
        loop {
            assert!(start.elapsed() < PATIENCE, "bit {place}");
            match far.receive(&mut pool) {
                // Type and version in a record's header are no secret, and mean nothing.
                Ok(Received::Data(data)) => {
                    assert!(place < 24 && *data == [7; 4096], "bit {place}: {} B are believed", data.len());
                    break;
                }
                Ok(Received::Nothing) => {}
                Ok(Received::Closed) | Err(_) => break,
            }
        }
    }
}
