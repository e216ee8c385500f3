//! A root complex whose Completion Timeout is shorter than the far end's delay.

use alloc::string::ToString;

use pcie::requester::TimedOut;

use super::far_end::Pair;
use super::*;

const FAR: Nanos = Nanos::from_millis(10);
const VERSION: u64 = offset::VERSION as u64;

/// A root complex that waits for 10 ms, while a round trip takes 20 ms.
fn impatient() -> Config {
    let mut config = config();
    config.root.timeout = CompletionTimeout::A2;
    config
}

fn timeouts(bench: &TestBench) -> u64 {
    bench.guest.root().requester_statistics().timeouts
}

#[test]
fn a_function_that_never_answers_in_time_leaves_an_empty_slot() {
    let mut pair = Pair::over(impatient(), FAR);
    assert!(pair.has_event(|event| matches!(event, Event::Empty)), "{:?}", pair.bench.events);
    let reported = |event: &Event| match event {
        Event::CompletionTimeout {
            request: TimedOut::Config { offset: 0, write: false, .. },
            within,
            ..
        } => *within == FAR && event.to_string().ends_with("at 0x000: no answer within 10 ms"),
        _ => false,
    };
    assert!(pair.has_event(reported), "{:?}", pair.bench.events);
    pair.connect();
    let (asked, before) = (pair.bench.now, timeouts(&pair.bench));
    assert_eq!([0, 4, 0x34].map(|at| pair.read(RegionIndex::CONFIG, at)), [u32::MAX, 0, 0]);
    assert!(pair.bench.now - asked < Nanos::from_millis(1) && before > 0);
    // The next client to connect finds a slot that has enumerated again.
    pair.bench.disconnect();
    pair.until(|bench| bench.guest.takes_client());
    assert!(timeouts(&pair.bench) > before && pair.bench.guest.offer().is_none());
    pair.connect();
    // Nothing overtakes packets that are on their way.
    pair.delay = Nanos::from_micros(100);
    let later = pair.bench.now + FAR * 3;
    pair.until(|bench| bench.now > later);
    pair.bench.disconnect();
    pair.until(|bench| bench.guest.takes_client());
    pair.connect();
    assert_eq!(pair.read(RegionIndex::CONFIG, 0), 0x0010_fa1a);
}

#[test]
fn a_register_that_is_not_there_in_time_is_all_ones() {
    let mut pair = Pair::over(impatient(), Nanos::from_micros(100));
    pair.connect();
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), 0x0002_0000);
    pair.delay = FAR;
    let asked = pair.bench.now;
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), u32::MAX);
    let took = pair.bench.now - asked;
    assert!((FAR..FAR + Nanos::from_micros(100)).contains(&took), "{took}");
    let reported = |event: &Event| {
        matches!(
            event,
            Event::CompletionTimeout { request: TimedOut::Memory { length: 4, .. }, times: 1, .. }
        )
    };
    assert!(pair.has_event(reported), "{:?}", pair.bench.events);
    // Registers that change at the function are read there: Status is, Command beside it is not.
    assert_eq!(pair.read(RegionIndex::CONFIG, 4) >> 27, 0b11111);
    assert_eq!((timeouts(&pair.bench), pair.bench.guest.statistics().given_up), (2, 0));
    // Answers that come too late answer nothing.
    pair.delay = Nanos::from_micros(100);
    let later = pair.bench.now + FAR * 3;
    pair.until(|bench| bench.now > later);
    assert_eq!(pair.read(RegionIndex::BAR0, VERSION), 0x0002_0000);
    assert_eq!(pair.bench.guest.root().requester_statistics().late, 2);
}
