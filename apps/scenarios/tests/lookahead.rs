//! Counts and measures the round trips of commands over a long link.

use engine::{Nanos, Rng};
use scenarios::file::link::Link;
use scenarios::test_bench::{Kind, Setup, Task, TestBench};

const COUNT: u64 = 40;
const LIMIT: Nanos = Nanos::from_secs(600);
/// Time for both directions of the link.
const ROUND_TRIP: Nanos = Nanos::from_millis(20);
const LINK: &str = "[link]\nlatency = \"10ms\"\nrate = \"10Gbit/s\"\n";

fn setup(lookahead: bool) -> Setup {
    Setup { lookahead, ..Setup::published(1) }
}

/// The median time of 4 KiB commands, one at a time, and the number of the device's reads that went
/// to the host.
fn measure(bench: &mut TestBench, kind: Kind) -> (Nanos, Option<u64>) {
    let reads = |bench: &TestBench| bench.lookahead().map(|statistics| statistics.reads);
    let before = reads(bench);
    let gap = Nanos::from_millis(1);
    let task = Task::Commands { kind, count: COUNT, bytes: 4096, depth: 1, gap, random: true };
    let outcome = bench.run(task, LIMIT).expect("it ends");
    assert_eq!(outcome.failed, 0);
    let mut times = outcome.times;
    times.sort_unstable();
    let after = reads(bench).zip(before).map(|(after, before)| after - before);
    (times[times.len() / 2], after)
}

fn over(lookahead: bool) -> TestBench {
    let link = Link::parse(LINK).expect("a proper link");
    let mut bench = TestBench::new(&setup(lookahead), Some(link.network(&Rng::from_seed(1))));
    bench.boot().expect("it comes up");
    bench
}

/// The number of round trips in `time`, in hundredths, beyond the time of the same command next to
/// the host.
fn round_trips(time: Nanos, direct: Nanos) -> u64 {
    time.saturating_sub(direct).get() * 100 / ROUND_TRIP.get()
}

#[test]
fn a_command_takes_one_round_trip_instead_of_two_or_three() {
    let mut direct = TestBench::new(&setup(false), None);
    direct.boot().expect("it comes up");
    let (mut plain, mut ahead) = (over(false), over(true));
    for (kind, usual) in [(Kind::Read, 2), (Kind::Write, 3)] {
        let (device, _) = measure(&mut direct, kind);
        let (without, _) = measure(&mut plain, kind);
        let (with, reads) = measure(&mut ahead, kind);
        println!("{kind:?}: direct {device}, without {without}, with {with}, {:?}", ahead.lookahead());
        assert_eq!(reads, Some(0), "{kind:?}: the device reads nothing of the host");
        assert_eq!((round_trips(without, device) + 50) / 100, usual, "{kind:?} takes {without}");
        let trips = round_trips(with, device);
        assert!((100..115).contains(&trips), "{kind:?} takes {with}: {trips} hundredths of a round trip");
    }
    let statistics = ahead.lookahead().expect("it looks ahead");
    assert_eq!((statistics.given_up, statistics.over_budget), (0, 0), "{statistics:?}");
}
