//! Two ends in one process, over loopback UDP.

use std::net::UdpSocket;

use engine::{Buffer, Pool};

use super::*;
use crate::carrier::Received;
use crate::sys::clock::Clock;

struct Both {
    clock: Clock,
    listener: Listener,
    near: Stream,
    far: Stream,
}

fn dial(clock: Clock, listener: Option<&Listener>, address: std::net::SocketAddr) -> Result<Stream, String> {
    let mut dialer = Dialer::new(None, vec![address], Options::default(), clock.now());
    loop {
        if let Some(listener) = listener {
            assert!(listener.accept().unwrap().is_none(), "a peer that has not answered was accepted");
        }
        match dialer.poll(clock.now()) {
            Dialled::Waiting | Dialled::Began(_) => {}
            Dialled::Failed(_, error) => return Err(error.to_string()),
            Dialled::Connected(stream) => return Ok(stream),
        }
    }
}

fn both() -> Both {
    let clock = Clock::start();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &Options::default(), clock.now()).unwrap();
    let mut near = dial(clock, Some(&listener), listener.address()).unwrap();
    near.flush().unwrap();
    let far = loop {
        if let Some(far) = listener.accept().unwrap() {
            break far;
        }
        near.receive().unwrap();
    };
    Both { clock, listener, near, far }
}

fn pass(from: &mut Stream, to: &mut Stream, length: usize) {
    let sent: Vec<u8> = (0..=250).cycle().take(length).collect();
    from.send(Buffer::from(sent.clone())).unwrap();
    let mut came = Vec::new();
    while came.len() < length || from.unsent() > 0 {
        from.flush().unwrap();
        if let Received::Data(bytes) = to.receive().unwrap() {
            came.extend_from_slice(&bytes);
        }
        to.flush().unwrap();
        assert_eq!(from.receive().unwrap(), Received::Nothing);
    }
    assert!(came == sent, "{length} B");
}

#[test]
fn bytes_of_any_length_pass_both_ways() {
    let Both { mut near, mut far, listener, .. } = both();
    for length in [1, 1000, 1473, 70_000, 3 << 20] {
        pass(&mut near, &mut far, length);
        pass(&mut far, &mut near, length);
    }
    assert_eq!(near.peer(), listener.address());
    assert!(near.descriptor().is_some() && far.descriptor().is_none());
    near.close();
    while far.receive().unwrap() != Received::Closed {}
}

#[test]
fn one_listener_has_several_streams() {
    let Both { clock, listener, mut near, mut far } = both();
    let mut other = dial(clock, Some(&listener), listener.address()).unwrap();
    other.send(Buffer::from(vec![7])).unwrap();
    other.flush().unwrap();
    let mut its = loop {
        if let Some(its) = listener.accept().unwrap() {
            break its;
        }
    };
    pass(&mut near, &mut far, 5000);
    let mut pool = Pool::default();
    assert!(!pool.copy(b"x").is_empty());
    while its.receive().unwrap() == Received::Nothing {}
    drop(near);
    while far.receive().unwrap() != Received::Closed {}
    drop(far);
    pass(&mut its, &mut other, 5000);
}

#[test]
fn who_does_not_answer_is_said() {
    let clock = Clock::start();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = dial(clock, None, nobody).unwrap_err();
    assert!(error.contains("nobody listens there"), "{error}");
    let error = Listener::at("no-such-one".parse().unwrap(), &Options::default(), clock.now())
        .unwrap_err()
        .to_string();
    assert!(error.contains("no-such-one"), "{error}");
}

#[test]
fn garbage_harms_nobody() {
    let Both { listener, mut near, mut far, .. } = both();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut rng = engine::Rng::from_seed(1);
    for length in 0..500 {
        let mut bytes = vec![1; length];
        rng.fill(bytes.get_mut(2..).unwrap_or_default());
        stranger.send_to(&bytes, listener.address()).unwrap();
    }
    pass(&mut near, &mut far, 100_000);
    pass(&mut far, &mut near, 100_000);
}
