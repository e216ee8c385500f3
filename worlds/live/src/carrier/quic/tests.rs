//! QUIC connections over loopback.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant as Real};

use engine::{Buffer, Nanos, Pool, Rng};
use quinn_proto::EndpointConfig;
use quinn_proto::crypto::rustls::QuicServerConfig;

use super::endpoint::{CONNECTIONS_MAX, Endpoint, UNOPENED_PER_ORIGIN_MAX, unopened_max};
use super::*;
use crate::carrier::identity::{self, Fingerprint, Identity, Pin};
use crate::carrier::{OUTBOX_BYTES_MAX, Received};
use crate::sys::clock::Clock;
use crate::sys::precedence::Precedence;

/// Long enough for a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(30);

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A near end's key.
fn someone() -> Arc<Identity> {
    Arc::new(Identity::generate().unwrap())
}

fn listen(identity: &Identity) -> Listener {
    Listener::bind(loopback(), identity, Options::default(), Clock::start().now()).unwrap()
}

fn dialer(listener: &Listener, pin: Pin) -> (Dialer, Clock) {
    let clock = Clock::start();
    (Dialer::new(vec![listener.address()], someone(), pin, Options::default(), clock.now()), clock)
}

/// Repeats `done` until it has an answer.
fn until<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let start = Real::now();
    loop {
        if let Some(result) = done() {
            return result;
        }
        assert!(start.elapsed() < PATIENCE, "nothing happened");
    }
}

/// Makes one attempt to connect; returns its outcome.
fn dial(listener: &Listener, pin: Pin) -> io::Result<Stream> {
    let (mut dialer, clock) = dialer(listener, pin);
    until(|| {
        assert!(listener.accept().unwrap().is_none(), "no peer has opened a stream");
        match dialer.poll(clock.now()) {
            Dialled::Connected(stream) => Some(Ok(stream)),
            Dialled::Failed(_, error) => Some(Err(error)),
            Dialled::Waiting | Dialled::Began(_) => None,
        }
    })
}

fn connect(listener: &Listener) -> (Stream, Stream) {
    let mut near = dial(listener, Pin::Key(listener.fingerprint())).unwrap();
    near.send(Buffer::copy_from_slice(b"hello")).unwrap();
    near.flush().unwrap();
    let mut far = until(|| listener.accept().unwrap());
    let mut pool = Pool::default();
    assert_eq!(next(&mut far, &mut pool).unwrap(), Received::Data(Buffer::copy_from_slice(b"hello")));
    (near, far)
}

fn pair() -> (Listener, Stream, Stream) {
    let listener = listen(&Identity::generate().unwrap());
    let (near, far) = connect(&listener);
    (listener, near, far)
}

fn next(stream: &mut Stream, pool: &mut Pool) -> io::Result<Received> {
    until(|| {
        let _ = stream.flush();
        match stream.receive(pool) {
            Ok(Received::Nothing) => None,
            result => Some(result),
        }
    })
}

/// Takes the port away from the owner of the socket, as the end of its process would, without a
/// report to the peer.
fn kill(descriptor: RawFd) {
    replace(descriptor, &UdpSocket::bind("127.0.0.1:0").unwrap());
}

/// Makes the owner of the socket use `other` from now on, and closes the socket that it had.
fn replace(descriptor: RawFd, other: &UdpSocket) {
    other.set_nonblocking(true).unwrap();
    // SAFETY: both are open descriptors of this test, and the killed socket's owner goes on with
    // the other one.
    assert!(unsafe { libc::dup2(other.as_raw_fd(), descriptor) } >= 0);
}

#[test]
fn a_stream_arrives_whole_however_it_is_cut_in_both_directions() {
    let (_listener, mut near, mut far) = pair();
    let (mut pool, mut rng) = (Pool::default(), Rng::from_seed(1));
    let mut sent = vec![0; 4 << 20];
    rng.fill(&mut sent);
    let (mut at, mut back, mut lengths) = (0, Vec::new(), Vec::new());
    let start = Real::now();
    while back.len() < sent.len() {
        assert!(start.elapsed() < PATIENCE, "{at} bytes sent, {} came back", back.len());
        while at < sent.len() && near.unsent() < 1 << 20 {
            let longest = if rng.one_in(8) { 200_000 } else { 3_000 };
            let length = usize::try_from(1 + rng.below(longest)).unwrap().min(sent.len() - at);
            near.send(Buffer::copy_from_slice(&sent[at..at + length])).unwrap();
            at += length;
        }
        near.flush().unwrap();
        while let Received::Data(data) = far.receive(&mut pool).unwrap() {
            lengths.push(data.len());
            far.send(data).unwrap();
        }
        far.flush().unwrap();
        while let Received::Data(data) = near.receive(&mut pool).unwrap() {
            back.extend_from_slice(&data);
        }
    }
    assert!(back == sent);
    assert!(lengths.iter().max().unwrap() > &1_500, "datagrams in a row come in one piece: {lengths:?}");
}

#[test]
fn a_small_request_is_answered_without_a_timer() {
    let (_listener, mut near, mut far) = pair();
    let mut pool = Pool::default();
    for count in 0..200_u8 {
        near.send(Buffer::copy_from_slice(&[count; 64])).unwrap();
        near.flush().unwrap();
        assert_eq!(next(&mut far, &mut pool).unwrap(), Received::Data(Buffer::copy_from_slice(&[count; 64])));
        far.send(Buffer::copy_from_slice(&[!count; 64])).unwrap();
        far.flush().unwrap();
        assert_eq!(
            next(&mut near, &mut pool).unwrap(),
            Received::Data(Buffer::copy_from_slice(&[!count; 64]))
        );
    }
}

#[test]
fn the_last_words_arrive_before_a_close() {
    let (listener, mut near, mut far) = pair();
    let mut pool = Pool::default();
    let words = vec![7; 200_000];
    near.send(Buffer::copy_from_slice(&words)).unwrap();
    near.flush().unwrap();
    assert_eq!(near.unsent(), 0);
    assert!(!near.is_closed());
    near.close();
    let mut heard = Vec::new();
    until(|| {
        let _ = near.flush();
        let _ = near.receive(&mut pool).unwrap();
        match far.receive(&mut pool).unwrap() {
            Received::Data(data) => heard.extend_from_slice(&data),
            Received::Nothing => {}
            Received::Closed => return Some(()),
        }
        far.flush().unwrap();
        None
    });
    assert!(heard == words);
    assert_eq!(far.receive(&mut pool).unwrap(), Received::Closed, "and again");
    // The far end's latest acknowledgements are still on their way.
    until(|| {
        let _ = far.flush();
        let _ = near.receive(&mut pool);
        near.is_closed().then_some(())
    });
    drop(near);
    drop(far);
    assert!(listener.accept().unwrap().is_none());
}

#[test]
fn an_end_that_gives_up_differs_from_an_end_that_is_done() {
    let mut pool = Pool::default();
    let (_listener, mut near, mut far) = pair();
    far.abort();
    assert_eq!(far.receive(&mut pool).unwrap(), Received::Closed);
    assert!(next(&mut near, &mut pool).is_err());
    assert!(near.flush().is_err());

    let (_listener, near, mut far) = pair();
    drop(near);
    assert!(next(&mut far, &mut pool).is_err());
}

#[test]
fn only_the_far_end_with_the_right_key_is_believed() {
    let listener = listen(&Identity::generate().unwrap());
    let wrong = Fingerprint([0xab; 32]);
    let error = dial(&listener, Pin::Key(wrong)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    let text = error.to_string();
    assert!(
        text.contains(&wrong.to_string()) && text.contains(&listener.fingerprint().to_string()),
        "{text}"
    );
    dial(&listener, Pin::Any).unwrap();
    dial(&listener, Pin::Key(listener.fingerprint())).unwrap();
}

#[test]
fn an_unused_address_is_reported_at_once() {
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let clock = Clock::start();
    let mut dialer = Dialer::new(vec![address], someone(), Pin::Any, Options::default(), clock.now());
    let start = clock.now();
    let error = until(|| match dialer.poll(clock.now()) {
        Dialled::Failed(at, error) => Some((at, error)),
        _ => None,
    });
    assert!(clock.now() - start < Nanos::from_secs(4), "before the attempt was given up");
    assert_eq!((error.0, error.1.kind()), (address, io::ErrorKind::ConnectionRefused));
    // The near end goes on trying.
    let listener =
        Listener::bind(address, &Identity::generate().unwrap(), Options::default(), clock.now()).unwrap();
    until(|| {
        let _ = listener.accept().unwrap();
        matches!(dialer.poll(clock.now()), Dialled::Connected(_)).then_some(())
    });
    assert!(dialer.poll_timeout().is_none());
}

#[test]
fn what_speaks_another_protocol_is_named() {
    let identity = Identity::generate().unwrap();
    let mut tls = identity::server(&identity, b"h3").unwrap();
    for protocols in [vec![b"h3".to_vec()], Vec::new()] {
        tls.alpn_protocols = protocols;
        let server = quinn_proto::ServerConfig::with_crypto(Arc::new(
            QuicServerConfig::try_from(tls.clone()).unwrap(),
        ));
        let clock = Clock::start();
        let config = (EndpointConfig::default(), server);
        let endpoint = Endpoint::server(loopback(), config, Precedence::default(), clock.now()).unwrap();
        let endpoint = Rc::new(RefCell::new(endpoint));
        let address = endpoint.borrow().address().unwrap();
        let mut dialer = Dialer::new(vec![address], someone(), Pin::Any, Options::default(), clock.now());
        let error = until(|| {
            endpoint.borrow_mut().pump().unwrap();
            match dialer.poll(clock.now()) {
                Dialled::Failed(_, error) => Some(error),
                Dialled::Connected(_) => panic!("it is no far end"),
                _ => None,
            }
        });
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("farlane/2"), "{error}");
    }
}

#[test]
fn garbage_on_the_port_does_no_harm() {
    let listener = listen(&Identity::generate().unwrap());
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut rng = Rng::from_seed(7);
    for round in 0..2_000_u64 {
        let mut bytes = vec![0; usize::try_from(rng.below(1_400)).unwrap()];
        rng.fill(&mut bytes);
        match (round % 4, bytes.first_mut()) {
            // A first packet of version 1, one of an unknown version, and a later packet.
            (0, Some(first)) => *first |= 0xc0,
            (1, Some(first)) => *first = 0x40 | (*first >> 2),
            _ => {}
        }
        if round % 8 == 0 && bytes.len() > 5 {
            bytes[1..5].copy_from_slice(&1_u32.to_be_bytes());
        }
        stranger.send_to(&bytes, listener.address()).unwrap();
        if round % 16 == 0 {
            assert!(listener.accept().unwrap().is_none());
        }
    }
    let (mut near, _far) = connect(&listener);
    // The same at the near end.
    let mut pool = Pool::default();
    assert_eq!(near.receive(&mut pool).unwrap(), Received::Nothing);
}

#[test]
fn connections_are_bounded() {
    let listener = listen(&Identity::generate().unwrap());
    let mut streams: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect(&listener)).collect();
    let error = dial(&listener, Pin::Any).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    assert!(error.to_string().contains("the most connections"), "{error}");
    // When one connection has gone, there is room again.
    drop(streams.pop());
    until(|| dial(&listener, Pin::Any).ok());
}

#[test]
fn peers_that_open_no_stream_leave_places_to_others() {
    let listener = listen(&Identity::generate().unwrap());
    let mut silent: Vec<_> =
        (0..UNOPENED_PER_ORIGIN_MAX).map(|_| dial(&listener, Pin::Any).unwrap()).collect();
    let error = dial(&listener, Pin::Any).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    // A peer that opens its stream no longer counts.
    silent[0].send(Buffer::copy_from_slice(b"hello")).unwrap();
    silent[0].flush().unwrap();
    let _far = until(|| listener.accept().unwrap());
    dial(&listener, Pin::Any).unwrap();
}

#[test]
fn a_few_addresses_do_not_take_all_places() {
    let mut count = 0;
    for origin in 0..8 {
        let mut own = 0;
        while count < CONNECTIONS_MAX && own < unopened_max(count) {
            (own, count) = (own + 1, count + 1);
        }
        assert!((1..=UNOPENED_PER_ORIGIN_MAX).contains(&own), "origin {origin}: {own}");
    }
    assert!(count < CONNECTIONS_MAX, "another one finds a place");
    assert_eq!(unopened_max(CONNECTIONS_MAX - 1), 1, "the last place is for any origin");
}

#[test]
fn a_peer_that_does_not_read_costs_a_bounded_amount() {
    let (_listener, mut near, _far) = pair();
    let megabyte = Buffer::zeroed(1 << 20);
    let mut sent = 0;
    while near.send(megabyte.clone()).is_ok() {
        near.flush().unwrap();
        sent += 1;
        assert!(sent < 1_000, "there is no limit");
    }
    assert!(near.unsent() <= OUTBOX_BYTES_MAX);
}

#[test]
fn a_far_end_that_was_killed_is_noticed() {
    let (listener, mut near, far) = pair();
    kill(listener.as_raw_fd());
    let mut pool = Pool::default();
    near.send(Buffer::copy_from_slice(b"are you there?")).unwrap();
    let error = next(&mut near, &mut pool).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    drop(far);
}

#[test]
fn a_far_end_that_was_started_again_with_its_key_says_so() {
    let identity = Identity::generate().unwrap();
    let listener = listen(&identity);
    let (mut near, far) = connect(&listener);
    let address = listener.address();
    kill(listener.as_raw_fd());
    let again = Listener::bind(address, &identity, Options::default(), Clock::start().now()).unwrap();
    near.send(Buffer::copy_from_slice(b"still there?")).unwrap();
    let mut pool = Pool::default();
    let error = until(|| {
        assert!(again.accept().unwrap().is_none());
        let _ = near.flush();
        near.receive(&mut pool).err()
    });
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    drop(far);
    connect(&again);
}

#[test]
fn the_old_connection_of_a_near_end_that_was_started_again_ends() {
    let listener = listen(&Identity::generate().unwrap());
    let (near, mut far) = connect(&listener);
    kill(near.descriptor().unwrap());
    let mut pool = Pool::default();
    assert_eq!(far.receive(&mut pool).unwrap(), Received::Nothing);
    let (again, _far_again) = connect(&listener);
    let error = until(|| {
        let _ = far.flush();
        far.receive(&mut pool).err()
    });
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    drop((near, again));
}

#[test]
fn a_near_end_that_gets_another_port_is_not_taken_for_gone() {
    let (listener, mut near, mut far) = pair();
    let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    elsewhere.connect(listener.address()).unwrap();
    replace(near.descriptor().unwrap(), &elsewhere);
    let mut pool = Pool::default();
    // No owner takes these connections. They are far more than the limit would allow if each of
    // them counted.
    for _ in 0..20 {
        far.send(Buffer::copy_from_slice(b"where are you?")).unwrap();
        far.flush().unwrap();
        assert_eq!(far.receive(&mut pool).unwrap(), Received::Nothing);
    }
    near.send(Buffer::copy_from_slice(b"here")).unwrap();
    near.flush().unwrap();
    assert_eq!(next(&mut far, &mut pool).unwrap(), Received::Data(Buffer::copy_from_slice(b"here")));
    let mut answer = Vec::new();
    until(|| {
        far.flush().unwrap();
        assert_eq!(far.receive(&mut pool).unwrap(), Received::Nothing);
        near.flush().unwrap();
        if let Received::Data(bytes) = near.receive(&mut pool).unwrap() {
            answer.extend_from_slice(&bytes);
        }
        (answer.len() == 20 * 14).then_some(())
    });
}

#[test]
fn the_far_end_learns_which_key_the_near_end_has() {
    let (listener, near) = (listen(&Identity::generate().unwrap()), someone());
    let clock = Clock::start();
    let (to, pin) = (vec![listener.address()], Pin::Key(listener.fingerprint()));
    let mut dialer = Dialer::new(to, Arc::clone(&near), pin, Options::default(), clock.now());
    let mut stream = None;
    let far = until(|| {
        if let Dialled::Connected(mut connected) = dialer.poll(clock.now()) {
            connected.send(Buffer::copy_from_slice(b"hello")).unwrap();
            connected.flush().unwrap();
            stream = Some(connected);
        }
        listener.accept().unwrap()
    });
    assert_eq!(far.key(), Some(near.fingerprint()));
    assert_eq!(stream.and_then(|stream| stream.key()), Some(listener.fingerprint()));
}

#[test]
fn a_taken_port_is_an_error() {
    let identity = Identity::generate().unwrap();
    let listener = listen(&identity);
    let again = Listener::bind(listener.address(), &identity, Options::default(), Clock::start().now());
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
}
