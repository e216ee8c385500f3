//! Farlane's client and server as the ends of perftest, over endpoints that are joined without a
//! wire; and recorded words of perftest's own programs.

use std::vec::Vec;

use engine::{Instant, Nanos};
use proptest::prelude::*;

use super::wire::{Place, Report, Step, Version, Word, steps};
use super::*;
use crate::measure::client::Talk;
use crate::measure::{Client, Failure, Mode, Output, Peer, Server, Test, Verb};
use crate::{Endpoint, Key, LocalConfig, LocalEndpoint, Operation, ReceiveRequest, SendRequest, SharedPool};

const LIMITS: crate::measure::Limits = crate::measure::Limits { size: 1 << 20, depth: 256, busy: false };

fn test(verb: Verb, mode: Mode) -> Test {
    Test { verb, mode, size: 4096, iterations: 300, depth: 8 }
}

fn each_test() -> impl Iterator<Item = Test> {
    [Verb::Send, Verb::Write, Verb::Read]
        .into_iter()
        .flat_map(|verb| [test(verb, Mode::Latency), test(verb, Mode::Bandwidth)])
}

/// Settings like those of RoCE or, without immediate data, of iWARP.
fn config(is_iwarp: bool, delays: bool, seed: u64) -> LocalConfig {
    let usual = LocalConfig::default();
    LocalConfig { limits: Limits { immediate: !is_iwarp, ..usual.limits }, delays, seed, ..usual }
}

/// A client, and the server's two connections.
struct Bench {
    config: LocalConfig,
    pool: SharedPool,
    now: Instant,
    desk: Desk,
    client: Client<LocalEndpoint>,
    servers: Vec<Server<LocalEndpoint>>,
    fault: Option<&'static str>,
    outputs: Vec<Output>,
    /// How often the second connection is refused before it is accepted.
    refusals: u32,
}

impl Bench {
    fn new(asked: Test, served: Test, config: &LocalConfig) -> Self {
        let pool = SharedPool::default();
        let desk = Desk::new(served);
        let [near, far] = LocalEndpoint::pair(config, &pool, &Peer::Perftest.private_data(&asked));
        let client = Client::new(near, asked, Peer::Perftest, &pool);
        let server = Server::new(Instant::ZERO, far, LIMITS, pool.clone(), Some(desk.clone()));
        Self {
            config: config.clone(),
            pool,
            now: Instant::ZERO,
            desk,
            client,
            servers: std::vec![server],
            fault: None,
            outputs: Vec::new(),
            refusals: 0,
        }
    }

    fn step(&mut self) {
        self.now = self.now + Nanos::from_micros(50);
        let (now, fault) = (self.now, &mut self.fault);
        self.servers.retain_mut(|server| {
            let goes_on = server.settle(now);
            *fault = fault.or(server.take_fault());
            goes_on
        });
        while let Some(output) = self.client.poll(now) {
            match output {
                Output::Connect if self.refusals > 0 => {
                    self.refusals -= 1;
                    self.client.refused(now);
                }
                Output::Connect => {
                    let [near, far] = LocalEndpoint::pair(&self.config, &self.pool, b"");
                    self.client.join(near);
                    let desk = Some(self.desk.clone());
                    self.servers.push(Server::new(now, far, LIMITS, self.pool.clone(), desk));
                }
                output => self.outputs.push(output),
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.outputs.last(), Some(Output::Finished(_) | Output::Failed(_)))
    }

    fn run(mut self) -> Self {
        for _ in 0..200_000 {
            if self.is_over() {
                return self;
            }
            self.step();
        }
        panic!("the measurement does not end: {:?}, {:?}, {:?}", self.outputs, self.client, self.servers);
    }
}

#[test]
fn each_test_of_perftest_runs_between_our_ends() {
    for (asked, is_iwarp, seed) in each_test()
        .flat_map(|one| [(one, false, 0), (one, true, 0), (one, false, 1), (one, true, 2), (one, true, 3)])
    {
        let over = Bench::new(asked, asked, &config(is_iwarp, seed > 0, seed)).run();
        let samples = over.outputs.iter().filter(|output| matches!(output, Output::Sample(_))).count();
        let expected = match (asked.mode, asked.verb) {
            (Mode::Bandwidth, _) => 0,
            // The last write of a client has no answer.
            (Mode::Latency, Verb::Write) => 299,
            (Mode::Latency, _) => 300,
        };
        assert_eq!(samples, expected, "{asked:?}");
        assert!(matches!(over.outputs.last(), Some(Output::Finished(_))), "{asked:?}: {:?}", over.outputs);
        assert_eq!(over.fault, None);
        let mut over = over;
        for _ in 0..300 {
            over.step();
        }
        assert!(over.servers.is_empty() && over.desk.is_free(), "{asked:?}: {:?}", over.servers);
    }
}

#[test]
fn a_server_that_leaves_has_seen_the_last_write() {
    let asked = test(Verb::Write, Mode::Latency);
    let Bench { config, pool, desk, mut servers, .. } = Bench::new(asked, asked, &config(false, false, 0));
    let [near, far] = LocalEndpoint::pair(&config, &pool, &Peer::Perftest.private_data(&asked));
    servers[0] = Server::new(Instant::ZERO, far, LIMITS, pool.clone(), Some(desk.clone()));
    let (mut talk, mut ends) = (Perftest::new(asked, &pool), std::vec![near]);
    Talk::begin(&mut talk, &mut ends[0]).unwrap();
    let (mut now, mut written, mut is_finished) = (Instant::ZERO, 0, false);
    while !is_finished {
        now = now + Nanos::from_micros(50);
        assert!(now < Instant::ZERO + Nanos::from_secs(1), "it ends");
        let mut said = None;
        servers.retain_mut(|server| server.settle(now));
        for which in 0..ends.len() {
            while let Some(completion) = ends[which].poll_completion() {
                written += u32::from(matches!(completion.result, Ok(crate::Done::Written)));
                let Ok(done) = completion.result else { continue };
                // The acknowledgement of the last write is lost.
                if written < asked.iterations || which == 0 {
                    said = talk.on_done(&mut ends, which, now, (completion.id, done)).unwrap().or(said);
                }
            }
            while let Some(event) = ends[which].poll_event() {
                said = said.or(talk.on_event(&mut ends, which, now, &event).unwrap());
            }
        }
        said = match said {
            Some(said) => Some(said),
            None => talk.poll(&mut ends, now).unwrap(),
        };
        if let Some(Output::Connect) = said {
            let [near, far] = LocalEndpoint::pair(&config, &pool, b"");
            ends.push(near);
            servers.push(Server::new(now, far, LIMITS, pool.clone(), Some(desk.clone())));
        }
        is_finished = matches!(said, Some(Output::Finished(_)));
    }
    assert_eq!(written, asked.iterations);
}

#[test]
fn a_server_that_does_not_listen_yet_is_asked_again() {
    let asked = test(Verb::Read, Mode::Latency);
    let mut bench = Bench::new(asked, asked, &config(false, false, 0));
    bench.refusals = 7;
    let over = bench.run();
    assert!(matches!(over.outputs.last(), Some(Output::Finished(_))), "{:?}", over.outputs);
    assert!(over.now >= Instant::ZERO + Nanos::from_millis(700));
}

#[test]
fn the_next_client_is_served_and_a_second_is_turned_away() {
    let asked = test(Verb::Send, Mode::Latency);
    let mut bench = Bench::new(asked, asked, &config(false, false, 0));
    bench.step();
    let [mut near, far] = LocalEndpoint::pair(&bench.config, &bench.pool, b"");
    let mut other = Server::new(bench.now, far, LIMITS, bench.pool.clone(), Some(bench.desk.clone()));
    assert!(!other.settle(bench.now) && other.take_fault().is_some());
    assert!(matches!(near.poll_event(), Some(crate::Event::Rejected { .. })));
    let mut over = bench.run();
    over.step();
    assert!(over.desk.is_free());
    // A client that vanishes frees the desk for others.
    let mut lost = Bench::new(asked, asked, &config(false, false, 0));
    for _ in 0..6 {
        lost.step();
    }
    lost.client.stop();
    for _ in 0..3 {
        lost.step();
    }
    assert!(lost.servers.is_empty() && lost.desk.is_free(), "{:?}", lost.servers);
}

#[test]
fn a_silent_client_leaves_the_desk_soon_but_a_test_has_its_time() {
    let asked = test(Verb::Read, Mode::Bandwidth);
    let mut bench = Bench::new(asked, asked, &config(false, false, 0));
    bench.step();
    let later = |bench: &mut Bench, by: Nanos| {
        bench.now = bench.now + by;
        let now = bench.now;
        bench.servers.retain_mut(|server| server.settle(now));
        bench.servers.len()
    };
    assert_eq!(later(&mut bench, Nanos::from_secs(29)), 1);
    assert_eq!(later(&mut bench, Nanos::from_secs(31)), 0);
    assert!(bench.desk.is_free());
    // A client whose test runs, and which has not yet announced its end.
    let mut bench = Bench::new(asked, asked, &config(false, false, 0));
    while !bench.outputs.iter().any(|one| matches!(one, Output::Progress(_))) {
        bench.step();
    }
    assert_eq!(later(&mut bench, Nanos::from_secs(500)), 2);
}

/// Sends `words` on a first connection. Returns the outcome of a server of the test `served`.
fn hear(served: Test, words: &[&[u8]]) -> (bool, Option<&'static str>) {
    let pool = SharedPool::default();
    let [mut near, far] = LocalEndpoint::pair(&config(false, false, 0), &pool, b"");
    let mut server = Server::new(Instant::ZERO, far, LIMITS, pool, Some(Desk::new(served)));
    for word in words {
        if !server.settle(Instant::ZERO) {
            break;
        }
        let data = engine::Buffer::copy_from_slice(word);
        let operation = crate::measure::message(data);
        let _ = near.post_receive(ReceiveRequest { id: 1, length_max: 64 });
        let _ = near.post_send(SendRequest { id: 1, operation, signalled: false });
    }
    (server.settle(Instant::ZERO), server.take_fault())
}

const SAID: [&[u8]; 4] = [b"6.24\0\0\0\0\0\0\0\0\0\0\0\0", &[0, 0, 16, 0], &[0, 0, 0, 64], b"5\0"];

#[test]
fn a_word_out_of_its_place_ends_the_connection_with_a_reason() {
    let served = test(Verb::Send, Mode::Latency);
    assert_eq!(hear(served, &SAID), (true, None));
    let with = |at: usize, word: &'static [u8]| {
        let mut words = SAID;
        words[at] = word;
        let (goes_on, fault) = hear(served, &words);
        assert!(!goes_on, "{word:?}");
        fault.expect("there is a reason")
    };
    assert!(with(0, b"5.60\0\0\0\0\0\0\0\0\0\0\0\0").contains("too old"));
    for garbage in [&b"6.24"[..], &[0xff; 16], &[0; 16], b"six.24\0\0\0\0\0\0\0\0\0\0"] {
        with(0, garbage);
    }
    with(1, b"");
    with(3, &[0; 56]);
    let place = |pair: u8| {
        let mut word = [0; 56];
        word[11] = pair;
        word
    };
    let four = [SAID[0], SAID[1], SAID[2], SAID[3]];
    let (goes_on, fault) = hear(served, &[&four[..], &[&place(17)]].concat());
    assert!(!goes_on && fault.is_some_and(|fault| fault.contains("-R")), "{fault:?}");
    let (goes_on, fault) = hear(served, &[&four[..], &[&place(0), &place(0)]].concat());
    assert!(!goes_on && fault.is_some_and(|fault| fault.contains("second connection")), "{fault:?}");
}

#[test]
fn too_much_memory_to_go_round_in_is_not_lent() {
    let served = test(Verb::Write, Mode::Bandwidth);
    let mut bench = Bench::new(served, served, &config(false, false, 0));
    bench.config.limits.message_bytes = 1024;
    let over = bench.run_steps(20);
    assert!(over.fault.is_some_and(|fault| fault.contains("memory")), "{:?}", over.fault);
}

impl Bench {
    fn run_steps(mut self, count: u32) -> Self {
        for _ in 0..count {
            self.step();
        }
        self
    }
}

/// A server that sends these words, one for each of the client's.
fn answer(asked: Test, words: &[&[u8]]) -> Vec<Output> {
    let pool = SharedPool::default();
    let [near, mut far] = LocalEndpoint::pair(&config(false, false, 0), &pool, b"");
    let mut client = Client::new(near, asked, Peer::Perftest, &pool);
    let Some(crate::Event::Requested { .. }) = far.poll_event() else { panic!("no request") };
    far.accept(b"");
    for _ in 0..words.len() {
        far.post_receive(ReceiveRequest { id: 1, length_max: 64 }).unwrap();
    }
    let mut outputs = Vec::new();
    for word in words {
        outputs.extend(std::iter::from_fn(|| client.poll(Instant::ZERO)));
        let operation = crate::measure::message(engine::Buffer::copy_from_slice(word));
        let _ = far.post_send(SendRequest { id: 1, operation, signalled: false });
    }
    far.poll_completion();
    outputs.extend(std::iter::from_fn(|| client.poll(Instant::ZERO)));
    outputs
}

#[test]
fn a_client_stops_at_nonsense_and_at_old_versions() {
    let asked = test(Verb::Send, Mode::Latency);
    let four = [SAID[0], SAID[1], SAID[2], SAID[3]];
    assert_eq!(answer(asked, &[&four[..], &[&[0; 56]]].concat()), [Output::Connect]);
    let old = answer(asked, &[b"5.33\0\0\0\0\0\0\0\0\0\0\0\0"]);
    assert!(
        matches!(old[..], [Output::Failed(Failure::Version(found))] if found == Version::parse(b"5.33\0").unwrap())
    );
    assert_eq!(answer(asked, &[&four[..], &[&[0; 57]]].concat()), [Output::Failed(Failure::Nonsense)]);
    // A version with longer places.
    let late: &[u8] = b"6.29\0\0\0\0\0\0\0\0\0\0\0\0";
    assert_eq!(answer(asked, &[late, four[1], four[2], four[3], &[0; 64]]), [Output::Connect]);
    assert_eq!(
        answer(asked, &[late, four[1], four[2], four[3], &[0; 56]]),
        [Output::Failed(Failure::Nonsense)]
    );
}

/// Exchanges the client's words and a server's answers, until the client requests a connection or
/// has sent all words before its test.
fn answer_words(
    client: &mut Client<LocalEndpoint>,
    far: &mut LocalEndpoint,
) -> (Option<Output>, Vec<engine::Buffer>) {
    let (place, mut said) = (&[0; 56][..], Vec::new());
    for _ in 0..200 {
        if let Some(output) = client.poll(Instant::ZERO) {
            return (Some(output), said);
        }
        while let Some(completion) = far.poll_completion() {
            let Ok(crate::Done::Received { data, .. }) = completion.result else { continue };
            let word = match data.len() {
                16 => SAID[0],
                4 => &data[..],
                2 => SAID[3],
                _ => place,
            };
            let operation = crate::measure::message(engine::Buffer::copy_from_slice(word));
            far.post_receive(ReceiveRequest { id: 1, length_max: 64 }).unwrap();
            far.post_send(SendRequest { id: 2, operation, signalled: false }).unwrap();
            said.push(data);
        }
    }
    (None, said)
}

#[test]
fn a_server_that_counts_unsent_messages_is_not_believed() {
    for count in [9_999_u32, u32::MAX] {
        let asked = Test { depth: 256, ..test(Verb::Send, Mode::Bandwidth) };
        let config = config(true, false, 0);
        let pool = SharedPool::default();
        let [near, mut far] = LocalEndpoint::pair(&config, &pool, b"");
        let mut client = Client::new(near, asked, Peer::Perftest, &pool);
        far.accept(b"");
        far.post_receive(ReceiveRequest { id: 1, length_max: 64 }).unwrap();
        assert_eq!(answer_words(&mut client, &mut far).0, Some(Output::Connect));
        let [near, mut data] = LocalEndpoint::pair(&config, &pool, b"");
        client.join(near);
        data.accept(b"");
        for _ in 0..512 {
            data.post_receive(ReceiveRequest { id: 1, length_max: 4096 }).unwrap();
        }
        let (_, said) = answer_words(&mut client, &mut far);
        let place = Step::Place.parse(said.last().unwrap(), Version::OWN);
        let Some(Word::Place(place)) = place else { panic!("{place:?}") };
        // The client waits for the server's count before the last message.
        let outputs: Vec<_> = std::iter::from_fn(|| client.poll(Instant::ZERO)).collect();
        assert!(
            !outputs.iter().any(|one| matches!(one, Output::Finished(_) | Output::Failed(_))),
            "{outputs:?}"
        );
        let remote = crate::Remote { key: place.key, address: place.address, length: 4 };
        let count = engine::Buffer::copy_from_slice(&count.to_le_bytes());
        let operation = Operation::Write { data: count, remote };
        data.post_send(SendRequest { id: 3, operation, signalled: true }).unwrap();
        assert!(data.poll_completion().is_some());
        let outputs = std::iter::from_fn(|| client.poll(Instant::ZERO)).last();
        assert_eq!(outputs, Some(Output::Failed(Failure::Nonsense)));
    }
}

#[test]
fn versions_are_numbers_with_two_decimals() {
    for (word, version) in [
        (&b"6.24\0"[..], "6.24"),
        (b"6.6\0", "6.60"),
        (b"5.70\0", "5.70"),
        (b"6.06\0", "6.06"),
        (b"7\0", "7.00"),
    ] {
        let found = Version::parse(word).expect("a version");
        assert_eq!(std::format!("{found}"), version);
    }
    for word in [&b"6.24"[..], b"\0", b".5\0", b"-1\0", b"6.x\0", b"6.\0", b"70000\0", b"\xff\0"] {
        assert_eq!(Version::parse(word), None, "{word:?}");
    }
    assert!(Version::OLDEST < Version::OWN);
}

/// The fifth and later words of `ib_write_lat` 6.24 on Linux's rxe, as a guest's server sent them.
#[test]
fn places_are_read_as_perftest_lays_them_out() {
    let mut word = [0; 56];
    // lid, out_reads, qpn, psn, rkey, padding, vaddr, gid, srqn, gid_index.
    word[7] = 1;
    word[8..12].copy_from_slice(&0x12_u32.to_be_bytes());
    word[12..16].copy_from_slice(&0x00ab_cdef_u32.to_be_bytes());
    word[16..20].copy_from_slice(&0x0001_17d0_u32.to_be_bytes());
    word[24..32].copy_from_slice(&0x0000_7f12_3456_8000_u64.to_be_bytes());
    let version = Version::parse(b"6.24\0").expect("a version");
    let place = Place { pair: 0x12, key: Key(0x0001_17d0), address: 0x0000_7f12_3456_8000 };
    assert_eq!(Step::Place.parse(&word, version), Some(Word::Place(place)));
}

proptest! {
    #[test]
    fn every_word_survives_its_bytes(pair: u32, key: u32, address: u64, late: bool, verb in 0..3_usize, deep: bool) {
        let verb = [Verb::Send, Verb::Write, Verb::Read][verb];
        let asked = test(verb, if deep { Mode::Bandwidth } else { Mode::Latency });
        let version = Version::parse(if late { b"6.29\0" } else { b"6.24\0" }).expect("a version");
        let place = Place { pair, key: Key(key), address };
        let report = Report { test: asked, elapsed: Nanos::from_millis(5) };
        for step in steps(&asked) {
            let word = step.emit(version, place, report);
            match (step, step.parse(&word, version)) {
                (Step::Join | Step::Run, None) => {}
                (Step::Version, Some(Word::Version(said))) => prop_assert_eq!(said, Version::OWN),
                (Step::Place, Some(Word::Place(said))) => prop_assert_eq!(said, place),
                (Step::Cycle, Some(Word::Cycle(said))) => prop_assert_eq!(said, 4096),
                (_, parsed) => prop_assert_eq!(parsed, Some(Word::Other)),
            }
        }
    }

    #[test]
    fn no_bytes_are_worse_than_nonsense(bytes: Vec<u8>) {
        crate::fuzz::perftest(&bytes);
    }
}

#[test]
fn a_message_in_a_test_without_messages_ends_it() {
    let served = test(Verb::Write, Mode::Bandwidth);
    let mut bench = Bench::new(Test { verb: Verb::Write, ..served }, served, &config(false, false, 0));
    while bench.servers.len() < 2 {
        bench.step();
    }
    bench.step();
    let end = &mut bench.client.endpoints_mut()[1];
    let operation = Operation::Send {
        inline: crate::Inline::new(b"x"),
        data: engine::Buffer::EMPTY,
        invalidate: None,
        immediate: None,
    };
    let _ = end.post_send(SendRequest { id: 9, operation, signalled: false });
    let over = bench.run();
    assert!(over.fault.is_some_and(|fault| fault.contains("without messages")), "{:?}", over.fault);
}
