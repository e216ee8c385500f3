//! Connections over loopback.

mod tls;

use std::net::Shutdown;

use engine::{Buffer, Instant, Nanos, Pool, Rng};

use super::*;
use crate::carrier::route::Route;
use crate::carrier::{Dial, Link, OUTBOX_BYTES_MAX, Received};
use crate::reactor::{Context, Driver, Outcome, Reactor, Sources, Turn};
use crate::sys::clock::Clock;

fn pair() -> (Connection, Connection) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let near = dial(
        &mut Dialer::new(vec![listener.address()], Options::default(), Instant::ZERO),
        Nanos::from_secs(5),
    );
    loop {
        if let Some(far) = listener.accept().unwrap() {
            return (near, far);
        }
    }
}

fn dial(dialer: &mut Dialer, patience: Nanos) -> Connection {
    let clock = Clock::start();
    let start = clock.now();
    while clock.now() - start < patience {
        if let Dialled::Connected(connection) = dialer.poll(clock.now()) {
            return connection;
        }
    }
    panic!("no connection in {patience}");
}

#[test]
fn a_stream_arrives_whole_however_it_is_cut() {
    let (mut near, mut far) = pair();
    let (mut pool, mut rng) = (Pool::default(), Rng::from_seed(1));
    let mut sent = vec![0; 24 << 20];
    rng.fill(&mut sent);
    let (mut at, mut arrived, mut lengths) = (0, Vec::new(), Vec::new());
    while arrived.len() < sent.len() {
        while at < sent.len() && near.unsent() < 8 << 20 {
            let longest = if rng.one_in(8) { 600_000 } else { 3_000 };
            let length = usize::try_from(1 + rng.below(longest)).unwrap().min(sent.len() - at);
            near.send(Buffer::copy_from_slice(&sent[at..at + length])).unwrap();
            at += length;
        }
        near.flush().unwrap();
        for _ in 0..rng.below(20) {
            match far.receive(&mut pool).unwrap() {
                Received::Data(data) => {
                    lengths.push(data.len());
                    arrived.extend_from_slice(&data);
                }
                Received::Nothing => break,
                Received::Closed => panic!("neither end closed"),
            }
        }
    }
    assert!(arrived == sent);
    // A stream that comes fast arrives in large blocks.
    assert_eq!(lengths.iter().max(), Some(&(256 << 10)));
}

#[test]
fn small_arrivals_do_not_keep_large_blocks() {
    let (mut near, mut far) = pair();
    let mut pool = Pool::default();
    let mut held = Vec::new();
    for count in 0..64 {
        near.send(Buffer::copy_from_slice(&[count; 100])).unwrap();
        near.flush().unwrap();
        loop {
            match far.receive(&mut pool).unwrap() {
                Received::Data(data) => break held.push(data),
                Received::Nothing => {}
                Received::Closed => panic!("neither end closed"),
            }
        }
    }
    assert!(held.iter().enumerate().all(|(count, data)| **data == [u8::try_from(count).unwrap(); 100]));
    assert!(held.iter().all(|data| data.as_ptr() != held[0].as_ptr() || data == &held[0]));
}

#[test]
fn a_close_differs_from_a_reset() {
    let mut pool = Pool::default();
    let (mut near, mut far) = pair();
    near.send(Buffer::copy_from_slice(b"last words")).unwrap();
    near.flush().unwrap();
    near.close();
    let mut next = || loop {
        match far.receive(&mut pool).unwrap() {
            Received::Nothing => {}
            received => break received,
        }
    };
    assert_eq!(next(), Received::Data(Buffer::copy_from_slice(b"last words")));
    assert_eq!(next(), Received::Closed);

    let (mut near, far) = pair();
    // A socket closed with bytes unread resets its connection.
    near.send(Buffer::copy_from_slice(b"unread")).unwrap();
    near.flush().unwrap();
    drop(far);
    let error = loop {
        match near.receive(&mut pool) {
            Ok(Received::Nothing | Received::Closed) => {}
            Ok(Received::Data(_)) => panic!("nothing was sent"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_peer_that_does_not_read_costs_a_bounded_amount() {
    let (mut near, _far) = pair();
    let megabyte = Buffer::zeroed(1 << 20);
    let mut sent = 0;
    while near.send(megabyte.clone()).is_ok() {
        near.flush().unwrap();
        sent += 1;
        assert!(sent < 1_000, "the outbox has no limit");
    }
    assert!(near.unsent() <= OUTBOX_BYTES_MAX);
}

#[test]
fn a_dialler_pauses_longer_each_time_and_finds_a_late_listener() {
    let address = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap().address();
    let mut dialer = Dialer::new(vec![address], Options::default(), Instant::ZERO);
    let (mut now, mut pauses) = (Instant::ZERO, Vec::new());
    while pauses.len() < 12 {
        if let Dialled::Failed(at, error) = dialer.poll(now) {
            assert_eq!((at, error.kind()), (address, io::ErrorKind::ConnectionRefused));
            pauses.push(dialer.poll_timeout().unwrap() - now);
        }
        now = dialer.poll_timeout().unwrap();
    }
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert_eq!((pauses[0], pauses[11]), (Nanos::from_millis(1), Nanos::from_millis(500)));
    let listener = Listener::bind(address).unwrap();
    dialer.restart(Instant::ZERO);
    let connection = dial(&mut dialer, Nanos::from_secs(5));
    assert_eq!(connection.peer(), address);
    assert!(dialer.poll_timeout().is_none());
    assert!(listener.accept().unwrap().is_some());
}

#[test]
fn a_name_without_a_port_is_refused_by_name() {
    let error = resolve("nowhere").unwrap_err().to_string();
    assert!(error.starts_with("nowhere: ") && error.ends_with("give host:port"), "{error}");
    assert_eq!(resolve("127.0.0.1:80").unwrap(), ["127.0.0.1:80".parse().unwrap()]);
}

#[test]
fn a_taken_port_is_an_error() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_eq!(Listener::bind(listener.address()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

/// Dials again and again, as the engine of a tunnel does.
struct Dials {
    link: Link,
    failed: Vec<SocketAddr>,
}

impl Driver for Dials {
    fn start(&mut self, _sources: &Sources) -> io::Result<()> {
        Ok(())
    }

    fn turn(&mut self, context: &Context<'_>) -> io::Result<Turn> {
        Ok(match self.link.dial(context.now, context.sources()) {
            Some(Dial::Connected) => Turn::Done,
            Some(Dial::Failed(address, _)) => {
                self.failed.push(address);
                self.link.connect(context.now);
                Turn::Busy
            }
            Some(Dial::Path { .. }) | None => Turn::Idle,
        })
    }
    fn poll_timeout(&self) -> Option<Instant> {
        self.link.poll_timeout()
    }
    fn on_stop(&mut self, _: Instant) {}
}

#[test]
fn a_far_end_behind_any_of_its_addresses_is_found() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unused = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let absent = [unused(), unused()];
    let addresses = [&absent[..], &[listener.address()]].concat();
    let clock = Clock::start();
    let route = Route {
        addresses,
        others: Vec::new(),
        tcp: Options::default(),
        quic: None,
        trust: None,
        digests: true,
        shm: None,
        datagrams: None,
    };
    let mut dials = Dials { link: Link::new(route), failed: Vec::new() };
    dials.link.connect(clock.now());
    let mut reactor = Reactor::new(clock, Nanos::ZERO).unwrap();
    let deadline = clock.now() + Nanos::from_secs(20);
    let outcome = reactor.run_until(&mut dials, Some(deadline), |_| false).unwrap();
    assert_eq!((outcome, &dials.failed[..]), (Outcome::Done, &absent[..]));
}
