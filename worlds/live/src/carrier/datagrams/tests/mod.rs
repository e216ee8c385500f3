//! Two ends in one process, over loopback UDP.

mod bad_frames;
mod copies;
mod narrow;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use engine::{Buffer, Pool};

use super::*;
use crate::carrier::identity::{Identity, Pin};
use crate::carrier::route::Trust;
use crate::carrier::{Acceptor, Received};
use crate::sys::clock::Clock;

struct Both {
    clock: Clock,
    listener: Listener,
    near: Stream,
    far: Stream,
}

fn dial(
    clock: Clock,
    listener: Option<&Listener>,
    address: SocketAddr,
    trust: Option<Trust>,
) -> Result<Stream, String> {
    let mut dialer = Dialer::new((None, Options::default()), vec![address], trust, clock.now());
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

fn listen(clock: Clock) -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), &Options::default(), clock.now()).unwrap()
}

fn both() -> Both {
    let clock = Clock::start();
    let listener = listen(clock);
    let mut near = dial(clock, Some(&listener), listener.address(), None).unwrap();
    near.flush().unwrap();
    let far = loop {
        if let Some(far) = listener.accept().unwrap() {
            break far;
        }
        near.receive(&mut Pool::default()).unwrap();
    };
    Both { clock, listener, near, far }
}

/// Two ends, of which each proves its key, if the far end's is `pin`.
fn both_with_keys(identities: [&Arc<Identity>; 2], pin: Pin) -> Result<Both, String> {
    let clock = Clock::start();
    let listener = listen(clock).with_tls(Acceptor::new(identities[1]).unwrap());
    let trust = Some(Trust { identity: Arc::clone(identities[0]), pin });
    let dialled = (None, Options::default());
    let mut dialer = Dialer::new(dialled, vec![listener.address()], trust, clock.now());
    let (mut far, mut pool): (Option<Stream>, _) = (None, Pool::default());
    loop {
        if far.is_none() {
            far = listener.accept().unwrap();
        }
        if let Some(far) = &mut far {
            let _ = far.receive(&mut pool);
            let _ = far.flush();
        }
        match dialer.poll(clock.now()) {
            Dialled::Waiting | Dialled::Began(_) => {}
            Dialled::Failed(_, error) => return Err(error.to_string()),
            Dialled::Connected(mut near) => {
                let mut far = far.expect("the far end has answered");
                while far.key().is_none() {
                    near.flush().unwrap();
                    far.receive(&mut pool).unwrap();
                }
                return Ok(Both { clock, listener, near, far });
            }
        }
    }
}

fn pass(from: &mut Stream, to: &mut Stream, length: usize) {
    let sent: Vec<u8> = (0..=250).cycle().take(length).collect();
    from.send(Buffer::from(sent.clone())).unwrap();
    let mut came = Vec::new();
    while came.len() < length || from.unsent() > 0 {
        from.flush().unwrap();
        if let Received::Data(bytes) = to.receive(&mut Pool::default()).unwrap() {
            came.extend_from_slice(&bytes);
        }
        to.flush().unwrap();
        assert_eq!(from.receive(&mut Pool::default()).unwrap(), Received::Nothing);
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
    while far.receive(&mut Pool::default()).unwrap() != Received::Closed {}
}

#[test]
fn bytes_of_any_length_pass_sealed_between_ends_that_know_each_other() {
    let [near_key, far_key] = [0, 1].map(|_| Arc::new(Identity::generate().unwrap()));
    let pin = Pin::Key(far_key.fingerprint());
    let Both { mut near, mut far, .. } = both_with_keys([&near_key, &far_key], pin).unwrap();
    assert_eq!((near.key(), far.key()), (Some(far_key.fingerprint()), Some(near_key.fingerprint())));
    for length in [1, 1000, 16_384, 70_000, 3 << 20] {
        pass(&mut near, &mut far, length);
        pass(&mut far, &mut near, length);
    }
    near.close();
    while far.receive(&mut Pool::default()).unwrap() != Received::Closed {}
    let error = both_with_keys([&near_key, &far_key], Pin::Key(near_key.fingerprint())).err().unwrap();
    assert!(error.contains(&far_key.fingerprint().to_string()), "{error}");
}

#[test]
fn who_speaks_without_tls_is_heard_and_has_no_key() {
    let (clock, key) = (Clock::start(), Identity::generate().unwrap());
    let listener = listen(clock).with_tls(Acceptor::new(&key).unwrap());
    let mut near = dial(clock, Some(&listener), listener.address(), None).unwrap();
    let (mut pool, sent) = (Pool::default(), vec![7; 200_000]);
    near.send(Buffer::from(sent.clone())).unwrap();
    let (mut far, mut came): (Option<Stream>, _) = (None, Vec::new());
    while came.len() < sent.len() {
        near.flush().unwrap();
        near.receive(&mut pool).unwrap();
        match &mut far {
            None => far = listener.accept().unwrap(),
            Some(far) => {
                if let Received::Data(bytes) = far.receive(&mut pool).unwrap() {
                    came.extend_from_slice(&bytes);
                }
                far.flush().unwrap();
            }
        }
    }
    assert!(came == sent && far.unwrap().key().is_none());
}

#[test]
fn one_listener_has_several_streams() {
    let Both { clock, listener, mut near, mut far } = both();
    let mut other = dial(clock, Some(&listener), listener.address(), None).unwrap();
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
    while its.receive(&mut Pool::default()).unwrap() == Received::Nothing {}
    drop(near);
    while far.receive(&mut Pool::default()).unwrap() != Received::Closed {}
    drop(far);
    pass(&mut its, &mut other, 5000);
}

#[test]
fn who_does_not_answer_is_said() {
    let clock = Clock::start();
    let absent = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = dial(clock, None, absent, None).unwrap_err();
    assert!(error.contains("nothing listens there"), "{error}");
    let error = Listener::at("no-such-one".parse().unwrap(), &Options::default(), clock.now())
        .unwrap_err()
        .to_string();
    assert!(error.contains("no-such-one"), "{error}");
}

#[test]
fn garbage_does_no_harm() {
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
