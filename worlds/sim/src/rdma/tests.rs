use super::*;
use network_models::faults::{Behaviour, Faults};
use network_models::lossless::{Lossless, Settings};
use network_models::{AnyHop, Chance};
use rdma::{Disconnected, Done, Inline, LocalConfig, LocalEndpoint, WorkError};

const FDR: Settings = Settings {
    rate: Rate::from_megabits(54_545),
    processing: Nanos::ZERO,
    propagation: Nanos::new(10),
    buffer: Settings::BUFFER,
    cut_through: true,
    is_ethernet: false,
};

fn config(card: Card, driver: Driver) -> Config {
    Config {
        cards: [card; 2],
        drivers: [driver; 2],
        line: [Some(FDR.rate); 2],
        limits: Config::LIMITS,
        regions_max: 256,
        seed: 1,
    }
}

fn connect(config: &Config, loss: u32) -> (Fabric, [ModelledEndpoint; 2]) {
    let path = |name| {
        let hop = AnyHop::from(Lossless::new([FDR]));
        let behaviour = Behaviour { loss: Chance::parts_per_million(loss), ..Behaviour::default() };
        let faults = AnyHop::from(Faults::new(behaviour, Rng::from_seed(7).fork(name)));
        Path::new([hop, faults])
    };
    let (fabric, mut ends) =
        Fabric::new(config, [path("there"), path("back")], &SharedPool::default(), b"hi");
    assert_eq!(ends[1].poll_event(), Some(Event::Requested { private_data: b"hi".to_vec() }));
    ends[1].accept(b"");
    assert!(matches!(ends[0].poll_event(), Some(Event::Established { .. })));
    assert!(matches!(ends[1].poll_event(), Some(Event::Established { .. })));
    (fabric, ends)
}

/// When each request ended, and how.
type Completed = Vec<(Instant, u64, Result<Done, WorkError>)>;

/// Runs until no event is left, and returns the completions of each end, with their times.
fn run(fabric: &Fabric, ends: &mut [ModelledEndpoint; 2]) -> [Completed; 2] {
    let mut done = [Vec::new(), Vec::new()];
    while let Some(at) = fabric.next() {
        fabric.advance(at);
        for (end, done) in ends.iter_mut().zip(&mut done) {
            done.extend(std::iter::from_fn(|| end.poll_completion()).map(|one| (at, one.id, one.result)));
        }
    }
    done
}

fn post(end: &mut impl Endpoint, id: u64, operation: Operation) {
    end.post_send(SendRequest { id, operation, signalled: true }).unwrap();
}

fn message(bytes: usize, invalidate: Option<Key>) -> Operation {
    let data = Buffer::from(vec![7; bytes]);
    Operation::Send { inline: Inline::EMPTY, data, invalidate, immediate: None }
}

/// The time of a message of `bytes` from one software to the other.
fn one_way(card: Card, driver: Driver, bytes: usize) -> u64 {
    let (fabric, mut ends) = connect(&config(card, driver), 0);
    ends[1].post_receive(ReceiveRequest { id: 9, length_max: 1 << 20 }).unwrap();
    post(&mut ends[0], 1, message(bytes, None));
    let [sent, received] = run(&fabric, &mut ends);
    assert_eq!((sent.len(), received.len()), (1, 1));
    assert!(sent[0].0 > received[0].0, "the acknowledgement returns after the message arrived");
    received[0].0.as_nanos()
}

#[test]
fn a_short_message_takes_the_sum_of_its_steps() {
    let inline = Card { inline_max: 256, ..Card::CONNECTX_3 };
    // Posting 100; store 90, two lines of 88 B at 63 Gbit/s, the link 50; logic 150; 90 B at 54.5
    // Gbit/s 14, the cable 10; logic 150; data and completion, two writes of 88 B, the link 50;
    // memory 220; a look 50.
    let expected = 100 + (90 + 22 + 50) + 150 + (14 + 10) + 150 + (22 + 50) + 220 + 50;
    assert!(one_way(inline, Driver::POLLING, 64).abs_diff(expected) <= 3, "{expected}");
    // Without inline data, the card fetches twice: the request, and the message.
    let fetches = 2 * (50 + 420 + 50);
    let fetched = one_way(Card::CONNECTX_3, Driver::POLLING, 64);
    assert!(fetched.abs_diff(expected + fetches) <= 40, "{fetched}, expected {}", expected + fetches);
}

#[test]
fn sleeping_software_is_woken_by_an_interrupt() {
    let asleep = Driver { poll: Nanos::ZERO, interrupt: Nanos::from_micros(4), ..Driver::POLLING };
    let polled = one_way(Card::CONNECTX_3, Driver::POLLING, 64);
    assert_eq!(one_way(Card::CONNECTX_3, asleep, 64), polled - 50 + 4_000);
}

/// The requests of a small session, on any endpoints.
fn session(ends: &mut [impl Endpoint; 2]) -> [Remote; 2] {
    let [host, controller] = ends;
    let lent = host.register(Exposure::Write(10_000)).unwrap();
    let given = host.register(Exposure::Read(Buffer::from(vec![5; 9_000]))).unwrap();
    for id in 0..4 {
        host.post_receive(ReceiveRequest { id: 100 + id, length_max: 64 }).unwrap();
    }
    let write =
        Operation::Write { data: Buffer::from(vec![3; 8_192]), remote: Remote { length: 8_192, ..lent } };
    post(controller, 1, write);
    post(controller, 2, Operation::Read { remote: given });
    post(controller, 3, message(16, Some(lent.key)));
    post(controller, 4, message(64, None));
    [lent, given]
}

#[test]
fn modelled_endpoints_behave_like_endpoints_without_a_wire() {
    let strip = |all: Completed| -> Vec<_> { all.into_iter().map(|(_, id, result)| (id, result)).collect() };
    for (card, loss) in [
        (Card::CONNECTX_3, 0),
        (Card { mtu: 1024, ..Card::CONNECTX_3 }, 300_000),
        (Card { data_in_response: true, ..Card::CONNECTX_3 }, 0),
        (Card { inline_max: 64, ..Card::CONNECTX_3 }, 300_000),
    ] {
        let (fabric, mut ends) = connect(&config(card, Driver::POLLING), loss);
        let [lent, _] = session(&mut ends);
        let [host, controller] = run(&fabric, &mut ends).map(strip);
        let [near, mut far] = LocalEndpoint::pair(&LocalConfig::default(), &SharedPool::default(), b"");
        far.poll_event();
        far.accept(b"");
        let mut local = [near, far];
        let [known, _] = session(&mut local);
        let all = |end: &mut LocalEndpoint| -> Vec<_> {
            std::iter::from_fn(|| end.poll_completion()).map(|one| (one.id, one.result)).collect()
        };
        let expected = [1, 0].map(|index: usize| all(&mut local[index]));
        // Keys differ, because they are random.
        let without_keys = |all: Vec<(u64, Result<Done, WorkError>)>| -> Vec<_> {
            let change = |done| match done {
                Done::Received { data, invalidated, .. } => (Some(data), invalidated.is_some()),
                Done::Read(data) => (Some(data), false),
                Done::Sent | Done::Written => (None, false),
            };
            all.into_iter().map(|(id, result)| (id, result.map(change))).collect()
        };
        let [at_controller, at_host] = expected.map(without_keys);
        assert_eq!((without_keys(controller), without_keys(host)), (at_controller, at_host));
        assert_eq!(ends[0].deregister(lent.key), local[0].deregister(known.key));
        assert_eq!(fabric.statistics().repeated > 0, loss > 0, "{:?}", fabric.statistics());
    }
}

#[test]
fn a_message_without_a_receive_request_is_sent_again() {
    let (fabric, mut ends) = connect(&config(Card::CONNECTX_3, Driver::POLLING), 0);
    post(&mut ends[0], 1, message(64, None));
    let late = Instant::from_nanos(55_000);
    while fabric.next().is_some_and(|at| at < late) {
        fabric.advance(fabric.next().unwrap());
    }
    fabric.advance(late);
    ends[1].post_receive(ReceiveRequest { id: 9, length_max: 64 }).unwrap();
    let [sent, received] = run(&fabric, &mut ends);
    assert_eq!((sent.len(), received.len()), (1, 1));
    assert!(fabric.statistics().not_ready >= 3, "{:?}", fabric.statistics());
}

#[test]
fn a_wrong_key_ends_the_connection_of_both() {
    let (fabric, mut ends) = connect(&config(Card::CONNECTX_3, Driver::POLLING), 0);
    let lent = ends[0].register(Exposure::Write(8)).unwrap();
    ends[0].deregister(lent.key);
    post(&mut ends[1], 1, Operation::Read { remote: lent });
    post(&mut ends[1], 2, message(8, None));
    let [_, controller] = run(&fabric, &mut ends);
    let results: Vec<_> = controller.into_iter().map(|(_, id, result)| (id, result)).collect();
    assert_eq!(results, [(1, Err(WorkError::RemoteAccess)), (2, Err(WorkError::Flushed))]);
    assert!(matches!(ends[0].poll_event(), Some(Event::Disconnected(Disconnected::Access(_)))));
    assert!(matches!(ends[1].poll_event(), Some(Event::Disconnected(Disconnected::Reported(_)))));
}

#[test]
fn a_card_gives_up_a_peer_that_is_gone() {
    let (fabric, mut ends) = connect(&config(Card::CONNECTX_3, Driver::POLLING), 1_000_000);
    post(&mut ends[0], 1, message(8, None));
    let [sent, _] = run(&fabric, &mut ends);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].2, Err(WorkError::RetryExceeded));
    assert_eq!((sent[0].0 - Instant::ZERO) / 1_000_000, Nanos::new(536), "eight times 67 ms");
    assert_eq!(ends[0].poll_event(), Some(Event::Disconnected(Disconnected::TimedOut)));
}

#[test]
fn long_messages_fill_the_line_and_every_run_is_the_same() {
    let transfer = |loss| {
        let (fabric, mut ends) = connect(&config(Card::CONNECTX_3, Driver::POLLING), loss);
        let (count, bytes) = (64, 128 << 10);
        for id in 0..count {
            ends[1].post_receive(ReceiveRequest { id, length_max: 1 << 20 }).unwrap();
            post(&mut ends[0], id, message(bytes, None));
        }
        let [_, received] = run(&fabric, &mut ends);
        assert_eq!(received.len() as u64, count);
        let rate = count * bytes as u64 * 8 * 1_000 / received[received.len() - 1].0.as_nanos();
        (rate, fabric.digest(), fabric.statistics())
    };
    // The line carries 54.5 Gbit/s less 26 B of each 4122.
    let (rate, _, statistics) = transfer(0);
    assert!((52_500..54_200).contains(&rate), "{rate} Mbit/s");
    assert_eq!((statistics.repeated, statistics.packets), (0, 64 * 32));
    assert_eq!(transfer(1_000), transfer(1_000));
    let (slower, _, statistics) = transfer(1_000);
    assert!(slower < rate && statistics.repeated > 0, "{slower} Mbit/s: {statistics:?}");
}
