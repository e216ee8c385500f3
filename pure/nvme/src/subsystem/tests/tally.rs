//! Tallies of commands with a known course.

use engine::Nanos;

use super::*;

/// The number of times in the class of latencies that `length` belongs to, and in all classes.
fn counts(latencies: &Latencies, length: Nanos) -> (u64, u64) {
    let class = LATENCY_BOUNDS.iter().take_while(|bound| **bound < length).count();
    (latencies.counts()[class], latencies.counts().iter().sum())
}

#[test]
fn the_bounds_rise_from_two_microseconds_to_ten_seconds() {
    assert!(LATENCY_BOUNDS.is_sorted_by(|one, other| one < other));
    assert_eq!(LATENCY_BOUNDS[..4], [2, 5, 10, 20].map(Nanos::from_micros));
    assert_eq!(LATENCY_BOUNDS[20], Nanos::from_secs(10));
}

#[test]
fn the_time_of_a_command_is_divided_among_host_medium_and_waiting() {
    let mut bench = Bench::new();
    bench.media_stuck = true;
    bench.host_data = vec![1; 512];
    bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    // The second write of the same block waits for the first one, which is time of the medium.
    bench.now = bench.now + Nanos::from_micros(30);
    bench.send(IO, io(IoOpcode::Write, 1, 0, 1));
    bench.now = bench.now + Nanos::from_micros(300);
    bench.release_media();
    let (id, tally) = bench.subsystem.tallies().next().unwrap();
    assert_eq!(
        (id, tally.of(Kind::Write).operations, tally.of(Kind::Write).bytes),
        (NamespaceId(1), 2, 1024)
    );
    let medium = tally.latencies(Kind::Write, Phase::Medium);
    assert_eq!(medium.sum(), Nanos::from_micros(330 + 300));
    assert_eq!(counts(medium, Nanos::from_micros(330)), (2, 2));
    assert_eq!(tally.latencies(Kind::Write, Phase::Whole).sum(), medium.sum());
    assert_eq!(tally.latencies(Kind::Write, Phase::Link).sum(), Nanos::ZERO);
    assert_eq!(counts(tally.latencies(Kind::Write, Phase::Wait), Nanos::ZERO), (2, 2));
    assert_eq!(counts(tally.latencies(Kind::Read, Phase::Whole), Nanos::ZERO), (0, 0));
}

#[test]
fn data_that_the_host_sends_late_are_time_of_the_link() {
    let mut bench = Bench::new();
    let (controller, token) = (bench.controller, CommandToken(9));
    let entry = io(IoOpcode::Write, 2, 0, 1);
    bench.subsystem.handle_input(bench.now, Input::Command { controller, token, queue: IO, entry });
    bench.now = bench.now + Nanos::from_millis(3);
    let data = Input::HostData { token, data: Buffer::from(vec![7; 512]) };
    bench.subsystem.handle_input(bench.now, data);
    bench.drain();
    let (id, tally) = bench.subsystem.tallies().next().unwrap();
    assert_eq!(id, NamespaceId(2));
    let of = |phase| tally.latencies(Kind::Write, phase).sum();
    assert_eq!(of(Phase::Link), Nanos::from_millis(3));
    assert_eq!((of(Phase::Medium), of(Phase::Whole)), (Nanos::ZERO, Nanos::from_millis(3)));
}

#[test]
fn failures_are_counted_by_status_and_move_no_bytes() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.fails(IO, io(IoOpcode::Read, 1, 5000, 1), StatusCode::LbaOutOfRange);
    }
    bench.fails(IO, io(IoOpcode::Verify, 1, 5000, 1), StatusCode::LbaOutOfRange);
    // This identifier is beyond the subsystem's maximum, so there is no tally for it.
    bench.fails(IO, io(IoOpcode::Read, 0xffff_0000, 0, 1), StatusCode::InvalidNamespaceOrFormat);
    let tallies: Vec<_> = bench.subsystem.tallies().collect();
    let [(NamespaceId(1), tally)] = tallies[..] else { panic!("one namespace was named") };
    let read = tally.of(Kind::Read);
    assert_eq!((read.operations, read.bytes, read.errors), (0, 0, 3));
    assert_eq!(tally.of(Kind::Other).errors, 1);
    assert_eq!(tally.statuses(), [(StatusCode::LbaOutOfRange, 4)]);
    assert_eq!(tally.other_statuses(), 0);
    let host = bench.subsystem.host_tally(bench.controller).unwrap();
    assert_eq!(host.of(Kind::Read).errors, 4);
}
