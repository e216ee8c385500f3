//! Two ends in one process, over a socket in a folder of the test's own.

use std::io::Write;
use std::os::unix::net::UnixStream;

use engine::{Buffer, Instant, Nanos, Pool};

use super::*;
use crate::carrier::Received;

struct Both {
    near: Connection,
    far: Connection,
    listener: Listener,
    pool: Pool,
    folder: tempfile::TempDir,
}

fn both() -> Both {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(&folder.path().join("far")).unwrap();
    let near = Connection::connect(listener.path()).unwrap();
    let far = listener.accept().unwrap().unwrap();
    Both { near, far, listener, pool: Pool::default(), folder }
}

fn data(received: io::Result<Received>) -> Vec<u8> {
    match received.unwrap() {
        Received::Data(bytes) => bytes.to_vec(),
        other => panic!("expected bytes, found {other:?}"),
    }
}

/// Has `end` fall asleep with an empty ring.
fn to_sleep(end: &mut Connection, pool: &mut Pool) {
    let start = Instant::ZERO + Nanos::from_secs(1);
    end.turn(start);
    assert!(end.poll_timeout().is_some(), "an end that is not woken must not wait");
    end.turn(start + Nanos::from_millis(1));
    assert!(end.poll_timeout().is_some(), "it has to look once more");
    assert_eq!(end.receive(pool).unwrap(), Received::Nothing);
    assert_eq!(end.poll_timeout(), None);
}

#[test]
fn bytes_of_any_length_pass_both_ways() {
    let Both { mut near, mut far, mut pool, .. } = both();
    for length in [1, 60, 61, 240, 241, 4096, 70_000, 3 << 20] {
        let sent: Vec<u8> = (0..=250).cycle().take(length).collect();
        for turn in 0..2 {
            let (from, to) = if turn == 0 { (&mut near, &mut far) } else { (&mut far, &mut near) };
            // An accepted end learns of the memory before it sends.
            assert_eq!(from.receive(&mut pool).unwrap(), Received::Nothing);
            from.send(Buffer::from(sent.clone())).unwrap();
            let mut came = Vec::new();
            while came.len() < length {
                from.flush().unwrap();
                came.extend(data(to.receive(&mut pool)));
            }
            assert!(came == sent, "{length} B");
            assert_eq!((from.unsent(), to.receive(&mut pool).unwrap()), (0, Received::Nothing));
        }
    }
}

#[test]
fn a_sleeping_end_is_woken_through_its_socket() {
    let Both { mut near, mut far, mut pool, .. } = both();
    assert!(!far.is_polled(), "the memory comes through the socket");
    assert_eq!(far.receive(&mut pool).unwrap(), Received::Nothing);
    near.send(Buffer::from(vec![1])).unwrap();
    near.flush().unwrap();
    assert_eq!(data(far.receive(&mut pool)), [1]);
    assert!(!far.socket().has_news(), "an end that polls costs no system call");
    assert!(far.is_polled());
    to_sleep(&mut far, &mut pool);
    assert!(!far.is_polled(), "a look at an end that sleeps is a system call");
    near.send(Buffer::from(vec![2])).unwrap();
    near.flush().unwrap();
    assert!(far.socket().has_news());
    assert_eq!(data(far.receive(&mut pool)), [2]);
    assert!(far.poll_timeout().is_some(), "it polls again");
}

#[test]
fn a_peer_that_rings_without_end_does_not_keep_the_loop() {
    let Both { listener, mut pool, folder: _kept, .. } = both();
    let mut peer = unix::Connection::connect(listener.path()).unwrap();
    let _rings = Rings::pass(&mut peer, b"farlane lines 1\n").unwrap();
    for _ in 0..64 {
        // The kernel hands over no more bytes at once than up to a descriptor.
        let nothing = std::fs::File::open("/dev/null").unwrap();
        peer.send(Buffer::from(vec![0]), vec![nothing.into()]).unwrap();
    }
    peer.flush().unwrap();
    let mut far = listener.accept().unwrap().unwrap();
    assert_eq!(far.receive(&mut pool).unwrap(), Received::Nothing);
    let start = Instant::ZERO + Nanos::from_secs(1);
    far.turn(start);
    far.turn(start + Nanos::from_millis(1));
    let mut turns = 0;
    while far.poll_timeout().is_some() {
        assert_eq!(far.receive(&mut pool).unwrap(), Received::Nothing);
        turns += 1;
        assert!(turns < 64, "an end to which nothing comes waits");
    }
    assert!(turns > 3, "{turns} turns");
}

#[test]
fn what_a_peer_sent_before_it_died_still_comes() {
    let Both { mut near, mut far, mut pool, .. } = both();
    near.send(Buffer::from(vec![9; 500])).unwrap();
    near.flush().unwrap();
    drop(near);
    assert_eq!(data(far.receive(&mut pool)), [9; 500]);
    let start = Instant::ZERO;
    far.turn(start);
    far.turn(start + Nanos::from_millis(1));
    assert_eq!(far.receive(&mut pool).unwrap(), Received::Closed);
}

#[test]
fn a_sleeping_end_learns_that_its_peer_has_died() {
    let Both { mut near, far, mut pool, .. } = both();
    to_sleep(&mut near, &mut pool);
    drop(far);
    assert!(near.socket().has_news());
    assert_eq!(near.receive(&mut pool).unwrap(), Received::Closed);
}

#[test]
fn a_peer_that_reads_nothing_costs_bounded_memory() {
    let Both { mut near, .. } = both();
    let megabyte = Buffer::from(vec![7; 1 << 20]);
    let taken = (0..64).take_while(|_| near.send(megabyte.clone()).is_ok()).count();
    assert!((16..=18).contains(&taken), "{taken} MiB");
    near.abort();
    assert_eq!(near.unsent(), 0);
}

#[test]
fn each_host_has_memory_of_its_own() {
    let Both { mut near, mut far, listener, mut pool, folder: _kept } = both();
    let mut other = Connection::connect(listener.path()).unwrap();
    let mut its = listener.accept().unwrap().unwrap();
    near.send(Buffer::from(vec![1])).unwrap();
    other.send(Buffer::from(vec![2])).unwrap();
    near.flush().and(other.flush()).unwrap();
    assert_eq!((data(far.receive(&mut pool)), data(its.receive(&mut pool))), (vec![1], vec![2]));
}

#[test]
fn a_second_listener_is_refused_and_a_dead_ones_name_is_taken() {
    let Both { listener, folder, .. } = both();
    assert!(matches!(Listener::bind(listener.path()), Err(BindError::InUse)));
    let path = folder.path().join("dead");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(Listener::bind(&path).is_ok());
}

#[test]
fn who_brings_no_memory_is_turned_away() {
    let Both { listener, mut pool, folder: _kept, .. } = both();
    let mut stranger = UnixStream::connect(listener.path()).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let error = listener.accept().unwrap().unwrap().receive(&mut pool).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn scribbles_over_the_memory_end_the_connection_or_are_bytes() {
    let mut ended = 0;
    for seed in 0..100 {
        let Both { mut near, mut far, mut pool, .. } = both();
        let mut rng = engine::Rng::from_seed(seed);
        for round in 0..20 {
            near.scribble(4096 + rng.below(2048), u8::try_from(rng.below(256)).unwrap());
            near.scribble(rng.below(lines::MEMORY_BYTES as u64), u8::try_from(rng.below(256)).unwrap());
            near.send(Buffer::from(vec![round; 1 + usize::from(round) * 30])).unwrap();
            let sent = near.flush();
            far.send(Buffer::from(vec![round; 300])).unwrap();
            let answered = far.flush();
            if sent.is_err() || answered.is_err() || far.receive(&mut pool).is_err() {
                ended += 1;
                break;
            }
        }
    }
    assert!(ended > 10, "{ended} of 100 connections met a check");
}
