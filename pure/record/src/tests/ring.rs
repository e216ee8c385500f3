//! Rings: the oldest bytes are overwritten, and the account of the held ones is true after every
//! fault.

use super::*;
use crate::format::{Holding, Kind, Pin};
use crate::{Keep, PinRange, PinRefusal, RingConfig};

fn ring(seed: u64) -> Config {
    let mut config = config();
    config.slots = Some(RingConfig::slots_min(config.buffer) + seed % 40);
    config.ring = Some(RingConfig::default());
    config
}

/// Records to a ring, and pins something now and then.
fn record_ring(seed: u64, pieces: u32, fails: impl FnMut(u64, usize) -> Option<Fault>) -> (Run, Vec<Pin>) {
    let mut rng = Rng::from_seed(seed + 7_000);
    let mut pinned = Vec::new();
    let each = |recorder: &mut Recorder, now| match rng.below(300) {
        0 => {
            let came = recorder.progress().bytes_in;
            let (stream, from) = (u32::try_from(rng.below(2)).unwrap(), rng.below(came + 1));
            let range = PinRange::Bytes { stream, from, bytes: 1 + rng.below(60_000) };
            let range = if rng.one_in(3) { PinRange::Last(Nanos::from_millis(900)) } else { range };
            if let Ok(pins) = recorder.pin(now, range) {
                pinned.extend(pins);
            }
        }
        1 if rng.one_in(4) => {
            recorder.unpin(now).expect("it is a ring");
            pinned.clear();
        }
        _ => {}
    };
    let run = record_with(ring(seed), seed, pieces, fails, each);
    (run, pinned)
}

#[test]
fn a_ring_holds_the_newest_and_what_is_pinned_over_many_seeds() {
    let mut pins = 0;
    for seed in 0..40 {
        let why = format!("seed {seed}");
        let (run, pinned) = record_ring(seed, 2_500, |_, _| None);
        let survey = check_whole(&run, &why);
        let ring = survey.ring.as_ref().expect("a ring");
        assert!(run.certificate.bytes_overwritten() > 2_000_000, "{why}: {:?}", run.certificate);
        assert_eq!(run.certificate.reason, Reason::SourceEnded, "{why}");
        // A ring is nearly full of held bytes, though chunks that are written early are short.
        assert!(survey.entries.len() > 50, "{why}: {}", survey.entries.len());
        for (stream, totals) in (0..).zip(&run.certificate.streams) {
            let held: u64 =
                ring.holding.ranges(stream, totals.bytes_in).iter().map(|(from, end)| end - from).sum();
            assert_eq!(held, totals.stored + totals.lost, "{why}");
        }
        let is_there = |pin: &Pin| ring.holding.holds(pin.stream, pin.from, pin.end);
        assert!(pinned.iter().all(is_there), "{why}: {pinned:?} of {ring:?}");
        pins += pinned.len();
    }
    assert!(pins > 50, "only {pins} ranges were pinned");
}

#[test]
fn a_ring_on_a_medium_that_fails_now_and_then_reports_the_truth() {
    let mut calm = 0;
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let often = 3 + seed % 9;
        let fails = |offset, _| {
            let is_data = offset >= FIRST_SLOT * CHUNK as u64;
            (is_data && rng.below(often) == 0).then_some(Fault::Failed)
        };
        let (run, _) = record_ring(seed, 1_500, fails);
        calm += u32::from(run.certificate.reason == Reason::SourceEnded);
        if run.is_certified {
            check_whole(&run, &format!("seed {seed}"));
        }
    }
    assert!(calm > 30, "only {calm} recordings came to their end");
}

/// The most that the log declares as overwritten.
fn floors(log: &[Done]) -> Holding {
    let mut all = Holding::default();
    for done in log {
        let Done::Write(_, data) = done else { continue };
        let Ok(header) = Header::parse(data, engine::crc32c) else { continue };
        if let Some(before) = header.overwrote {
            all.raise(before.stream, before.end);
        }
        if header.kind == Kind::Holding {
            let held = Holding::parse(&data[crate::format::HEADER_LENGTH..]).expect("a holding");
            (0..).zip(&held.floors).for_each(|(stream, floor)| {
                all.raise(stream, *floor);
            });
        }
    }
    all
}

#[test]
fn a_ring_that_is_cut_off_has_all_that_was_durable_and_not_overwritten() {
    for seed in 0..3 {
        let (run, _) = record_ring(seed, 900, |_, _| None);
        let mut rng = Rng::from_seed(seed + 1_000);
        for cut in (0..=run.log.len()).step_by(7) {
            for variant in 0..3 {
                let why = format!("seed {seed}, cut {cut}, variant {variant}");
                let (medium, _) = cut_off(&run, cut, variant, &mut rng);
                let log = &run.log[..cut];
                let synced = log.iter().rposition(|done| matches!(done, Done::Sync)).unwrap_or(0);
                // Of the durable chunks, those that no later write covered.
                let mut durable = BTreeMap::new();
                for (at, done) in log.iter().enumerate() {
                    let Done::Write(offset, data) = done else { continue };
                    durable.remove(offset);
                    if at < synced || variant == 0 {
                        durable.insert(*offset, data);
                    }
                }
                let (found, most) = (survey(&medium), floors(log));
                let holding = found.ring.as_ref().map(|ring| ring.holding.clone()).unwrap_or_default();
                for stream in 0..2 {
                    assert!(holding.floor(stream) <= most.floor(stream), "{why}: {holding:?}, {most:?}");
                }
                for data in durable.values() {
                    let header = Header::parse(data, engine::crc32c);
                    let Ok(header) = header.as_ref().map_err(|_| ()) else { continue };
                    if header.kind != Kind::Data || !holding.holds(header.stream, header.offset, header.end())
                    {
                        continue;
                    }
                    let is_there = |entry: &crate::format::Entry| {
                        (entry.stream, entry.offset, entry.end())
                            == (header.stream, header.offset, header.end())
                    };
                    assert!(found.entries.iter().any(is_there), "{why}: {header:?} was durable");
                }
                recover(&medium, &run, 0, &why);
            }
        }
    }
}

#[test]
fn what_is_held_is_durable_in_one_slot_while_the_other_is_written() {
    let mut accounts = 0;
    for seed in 0..10 {
        let (run, _) = record_ring(seed, 900, |_, _| None);
        let mut is_durable = true;
        for done in &run.log {
            match done {
                Done::Write(_, data) => {
                    let header = Header::parse(data, engine::crc32c);
                    if header.is_ok_and(|header| header.kind == Kind::Holding) {
                        assert!(is_durable, "seed {seed}: a power cut now could cost both accounts");
                        is_durable = false;
                        accounts += 1;
                    }
                }
                Done::Sync => is_durable = true,
                Done::Acknowledged(_) => {}
            }
        }
    }
    assert!(accounts > 100, "only {accounts} accounts of what is held");
}

#[test]
fn a_stream_that_is_to_be_kept_outlives_others_in_the_ring() {
    let mut config = ring(0);
    config.slots = config.slots.map(|slots| slots + 100);
    let keep = Keep { time: None, bytes: Some(1_200_000) };
    config.ring = Some(RingConfig { keep: vec![keep] });
    let run = record_with(config, 5, 2_500, |_, _| None, |_, _| {});
    check_whole(&run, "keep");
    let [kept, other] = &run.certificate.streams[..] else { panic!("two streams") };
    assert!(kept.stored + kept.lost >= 1_200_000, "{kept:?}");
    assert!(other.stored + other.lost < kept.stored + kept.lost, "{kept:?} {other:?}");
    // More than there is room for is overwritten all the same, and nothing new is lost for it.
    let mut config = ring(0);
    let keep = Keep { time: Some(Nanos::from_secs(3_600)), bytes: None };
    config.ring = Some(RingConfig { keep: vec![keep, keep] });
    let run = record_with(config, 6, 2_500, |_, _| None, |_, _| {});
    check_whole(&run, "keep all");
    assert!(run.certificate.streams.iter().all(|stream| stream.overwritten > 0), "{:?}", run.certificate);
}

#[test]
fn what_was_overwritten_between_two_held_parts_is_not_pinned() {
    let mut pinned = Vec::new();
    let mut overwritten = 0;
    let each = |recorder: &mut Recorder, now| {
        let came = recorder.progress().bytes_in;
        if came > 60_000 && pinned.is_empty() {
            pinned.push(recorder.pin(now, PinRange::Bytes { stream: 0, from: 0, bytes: 20_000 }).unwrap());
        }
        if recorder.progress().overwritten > 1_000_000 && pinned.len() == 1 {
            let all = PinRange::Bytes { stream: 0, from: 10_000, bytes: u64::MAX >> 1 };
            overwritten = recorder.holding().overwritten(0, u64::MAX);
            pinned.push(recorder.pin(now, all).unwrap());
        }
    };
    let mut config = ring(0);
    // Half of the ring can be pinned.
    config.slots = config.slots.map(|slots| slots + 200);
    let keep = Keep { time: None, bytes: Some(0) };
    config.ring = Some(RingConfig { keep: vec![keep, Keep { bytes: Some(3_000_000), ..keep }] });
    let run = record_with(config, 4, 2_500, |_, _| None, each);
    let survey = check_whole(&run, "pinned across what is gone");
    let held = survey.ring.expect("a ring").holding;
    let [first, second] = &pinned[..] else { panic!("two pins: {pinned:?}") };
    assert!(overwritten > 0 && second.len() == 2, "{second:?}");
    assert_eq!(second[0].end, first[0].end);
    assert!(second[1].from >= overwritten, "{second:?}: {overwritten} bytes were overwritten");
    assert!(second.iter().all(|pin| held.holds(pin.stream, pin.from, pin.end)), "{held:?}");
}

#[test]
fn a_ring_on_a_medium_that_was_used_before_proves_itself() {
    // Too short for the ring to write its account twice: a slot for that was never written.
    let run = record_with(ring(0), 2, 20, |_, _| None, |_, _| {});
    let mut medium = vec![0xa5; 200 * CHUNK];
    for done in &run.log {
        if let Done::Write(offset, data) = done {
            apply(&mut medium, *offset, data);
        }
    }
    let survey = survey(&medium);
    assert!(run.is_certified && survey.doubt_of_account().is_none(), "{:?}", survey.bad.first());
}

#[test]
fn what_can_not_be_pinned_is_refused_with_the_reason() {
    let now = Instant::ZERO;
    let range = |stream, from, bytes| PinRange::Bytes { stream, from, bytes };
    let mut plain = Recorder::new(config(), Time::NONE);
    assert_eq!(plain.pin(now, range(0, 0, 1)), Err(PinRefusal::NoRing));
    let mut refusals = Vec::new();
    let each = |recorder: &mut Recorder, now| {
        if recorder.progress().overwritten < 1_000_000 {
            return;
        }
        refusals = vec![
            recorder.pin(now, range(2, 0, 1)),
            recorder.pin(now, range(0, 0, 1)),
            recorder.pin(now, PinRange::Last(Nanos::from_secs(3_600))),
        ];
    };
    record_with(ring(0), 9, 2_000, |_, _| None, each);
    assert_eq!(refusals[0], Err(PinRefusal::NoStream(2)));
    assert!(matches!(refusals[1], Err(PinRefusal::NotHeld { floor, end }) if 0 < floor && floor < end));
    assert!(matches!(refusals[2], Err(PinRefusal::NoRoom { left, needed: 64 }) if left < 64));
}
