//! Pre-triggers: the kept bytes, the dropped ones, and the recording's account of both.

use core::cell::RefCell;

use super::*;
use crate::Missed;
use crate::format::Trigger;

/// A recording that keeps `keep`, and is triggered before piece number `at`. The bytes that it let
/// go are taken off; the last value has all of them.
fn triggered(seed: u64, keep: Nanos, at: u32) -> (Run, Option<Trigger>, Instant, bool, [Vec<u8>; 2]) {
    let (mut config, mut rng) = (config(), Rng::from_seed(seed + 77));
    config.pre_trigger = Some(keep);
    let found = RefCell::new((None, Instant::ZERO, false));
    let mut piece = 0;
    let each = |recorder: &mut Recorder, now: Instant| {
        // Packets of unknown length are missed now and then.
        if rng.below(9) == 0 {
            let missed = Missed { packets: 1 + rng.below(3), bytes: 0, when: 1, place: Place::Wire };
            recorder.miss(now, usize::from(rng.below(2) == 1), missed);
        }
        if piece == at {
            let is_short = recorder.kept(now).expect("it is armed").is_short;
            let time = Time { nanos: now.as_nanos() + 1, source: TimeSource::Host };
            assert!(recorder.is_armed() && recorder.trigger(now, time));
            assert!(!recorder.is_armed() && !recorder.trigger(now, time) && recorder.kept(now).is_none());
            *found.borrow_mut() = (recorder.triggered(), now, is_short);
        }
        piece += 1;
    };
    let mut run = record_with(config, seed, 300, |_, _| None, each);
    let all = run.came.clone();
    for (came, account) in run.came.iter_mut().zip(&run.certificate.streams) {
        let passed = came.len() - usize::try_from(account.bytes_in).unwrap();
        came.drain(..passed);
    }
    let (trigger, now, is_short) = found.into_inner();
    (run, trigger, now, is_short, all)
}

#[test]
fn whatever_the_moment_what_came_within_the_time_is_recorded() {
    let (mut begun_later, mut short) = (0, 0);
    for seed in 0..120 {
        let why = format!("seed {seed}");
        let keep = Nanos::from_millis([0, 40, 700, 3_000, 60_000][usize::try_from(seed % 5).unwrap()]);
        let at = u32::try_from(seed * 53 % 300).unwrap();
        let (run, trigger, now, is_short, all) = triggered(seed, keep, at);
        let survey = check_whole(&run, &why);
        assert_eq!((survey.trigger, survey.trigger.is_some()), (trigger, true), "{why}");
        let trigger = trigger.unwrap();
        assert_eq!(trigger.time, now.as_nanos() + 1, "{why}");
        // A chunk that is not full lasts for half a second, or longer if the buffer is small beside
        // the time. Pieces are 50 ms apart.
        let span = Nanos::from_millis(600).max(Nanos::new(keep.get() / 8) + Nanos::from_millis(100));
        assert!(trigger.before <= (keep + span).get(), "{why}: {} ns before", trigger.before);
        let since = now.as_nanos().saturating_sub(keep.get());
        let (_, lengths) = run.moments.iter().find(|moment| moment.0.as_nanos() >= since).unwrap();
        let (_, ends) = run.moments.last().unwrap();
        for stream in 0..2 {
            let kept = run.certificate.streams[stream].bytes_in;
            // A loss before the first kept byte is no gap.
            let young = all[stream][lengths[stream]..].iter().skip_while(|byte| **byte == 0).count() as u64;
            let first = survey.gaps.iter().find(|gap| gap.stream as usize == stream && gap.bytes > 0);
            let first = first.filter(|gap| gap.from == 0);
            assert!(first.is_none_or(|gap| gap.when >= trigger.time), "{why}: it begins with a gap");
            begun_later += u64::from(kept < ends[stream] as u64);
            assert!(is_short || kept >= young, "{why}: {kept} of {young} bytes");
        }
        short += u64::from(is_short);
    }
    assert!(begun_later > 60 && short > 5, "{begun_later} streams begin later, {short} buffers are short");
}

#[test]
fn a_recording_without_a_trigger_is_empty_and_certified() {
    for seed in 0..20 {
        let (mut run, trigger, ..) = triggered(seed, Nanos::from_millis(900), u32::MAX);
        run.came.iter_mut().for_each(Vec::clear);
        let survey = check_whole(&run, &format!("seed {seed}"));
        assert_eq!((trigger, survey.trigger, survey.bytes(), run.certificate.bytes_in()), (None, None, 0, 0));
        assert!(survey.entries.is_empty() && survey.gaps.is_empty());
    }
}

#[test]
fn a_cut_after_a_trigger_costs_only_what_was_under_way() {
    for seed in 0..6 {
        let (run, trigger, ..) = triggered(seed, Nanos::from_millis(2_000), 150);
        let mut rng = Rng::from_seed(seed + 3_000);
        for cut in 0..=run.log.len() {
            let (medium, acknowledged) = cut_off(&run, cut, u32::try_from(cut % 3).unwrap(), &mut rng);
            recover(&medium, &run, acknowledged, &format!("seed {seed}, cut {cut}"));
        }
        let (medium, _) = cut_off(&run, run.log.len(), 0, &mut rng);
        assert_eq!(survey(&medium).trigger, trigger);
    }
}

#[test]
fn what_waits_when_the_medium_is_full_is_declared() {
    for seed in 0..20 {
        let mut config = config();
        config.pre_trigger = Some(Nanos::from_millis(60_000));
        config.slots = Some(FIRST_SLOT + seed);
        let mut piece = 0;
        let mut run = record_with(
            config,
            seed,
            300,
            |_, _| None,
            |recorder, now| {
                if piece == 200 {
                    recorder.trigger(now, Time::NONE);
                }
                piece += 1;
            },
        );
        assert_eq!(run.certificate.reason, Reason::Full);
        for (came, account) in run.came.iter_mut().zip(&run.certificate.streams) {
            let passed = came.len() - usize::try_from(account.bytes_in).unwrap();
            came.drain(..passed);
        }
        let survey = check_whole(&run, &format!("seed {seed}"));
        assert!(survey.certificate.unwrap().bytes_lost() > 100_000, "seed {seed}");
    }
}

/// Streams of a constant rate, in small pieces and in turn.
fn is_short(rate: u64, keep: Nanos, streams: u64, chunks: u64) -> bool {
    const STEP: u64 = 2_000_000;
    let mut config = Config::new([9; 16], (0..streams).map(|stream| format!("{stream}")).collect());
    (config.chunk, config.buffer) = (CHUNK_MIN, usize::try_from(chunks).unwrap());
    config.pre_trigger = Some(keep);
    let mut recorder = Recorder::new(config, Time::NONE);
    let (mut came, mut now) = (0, 0);
    while now < keep.get() * 3 {
        now += STEP;
        let due = u64::try_from(u128::from(rate) * u128::from(now) / 1_000_000_000).unwrap();
        for stream in 0..streams {
            let mut left = usize::try_from((due - came) / streams).unwrap();
            while left > 0 {
                let room = recorder.room(Instant::from_nanos(now), usize::try_from(stream).unwrap());
                let length = room.unwrap().len().min(left);
                recorder.filled(
                    Instant::from_nanos(now),
                    usize::try_from(stream).unwrap(),
                    length,
                    Time::NONE,
                );
                left -= length;
            }
        }
        came += (due - came) / streams * streams;
        recorder.handle_timeout(Instant::from_nanos(now));
        while recorder.poll_output().is_some() {}
    }
    let kept = recorder.kept(Instant::from_nanos(now)).unwrap();
    assert!(kept.is_short || kept.time >= keep || came == 0, "{kept:?}");
    kept.is_short
}

#[test]
fn a_buffer_of_the_reported_size_keeps_all_and_a_much_smaller_one_does_not() {
    for rate in [10_000, 300_000, 5_000_000, 60_000_000] {
        for keep in [300, 2_000, 9_000] {
            for streams in [1, 3] {
                let keep = Nanos::from_millis(keep);
                let reported =
                    crate::pre_trigger_buffer(rate, keep, CHUNK_MIN, usize::try_from(streams).unwrap());
                if reported > crate::BUFFER_MAX as u64 {
                    continue;
                }
                let chunks = reported.max(32);
                let why = format!("{rate} B/s, {keep}, {streams} streams: {reported} chunks");
                assert!(!is_short(rate, keep, streams, chunks), "{why}");
                assert!(
                    reported < 200 || is_short(rate, keep, streams, reported / 2),
                    "half is enough: {why}"
                );
            }
        }
    }
}
