//! Connections over good and bad paths.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use engine::{Rng, settle};
use proptest::prelude::*;

use super::*;
use crate::faults::{Behaviour, Faults};
use crate::tcp::CongestionControl;
use crate::wifi::{Medium, Settings, Station};
use crate::{AnyHop, Chance, Wire};

/// The application at one side.
#[derive(Default)]
struct Application {
    /// Data that is still to be given to the network.
    outgoing: Vec<u8>,
    given: usize,
    /// Length of the pieces in which the data is given.
    piece: usize,
    finish: bool,
    finished: bool,
    received: Vec<u8>,
    /// Time at which each byte count was reached.
    arrivals: Vec<(Instant, usize)>,
    opened: Option<Instant>,
    got_everything: Option<Instant>,
    gone: Option<(Instant, Gone)>,
    /// The application reads nothing before this time.
    reads_from: Instant,
    unread: usize,
}

/// A network with one connection and an application at each side.
struct Bench {
    network: Network,
    now: Instant,
    id: ConnectionId,
    sides: [Application; 2],
    accepts: bool,
}

impl Bench {
    fn new(config: Config, paths: [Path; 2]) -> Self {
        let mut network = Network::new(config, paths);
        let id = network.open(Instant::ZERO, Side::Near).unwrap();
        let sides = [(); 2].map(|()| Application { piece: 64 << 10, ..Application::default() });
        Self { network, now: Instant::ZERO, id, sides, accepts: true }
    }

    fn side(&mut self, side: Side) -> &mut Application {
        &mut self.sides[side.index()]
    }

    /// Gives the network as much data as it takes.
    fn give(&mut self, side: Side) {
        let connection = self.id;
        let application = &mut self.sides[side.index()];
        while application.given < application.outgoing.len() {
            let rest = application.outgoing.len() - application.given;
            let wanted = rest.min(application.piece);
            let room = self.network.room(connection, side, wanted);
            if room == 0 {
                return;
            }
            let end = application.given + wanted.min(room);
            let data = Buffer::copy_from_slice(&application.outgoing[application.given..end]);
            application.given = end;
            self.network.handle_input(self.now, Input::Send { connection, side, data });
        }
        if application.finish && !application.finished {
            application.finished = true;
            self.network.handle_input(self.now, Input::Finish { connection, side });
        }
    }

    fn read(&mut self, side: Side) {
        let connection = self.id;
        let application = &mut self.sides[side.index()];
        if application.reads_from <= self.now && application.unread > 0 {
            let bytes = core::mem::take(&mut application.unread);
            self.network.handle_input(self.now, Input::Consume { connection, side, bytes });
        }
    }

    fn heed(&mut self, output: Output) {
        let now = self.now;
        match output {
            Output::Incoming { connection, side } => {
                let answer =
                    if self.accepts { Input::Accept(connection) } else { Input::Reset { connection, side } };
                self.network.handle_input(now, answer);
            }
            Output::Opened { side, .. } => self.side(side).opened = Some(now),
            Output::Data { side, data, .. } => {
                let application = self.side(side);
                application.received.extend_from_slice(&data);
                application.unread += data.len();
                let count = application.received.len();
                application.arrivals.push((now, count));
            }
            Output::Writable { .. } => {}
            Output::Finished { side, .. } => self.side(side).got_everything = Some(now),
            Output::Closed { side, why, .. } => {
                assert_eq!(self.side(side).gone, None, "{side:?} is told twice");
                self.side(side).gone = Some((now, why));
            }
        }
    }

    /// Runs until nothing more happens, or until `until`.
    fn run(&mut self, until: Instant) {
        loop {
            for side in Side::BOTH {
                self.read(side);
                self.give(side);
            }
            let mut outputs = Vec::new();
            let now = self.now;
            let wake = settle(&mut self.network, now, |output| outputs.push(output));
            let idle = outputs.is_empty();
            outputs.into_iter().for_each(|output| self.heed(output));
            if !idle {
                continue;
            }
            let reads = self.sides.iter().filter(|side| side.unread > 0).map(|side| side.reads_from);
            let reads = reads.filter(|at| *at > now).min();
            match wake.into_iter().chain(reads).min() {
                Some(at) if at <= until => self.now = at,
                _ => {
                    self.now = until;
                    return;
                }
            }
        }
    }

    fn run_all(&mut self) {
        self.run(Instant::ZERO + Nanos::from_secs(3_600));
    }
}

fn at(milliseconds: u64) -> Instant {
    Instant::ZERO + Nanos::from_millis(milliseconds)
}

fn wires(latency: Nanos, rate: Option<Rate>) -> [Path; 2] {
    [(); 2].map(|()| Path::new([AnyHop::from(Wire::new(latency, rate))]))
}

/// Paths with a wire and then faults in each direction.
fn faulty(latency: Nanos, rate: Option<Rate>, faults: [Faults; 2]) -> [Path; 2] {
    faults.map(|faults| Path::new([AnyHop::from(Wire::new(latency, rate)), AnyHop::from(faults)]))
}

fn none() -> Faults {
    Faults::new(Behaviour::default(), Rng::from_seed(1))
}

/// Loses everything in these intervals, in milliseconds.
fn gaps(stretches: &[(u64, u64)]) -> Faults {
    let down = Behaviour { down: true, ..Behaviour::default() };
    let changes =
        stretches.iter().flat_map(|(from, to)| [(at(*from), down), (at(*to), Behaviour::default())]);
    none().with_schedule(changes)
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

fn of(tcp: Parameters) -> Config {
    Config { tcp: [tcp; 2], ..Config::default() }
}

#[test]
fn a_dial_takes_a_round_trip_and_bytes_half_of_one() {
    let mut bench = Bench::new(Config::default(), wires(Nanos::from_millis(10), None));
    bench.side(Side::Near).outgoing = noise(100, 1);
    bench.run(at(1_000));
    assert_eq!(bench.side(Side::Near).opened, Some(at(20)));
    assert_eq!(bench.side(Side::Far).opened, Some(at(30)));
    assert_eq!(bench.side(Side::Far).arrivals, [(at(30), 100)]);
}

#[test]
fn a_close_ends_each_direction_by_itself() {
    let mut bench = Bench::new(Config::default(), wires(Nanos::from_millis(10), None));
    bench.side(Side::Near).outgoing = noise(1_000, 1);
    bench.side(Side::Near).finish = true;
    bench.run(at(200));
    assert_eq!(bench.side(Side::Far).got_everything, Some(at(30)));
    assert_eq!(bench.side(Side::Near).gone, None);
    // The other direction continues.
    bench.side(Side::Far).outgoing = noise(5_000, 2);
    bench.side(Side::Far).finish = true;
    bench.run_all();
    assert_eq!(bench.side(Side::Near).received, noise(5_000, 2));
    assert_eq!(bench.side(Side::Near).gone, Some((at(210), Gone::Closed)));
    assert_eq!(bench.side(Side::Far).gone, Some((at(220), Gone::Closed)));
    assert_eq!(bench.network.connections(), 0);
}

#[test]
fn who_does_not_accept_refuses() {
    let mut bench = Bench::new(Config::default(), wires(Nanos::from_millis(10), None));
    bench.accepts = false;
    bench.run_all();
    assert_eq!(bench.side(Side::Near).gone, Some((at(20), Gone::Refused)));
    assert_eq!(bench.network.connections(), 0);
}

#[test]
fn a_reset_ends_both_ends() {
    let mut bench = Bench::new(Config::default(), wires(Nanos::from_millis(10), None));
    bench.run(at(100));
    let (connection, side) = (bench.id, Side::Far);
    bench.network.handle_input(bench.now, Input::Reset { connection, side });
    bench.run_all();
    assert_eq!(bench.side(Side::Near).gone, Some((at(110), Gone::Reset)));
    assert_eq!(bench.network.connections(), 0);
}

#[test]
fn a_lost_syn_comes_again_after_one_second_then_two() {
    let latency = Nanos::from_millis(10);
    let mut bench = Bench::new(Config::default(), faulty(latency, None, [gaps(&[(0, 2_000)]), none()]));
    bench.run(at(10_000));
    assert_eq!(bench.side(Side::Near).opened, Some(at(3_020)));
    // The server does not answer: seven SYNs, where the wait after the last is as long as all waits
    // before together.
    let mut bench = Bench::new(Config::default(), faulty(latency, None, [gaps(&[(0, 1_000_000)]), none()]));
    bench.run_all();
    assert_eq!(bench.side(Side::Near).gone, Some((at(127_000), Gone::TimedOut)));
    assert_eq!(bench.network.connections(), 0);
}

/// Sends ten segments at 1 s, the last `lost` of which are lost, on a path of 50 ms each way.
/// Returns the milliseconds until all have arrived.
fn tail_loss(tcp: Parameters, lost: u64) -> (u64, Statistics) {
    let bytes = 10 * 1448;
    let latency = Nanos::from_millis(50);
    // At 12 Mbit/s a full frame takes about a millisecond.
    let rate = Some(Rate::from_megabits(12));
    let before = (10 - lost) * 1_026;
    let (from, to) = ((1_050_000 + before).div_ceil(1_000), 1_200);
    let mut bench = Bench::new(of(tcp), faulty(latency, rate, [gaps(&[(from, to)]), none()]));
    bench.run(at(1_000));
    bench.side(Side::Near).outgoing = noise(bytes, 3);
    bench.run_all();
    assert_eq!(bench.sides[1].received, noise(bytes, 3));
    let arrived = bench.side(Side::Far).arrivals.last().unwrap().0 - at(1_000);
    (arrived.get() / 1_000_000, bench.network.statistics())
}

#[test]
fn a_lost_tail_is_probed_for_after_two_round_trips_and_waits_for_the_timeout_without() {
    let (with, counted) = tail_loss(Parameters::LINUX, 2);
    // The probe follows two round trips and two ticks after the last acknowledgement (at 110 ms).
    // Its acknowledgement comes one round trip later and reports the other lost segment, which then
    // takes half a round trip.
    assert!((445..=475).contains(&with), "{with} ms");
    assert_eq!((counted.probes, counted.timeouts), (1, 0));
    let without = Parameters { tail_loss_probe: None, ..Parameters::LINUX };
    let (without, counted) = tail_loss(without, 2);
    // One round trip and the floor of 200 ms after the last acknowledgement comes the first
    // segment, and one round trip later the rest.
    assert!((560..=600).contains(&without), "{without} ms");
    assert_eq!((counted.probes, counted.timeouts), (0, 1));
    // A single segment may be acknowledged late, so its probe is no faster than the timeout,
    // counted from its sending.
    let (alone, counted) = tail_loss(Parameters::LINUX, 1);
    assert!((345..=365).contains(&alone), "{alone} ms");
    assert_eq!((counted.probes, counted.timeouts), (1, 0));
}

#[test]
fn the_floor_of_the_timeout_can_be_lowered() {
    let retransmission =
        crate::tcp::Retransmission { floor: Nanos::from_millis(5), ..Parameters::LINUX.retransmission };
    let low = Parameters { tail_loss_probe: None, retransmission, ..Parameters::LINUX };
    let (low, _) = tail_loss(low, 3);
    let high = Parameters { tail_loss_probe: None, ..Parameters::LINUX };
    let (high, _) = tail_loss(high, 3);
    assert!(low + 100 < high, "{low} ms with a low floor, {high} ms with 200 ms");
}

#[test]
fn a_loss_in_the_middle_costs_one_round_trip_more() {
    for tcp in [Parameters::LINUX, Parameters::NPAP] {
        let latency = Nanos::from_millis(50);
        let rate = Some(Rate::from_megabits(12));
        // Frames arrive from 1051 ms on, one each millisecond; one of them is lost.
        let path = faulty(latency, rate, [gaps(&[(1_052, 1_053)]), none()]);
        let mut bench = Bench::new(of(Parameters { initial_window: 20, ..tcp }), path);
        bench.run(at(1_000));
        bench.side(Side::Near).outgoing = noise(15 * 1448, 4);
        bench.run_all();
        let arrived = bench.side(Side::Far).arrivals.last().unwrap().0;
        assert_eq!(bench.sides[1].received, noise(15 * 1448, 4));
        assert!(arrived < at(1_000 + 50 + 100 + 30), "{arrived:?}");
        let counted = bench.network.statistics();
        assert_eq!((counted.retransmitted, counted.timeouts), (1, 0), "{counted:?}");
    }
}

/// The rate of a transfer of `bytes`, in Mbit/s of data.
fn throughput(tcp: Parameters, paths: [Path; 2], bytes: usize) -> u64 {
    let mut bench = Bench::new(of(tcp), paths);
    bench.side(Side::Near).outgoing = noise(bytes, 5);
    bench.run_all();
    assert!(bench.sides[1].received == noise(bytes, 5));
    let arrivals = &bench.sides[1].arrivals;
    let (from, to) = (arrivals[0].0, arrivals[arrivals.len() - 1].0);
    bytes as u64 * 8_000 / (to - from).get()
}

#[test]
fn a_link_without_losses_is_filled() {
    // 1448 of 1538 bytes are data: at most 941 Mbit/s.
    for control in [CongestionControl::Cubic, CongestionControl::NewReno] {
        let tcp = Parameters { congestion: control, ..Parameters::LINUX };
        let rate = throughput(tcp, wires(Nanos::from_micros(50), Some(Rate::from_gigabits(1))), 10 << 20);
        assert!((930..=942).contains(&rate), "{rate} Mbit/s");
    }
    // A window of 64 KiB over 1 ms each way gives 262 Mbit/s.
    let rate =
        throughput(Parameters::NPAP, wires(Nanos::from_millis(1), Some(Rate::from_gigabits(1))), 10 << 20);
    assert!((240..=262).contains(&rate), "{rate} Mbit/s");
}

#[test]
fn acknowledgements_of_tcp_take_their_share_of_a_wifi_channel() {
    let stations = |media: [&Medium; 2]| {
        let seeds = [1, 2].map(Rng::from_seed);
        let [there, back] = [0, 1].map(|index| Station::new(Settings::OFDM, media[index], &seeds[index]));
        [Path::new([AnyHop::from(there)]), Path::new([AnyHop::from(back)])]
    };
    let (one, other) = (Medium::new(), Medium::new());
    // Two segments and an acknowledgement take 2 * 393.5 and 181.5 µs with a backoff before each,
    // which is 23.9 Mbit/s. Backoffs of both ends pass together, and collisions take time.
    let rate = throughput(Parameters::LINUX, stations([&one, &one]), 10 << 20);
    assert!((22..=26).contains(&rate), "{rate} Mbit/s");
    // On a channel of its own, a segment takes 393.5 µs, which is 29.4 Mbit/s.
    let rate = throughput(Parameters::LINUX, stations([&one, &other]), 10 << 20);
    assert!((28..=29).contains(&rate), "{rate} Mbit/s");
}

#[test]
fn a_short_queue_is_filled_again_and_again() {
    // The window grows until a queue of 64 KiB overflows, as at a bottleneck.
    for control in [CongestionControl::Cubic, CongestionControl::NewReno] {
        let tcp = Parameters { congestion: control, ..Parameters::LINUX };
        let rate = Rate::from_megabits(100);
        let paths = [(); 2].map(|()| {
            Path::new([AnyHop::from(Wire::new(Nanos::from_millis(5), Some(rate)).with_queue(64 << 10))])
        });
        let mut bench = Bench::new(of(tcp), paths);
        bench.side(Side::Near).outgoing = noise(20 << 20, 6);
        bench.run_all();
        assert!(bench.sides[1].received == noise(20 << 20, 6));
        let time = bench.sides[1].arrivals.last().unwrap().0 - at(10);
        let rate = (20 << 20) * 8_000 / time.get();
        assert!(rate > 75, "{control:?}: {rate} Mbit/s");
        assert!(bench.network.counts(Side::Near).lost > 0);
    }
}

#[test]
fn a_reader_that_rests_stops_the_writer_and_starts_it_again() {
    for tcp in [Parameters::LINUX, Parameters::NPAP] {
        let mut bench = Bench::new(of(tcp), wires(Nanos::from_millis(1), Some(Rate::from_megabits(100))));
        let bytes = 12 << 20;
        bench.side(Side::Near).outgoing = noise(bytes, 7);
        bench.side(Side::Far).reads_from = at(60_000);
        bench.run(at(50_000));
        let held = tcp.receive_buffer as usize;
        assert!(bench.side(Side::Far).received.len() <= held);
        assert!(bench.side(Side::Far).received.len() > held - 4_096);
        assert!(bench.side(Side::Near).given <= held + tcp.send_buffer as usize);
        bench.run_all();
        assert!(bench.sides[1].received == noise(bytes, 7));
    }
}

#[test]
fn an_acknowledgement_waits_for_company_and_travels_with_data() {
    let tcp = Parameters {
        acknowledgement: crate::tcp::Acknowledgement { quick: 0, ..Parameters::LINUX.acknowledgement },
        ..Parameters::LINUX
    };
    let mut bench = Bench::new(of(tcp), wires(Nanos::from_millis(1), None));
    bench.run(at(100));
    let before = bench.network.counts(Side::Far).entered;
    bench.side(Side::Near).outgoing = noise(10, 8);
    bench.run(at(130));
    assert_eq!(bench.network.counts(Side::Far).entered, before);
    bench.run(at(150));
    assert_eq!(bench.network.counts(Side::Far).entered, before + 1);
    bench.side(Side::Near).outgoing.extend(noise(10, 8));
    bench.side(Side::Far).outgoing = noise(10, 8);
    bench.run(at(170));
    assert_eq!(bench.network.counts(Side::Far).entered, before + 2);
}

#[test]
fn nagle_holds_a_second_small_segment() {
    let run = |nagle| {
        let tcp = Parameters { nagle, ..Parameters::NPAP };
        let mut bench = Bench::new(of(tcp), wires(Nanos::from_millis(10), None));
        bench.run(at(100));
        bench.side(Side::Near).piece = 10;
        bench.side(Side::Near).outgoing = noise(30, 9);
        bench.run_all();
        bench.side(Side::Far).arrivals.last().unwrap().0 - at(100)
    };
    assert!(run(false) < Nanos::from_millis(11));
    assert!(run(true) > Nanos::from_millis(30));
}

#[test]
fn a_stack_that_waits_for_its_line_makes_fewer_segments() {
    let run = |line| {
        let config = Config { line: [line; 2], ..of(Parameters::NPAP) };
        let mut bench = Bench::new(config, wires(Nanos::ZERO, Some(Rate::from_megabits(100))));
        bench.run(at(100));
        let before = bench.network.counts(Side::Near).entered;
        bench.side(Side::Near).piece = 128;
        bench.side(Side::Near).outgoing = noise(4096, 9);
        bench.run_all();
        (bench.network.counts(Side::Near).entered - before, bench.sides[1].received.len())
    };
    let (free, coalesced) = (run(None), run(Some(Rate::from_megabits(100))));
    assert_eq!((free.1, coalesced.1), (4096, 4096));
    assert!(coalesced.0 < free.0 && coalesced.0 <= 6, "{free:?} {coalesced:?}");
}

#[test]
fn the_hardware_stack_takes_its_published_time() {
    let mut bench = Bench::new(of(Parameters::NPAP), wires(Nanos::ZERO, None));
    bench.run(at(100));
    bench.side(Side::Near).outgoing = noise(1460, 9);
    bench.run_all();
    let arrived = bench.side(Side::Far).arrivals[0].0 - at(100);
    assert!(arrived.get().abs_diff(3_616) <= 1, "{arrived}");
}

/// Transfers data in both directions over a bad path.
fn survive(seed: u64, tcp: Parameters, behaviour: Behaviour, bytes: [usize; 2]) -> (Statistics, Instant) {
    let rng = Rng::from_seed(seed);
    let faults = ["there", "back"].map(|name| Faults::new(behaviour, rng.fork(name)));
    let paths = faulty(Nanos::from_millis(2), Some(Rate::from_megabits(50)), faults);
    let mut bench = Bench::new(of(tcp), paths);
    for (side, bytes) in Side::BOTH.into_iter().zip(bytes) {
        let application = bench.side(side);
        application.outgoing = noise(bytes, seed ^ side.index() as u64);
        application.piece = 1 + usize::try_from(seed % 5_000).unwrap();
        application.finish = true;
    }
    // A SYN could be lost too often, but not with these chances. Everything else gets through.
    bench.run(Instant::ZERO + Nanos::from_secs(36_000));
    for side in Side::BOTH {
        let (sent, received) =
            (&bench.sides[side.index()].outgoing, &bench.sides[side.other().index()].received);
        assert_eq!(
            received.len(),
            sent.len(),
            "{side:?}: {:?}",
            bench.sides.each_ref().map(|side| side.gone)
        );
        assert!(received == sent, "{side:?}");
    }
    let gone = bench.sides.each_ref().map(|side| side.gone.map(|(_, why)| why));
    assert_eq!(gone, [Some(Gone::Closed); 2]);
    assert_eq!(bench.network.connections(), 0);
    let end = bench.sides.iter().filter_map(|side| side.gone).map(|(at, _)| at).max();
    (bench.network.statistics(), end.unwrap())
}

/// A chance of one in `times`.
fn chance(times: u64) -> Chance {
    Chance::parts_per_billion(u32::try_from(1_000_000_000 / times).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn every_byte_arrives_once_and_in_order(
        seed in any::<u64>(), there in 0_usize..200_000, back in 0_usize..100_000,
        loss in 5_u64..200, reorder in 3_u64..100, duplication in 3_u64..100,
        linux in any::<bool>(), rack in any::<bool>(), selective in any::<bool>(),
    ) {
        let behaviour = Behaviour {
            loss: chance(loss),
            reorder: chance(reorder),
            reorder_by: Nanos::from_millis(seed % 20),
            duplication: chance(duplication),
            ..Behaviour::default()
        };
        let tcp = if linux { Parameters::LINUX } else { Parameters::NPAP };
        let tcp = Parameters {
            recent_acknowledgement: rack,
            selective_acknowledgement: selective,
            tail_loss_probe: tcp.tail_loss_probe.filter(|_| selective),
            ..tcp
        };
        survive(seed, tcp, behaviour, [there, back]);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let behaviour = Behaviour { loss: chance(20), ..Behaviour::default() };
    let run = || survive(11, Parameters::LINUX, behaviour, [500_000, 100_000]);
    assert_eq!(run(), run());
}

#[test]
fn many_connections_share_a_path_fairly() {
    let rate = Rate::from_megabits(100);
    let mut network = Network::new(Config::default(), wires(Nanos::from_millis(1), Some(rate)));
    let ids: Vec<_> = (0..20).map(|_| network.open(Instant::ZERO, Side::Near).unwrap()).collect();
    let mut received = BTreeMap::new();
    let mut now = Instant::ZERO;
    let data = Buffer::zeroed(64 << 10);
    while now < at(2_000) {
        for &connection in &ids {
            while network.room(connection, Side::Near, data.len()) >= data.len() {
                let data = data.clone();
                network.handle_input(now, Input::Send { connection, side: Side::Near, data });
            }
        }
        let mut outputs = Vec::new();
        let wake = settle(&mut network, now, |output| outputs.push(output));
        for output in outputs {
            match output {
                Output::Incoming { connection, .. } => network.handle_input(now, Input::Accept(connection)),
                Output::Data { connection, side, data } => {
                    *received.entry(connection).or_insert(0) += data.len();
                    let bytes = data.len();
                    network.handle_input(now, Input::Consume { connection, side, bytes });
                }
                Output::Closed { .. } => panic!("{output:?}"),
                _ => {}
            }
        }
        now = wake.unwrap().max(now);
    }
    let total: usize = received.values().sum();
    assert_eq!(received.len(), 20);
    // 2 s at 100 Mbit/s are 25 MB, of which 94 % are data.
    assert!((21_000_000..24_000_000).contains(&total), "{total}");
    let (least, most) = (received.values().min().unwrap(), received.values().max().unwrap());
    assert!(most / least < 8, "{least} to {most}");
}

#[test]
fn connections_beyond_the_limit_are_not_opened() {
    let mut network = Network::new(Config::default(), wires(Nanos::from_millis(1), None));
    let opened = (0..=CONNECTIONS_MAX).filter(|_| network.open(Instant::ZERO, Side::Far).is_some()).count();
    assert_eq!(opened, CONNECTIONS_MAX);
}
