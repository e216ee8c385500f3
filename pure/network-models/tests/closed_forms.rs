//! Each element of the models against a closed form of its standard. Nothing is fitted: the
//! expected value is computed here, from the parameters of the standard.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::cast_precision_loss, reason = "times of a test stay far below 2^53")]

use engine::{Buffer, Instant, Nanos, Rng, settle};
use farlane_network_models::ethernet::{Port, PortSettings};
use farlane_network_models::network::{Config, Input, Network, Output, Side};
use farlane_network_models::nr5g::{Cell, Direction, Downlink, Grants, Harq, Pattern, RoundTrip, Uplink};
use farlane_network_models::tcp::{CongestionControl, Parameters};
use farlane_network_models::tsn::clock::ClockError;
use farlane_network_models::tsn::gates::{GateEntry, GateSchedule, GateStates};
use farlane_network_models::tsn::preemption::Preemption;
use farlane_network_models::{AnyHop, Chance, Class, Frame, Hop, Path, Rate, Wire, sample};

const GIGABIT: Rate = Rate::from_gigabits(1);
/// Preamble, start delimiter and gap in bytes (IEEE 802.3, 3.1.1 and 4.4.2).
const AROUND: u64 = 8 + 12;

/// A cell in which nothing takes time but the air.
const IDEAL: Cell =
    Cell { station: Nanos::ZERO, n1: 0, n2: 0, harq_up: Harq::NONE, harq_down: Harq::NONE, ..Cell::CAMPUS };

fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanos(nanoseconds)
}

fn frame(id: u64, length: u32, class: Class) -> Frame {
    Frame::new(id, length, class, Buffer::EMPTY)
}

fn class(number: u8) -> Class {
    Class::new(number).unwrap()
}

/// Enters frames at their times, in order. Returns when each frame came out, by its number.
fn times(hop: &mut impl Hop, entries: &[(u64, u32, Class)]) -> Vec<u64> {
    let mut out = vec![0; entries.len()];
    let mut drain = |hop: &mut dyn Hop, until: u64| {
        while let Some(now) = hop.next().filter(|now| now.as_nanos() <= until) {
            while let Some(frame) = hop.poll(now) {
                out[usize::try_from(frame.id).unwrap()] = now.as_nanos();
            }
        }
    };
    for (id, (time, length, class)) in (0..).zip(entries) {
        drain(hop, *time);
        hop.enter(at(*time), frame(id, *length, *class));
    }
    drain(hop, u64::MAX);
    out
}

fn mean(values: impl IntoIterator<Item = u64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value as f64;
        count += 1.0;
    }
    sum / count
}

fn is_near(found: f64, expected: f64, share: f64) {
    assert!((found - expected).abs() <= share * expected.abs(), "{found} instead of {expected}");
}

/// The times that single frames take, each of which arrives at another part of `period`.
fn alone(mut hop: impl Hop, period: u64, steps: u64) -> Vec<u64> {
    let arrival = |step: u64| step * (period * 50) + step * period / steps;
    let entries: Vec<_> = (1..=steps).map(|step| (arrival(step), 64, Class::BEST_EFFORT)).collect();
    times(&mut hop, &entries).into_iter().zip(entries).map(|(out, (entered, ..))| out - entered).collect()
}

/// TS 38.211 4.3.2 and table 4.2-1: a subframe of 1 ms has 2^mu slots of 14 symbols.
#[test]
fn slots_halve_with_each_numerology() {
    for numerology in 0..=3 {
        let cell = Cell { numerology, ..IDEAL };
        assert_eq!(cell.slot().get(), 1_000_000 / 2_u64.pow(numerology));
        assert_eq!(cell.symbols(14), cell.slot());
        assert_eq!(cell.symbols(1).get(), 1_000_000 / 2_u64.pow(numerology) / 14);
    }
}

/// TS 38.214 5.1.2.1 and 6.1.2.1: a transmission of L symbols lasts L symbols, wherever it begins.
#[test]
fn mini_slots_last_as_many_symbols_as_they_have() {
    for numerology in 0..=3 {
        for mini_slot in [2, 4, 7, 14] {
            let cell = Cell { numerology, mini_slot, pattern: Pattern::FDD, ..IDEAL };
            let slot = cell.slot().get();
            for step in 0..200 {
                let (start, end) = cell.next(Direction::Up, at(step * slot / 20));
                let expected = slot * u64::from(mini_slot) / 14;
                assert!((end - start).get().abs_diff(expected) <= 1, "{mini_slot}: {start:?} {end:?}");
            }
        }
    }
}

/// TS 38.321 5.8.2 with the periodicities of TS 38.331 (sym2, sym7, sym1x14): a frame that comes at
/// any time waits for half a period on average, and for a whole one at most.
#[test]
fn a_configured_grant_is_waited_for_half_its_period() {
    for numerology in 0..=3 {
        for period in [2, 7, 14] {
            let grants = Grants::Configured { period, offset: 0, bytes: 1_000, repetitions: 1 };
            let cell = Cell { numerology, mini_slot: 2, pattern: Pattern::FDD, grants, ..IDEAL };
            let length = cell.slot().get() * u64::from(period) / 14;
            let on_air = cell.transmission().get();
            let waits: Vec<_> = alone(Uplink::new(cell, Rng::from_seed(1)), cell.slot().get(), 5_000)
                .into_iter()
                .map(|time| time - on_air)
                .collect();
            is_near(mean(waits.iter().copied()), length as f64 / 2.0, 0.01);
            assert!(waits.iter().max().unwrap().abs_diff(length) < length / 50, "{period}: {waits:?}");
        }
    }
}

/// TS 38.213 11.1, patterns of TDD-UL-DL-ConfigCommon: the mean wait for a slot of a direction is
/// `sum(gap^2) / (2 period)` over the gaps between the starts of its slots.
#[test]
fn waits_for_slots_of_a_pattern_follow_from_its_gaps() {
    let pattern = |down, special, up| Pattern { down, special, special_used: false, up, ..Pattern::DDDSU };
    for numerology in 0..=3 {
        for pattern in [pattern(3, true, 1), pattern(7, true, 2), pattern(2, false, 2), pattern(1, false, 1)]
        {
            let cell = Cell { numerology, pattern, ..IDEAL };
            let (slot, slots) = (cell.slot().get(), u64::from(pattern.slots()));
            let up = u64::from(pattern.up);
            // Slots of one direction are side by side: all gaps but one are a slot long.
            let gaps = (up - 1) + (slots - up + 1).pow(2);
            let expected = (gaps * slot) as f64 / (2 * slots) as f64;
            let steps = 2_000;
            let wait = |step: u64| {
                let now = at(step * slots * slot / steps);
                (cell.next(Direction::Up, now).0 - now).get()
            };
            is_near(mean((0..steps).map(wait)), expected, 0.002);
        }
    }
}

/// TS 38.104 5.2: with paired spectrum, each direction has every slot. A frame that comes at any
/// time waits for half a slot, in both directions.
#[test]
fn paired_spectrum_serves_both_directions_in_every_slot() {
    let grants = Grants::Configured { period: 14, offset: 0, bytes: 1_000, repetitions: 1 };
    let cell = Cell { pattern: Pattern::FDD, grants, ..IDEAL };
    let slot = cell.slot().get();
    assert_eq!(cell.lacks(), None);
    for found in [
        alone(Uplink::new(cell, Rng::from_seed(1)), slot, 1_000),
        alone(Downlink::new(cell, Rng::from_seed(1)), slot, 1_000),
    ] {
        is_near(mean(found), 1.5 * slot as f64, 0.002);
    }
}

/// TS 38.213 9.2.4 and TS 38.214 6.1.2.1: a frame that needs a request waits for half a period of
/// requests, then takes the request's slot, k2 slots and its own slot.
#[test]
fn a_request_costs_half_its_period_and_k2() {
    for (request_period, k2) in [(1, 2), (4, 2), (10, 4), (20, 1)] {
        let grants = Grants::Dynamic { request_period, request_offset: 0, first: 1_000, proactive: None };
        let cell = Cell { pattern: Pattern::FDD, grants, k2, ..IDEAL };
        let slot = cell.slot().get();
        let period = u64::from(request_period) * slot;
        let found = mean(alone(Uplink::new(cell, Rng::from_seed(1)), period, 2_000));
        is_near(found, period as f64 / 2.0 + ((2 + u64::from(k2)) * slot) as f64, 0.002);
    }
}

/// TS 38.321 5.4.2 (HARQ): with failures p and q, n attempts and a round trip T, failures cost
/// `T p (1 + q + … + q^(n-2))`, and the recovery `p q^(n-1)` times.
#[test]
fn harq_costs_its_round_trips_in_proportion_to_their_chance() {
    let (first, later, attempts, trip, recovery) = (20, 30, 4, 2_000_000_u64, 40_000_000_u64);
    let harq = Harq {
        first: Chance::percent(first),
        later: Chance::percent(later),
        attempts,
        round_trip: RoundTrip::Fixed(Nanos::new(trip)),
        recovery: Nanos::new(recovery),
    };
    let (p, q) = (f64::from(first) / 100.0, f64::from(later) / 100.0);
    let expected = trip as f64 * p * (1.0 + q + q * q) + recovery as f64 * p * q.powi(3);
    let mut rng = Rng::from_seed(3);
    let cell = Cell { harq_up: harq, ..IDEAL };
    let sample = |_| cell.delivered(Direction::Up, at(0), &mut rng).as_nanos();
    is_near(mean((0..400_000).map(sample)), expected, 0.01);
}

/// TS 38.321 5.3.2 and 5.4.2, TS 38.213 9.2.3: with slots of length T and no processing, an uplink
/// over FDD is repeated after `(k2 + 1) T`, and a downlink after `2 T`, as its report ends within
/// the next slot. Over DDDSU each is repeated a period later. RLC recovers the last failure.
#[test]
fn a_scheduled_repetition_follows_the_slots() {
    let always = Chance::percent(100);
    let recovery = Nanos::from_millis(40);
    let harq = Harq { first: always, later: always, attempts: 3, round_trip: RoundTrip::Scheduled, recovery };
    for numerology in 0..4 {
        for k2 in 0..4_u32 {
            let cell = Cell { numerology, k2, harq_up: harq, harq_down: harq, ..IDEAL };
            let rng = &mut Rng::from_seed(1);
            let slot = cell.slot();
            let fdd = Cell { pattern: Pattern::FDD, ..cell };
            let end = at(0) + slot * 10;
            let twice = |time: Nanos| end + time * 2 + recovery;
            assert_eq!(fdd.delivered(Direction::Up, end, rng), twice(slot * u64::from(k2 + 1)));
            assert_eq!(fdd.delivered(Direction::Down, end, rng), twice(slot * 2));
            // Slot 9 is uplink, and slot 7 the last of downlink alone.
            assert_eq!(cell.delivered(Direction::Up, end, rng), twice(slot * 5));
        }
    }
    // The report about slot 0 goes with the uplink symbols of the special slot 3, so the next
    // downlink is slot 5. With a second carrier, the report ends within slot 1.
    let cell = Cell { harq_down: Harq { attempts: 2, ..harq }, ..IDEAL };
    let switched = Cell { switched_feedback: true, ..cell };
    let (end, rng) = (at(0) + cell.slot(), &mut Rng::from_seed(1));
    for (cell, slots) in [(cell, 5), (switched, 2)] {
        let repeated = end + cell.slot() * slots;
        assert_eq!(cell.delivered(Direction::Down, end, rng), repeated + recovery);
    }
}

/// TS 38.214 6.1.2.3.1 (repK): with K repetitions and failures of 1 in 2, one transmission in 2^K
/// is not received by the end of the last repetition, and each repetition takes its own time.
#[test]
fn repetitions_halve_what_is_left_each_time() {
    let half = Chance::percent(50);
    let trip = Nanos::from_millis(100);
    let round_trip = RoundTrip::Fixed(trip);
    let harq_up = Harq { first: half, later: half, attempts: 2, round_trip, recovery: trip };
    for repetitions in [2, 4, 8] {
        let grants = Grants::Configured { period: 2, offset: 0, bytes: 1_000, repetitions };
        let cell = Cell { mini_slot: 2, pattern: Pattern::FDD, grants, harq_up, ..IDEAL };
        // Each frame comes at the start of an occasion.
        let entries: Vec<_> =
            (1..40_000).map(|number| (number * 500_000_000, 64, Class::BEST_EFFORT)).collect();
        let found = times(&mut Uplink::new(cell, Rng::from_seed(7)), &entries);
        let late = |(out, (entered, ..)): &(&u64, &(u64, u32, Class))| *out - entered >= trip.get();
        let count = found.iter().zip(&entries).filter(late).count();
        is_near(count as f64, entries.len() as f64 / 2_f64.powi(repetitions.cast_signed()), 0.15);
        let second = cell.symbols(4).get();
        let twice =
            found.iter().zip(&entries).filter(|(out, (entered, ..))| (*out - entered).abs_diff(second) <= 1);
        is_near(twice.count() as f64, entries.len() as f64 / 4.0, 0.03);
    }
}

/// IEEE 802.3, 3.1.1 and 4.4.2: a frame takes its bytes and the preamble, and the next one begins
/// after the gap. The rate of full frames is 1518 of 1538.
#[test]
fn frames_follow_each_other_after_the_gap() {
    for (length, rate) in [(64, 1), (1_518, 1), (64, 10), (1_518, 10), (1_518, 100)] {
        let rate = Rate::from_gigabits(rate);
        let mut port = Port::new(PortSettings::new(rate), &Rng::from_seed(1));
        let entries = vec![(0, length, Class::HIGHEST); 1_000];
        let found = times(&mut port, &entries);
        let bits = |bytes: u64| 8e9 * bytes as f64 / rate.bits() as f64;
        is_near(found[0] as f64, bits(u64::from(length) + 8), 0.02);
        is_near((found[999] - found[0]) as f64, 999.0 * bits(u64::from(length) + AROUND), 1e-4);
    }
}

/// Frames of each kind that come at random to a gigabit port for `time`: their length, class and
/// load. Returns the mean wait of each kind in the queue.
fn queueing(kinds: &[(u32, Class, f64)], time: u64) -> Vec<f64> {
    let mut rng = Rng::from_seed(11);
    let mut entries = Vec::new();
    for (kind, (length, class, load)) in kinds.iter().enumerate() {
        let service = 8.0 * (u64::from(*length) + AROUND) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some microseconds")]
        let gap = Nanos::new((service / load) as u64);
        let mut now = 0;
        while now < time {
            now += sample::exponential(&mut rng, gap).get();
            entries.push((now, *length, *class, kind));
        }
    }
    entries.sort_by_key(|(now, ..)| *now);
    let frames: Vec<_> = entries.iter().map(|(now, length, class, _)| (*now, *length, *class)).collect();
    let settings = PortSettings { queue_frames: 1 << 20, ..PortSettings::new(GIGABIT) };
    let found = times(&mut Port::new(settings, &Rng::from_seed(1)), &frames);
    let waits = |kind| {
        let of_kind = entries.iter().zip(&found).filter(move |((.., own), _)| *own == kind);
        mean(of_kind.map(|((now, length, ..), out)| out - now - 8 * (u64::from(*length) + 8)))
    };
    (0..kinds.len()).map(waits).collect()
}

/// Pollaczek and Khinchine, for the fixed service time of equal frames (M/D/1): the mean wait is
/// `load S / (2 (1 - load))`.
#[test]
fn a_loaded_port_makes_equal_frames_wait_as_m_d_1() {
    for load in [0.3, 0.6, 0.8] {
        let length = 1_000;
        let service = 8.0 * (u64::from(length) + AROUND) as f64;
        let found = queueing(&[(length, Class::BEST_EFFORT, load)], 1_500_000_000);
        is_near(found[0], load * service / (2.0 * (1.0 - load)), 0.03);
    }
}

/// Cobham 1954, for the strict priorities of IEEE 802.1Q-2018 8.6.8.1: the mean wait of class n is
/// `R / ((1 - loads above) (1 - loads above - own))`, where R is the mean rest of the frame on the
/// line, `sum(load S) / 2`.
#[test]
fn strict_priorities_make_classes_wait_as_cobham_says() {
    let kinds = [(300, Class::HIGHEST, 0.3), (1_200, Class::BEST_EFFORT, 0.4)];
    let service = kinds.map(|(length, ..)| 8.0 * (u64::from(length) + AROUND) as f64);
    let rest = (0.3 * service[0] + 0.4 * service[1]) / 2.0;
    let found = queueing(&kinds, 1_000_000_000);
    is_near(found[0], rest / (1.0 - 0.3), 0.03);
    is_near(found[1], rest / ((1.0 - 0.3) * (1.0 - 0.3 - 0.4)), 0.04);
}

/// IEEE 802.1Q-2018 8.6.8.2 and annex L.1: while the longest frame of another class is sent, the
/// credit grows to `hiCredit = frame * idleSlope / rate`. So many frames then go back to back.
#[test]
fn a_shaped_burst_is_as_long_as_the_credit_behind_the_longest_frame() {
    for (percent, length) in [(50, 64), (25, 200), (75, 300)] {
        let mut slopes = [None; 8];
        slopes[6] = Some(Rate::from_megabits(10 * percent));
        let settings = PortSettings { idle_slopes: slopes, ..PortSettings::new(GIGABIT) };
        let mut entries = vec![(0, 1_518, Class::BEST_EFFORT)];
        entries.extend(vec![(1, length, class(6)); 60]);
        let found = times(&mut Port::new(settings, &Rng::from_seed(1)), &entries);
        let link = 8 * (u64::from(length) + AROUND);
        // In hundredths of a bit: credit at the end of the long frame, cost of each frame.
        let high = percent * 8 * (1_518 + AROUND);
        let expected = high / ((100 - percent) * link) + 1;
        let back_to_back = found[1..].windows(2).take_while(|pair| pair[1] - pair[0] == link).count() + 1;
        assert!(
            back_to_back.abs_diff(usize::try_from(expected).unwrap()) <= 1,
            "{percent} %, {length} B: {back_to_back} instead of {expected}"
        );
    }
}

/// IEEE 802.1Q-2018 8.6.8.4: a frame starts only if it ends in its window. In a cycle T with a
/// window W, a frame that takes F and comes at any time waits for `(T - W + F)^2 / (2 T)`.
#[test]
fn gates_are_waited_for_in_proportion_to_the_square_of_their_closed_time() {
    for (open, length) in [(20_u64, 64), (100, 1_518), (300, 500)] {
        let cycle = 1_000_000;
        let entry = |states, micros| GateEntry { states, length: Nanos::from_micros(micros) };
        let entries = [entry(GateStates::of([7]), open), entry(GateStates::of(0..7), 1_000 - open)];
        let gates = GateSchedule::new(Instant::ZERO, entries).unwrap();
        let settings = PortSettings { gates: Some(gates), ..PortSettings::new(GIGABIT) };
        let mut port = Port::new(settings, &Rng::from_seed(1));
        let steps = 20_000;
        let frames: Vec<_> = (1..steps)
            .map(|step| (step * 2 * cycle + step * cycle / steps, length, Class::HIGHEST))
            .collect();
        let on_line = 8 * (u64::from(length) + 8);
        let waits =
            times(&mut port, &frames).into_iter().zip(&frames).map(|(out, (now, ..))| out - now - on_line);
        let closed = (cycle - open * 1_000 + on_line) as f64;
        is_near(mean(waits), closed * closed / (2 * cycle) as f64, 0.01);
    }
}

/// IEEE 802.1Q-2018 6.7.2 and 802.3-2018 99.4.7: an express frame waits for a fragment that cannot
/// be cut, 123 B with its preamble and gap at most: 143 B.
#[test]
fn an_express_frame_waits_for_143_bytes_at_most() {
    let preemption = Preemption { express: GateStates::of([7]), additional: 0 };
    let mut longest = 0;
    for length in [123, 500, 1_518] {
        for now in 0..8 * 1_538 {
            let settings = PortSettings { preemption: Some(preemption), ..PortSettings::new(GIGABIT) };
            let mut port = Port::new(settings, &Rng::from_seed(1));
            let found = times(&mut port, &[(0, length, Class::BEST_EFFORT), (now, 64, Class::HIGHEST)]);
            longest = longest.max(found[1] - now - 8 * 72);
        }
    }
    assert!((142 * 8..=143 * 8).contains(&longest), "{longest}");
}

/// When `bytes` have arrived at the far side of a path with `latency` each way, from their first
/// byte's dispatch on an open connection.
fn transfer(tcp: Parameters, latency: Nanos, bytes: usize) -> Nanos {
    let wire = || Path::new([AnyHop::from(Wire::new(latency, None))]);
    let config = Config { tcp: [tcp; 2], ..Config::default() };
    let mut network = Network::new(config, [wire(), wire()]);
    let connection = network.open(Instant::ZERO, Side::Near).unwrap();
    let (mut now, mut began, mut sent, mut received) = (Instant::ZERO, None, 0, 0);
    while received < bytes {
        let mut outputs = Vec::new();
        let wake = settle(&mut network, now, |output| outputs.push(output));
        let is_idle = outputs.is_empty();
        for output in outputs {
            match output {
                Output::Incoming { connection, .. } => network.handle(now, Input::Accept(connection)),
                Output::Opened { side: Side::Near, .. } => began = Some(now),
                Output::Data { side, data, .. } => {
                    received += data.len();
                    let bytes = data.len();
                    network.handle(now, Input::Consume { connection, side, bytes });
                }
                _ => {}
            }
        }
        if began.is_some() && sent < bytes {
            let room = network.room(connection, Side::Near, bytes - sent);
            let data = Buffer::from(vec![0; room]);
            sent += room;
            if room > 0 {
                network.handle(now, Input::Send { connection, side: Side::Near, data });
                continue;
            }
        }
        if is_idle {
            now = wake.unwrap();
        }
    }
    now - began.unwrap()
}

/// The engine's input, by a short name.
trait Handle {
    fn handle(&mut self, now: Instant, input: Input);
}

impl Handle for Network {
    fn handle(&mut self, now: Instant, input: Input) {
        engine::Engine::handle_input(self, now, input);
    }
}

/// RFC 5681 3.1 with the initial window of RFC 6928: w segments at first, twice as many after each
/// round trip. So `w (2^n - 1)` segments arrive within n round trips, less half of the last one.
#[test]
fn slow_start_doubles_the_window_each_round_trip() {
    let latency = Nanos::from_millis(20);
    for congestion in [CongestionControl::NewReno, CongestionControl::Cubic] {
        let tcp = Parameters { congestion, ..Parameters::LINUX };
        let tcp = Parameters { acknowledgement: Parameters::NPAP.acknowledgement, ..tcp };
        for rounds in 1..=6_u64 {
            let segments = 10 * (2_usize.pow(u32::try_from(rounds).unwrap()) - 1);
            let whole = transfer(tcp, latency, segments * 1_448);
            assert_eq!(whole, latency * (2 * rounds - 1), "{congestion:?}, {rounds} round trips");
            let more = transfer(tcp, latency, segments * 1_448 + 1);
            assert_eq!(more, latency * (2 * rounds + 1), "{congestion:?}, one byte more");
        }
    }
}

/// IEEE 802.1AS: between two synchronisations, a clock with a constant frequency error gains this
/// error times the interval.
#[test]
fn a_clock_drifts_until_it_is_synchronised() {
    let interval = Nanos::from_millis(125);
    for drift in [-100_000_i64, 10_000, 100_000] {
        let clock = ClockError { drift, interval, ..ClockError::NONE };
        // In parts per 10^9 of 125 ms.
        let expected = drift / 8;
        assert!(clock.at(125_000_000 - 1).abs_diff(expected) <= 1);
        assert_eq!(clock.at(125_000_000), 0);
        assert_eq!(clock.bound().get(), expected.unsigned_abs());
    }
}
