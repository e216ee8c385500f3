//! Which hosts a device with a list of keys admits.

use super::*;
use crate::access::{Access, Fingerprint};

const OURS: Fingerprint = Fingerprint([1; 32]);
const OTHERS: Fingerprint = Fingerprint([2; 32]);
const STRANGERS: Fingerprint = Fingerprint([3; 32]);

fn guarded() -> Downstream {
    let mut downstream = Downstream::new(config("box", 2), Rng::from_seed(2));
    downstream.set_access(at(0), Access::Keys(Vec::from([OURS, OTHERS])));
    downstream
}

/// Accepts a connection whose host has proved `key`.
fn accept_with(downstream: &mut Downstream, now: Instant, connection: u32, key: Option<Fingerprint>) {
    accept(downstream, now, connection);
    if let Some(key) = key {
        downstream.handle_input(now, Input::Identified(ConnectionId(connection), key));
    }
}

/// The device with the session of a host that has proved `OURS`, and the host.
fn owned() -> (Downstream, Session) {
    let mut downstream = guarded();
    let (mut host, hello) = hello("host", 1);
    accept_with(&mut downstream, at(1), 1, Some(OURS));
    let welcome = receive(&mut downstream, at(1), 1, &hello).into_iter().find_map(|output| match output {
        Output::Transmit { bytes, .. } => Some(bytes),
        _ => None,
    });
    host.handle_input(at(1), session::Input::Received(welcome.unwrap()));
    settle(&mut host, at(1), |_| ());
    assert_eq!(downstream.owner(), Some(OURS));
    (downstream, host)
}

/// The Hello with which `host` resumes its session.
fn resumption(host: &mut Session, now: Instant) -> Buffer {
    host.handle_input(now, session::Input::Disconnected);
    settle(host, now, |_| ());
    host.handle_input(now, session::Input::Connected);
    let mut said = None;
    settle(host, now, |output| {
        if let session::Output::Transmit(bytes) = output {
            said = Some(bytes);
        }
    });
    said.expect("a host says Hello")
}

#[test]
fn a_host_without_an_admitted_key_gets_the_reason() {
    let mut downstream = guarded();
    let (_, hello) = hello("host", 1);
    accept_with(&mut downstream, at(1), 1, None);
    let (code, text) = refusal_to(&receive(&mut downstream, at(1), 1, &hello), 1);
    assert_eq!(code, RefuseCode::Forbidden);
    assert!(text.contains("?key="), "{text}");
    accept_with(&mut downstream, at(1), 2, Some(STRANGERS));
    let (code, text) = refusal_to(&receive(&mut downstream, at(1), 2, &hello), 2);
    assert_eq!(code, RefuseCode::Forbidden);
    assert!(text.contains(&std::format!("--allow {STRANGERS}")), "{text}");
    assert_eq!(downstream.owner(), None);
}

#[test]
fn no_host_resumes_a_session_with_another_key() {
    for key in [None, Some(OTHERS), Some(STRANGERS)] {
        let (mut downstream, mut host) = owned();
        downstream.handle_input(at(2), Input::Disconnected(ConnectionId(1)));
        drained(&mut downstream, at(2));
        let stolen = resumption(&mut host, at(3));
        accept_with(&mut downstream, at(3), 2, key);
        let (code, _) = refusal_to(&receive(&mut downstream, at(3), 2, &stolen), 2);
        let expected = if key == Some(OTHERS) { RefuseCode::Busy } else { RefuseCode::Forbidden };
        assert_eq!(code, expected, "{key:?}");
        assert_eq!(downstream.session().statistics().resumptions, 0);
        accept_with(&mut downstream, at(4), 3, Some(OURS));
        receive(&mut downstream, at(4), 3, &stolen);
        assert_eq!(downstream.session().statistics().resumptions, 1, "{key:?}");
    }
}

#[test]
fn a_key_that_is_struck_off_the_list_loses_its_session() {
    let (mut downstream, mut host) = owned();
    downstream.set_access(at(2), Access::Keys(Vec::from([OTHERS])));
    let outputs = drained(&mut downstream, at(2));
    let is_down = |output: &Output| matches!(output, Output::Event { event: Event::LinkDown { .. }, .. });
    assert!(outputs.iter().any(is_down), "{outputs:?}");
    assert!(outputs.contains(&Output::Close { connection: ConnectionId(1) }), "{outputs:?}");
    assert_eq!(downstream.owner(), None);
    let again = resumption(&mut host, at(3));
    accept_with(&mut downstream, at(3), 2, Some(OURS));
    assert_eq!(refusal_to(&receive(&mut downstream, at(3), 2, &again), 2).0, RefuseCode::Forbidden);
    // The device is free for hosts on the list.
    let (_, hello) = hello("other", 9);
    accept_with(&mut downstream, at(4), 3, Some(OTHERS));
    receive(&mut downstream, at(4), 3, &hello);
    assert_eq!(downstream.owner(), Some(OTHERS));
}

#[test]
fn a_list_that_still_names_the_host_changes_nothing_for_it() {
    let (mut downstream, _) = owned();
    downstream.set_access(at(2), Access::Keys(Vec::from([OURS])));
    assert_eq!(drained(&mut downstream, at(2)), []);
    assert_eq!(downstream.owner(), Some(OURS));
}
