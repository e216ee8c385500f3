//! The models against results that can be derived on paper.

use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos, Rng};

use super::*;
use crate::{Chance, Class, Frame, Hop};

const IDEAL: Cell =
    Cell { station: Nanos::ZERO, n1: 0, n2: 0, harq_up: Harq::NONE, harq_down: Harq::NONE, ..Cell::CAMPUS };

/// Mean and maximum wait for a transmission, over arrivals throughout the period, in microseconds.
fn waits(cell: Cell, direction: Direction) -> (u64, u64) {
    let period = cell.slot().get() * u64::from(cell.pattern.slots());
    let step = 500;
    let (mut sum, mut longest) = (0, 0);
    for at in (0..period).step_by(step) {
        let wait = (cell.next(direction, Instant::from_nanos(at)).0 - Instant::from_nanos(at)).get();
        sum += wait;
        longest = longest.max(wait);
    }
    (sum / (period / step as u64) / 1_000, longest.div_ceil(1_000))
}

/// Checks `sum(gap^2) / (2 * period)` over the starts of usable slots, as the README
/// derives it.
#[test]
fn waits_for_slots_are_what_was_derived() {
    let near = |found: u64, expected: u64| found.abs_diff(expected) <= 2;
    let unused = Pattern { special_used: false, ..Pattern::DDDSU };
    let with = |pattern| Cell { pattern, ..IDEAL };
    assert!(near(waits(IDEAL, Direction::Down).0, 350));
    assert!(near(waits(with(unused), Direction::Down).0, 550));
    let (mean, longest) = waits(IDEAL, Direction::Up);
    assert!(near(mean, 1_250) && near(longest, 2_500), "{mean} {longest}");
    let (mean, longest) = waits(with(Pattern::D7S_U2), Direction::Up);
    assert!(near(mean, 2_050) && near(longest, 4_500), "{mean} {longest}");
}

#[test]
fn slots_and_symbols_have_their_lengths() {
    assert_eq!(IDEAL.slot(), Nanos::from_micros(500));
    assert_eq!(IDEAL.symbols(1), Nanos::new(35_714));
    let mini = Cell { mini_slot: 2, ..IDEAL };
    let at = Instant::from_nanos(2_000_001);
    let (start, end) = mini.next(Direction::Up, at);
    assert_eq!((start.as_nanos(), end - start), (2_071_428, Nanos::new(71_429)));
}

fn run(hop: &mut impl Hop, entries: &[(u64, u32)]) -> Vec<u64> {
    let mut out = Vec::new();
    for (at, length) in entries {
        let at = Instant::from_nanos(*at);
        while let Some(before) = hop.next().filter(|next| *next <= at) {
            if hop.poll(before).is_some() {
                out.push(before.as_nanos());
            }
        }
        hop.enter(at, Frame::new(0, *length, Class::BEST_EFFORT, Buffer::EMPTY));
    }
    while let Some(at) = hop.next() {
        if hop.poll(at).is_some() {
            out.push(at.as_nanos());
        }
    }
    out
}

#[test]
fn a_request_takes_a_pattern_and_a_proactive_grant_the_next_slot() {
    let mut uplink = Uplink::new(IDEAL, Rng::from_seed(1));
    // The request in slot 4 is granted in slot 5. Four slots later is slot 9, an uplink slot, so
    // the frame is sent by 5 ms. The next frame has a proactive grant. A frame after a second of
    // silence needs a request in slot 2004.
    let out = run(&mut uplink, &[(0, 100), (5_600_000, 100), (1_000_000_000, 100)]);
    assert_eq!(out, [5_000_000, 7_500_000, 1_005_000_000]);
}

#[test]
fn what_does_not_fit_into_the_first_grant_needs_another() {
    let mut uplink = Uplink::new(IDEAL, Rng::from_seed(1));
    assert_eq!(run(&mut uplink, &[(0, 1_518)]), [7_500_000]);
}

#[test]
fn a_configured_grant_needs_no_request() {
    let grants = Grants::Configured { period: 5 * 14, offset: 4 * 14, bytes: 2_000, repetitions: 1 };
    let mut uplink = Uplink::new(Cell { grants, ..IDEAL }, Rng::from_seed(1));
    assert_eq!(run(&mut uplink, &[(0, 1_518), (1, 1_518)]), [2_500_000, 5_000_000]);
}

#[test]
fn slots_carry_what_they_can_and_frames_keep_their_order() {
    let cell = Cell { down_bytes: 3_000, ..IDEAL };
    let mut downlink = Downlink::new(cell, Rng::from_seed(1));
    let out = run(&mut downlink, &[(1, 1_500), (2, 1_500), (3, 1_500)]);
    assert_eq!(out, [1_000_000, 1_000_000, 1_500_000]);
}

#[test]
fn failures_are_sampled() {
    let harq = Harq {
        first: Chance::percent(10),
        later: Chance::percent(50),
        attempts: 3,
        round_trip: RoundTrip::Fixed(Nanos::from_millis(2)),
        recovery: Nanos::from_millis(40),
    };
    let mut rng = Rng::from_seed(5);
    let cell = Cell { harq_up: harq, ..IDEAL };
    let mut sample = || cell.delivered(Direction::Up, Instant::ZERO, &mut rng).as_nanos() / 1_000_000;
    let samples: Vec<_> = (0..100_000).map(|_| sample()).collect();
    let count = |time| samples.iter().filter(|sample| **sample == time).count();
    assert!(count(0).abs_diff(90_000) < 300);
    assert!(count(2).abs_diff(5_000) < 300);
    assert!(count(4).abs_diff(2_500) < 300);
    assert!(count(44).abs_diff(2_500) < 300);
}
