//! Client and server over ends that are joined without a wire.

use std::vec::Vec;

use engine::{Instant, Nanos};
use proptest::prelude::*;

use super::wire::Answer;
use super::*;
use crate::{Endpoint, Key, LocalConfig, LocalEndpoint, Remote, SendRequest};

const LIMITS: Limits = Limits { size: 1 << 20, depth: 256, busy: false };

fn test(verb: Verb, mode: Mode) -> Test {
    Test { verb, mode, size: 4096, iterations: 100, depth: 8 }
}

/// Runs a measurement to its end and returns its outputs.
fn run(test: Test, config: &LocalConfig, limits: Limits) -> Vec<Output> {
    let pool = SharedPool::default();
    let [near, far] = LocalEndpoint::pair(config, &pool, &test.emit());
    let mut client = Client::new(near, test, Peer::Farlane, &pool);
    let mut now = Instant::ZERO;
    let mut server = Some(Server::new(now, far, limits, pool, None));
    let mut outputs = Vec::new();
    for _ in 0..1_000_000 {
        now = now + Nanos::from_micros(1);
        if let Some(one) = &mut server
            && !one.settle(now)
        {
            server = None;
        }
        while let Some(output) = client.poll(now) {
            outputs.push(output);
        }
        if matches!(outputs.last(), Some(Output::Finished(_) | Output::Failed(_))) {
            return outputs;
        }
    }
    panic!("the measurement does not end: {outputs:?}, {client:?}");
}

fn pair(private_data: &[u8]) -> [LocalEndpoint; 2] {
    LocalEndpoint::pair(&LocalConfig::default(), &SharedPool::default(), private_data)
}

const VERBS: [Verb; 3] = [Verb::Send, Verb::Write, Verb::Read];

#[test]
fn latency_has_a_sample_for_each_iteration() {
    for (verb, delays) in VERBS.into_iter().flat_map(|verb| [(verb, false), (verb, true)]) {
        let outputs =
            run(test(verb, Mode::Latency), &LocalConfig { delays, ..LocalConfig::default() }, LIMITS);
        let samples = outputs.iter().filter(|output| matches!(output, Output::Sample(_))).count();
        assert_eq!(samples, 100, "{verb:?}: {outputs:?}");
        assert!(matches!(outputs.last(), Some(Output::Finished(_))), "{outputs:?}");
    }
}

#[test]
fn bandwidth_reports_its_progress_to_the_end() {
    for (verb, delays) in VERBS.into_iter().flat_map(|verb| [(verb, false), (verb, true)]) {
        let outputs =
            run(test(verb, Mode::Bandwidth), &LocalConfig { delays, ..LocalConfig::default() }, LIMITS);
        let steps: Vec<_> = outputs
            .iter()
            .filter_map(|output| match output {
                Output::Progress(step) => Some(step.done),
                _ => None,
            })
            .collect();
        assert!(steps.is_sorted() && steps.last() == Some(&100), "{verb:?}: {outputs:?}");
        assert!(matches!(outputs.last(), Some(Output::Finished(_))), "{outputs:?}");
    }
}

#[test]
fn no_count_of_a_server_finds_the_client_unready() {
    for (depth, iterations) in (1..20).flat_map(|depth| (1..60).map(move |iterations| (depth, iterations))) {
        let test = Test { size: 8, iterations, depth, ..test(Verb::Send, Mode::Bandwidth) };
        let outputs = run(test, &LocalConfig { delays: true, ..LocalConfig::default() }, LIMITS);
        assert!(matches!(outputs.last(), Some(Output::Finished(_))), "{test:?}: {outputs:?}");
    }
}

#[test]
fn a_server_refuses_tests_beyond_its_limits() {
    let config = LocalConfig::default();
    let usual = test(Verb::Send, Mode::Bandwidth);
    for (test, limits, why) in [
        (Test { size: 2 << 20, ..usual }, LIMITS, Refusal::Size),
        (Test { size: 0, ..usual }, LIMITS, Refusal::Size),
        (Test { iterations: 0, ..usual }, LIMITS, Refusal::Nothing),
        (Test { depth: 257, ..usual }, LIMITS, Refusal::Depth),
        (usual, Limits { busy: true, ..LIMITS }, Refusal::Busy),
    ] {
        let outputs = run(test, &config, limits);
        assert_eq!(outputs, [Output::Failed(Failure::Refused(Some(why)))], "{test:?}");
    }
}

#[test]
fn a_request_that_is_not_of_a_client_is_refused() {
    for garbage in [&b"FlRm"[..], &[0xff; 56], &head_of_another_version()] {
        let [mut near, far] = pair(garbage);
        let mut server = Server::new(Instant::ZERO, far, LIMITS, SharedPool::default(), None);
        assert!(!server.settle(Instant::ZERO), "{garbage:?}");
        let Some(crate::Event::Rejected { private_data }) = near.poll_event() else {
            panic!("{garbage:?} was not rejected");
        };
        assert_eq!(Answer::parse(&private_data), Some(Answer::Refused(Refusal::Unknown)));
    }
}

/// A message of rping that names memory.
fn named(lent: Remote) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&lent.address.to_be_bytes());
    bytes[8..12].copy_from_slice(&lent.key.0.to_be_bytes());
    bytes[12..].copy_from_slice(&lent.length.to_be_bytes());
    bytes
}

/// Waits until the server has answered.
fn wait(near: &mut LocalEndpoint, server: &mut Server<LocalEndpoint>) {
    for _ in 0..1_000 {
        assert!(server.settle(Instant::ZERO));
        match near.poll_completion().map(|completion| completion.result) {
            Some(Ok(crate::Done::Received { data, .. })) => return assert_eq!(data.len(), 16),
            Some(result) => assert!(result.is_ok(), "{result:?}"),
            None => {}
        }
    }
    panic!("the server does not answer");
}

#[test]
fn pings_of_rping_come_back() {
    // InfiniBand pads private data with zeros.
    for nothing in [&b""[..], &[0; 56]] {
        let [mut near, far] = pair(nothing);
        let mut server = Server::new(Instant::ZERO, far, LIMITS, SharedPool::default(), None);
        assert!(server.settle(Instant::ZERO));
        for round in 1..6_u8 {
            let sent = Buffer::from(std::vec![round; 60_000]);
            let source = near.register(crate::Exposure::Read(sent.clone())).unwrap();
            let sink = near.register(crate::Exposure::Write(60_000)).unwrap();
            for lent in [source, sink] {
                near.post_receive(crate::ReceiveRequest { id: 1, length_max: 16 }).unwrap();
                let operation = notice(&named(lent));
                near.post_send(SendRequest { id: 2, operation, signalled: true }).unwrap();
                wait(&mut near, &mut server);
            }
            assert_eq!(near.deregister(sink.key).unwrap(), sent, "round {round}");
            near.deregister(source.key).unwrap();
        }
    }
}

#[test]
fn our_client_pings_as_rping_does_and_checks_the_answer() {
    for size in [1, 2, 60_000] {
        let pool = SharedPool::default();
        let asked = Test { size, iterations: 5, ..test(Verb::Read, Mode::Latency) };
        let [near, far] = pair(&Peer::Rping.private_data(&asked));
        let mut client = Client::new(near, asked, Peer::Rping, &pool);
        let mut server = Server::new(Instant::ZERO, far, LIMITS, pool, None);
        let mut outputs = Vec::new();
        for step in 0..100 {
            let now = Instant::ZERO + Nanos::from_micros(step);
            server.settle(now);
            outputs.extend(std::iter::from_fn(|| client.poll(now)));
        }
        let samples = outputs.iter().filter(|output| matches!(output, Output::Sample(_))).count();
        assert!(samples == 5 && matches!(outputs.last(), Some(Output::Finished(_))), "{outputs:?}");
    }
}

#[test]
fn an_rping_that_names_too_much_or_too_little_loses_its_connection() {
    let remote = |length| Remote { key: Key(7), address: 0, length };
    for word in [&named(remote(0))[..], &named(remote(LIMITS.size + 1)), b"short"] {
        let [mut near, far] = pair(b"");
        let mut server = Server::new(Instant::ZERO, far, LIMITS, SharedPool::default(), None);
        assert!(server.settle(Instant::ZERO));
        let operation = message(Buffer::copy_from_slice(word));
        near.post_send(SendRequest { id: 2, operation, signalled: true }).unwrap();
        assert!(!server.settle(Instant::ZERO), "{word:?}");
    }
}

fn head_of_another_version() -> [u8; MESSAGE_LENGTH] {
    let mut bytes = test(Verb::Send, Mode::Latency).emit();
    bytes[4] += 1;
    bytes
}

/// A server with a client that sends any words. Returns whether the server continues after `words`.
fn survives(test: Test, words: &[&[u8]]) -> bool {
    let [mut near, far] = pair(&test.emit());
    let mut server = Server::new(Instant::ZERO, far, LIMITS, SharedPool::default(), None);
    assert!(server.settle(Instant::ZERO));
    for (id, word) in (0..).zip(words) {
        let operation = message(Buffer::copy_from_slice(word));
        // A connection that is over rejects requests.
        let _ = near.post_send(SendRequest { id, operation, signalled: true });
        if !server.settle(Instant::ZERO) {
            return false;
        }
    }
    true
}

#[test]
fn unexpected_messages_end_the_connection() {
    let write = test(Verb::Write, Mode::Latency);
    let region = |length| super::wire::emit_region(Remote { key: Key(7), address: 0, length });
    assert!(survives(write, &[&region(4096)]));
    assert!(!survives(write, &[&region(4095)]), "memory of another length");
    assert!(!survives(write, &[b""]), "no memory");
    assert!(!survives(write, &[&region(4096), b"x"]), "words where there are none");
    assert!(!survives(test(Verb::Read, Mode::Latency), &[b""]), "a message in a test of reads");
    assert!(!survives(test(Verb::Send, Mode::Latency), &[b"short"]), "a message of another length");
    assert!(!survives(test(Verb::Write, Mode::Bandwidth), &[b"x"]), "words where there are none");
}

#[test]
fn a_silent_client_loses_its_connection_with_a_reason() {
    let [near, far] = pair(&test(Verb::Read, Mode::Latency).emit());
    let mut server = Server::new(Instant::ZERO, far, LIMITS, SharedPool::default(), None);
    assert!(server.settle(Instant::ZERO));
    assert!(server.settle(Instant::ZERO + Nanos::new(SILENCE_MAX.get() - 1)));
    assert!(!server.settle(Instant::ZERO + SILENCE_MAX));
    let mut client =
        Client::new(near, test(Verb::Read, Mode::Latency), Peer::Farlane, &SharedPool::default());
    let outputs = client.poll(Instant::ZERO);
    assert!(matches!(outputs, Some(Output::Failed(Failure::Disconnected(_)))), "{outputs:?}");
    assert_eq!(client.poll(Instant::ZERO), None);
}

proptest! {
    #[test]
    fn every_test_survives_its_bytes(size in 1_u32.., iterations in 1_u32.., depth in 1_u16.., verb in 0..3_usize, deep: bool) {
        let mode = if deep { Mode::Bandwidth } else { Mode::Latency };
        let test = Test { verb: VERBS[verb], mode, size, iterations, depth };
        prop_assert_eq!(Test::parse(&test.emit()), Ok(test));
    }

    #[test]
    fn every_answer_survives_its_bytes(key: u32, address: u64, length: u32) {
        let answer = Answer::Taken(Remote { key: Key(key), address, length });
        prop_assert_eq!(Answer::parse(&answer.emit()), Some(answer));
    }

    #[test]
    fn no_bytes_are_worse_than_nonsense(bytes: Vec<u8>) {
        let _ = (Test::parse(&bytes), Answer::parse(&bytes));
    }
}
