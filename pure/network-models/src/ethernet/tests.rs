//! A port compared with results that can be computed by hand, and with published results.

use alloc::vec;
use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos, Rng};
use proptest::prelude::*;

use super::medium::{Cable, Medium};
use super::*;
use crate::tsn::gates::{GateEntry, GateSchedule, GateStates};
use crate::tsn::preemption::Preemption;
use crate::tsn::traffic::{Pattern, Source};
use crate::{Class, Counts, Frame, Hop, Path, Rate, sample};

const BEST_EFFORT: Class = Class::BEST_EFFORT;
const FIRST: Class = Class::HIGHEST;

fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanos(nanoseconds)
}

fn frame(id: u64, length: u32, class: Class) -> Frame {
    Frame::new(id, length, class, Buffer::EMPTY)
}

fn port(settings: PortSettings) -> Port {
    Port::new(settings, &Rng::from_seed(1))
}

/// Enters frames at their times. Returns the number and the time of each frame that comes out.
fn run(hop: &mut impl Hop, entries: impl IntoIterator<Item = (u64, Frame)>) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut drain = |hop: &mut dyn FnMut(u64) -> Option<(u64, u64)>, until: u64| {
        while let Some(one) = hop(until) {
            out.push(one);
        }
    };
    for (time, frame) in entries {
        drain(&mut |until| step(hop, until), time);
        hop.enter(at(time), frame);
    }
    drain(&mut |until| step(hop, until), u64::MAX);
    assert_eq!(hop.next(), None);
    out
}

fn step(hop: &mut impl Hop, until: u64) -> Option<(u64, u64)> {
    while let Some(time) = hop.next().filter(|time| time.as_nanos() <= until) {
        if let Some(frame) = hop.poll(time) {
            return Some((frame.id, time.as_nanos()));
        }
    }
    None
}

#[test]
fn the_first_class_goes_first_and_waits_for_one_frame_at_most() {
    let mut port = port(PortSettings::new(Rate::from_gigabits(1)));
    let out = run(
        &mut port,
        [(0, frame(0, 1518, BEST_EFFORT)), (0, frame(1, 1518, BEST_EFFORT)), (100, frame(2, 64, FIRST))],
    );
    assert_eq!(out, [(0, 12_208), (2, 12_304 + 576), (1, 12_304 + 672 + 12_208)]);
}

#[test]
fn full_queues_and_frames_that_are_too_long_lose_frames() {
    let settings = PortSettings { queue_frames: 2, ..PortSettings::new(Rate::from_gigabits(1)) };
    let mut port = port(settings.clone());
    let frames = (0..5).map(|id| (0, frame(id, 1518, BEST_EFFORT)));
    assert_eq!(run(&mut port, frames).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(run(&mut port, [(100_000, frame(9, 1523, BEST_EFFORT))]), []);
    assert_eq!(port.counts(), Counts { entered: 6, left: 3, lost: 3, copied: 0 });
    let mut jumbo = self::port(PortSettings { mtu: PortSettings::MTU_JUMBO, ..settings });
    assert_eq!(run(&mut jumbo, [(0, frame(9, 9018, BEST_EFFORT))]).len(), 1);
}

#[test]
fn a_damaged_frame_passes_a_cut_through_switch_only() {
    for (forwarding, left) in [(Forwarding::StoreAndForward, 0), (Forwarding::CutThrough, 1)] {
        let mut port = port(PortSettings { forwarding, ..PortSettings::new(Rate::from_gigabits(1)) });
        run(&mut port, [(0, Frame { intact: false, ..frame(0, 64, FIRST) })]);
        assert_eq!(port.counts().left, left);
    }
}

/// INET, `showcases/tsn/cutthroughswitching`. Its configuration sends 1200 B of UDP payload (its
/// text says 1000 B), which are 1254 B with the preamble, over three links of 1 Gbit/s and 10 m. A
/// switch knows the destination after 22 B. Published: 30.246 µs stored and forwarded, 10.534 µs
/// cut through.
#[test]
fn two_switches_take_what_inet_says() {
    let length = 1200 + 8 + 20 + 18;
    let link = |forwarding, handover| {
        port(PortSettings {
            forwarding,
            handover,
            cable: Cable::metres(Medium::TwoThirds, 10),
            ..PortSettings::new(Rate::from_gigabits(1))
        })
    };
    let stored = || link(Forwarding::StoreAndForward, Handover::Frame);
    let mut path: Path = [stored(), stored(), stored()].into_iter().collect();
    assert_eq!(run(&mut path, [(0, frame(0, length, FIRST))]), [(0, 30_246)]);
    let mut path: Path = [
        link(Forwarding::StoreAndForward, Handover::Header),
        link(Forwarding::CutThrough, Handover::Header),
        link(Forwarding::CutThrough, Handover::Frame),
    ]
    .into_iter()
    .collect();
    assert_eq!(run(&mut path, [(0, frame(0, length, FIRST))]), [(0, 10_534)]);
}

#[test]
fn cut_through_to_a_faster_link_waits_until_the_bits_are_there_in_time() {
    let slow = port(PortSettings { handover: Handover::Header, ..PortSettings::new(Rate::from_gigabits(1)) });
    let fast = port(PortSettings {
        forwarding: Forwarding::CutThrough,
        ..PortSettings::new(Rate::from_gigabits(10))
    });
    let mut path: Path = [slow, fast].into_iter().collect();
    // 1526 B at 1 Gbit/s end at 12.208 µs; the copy ends at the same time.
    assert_eq!(run(&mut path, [(0, frame(0, 1518, FIRST))]), [(0, 12_208)]);
}

fn gates(entries: &[(u8, u64)]) -> GateSchedule {
    let entry = |(states, micros): &(u8, u64)| GateEntry {
        states: GateStates::from_bits(*states),
        length: Nanos::from_micros(*micros),
    };
    GateSchedule::new(Instant::ZERO, entries.iter().map(entry)).unwrap()
}

/// INET, `showcases/tsn/trafficshaping/timeawareshaper`: frames of 64 B each millisecond over two
/// links of 100 Mbit/s and 10 m. The switch opens their gate for the first 20 µs of each
/// millisecond, and the gate of other traffic with 1500 B for the rest. Published: 11.62 µs each.
#[test]
fn gates_make_the_delay_what_inet_says() {
    let rate = Rate::from_megabits(100);
    let cable = Cable::metres(Medium::TwoThirds, 10);
    let source = Source {
        class: BEST_EFFORT,
        length: 1500 + 18 + 4,
        pattern: Pattern::Random { mean: Nanos::from_micros(200) },
    };
    let switch = PortSettings {
        gates: Some(gates(&[(0x80, 20), (0x7f, 980)])),
        background: vec![source],
        cable,
        ..PortSettings::new(rate)
    };
    let sender = PortSettings { cable, ..PortSettings::new(rate) };
    let frames = || (0..1_000).map(|id| (id * 1_000_000, frame(id, 64, FIRST)));
    let mut path: Path = [port(sender.clone()), port(switch.clone())].into_iter().collect();
    let out = run(&mut path, frames());
    assert_eq!(out.len(), 1_000);
    assert!(out.iter().all(|(id, time)| time - id * 1_000_000 == 11_620));
    // Without gates, other traffic is in the way: up to one of its frames.
    let mut path: Path = [port(sender), port(PortSettings { gates: None, ..switch })].into_iter().collect();
    let worst = run(&mut path, frames()).iter().map(|(id, time)| time - id * 1_000_000).max().unwrap();
    assert!((100_000..140_000).contains(&worst), "{worst}");
}

/// INET, `showcases/tsn/framepreemption`: two kinds of frames with 1200 B of UDP payload share a
/// link of 100 Mbit/s, in queues of four. One comes each 100 µs, and the other each millisecond
/// (normally distributed). Published estimates of the mean delay of the second kind: 0.36 ms in one
/// queue (from a measured 2.6 frames in it), 0.15 ms with priorities, 0.1 ms with preemption.
#[test]
fn preemption_helps_as_much_as_inet_says() {
    let length = 1200 + 8 + 20 + 18;
    let normal = |mean, deviation| Pattern::Normal {
        mean: Nanos::from_micros(mean),
        deviation: Nanos::from_micros(deviation),
    };
    let priorities = PortSettings {
        queue_frames: 4,
        background: vec![Source { class: BEST_EFFORT, length, pattern: normal(100, 50) }],
        ..PortSettings::new(Rate::from_megabits(100))
    };
    let mean = |settings: PortSettings| {
        let mut rng = Rng::from_seed(4);
        let mut entered = Vec::new();
        let mut now = 0;
        for _ in 0..5_000 {
            now += sample::normal(&mut rng, Nanos::from_millis(1), Nanos::from_micros(500)).get();
            entered.push(now);
        }
        let frames: Vec<_> =
            (0..).zip(&entered).map(|(id, time)| (*time, frame(id, length, FIRST))).collect();
        let out = run(&mut port(settings), frames);
        let sum: u64 = out.iter().map(|(id, time)| time - entered[usize::try_from(*id).unwrap()]).sum();
        sum / out.len() as u64
    };
    let fifo = mean(PortSettings { queue_of: [0; 8], ..priorities.clone() });
    let strict = mean(priorities.clone());
    let express = Preemption { express: GateStates::of([7]), additional: 0 };
    let preempted = mean(PortSettings { preemption: Some(express), ..priorities });
    std::eprintln!(
        "mean delay: {fifo} ns in one queue, {strict} with priorities, {preempted} with preemption"
    );
    assert!(fifo.abs_diff(360_000) < 36_000, "{fifo}");
    assert!(strict.abs_diff(150_000) < 8_000, "{strict}");
    assert!(preempted.abs_diff(102_000) < 3_000, "{preempted}");
}

#[test]
fn an_interrupted_frame_goes_on_and_costs_24_bytes() {
    let settings = PortSettings {
        preemption: Some(Preemption { express: GateStates::of([7]), additional: 0 }),
        ..PortSettings::new(Rate::from_gigabits(1))
    };
    let out =
        run(&mut port(settings.clone()), [(0, frame(0, 1518, BEST_EFFORT)), (4_000, frame(1, 64, FIRST))]);
    let (express, interrupted) = (out[0], out[1]);
    // At most the byte that was being sent, the mCRC and the gap.
    assert_eq!(express.0, 1);
    assert!(express.1 - 4_000 - 576 <= 18 * 8, "{express:?}");
    assert_eq!(interrupted, (0, 12_208 + 672 + 24 * 8));
    // A frame too short to be cut is sent first.
    let out = run(&mut port(settings), [(0, frame(0, 123, BEST_EFFORT)), (1, frame(1, 64, FIRST))]);
    assert_eq!(out, [(0, 131 * 8), (1, 143 * 8 + 576)]);
}

#[test]
fn a_preemptable_frame_uses_what_is_left_of_its_window() {
    // Without preemption, 1518 B don't start in the 10 µs before the window closes. With
    // preemption, 1.2 kB of them do.
    let gated = PortSettings {
        gates: Some(gates(&[(0x7f, 10), (0x80, 10)])),
        ..PortSettings::new(Rate::from_gigabits(1))
    };
    let lost = port_counts(gated.clone());
    assert_eq!(lost.lost, 1);
    let preemption = Some(Preemption { express: GateStates::of([7]), additional: 0 });
    let out = run(
        &mut port(PortSettings { preemption, ..gated }),
        [(0, frame(0, 1518, BEST_EFFORT)), (11_000, frame(1, 64, FIRST))],
    );
    // 10 µs are 1250 B: preamble, 1238 B of the frame, mCRC. The rest of 280 B follows with its
    // preamble at 20 µs.
    assert_eq!(out, [(1, 11_576), (0, 20_000 + (280 + 8) * 8)]);
}

fn port_counts(settings: PortSettings) -> Counts {
    let mut port = port(settings);
    run(&mut port, [(0, frame(0, 1518, BEST_EFFORT))]);
    port.counts()
}

#[test]
fn a_shaped_class_gets_what_it_was_promised() {
    // Class 6 has 20 of 100 Mbit/s regardless of its load, and other traffic has the rest.
    let mut slopes = [None; 8];
    slopes[6] = Some(Rate::from_megabits(20));
    let settings = PortSettings { idle_slopes: slopes, ..PortSettings::new(Rate::from_megabits(100)) };
    let class = Class::new(6).unwrap();
    let out = run(&mut port(settings), (0..100).map(|id| (0, frame(id, 480, class))));
    // 500 B of link time each: 200 µs apart instead of 40.
    assert!(out.windows(2).all(|pair| pair[1].1 - pair[0].1 == 200_000), "{out:?}");
}

proptest! {
    #[test]
    fn no_frame_is_lost_doubled_or_overtaken_in_its_class(
        frames in proptest::collection::vec((0_u64..30_000, 64_u32..1519, 0_u8..8), 1..60),
        gated: bool,
        preempting: bool,
        shaped: bool,
        seed: u64,
        fast: bool,
    ) {
        let schedule = gates(&[(0x80, 20), (0x7f, 30), (0x43, 15)]);
        let mut slopes = [None; 8];
        slopes[5] = Some(Rate::from_megabits(300)).filter(|_| shaped);
        slopes[2] = Some(Rate::from_megabits(100)).filter(|_| shaped);
        let settings = PortSettings {
            gates: gated.then_some(schedule),
            preemption: preempting.then_some(Preemption { express: GateStates::of([7, 5]), additional: 0 }),
            idle_slopes: slopes,
            background: vec![Source { class: BEST_EFFORT, length: 700, pattern: Pattern::Random { mean: Nanos::from_micros(30) } }],
            ..PortSettings::new(Rate::from_gigabits(if fast { 25 } else { 1 }))
        };
        let mut port = Port::new(settings, &Rng::from_seed(seed));
        let mut now = 0;
        let entries: Vec<_> = (0..).zip(&frames).map(|(id, (gap, length, class))| {
            now += gap;
            (now, frame(id, *length, Class::new(*class).unwrap()))
        }).collect();
        let out = run(&mut port, entries);
        prop_assert_eq!(out.len(), frames.len());
        prop_assert!(out.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        for class in 0..8 {
            let of_class = out.iter().filter(|(id, _)| frames[usize::try_from(*id).unwrap()].2 == class);
            let ids: Vec<_> = of_class.map(|(id, _)| *id).collect();
            prop_assert!(ids.is_sorted(), "{ids:?}");
        }
    }
}
