//! The model beside published results, and its rules one by one.

use alloc::vec::Vec;

use engine::{Buffer, Instant, Nanos, Rng};

use super::{Bursts, Medium, Settings, Station};
use crate::{Chance, Class, Frame, Hop};

/// Payload of 1500 bytes in an Ethernet frame.
const LENGTH: u32 = 1518;

fn stations<const N: usize>(settings: Settings) -> [Station; N] {
    let medium = Medium::new();
    core::array::from_fn(|index| Station::new(settings, &medium, &Rng::from_seed(index as u64)))
}

fn frame(id: u64) -> Frame {
    Frame::new(id, LENGTH, Class::BEST_EFFORT, Buffer::EMPTY)
}

/// Runs all events until `end`; returns the time, station and number of each frame that arrives.
/// With `always`, a station that has sent a frame gets another.
fn run(stations: &mut [Station], end: Instant, always: bool) -> Vec<(u64, usize, u64)> {
    let mut out = Vec::new();
    while let Some(at) = stations.iter().filter_map(Hop::next).min().filter(|at| *at <= end) {
        for (index, station) in stations.iter_mut().enumerate() {
            while let Some(frame) = station.poll(at) {
                out.push((at.as_nanos(), index, frame.id));
            }
            while always && station.queue.len() < 2 {
                station.enter(at, frame(0));
            }
        }
    }
    out
}

/// The throughput of `stations` that always have a frame, in bits of payload a second.
fn saturated(stations: &mut [Station]) -> f64 {
    for station in &mut *stations {
        station.enter(Instant::ZERO, frame(0));
    }
    let seconds = 20;
    let arrived = run(stations, Instant::ZERO + Nanos::from_secs(seconds), true).len();
    arrived as f64 * 12_000.0 / seconds as f64
}

#[test]
fn one_station_has_the_theoretical_maximum_throughput() {
    // Jun, Peddabachagari and Sichitiu (NCA 2003): payload over DIFS, mean backoff, data, SIFS and
    // acknowledgement. At 54 Mbit/s these are 34 + 67.5 + 248 + 16 + 28 µs for 1500 bytes.
    let maximum = 12_000.0 / 393.5e-6;
    let mut stations = stations::<1>(Settings::OFDM);
    let throughput = saturated(&mut stations);
    assert!((throughput / maximum - 1.0).abs() < 0.005, "{throughput} instead of {maximum}");
    assert_eq!(stations[0].on_air().collided, 0);
}

#[test]
fn two_stations_collide_as_often_as_bianchi_says() {
    // Bianchi (IEEE JSAC 18(3), 2000), equations 7, 9 and 13, solved for two stations, W = 16 and
    // m = 6: a collision probability of 0.1046 and, with the times above, 31.29 Mbit/s.
    let mut stations = stations::<2>(Settings::OFDM);
    let throughput = saturated(&mut stations);
    let [one, other] = [0, 1].map(|index: usize| stations[index].on_air());
    assert_eq!(one.collided, other.collided);
    let collisions = (one.collided + other.collided) as f64 / (one.sent + other.sent) as f64;
    assert!((collisions - 0.1046).abs() < 0.01, "{collisions}");
    assert!((throughput / 31.29e6 - 1.0).abs() < 0.02, "{throughput}");
    assert!(one.sent.abs_diff(other.sent) < one.sent / 20, "{one:?} {other:?}");
}

#[test]
fn a_frame_waits_for_the_exchange_of_the_other_direction_and_a_backoff() {
    let mut stations = stations::<2>(Settings::OFDM);
    stations[0].enter(Instant::ZERO, frame(1));
    assert_eq!(stations[0].poll(Instant::ZERO).map(|frame| frame.id), None);
    stations[1].enter(Instant::from_nanos(10_000), frame(2));
    let arrived = run(&mut stations, Instant::from_nanos(10_000_000), false);
    // The medium was idle, so the first frame goes at once. 248 µs of data, 16 + 28 of the
    // acknowledgement, 34 of DIFS, then 0 to 15 slots.
    assert_eq!(arrived[0], (248_000, 0, 1));
    let (at, station, id) = arrived[1];
    assert_eq!((station, id, arrived.len()), (1, 2, 2));
    let backoff = at - (248_000 + 44_000 + 34_000) - 248_000;
    assert!(backoff % 9_000 == 0 && backoff <= 15 * 9_000, "{backoff}");
}

#[test]
fn stations_of_different_media_do_not_wait_for_each_other() {
    let [one] = stations::<1>(Settings::OFDM);
    let [other] = stations::<1>(Settings::OFDM);
    assert!(!one.shares_medium_with(&other));
    let mut both = [one, other];
    both.iter_mut().for_each(|station| station.enter(Instant::ZERO, frame(1)));
    let arrived = run(&mut both, Instant::from_nanos(1_000_000), false);
    assert_eq!(arrived, [(248_000, 0, 1), (248_000, 1, 1)]);
}

#[test]
fn frames_that_begin_together_collide_and_are_sent_again() {
    let mut stations = stations::<2>(Settings::OFDM);
    stations.iter_mut().for_each(|station| station.enter(Instant::ZERO, frame(1)));
    let arrived = run(&mut stations, Instant::from_nanos(100_000_000), false);
    assert_eq!(arrived.len(), 2);
    assert!(stations.iter().all(|station| station.on_air().collided >= 1));
    assert!(stations.iter().all(|station| station.counts().lost == 0));
}

#[test]
fn a_frame_is_lost_after_its_last_attempt_and_windows_double_until_then() {
    let always = Bursts {
        good: Nanos::from_secs(1),
        bad: Nanos::from_secs(1),
        good_loss: Chance::ALWAYS,
        bad_loss: Chance::ALWAYS,
    };
    let settings = Settings { bursts: Some(always), cw_max: 255, ..Settings::OFDM };
    let [mut station] = stations::<1>(settings);
    station.enter(Instant::ZERO, frame(1));
    let mut windows = Vec::new();
    while let Some(at) = station.next() {
        assert!(station.poll(at).is_none());
        if station.sending.is_none() {
            windows.push(station.window);
        }
    }
    assert_eq!(windows, [31, 63, 127, 255, 255, 255, 15]);
    assert_eq!((station.on_air().sent, station.on_air().lost, station.counts().lost), (7, 7, 1));
}

#[test]
fn losses_come_in_bursts_as_often_as_the_states_say() {
    let bursts = Bursts {
        good: Nanos::from_millis(90),
        bad: Nanos::from_millis(10),
        good_loss: Chance::NEVER,
        bad_loss: Chance::percent(80),
    };
    let [mut station] = stations::<1>(Settings { bursts: Some(bursts), attempts: 1, ..Settings::OFDM });
    let (mut lost, mut after_loss, mut twice, mut before) = (0, 0, 0, false);
    let count = 100_000;
    for number in 0..count {
        station.enter(Instant::ZERO + Nanos::from_millis(1) * number, frame(number));
        let losses = station.counts().lost;
        while let Some(at) = station.next() {
            station.poll(at);
        }
        let is_lost = station.counts().lost > losses;
        lost += u64::from(is_lost);
        after_loss += u64::from(before);
        twice += u64::from(before && is_lost);
        before = is_lost;
    }
    // 10 % of the time is bad, and 80 % of that is lost. One millisecond later the state is still
    // bad with 0.1 + 0.9 exp(-1/10 - 1/90) = 0.905.
    let share = lost as f64 / count as f64;
    assert!((share - 0.08).abs() < 0.008, "{share}");
    let again = f64::from(u32::try_from(twice).unwrap()) / after_loss as f64;
    assert!((again - 0.8 * 0.905).abs() < 0.03, "{again}");
}

#[test]
fn link_retransmissions_hide_what_a_lossy_channel_loses() {
    let lossy = Bursts {
        good: Nanos::from_secs(1),
        bad: Nanos::from_secs(1),
        good_loss: Chance::percent(10),
        bad_loss: Chance::percent(10),
    };
    let [mut station] = stations::<1>(Settings { bursts: Some(lossy), ..Settings::OFDM });
    for number in 0..900 {
        station.enter(Instant::ZERO, frame(number));
    }
    let mut stations = [station];
    let arrived = run(&mut stations, Instant::ZERO + Nanos::from_secs(10), false);
    assert!(arrived.iter().map(|(_, _, id)| *id).eq(0..900));
    assert!(stations[0].on_air().lost > 50);
}

#[test]
fn a_full_queue_loses_frames_and_every_frame_is_counted() {
    let [mut station] = stations::<1>(Settings { queue_frames: 3, ..Settings::OFDM });
    for number in 0..5 {
        station.enter(Instant::ZERO, frame(number));
    }
    let mut stations = [station];
    assert_eq!(run(&mut stations, Instant::ZERO + Nanos::from_secs(1), false).len(), 3);
    let counts = stations[0].counts();
    assert_eq!((counts.entered, counts.left, counts.lost), (5, 3, 2));
}

#[test]
fn a_late_caller_loses_no_frame_and_the_station_goes_on() {
    let mut stations = stations::<2>(Settings::OFDM);
    for number in 0..200 {
        stations.iter_mut().for_each(|station| station.enter(Instant::ZERO, frame(number)));
    }
    let mut arrived = 0;
    for millisecond in 1..1_000 {
        let now = Instant::ZERO + Nanos::from_millis(millisecond * 7);
        for station in &mut stations {
            while station.poll(now).is_some() {
                arrived += 1;
            }
            assert!(station.next().is_none_or(|next| next > now));
        }
    }
    assert_eq!(arrived, 400);
}
