//! Bounds compared with runs of the models, and with results that can be computed by hand.

use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos, Rng};
use proptest::prelude::*;

use super::*;
use crate::ethernet::medium::{Cable, Medium, PortLatency};
use crate::ethernet::{FifoStage, Port};
use crate::tsn::clock::ClockError;
use crate::tsn::gates::{GateEntry, GateSchedule, GateStates};
use crate::tsn::preemption::Preemption;
use crate::tsn::traffic::{Pattern, Running, Source};
use crate::{Hop, Path, Rate};

/// Sends the flow of `source` through the ports. Returns the longest and the shortest delay of
/// `frames` frames.
fn simulate(source: Source, ports: &[PortSettings], frames: u64, seed: u64) -> (u64, u64) {
    let rng = Rng::from_seed(seed);
    let ports =
        ports.iter().zip(["a", "b", "c", "d"]).map(|(port, name)| Port::new(port.clone(), &rng.fork(name)));
    let mut path: Path = ports.collect();
    let mut running = Running::new(source, rng.fork("flow"));
    let (mut longest, mut shortest, mut arrived) = (0, u64::MAX, 0);
    let mut drain = |path: &mut Path, until: Instant| {
        while let Some(at) = path.next().filter(|at| *at <= until) {
            if let Some(frame) = path.poll(at) {
                let delay = (at - frame.sent).get();
                longest = longest.max(delay);
                shortest = shortest.min(delay);
                arrived += 1;
            }
        }
    };
    for id in 0..frames {
        let now = running.next().unwrap();
        running.advance();
        drain(&mut path, now);
        let frame = Frame::new(id, source.length, source.class, Buffer::EMPTY);
        path.enter(now, Frame { sent: now, ..frame });
    }
    drain(&mut path, Instant::from_nanos(u64::MAX));
    assert_eq!(arrived, frames, "{:?}", path.counts());
    (longest, shortest)
}

fn flow_of(source: &Source) -> Flow {
    Flow {
        class: source.class,
        frame_min: source.length,
        frame_max: source.length,
        envelope: source.envelope().unwrap(),
    }
}

fn periodic(class: u8, length: u32, micros: u64, frames: u32) -> Source {
    let pattern = Pattern::Periodic {
        period: Nanos::from_micros(micros),
        offset: Nanos::ZERO,
        frames,
        jitter: Nanos::ZERO,
    };
    Source { class: Class::new(class).unwrap(), length, pattern }
}

fn saturated(class: u8, length: u32) -> Source {
    Source { class: Class::new(class).unwrap(), length, pattern: Pattern::Saturated }
}

#[test]
fn one_frame_alone_takes_what_it_takes() {
    let port = PortSettings {
        cable: Cable::metres(Medium::TwoThirds, 10),
        ..PortSettings::new(Rate::from_gigabits(1))
    };
    let source = periodic(7, 1518, 1_000, 1);
    let bound = worst_case(&flow_of(&source), &[port]).unwrap();
    // 1526 B, 50 ns of cable, and the margin for rounding.
    assert_eq!(bound.total, Nanos::new(12_208 + 50 + 4));
}

#[test]
fn a_lower_frame_blocks_once_and_preemption_makes_it_143_bytes() {
    let strict =
        PortSettings { background: vec![saturated(0, 1518)], ..PortSettings::new(Rate::from_gigabits(1)) };
    let express = Preemption { express: GateStates::of([7]), additional: 0 };
    let preempting = PortSettings { preemption: Some(express), ..strict.clone() };
    let source = periodic(7, 64, 100, 1);
    let bound = worst_case(&flow_of(&source), core::slice::from_ref(&strict)).unwrap();
    assert_eq!(bound.total, Nanos::new(12_304 + 576 + 4));
    let preempted = worst_case(&flow_of(&source), core::slice::from_ref(&preempting)).unwrap();
    // 1144 ns, and the margin for rounding at the cut.
    assert!(preempted.total.get().abs_diff(1_144 + 576) <= 24, "{preempted:?}");
    // The bounds are no larger than necessary.
    for (port, bound) in [(strict, bound), (preempting, preempted)] {
        let source = Source {
            pattern: Pattern::Periodic {
                period: Nanos::new(12_347),
                offset: Nanos::ZERO,
                frames: 1,
                jitter: Nanos::ZERO,
            },
            ..source
        };
        let (longest, _) = simulate(source, &[port], 20_000, 1);
        assert!(longest <= bound.total.get() && longest + 650 >= bound.total.get(), "{longest} {bound:?}");
    }
}

#[test]
fn a_burst_is_paid_for_once_on_links_of_one_rate() {
    let port = || PortSettings::new(Rate::from_gigabits(1));
    let source = periodic(7, 1518, 1_000, 10);
    let one = worst_case(&flow_of(&source), &[port()]).unwrap().total.get();
    let three = worst_case(&flow_of(&source), &[port(), port(), port()]).unwrap().total.get();
    assert_eq!(one, 10 * 12_304 - 96 + 4);
    assert!(three <= one + 2 * 12_320, "{one} {three}");
}

#[test]
fn the_bound_of_a_gate_is_near_what_happens() {
    let entry = |states, micros| GateEntry {
        states: GateStates::from_bits(states),
        length: Nanos::from_micros(micros),
    };
    let gates = GateSchedule::new(Instant::ZERO, [entry(0x80, 20), entry(0x7f, 980)]).unwrap();
    let port = PortSettings {
        gates: Some(gates),
        background: vec![saturated(0, 1518)],
        ..PortSettings::new(Rate::from_megabits(100))
    };
    // Frames that come at any time of the cycle, not only when the gate opens.
    let source = Source {
        pattern: Pattern::Periodic {
            period: Nanos::new(1_000_700),
            offset: Nanos::ZERO,
            frames: 1,
            jitter: Nanos::ZERO,
        },
        ..periodic(7, 64, 1_000, 1)
    };
    let bound = worst_case(&flow_of(&source), core::slice::from_ref(&port)).unwrap().total.get();
    let (longest, shortest) = simulate(source, &[port], 3_000, 1);
    std::eprintln!("gate of 20 µs in 1 ms: {shortest} to {longest} ns, bound {bound}");
    assert_eq!(shortest, 5_760);
    assert!(longest <= bound && bound < longest / 10 * 11, "{longest} {bound}");
}

#[test]
fn what_has_no_bound_says_why() {
    let port = |background| PortSettings { background, ..PortSettings::new(Rate::from_megabits(100)) };
    let flow = flow_of(&periodic(3, 1518, 1_000, 1));
    assert_eq!(worst_case(&flow, &[port(vec![saturated(5, 64)])]), Err(Unbounded::Envelope(0, 5)));
    assert_eq!(worst_case(&flow, &[port(vec![saturated(3, 64)])]), Err(Unbounded::Envelope(0, 3)));
    let heavy = periodic(5, 1518, 125, 1);
    assert!(matches!(
        worst_case(&flow, &[port(vec![]), port(vec![heavy])]),
        Err(Unbounded::Overload { hop: 1, .. })
    ));
    let entry =
        |states, nanos| GateEntry { states: GateStates::from_bits(states), length: Nanos::new(nanos) };
    let gates = GateSchedule::new(Instant::ZERO, [entry(8, 100_000), entry(7, 900_000)]).unwrap();
    let gated = PortSettings { gates: Some(gates), ..port(vec![]) };
    assert_eq!(worst_case(&flow, &[gated]), Err(Unbounded::Window(0)));
}

/// A hop of any kind; the flow's class is 5.
fn any_port() -> impl Strategy<Value = PortSettings> {
    let rate = prop_oneof![
        Just(Rate::from_megabits(100)),
        Just(Rate::from_gigabits(1)),
        Just(Rate::from_gigabits(10))
    ];
    let pattern = prop_oneof![
        (300_u64..3_000, 0_u64..100, 1_u32..4, 0_u64..500).prop_map(|(period, offset, frames, jitter)| {
            Pattern::Periodic {
                period: Nanos::from_micros(period),
                offset: Nanos::from_micros(offset),
                frames,
                jitter: Nanos::from_micros(jitter),
            }
        }),
        (1_u64..15, 500_u64..4_000)
            .prop_map(|(rate, burst)| Pattern::Policed { rate: Rate::from_megabits(rate), burst }),
    ];
    let bounded = (0_u8..8, 64_u32..1519, pattern).prop_map(|(class, length, pattern)| Source {
        class: Class::new(class).unwrap(),
        length,
        pattern,
    });
    let greedy = (0_u8..5, 64_u32..1519).prop_map(|(class, length)| saturated(class, length));
    let background = proptest::collection::vec(prop_oneof![bounded, greedy], 0..4);
    let gates = proptest::option::of((
        proptest::collection::vec((any::<u8>(), 150_u64..400), 1..4),
        any::<u64>(),
        -900_i64..900,
    ));
    let preemption = proptest::option::of((prop_oneof![Just(0xe0_u8), Just(0xc0)], 0_u8..3));
    let slopes = (proptest::option::of(20_u64..60), proptest::option::of(5_u64..20), any::<bool>());
    (rate, background, gates, preemption, slopes, any::<[bool; 3]>()).prop_map(
        |(rate, background, gates, preemption, (slope, upper, stage), [cut, header, latency])| {
            let gates = gates.map(|(entries, seed, offset)| {
                // The flow's gate is open in the first entry.
                let entries: Vec<_> = entries
                    .iter()
                    .enumerate()
                    .map(|(index, (states, micros))| GateEntry {
                        states: GateStates::from_bits(if index == 0 { states | 0x20 } else { *states }),
                        length: Nanos::from_micros(*micros),
                    })
                    .collect();
                let clock = ClockError {
                    offset,
                    wander: Nanos::new(400),
                    interval: Nanos::from_millis(1),
                    drift: 5_000,
                    seed,
                };
                GateSchedule::new(Instant::from_nanos(777), entries).unwrap().with_clock(clock).unwrap()
            });
            let share = |percent: u64| Rate::new(rate.bits() / 100 * percent);
            let mut idle_slopes = [None; 8];
            idle_slopes[5] = slope.map(share);
            idle_slopes[6] = upper.map(share);
            PortSettings {
                background,
                gates,
                preemption: preemption.map(|(express, additional)| Preemption {
                    express: GateStates::from_bits(express),
                    additional,
                }),
                idle_slopes,
                forwarding: if cut { Forwarding::CutThrough } else { Forwarding::StoreAndForward },
                handover: if header { Handover::Header } else { Handover::Frame },
                latency: if latency { PortLatency::of_rate(rate) } else { PortLatency::NONE },
                stages: if stage { vec![FifoStage::TSN_MAC] } else { vec![] },
                processing: Nanos::new(if latency { 700 } else { 0 }),
                queue_frames: 1 << 20,
                ..PortSettings::new(rate)
            }
        },
    )
}

proptest! {
    #[test]
    fn no_simulated_delay_exceeds_the_bound(
        ports in proptest::collection::vec(any_port(), 1..4),
        length in 64_u32..1519,
        period in 400_u64..2_000,
        frames in 1_u32..4,
        jitter in 0_u64..600,
        seed: u64,
    ) {
        let pattern = Pattern::Periodic {
            period: Nanos::new(period * 1_003),
            offset: Nanos::from_micros(20),
            frames,
            jitter: Nanos::from_micros(jitter),
        };
        let source = Source { class: Class::new(5).unwrap(), length, pattern };
        let Ok(bound) = worst_case(&flow_of(&source), &ports) else { return Ok(()) };
        let (longest, _) = simulate(source, &ports, 150, seed);
        prop_assert!(longest <= bound.total.get(), "{longest} ns exceed {bound:?}");
    }
}
