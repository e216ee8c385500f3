use super::*;
use network_models::ethernet::{Port, PortSettings};
use network_models::lossless::{Lossless, Settings};

const RATE: Rate = Rate::from_gigabits(100);
const LIMIT: Nanos = Nanos::from_secs(10);

fn setup(transport: Transport) -> Setup {
    let step = Nanos::new(500);
    Setup {
        seed: 3,
        transport,
        drivers: [Driver::POLLING; 2],
        software: Software { submit: step, complete: step, command: step, respond: step },
        medium: Medium::Memory { rate: 10_000_000_000 },
        namespace_bytes: 16 << 20,
        queue_size: 64,
        capsule_data_max: 4096,
    }
}

fn rdma() -> Setup {
    setup(Transport::Rdma([Card::CONNECTX_3; 2], [Some(RATE); 2]))
}

fn tcp() -> Setup {
    setup(Transport::Tcp(network::Config { line: [Some(RATE); 2], ..network::Config::default() }))
}

fn bench(setup: &Setup) -> FabricBench {
    let path = || -> Path {
        match setup.transport {
            Transport::Tcp(_) => {
                [Port::new(PortSettings::new(RATE), &Rng::from_seed(1))].into_iter().collect()
            }
            Transport::Rdma(..) => {
                let link = Settings {
                    rate: RATE,
                    processing: Nanos::ZERO,
                    propagation: Nanos::new(60),
                    buffer: Settings::BUFFER,
                    cut_through: true,
                    is_ethernet: false,
                };
                [Lossless::new([link])].into_iter().collect()
            }
        }
    };
    let mut bench = FabricBench::new(setup, [path(), path()]);
    bench.boot().expect("the connection is made");
    bench
}

fn task(kind: Kind, bytes: u32, depth: u32) -> Task {
    Task::Commands { kind, count: 200, bytes, depth, gap: Nanos::from_micros(20), random: true }
}

fn median(outcome: &Outcome) -> u64 {
    let mut times = outcome.times.clone();
    times.sort_unstable();
    times[times.len() / 2].get()
}

#[test]
fn commands_of_every_kind_and_depth_end_and_every_run_is_the_same() {
    for setup in [rdma(), tcp()] {
        let run = || {
            let mut bench = bench(&setup);
            for kind in Kind::ALL {
                for (bytes, depth) in [(512, 1), (4096, 16), (128 << 10, 64)] {
                    let outcome = bench.run(task(kind, bytes, depth), LIMIT).expect("it ends");
                    assert_eq!((outcome.failed, outcome.times.len()), (0, 200), "{kind:?} {bytes} {depth}");
                }
            }
            (bench.events(), bench.digest())
        };
        assert_eq!(run(), run());
    }
}

#[test]
fn who_follows_an_operation_changes_nothing_and_the_path_adds_up() {
    for setup in [rdma(), tcp()] {
        let (mut alone, mut followed) = (bench(&setup), bench(&setup));
        for kind in [Kind::Read, Kind::Write] {
            // Data that are longer than a capsule.
            let task = task(kind, 8192, 1);
            let outcome = alone.run(task, LIMIT).expect("it ends");
            followed.follow(7);
            followed.run(task, LIMIT).expect("it ends");
            let chain = followed.chain().expect("the operation has ended");
            assert_eq!(chain.latency, outcome.times[7]);
            let mut at = Nanos::ZERO;
            for segment in &chain.segments {
                assert_eq!(segment.start, at, "{chain:#?}");
                at += segment.length;
            }
            assert_eq!(at, chain.latency, "{chain:#?}");
            let places = |place| chain.segments.iter().filter(|one| one.place == place).count();
            for side in Side::BOTH {
                assert!(places(Place::Hop(side, 0)) > 0, "{chain:#?}");
            }
            assert!(places(Place::Host) > 0 && places(Place::Target) > 0, "{chain:#?}");
        }
        assert_eq!(alone.digest(), followed.digest());
    }
}

#[test]
fn data_within_the_capsule_save_the_way_back_and_forth() {
    for (setup, least) in [(rdma(), 1_000), (tcp(), 300)] {
        let time = |capsule_data_max| {
            let setup = Setup { capsule_data_max, ..setup.clone() };
            median(&bench(&setup).run(task(Kind::Write, 4096, 1), LIMIT).expect("it ends"))
        };
        let (within, asked_for) = (time(4096), time(0));
        assert!(asked_for > within + least, "{within} and {asked_for} ns");
    }
}

#[test]
fn many_commands_fill_the_line() {
    for setup in [rdma(), tcp()] {
        let outcome = bench(&setup).run(task(Kind::Read, 128 << 10, 64), LIMIT).expect("it ends");
        let rate = outcome.bytes * 8_000 / (outcome.ended - outcome.began).get();
        // The controller's copy takes 80 Gbit/s at most, and the card's PCIe link 63.
        let range =
            if matches!(setup.transport, Transport::Tcp(_)) { 50_000..80_000 } else { 48_000..63_000 };
        assert!(range.contains(&rate), "{rate} Mbit/s");
    }
}
