//! Recordings on a medium in memory, with writes that are cut, torn, lost or misdirected.

mod crafted;
mod raw;
mod ring;
mod trigger;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use alloc::{format, vec};

use engine::{Engine, Instant, Nanos, Rng};

use crate::format::{CHUNK_MIN, Cause, Certificate, FIRST_SLOT, Header, Place, Reason, Time, TimeSource};
use crate::recorder::Fault;
use crate::{Algorithm, Config, Digests, Hasher, Input, Output, Recorder, Scan, StreamDigest, Survey};

const CHUNK: usize = CHUNK_MIN as usize;

/// The requests to a medium, in order.
#[derive(Clone, Debug)]
enum Done {
    Write(u64, Vec<u8>),
    Sync,
    /// This many bytes of the stream were acknowledged.
    Acknowledged(u64),
}

struct Run {
    log: Vec<Done>,
    certificate: Certificate,
    is_certified: bool,
    /// The bytes that came, by stream; lost ones are zero.
    came: [Vec<u8>; 2],
    /// How many bytes of each stream had come before each moment.
    moments: Vec<(Instant, [usize; 2])>,
}

/// Records random pieces of two streams. `fails` says how a write ends.
fn record(seed: u64, pieces: u32, fails: impl FnMut(u64, usize) -> Option<Fault>) -> Run {
    record_with(config(), seed, pieces, fails, |_, _| {})
}

fn config() -> Config {
    let mut config = Config::new([9; 16], vec!["one".into(), "two".into()]);
    (config.chunk, config.buffer) = (CHUNK_MIN, 32);
    config
}

/// The same with a configuration, and with `each` before each piece.
fn record_with(
    mut config: Config,
    seed: u64,
    pieces: u32,
    mut fails: impl FnMut(u64, usize) -> Option<Fault>,
    mut each: impl FnMut(&mut Recorder, Instant),
) -> Run {
    let mut rng = Rng::from_seed(seed);
    if seed % 2 == 1 {
        config.digests = Digests::World;
    }
    config.algorithm = if seed % 4 < 2 { Algorithm::Sha256 } else { Algorithm::Blake3 };
    let digest = Hasher::new(config.algorithm);
    let mut recorder = Recorder::new(config, Time::NONE);
    let mut log = Vec::new();
    let mut came = [Vec::new(), Vec::new()];
    let mut moments = Vec::new();
    let mut under_way = Vec::new();
    let (mut digests, mut digested) = ([digest.clone(), digest], VecDeque::new());
    let mut now = Instant::ZERO;
    for piece in 0..=pieces {
        now = now + Nanos::from_millis(rng.below(50));
        let time = Time { nanos: now.as_nanos() + 1, source: TimeSource::Host };
        each(&mut recorder, now);
        moments.push((now, [came[0].len(), came[1].len()]));
        let stream = usize::from(rng.below(2) == 1);
        let wanted = usize::try_from(rng.below(9_000)).unwrap();
        if piece == pieces {
            recorder.finish(Reason::SourceEnded);
        } else if let Some(room) = recorder.room(now, stream).filter(|_| rng.below(20) > 0) {
            let length = wanted.min(room.len());
            room[..length].iter_mut().for_each(|byte| *byte = u8::try_from(rng.below(255)).unwrap() + 1);
            came[stream].extend(&room[..length]);
            recorder.filled(now, stream, length, time);
        } else if all_in(&recorder) == came.iter().map(|came| came.len() as u64).sum() {
            let before = all_in(&recorder);
            recorder.lose(now, stream, wanted as u64, time.nanos, Place::Ring, Cause::Overflow);
            let lost = all_in(&recorder) - before;
            let length = came[stream].len() + usize::try_from(lost).unwrap();
            came[stream].resize(length, 0);
        }
        recorder.handle_timeout(now);
        loop {
            let mut is_quiet = true;
            while let Some(output) = recorder.poll_output() {
                match output {
                    Output::Write { name, offset, data } => under_way.push((name, offset, data.to_vec())),
                    Output::Digest { stream, data } => {
                        digests[stream as usize].update(&data);
                        digested.push_back(digests[stream as usize].finalize());
                    }
                    Output::Sync => {
                        log.push(Done::Sync);
                        recorder.handle_input(now, Input::Synced(Ok(())));
                        log.push(Done::Acknowledged(recorder.progress().acknowledged));
                    }
                    Output::Ended(certificate) => {
                        let is_certified = recorder.is_certified();
                        return Run { log, certificate, is_certified, came, moments };
                    }
                }
            }
            // Writes end in any order, and not always soon.
            while !under_way.is_empty() && (piece == pieces || rng.below(4) > 0) {
                is_quiet = false;
                let at = usize::try_from(rng.below(under_way.len() as u64)).unwrap();
                let (name, offset, data) = under_way.swap_remove(at);
                let result = fails(offset, data.len()).map_or(Ok(()), Err);
                if result.is_ok() {
                    log.push(Done::Write(offset, data));
                }
                recorder.handle_input(now, Input::Written { name, result });
            }
            while !digested.is_empty() && (piece == pieces || rng.below(4) > 0) {
                is_quiet = false;
                let digest = digested.pop_front().unwrap();
                recorder.handle_input(now, Input::Digested { digest });
            }
            let progress = recorder.progress();
            assert_eq!(progress.bytes_in, progress.stored + progress.lost + progress.fill, "seed {seed}");
            if is_quiet {
                break;
            }
        }
    }
    panic!("the recording does not end");
}

/// Bytes that came, those included that a pre-trigger let go.
fn all_in(recorder: &Recorder) -> u64 {
    recorder.progress().bytes_in + recorder.progress().passed
}

fn apply(medium: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let offset = usize::try_from(offset).unwrap();
    if medium.len() < offset + data.len() {
        medium.resize(offset + data.len(), 0);
    }
    medium[offset..offset + data.len()].copy_from_slice(data);
}

fn survey(medium: &[u8]) -> Survey {
    let mut scan = Scan::new(CHUNK_MIN, engine::crc32c);
    for (slot, bytes) in (0..).zip(medium.chunks(CHUNK)) {
        scan.on_slot(slot, bytes);
    }
    scan.finish()
}

/// Checks that all bytes which the survey finds match the recorded ones. Returns the digests of the
/// streams.
fn check_bytes(survey: &Survey, medium: &[u8], run: &Run, why: &str) -> Vec<[u8; 32]> {
    let digest = StreamDigest::new(survey.algorithm(), survey.is_ring());
    let mut digests = [digest.clone(), digest];
    for entry in &survey.entries {
        let start = usize::try_from(entry.slot).unwrap() * CHUNK;
        let (_, payload) = Header::parse_chunk(entry.slot, &medium[start..], engine::crc32c).unwrap();
        let from = usize::try_from(entry.offset).unwrap();
        let stream = entry.stream as usize;
        assert!(run.came[stream][from..][..payload.len()] == *payload, "{why}: other bytes");
        digests[stream].update(payload);
    }
    digests.iter().take(survey.streams()).map(StreamDigest::finalize).collect()
}

fn check_whole(run: &Run, why: &str) -> Survey {
    let mut medium = Vec::new();
    for done in &run.log {
        if let Done::Write(offset, data) = done {
            apply(&mut medium, *offset, data);
        }
    }
    let survey = survey(&medium);
    let certificate = survey.certificate.clone().expect("a certificate");
    assert_eq!(certificate, run.certificate, "{why}");
    let (kept, gone) =
        (certificate.bytes_stored() + certificate.bytes_lost(), certificate.bytes_overwritten());
    assert_eq!(certificate.bytes_in(), kept + gone, "{why}");
    assert_eq!(certificate.bytes_in(), run.came.iter().map(|came| came.len() as u64).sum(), "{why}");
    assert!(run.is_certified && survey.doubt_of_account().is_none(), "{why}: {survey:?}");
    let digests = check_bytes(&survey, &medium, run, why);
    assert_eq!(certificate.algorithm.digest_of_all(&digests), certificate.digest, "{why}");
    survey
}

#[test]
fn what_came_is_stored_or_declared_over_many_seeds() {
    for seed in 0..100 {
        check_whole(&record(seed, 300, |_, _| None), &format!("seed {seed}"));
    }
}

#[test]
fn silent_streams_take_no_room_from_one_that_has_bytes() {
    let names = (0..=crate::BUFFER_MIN).map(|stream| format!("{stream}")).collect();
    let config = Config { buffer: crate::BUFFER_MIN, ..Config::new([9; 16], names) };
    let (mut recorder, now) = (Recorder::new(config, Time::NONE), Instant::ZERO);
    for stream in 0..=crate::BUFFER_MIN {
        assert!(recorder.room(now, stream).is_some(), "stream {stream}");
    }
    recorder.filled(now, crate::BUFFER_MIN, 5, Time::NONE);
    // Chunks with bytes stay.
    for stream in 0..crate::BUFFER_MIN - 1 {
        assert!(recorder.room(now, stream).is_some(), "stream {stream}");
        recorder.filled(now, stream, 1, Time::NONE);
    }
    assert!(recorder.room(now, crate::BUFFER_MIN - 1).is_none(), "every chunk has bytes");
    assert_eq!(recorder.progress().bytes_in, 5 + crate::BUFFER_MIN as u64 - 1);
}

#[test]
fn a_recording_without_digests_says_so() {
    let mut config = Config::new([9; 16], vec!["one".into()]);
    (config.algorithm, config.digests) = (Algorithm::None, Digests::World);
    let mut recorder = Recorder::new(config, Time::NONE);
    let now = Instant::ZERO;
    recorder.room(now, 0).unwrap()[..5].copy_from_slice(b"bytes");
    recorder.filled(now, 0, 5, Time::NONE);
    recorder.finish(Reason::SourceEnded);
    let mut medium = Vec::new();
    let certificate = loop {
        match recorder.poll_output().unwrap() {
            Output::Write { name, offset, data } => {
                apply(&mut medium, offset, &data);
                drop(data);
                recorder.handle_input(now, Input::Written { name, result: Ok(()) });
            }
            Output::Digest { .. } => panic!("nobody computes digests"),
            Output::Sync => recorder.handle_input(now, Input::Synced(Ok(()))),
            Output::Ended(certificate) => break certificate,
        }
    };
    assert_eq!((certificate.algorithm, certificate.digest), (Algorithm::None, [0; 32]));
    let mut scan = Scan::new(crate::format::CHUNK_DEFAULT, engine::crc32c);
    for (slot, bytes) in (0..).zip(medium.chunks(crate::format::CHUNK_DEFAULT as usize)) {
        scan.on_slot(slot, bytes);
    }
    let survey = scan.finish();
    assert_eq!((survey.certificate.as_ref(), survey.doubt_of_account()), (Some(&certificate), None));
}

#[test]
fn a_medium_that_fails_now_and_then_costs_slots_or_declared_gaps() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let often = 2 + seed % 9;
        let fails = |offset, _| {
            let is_data = offset >= FIRST_SLOT * CHUNK as u64;
            (is_data && rng.below(often) == 0).then_some(Fault::Failed)
        };
        check_whole(&record(seed, 300, fails), &format!("seed {seed}"));
    }
}

#[test]
fn a_full_medium_has_every_byte_that_fits() {
    let mut filled = 0;
    for pages in (16..80).step_by(3) {
        let room = pages * 4096;
        let run = record(pages, 300, |offset, length| (offset + length as u64 > room).then_some(Fault::Full));
        check_whole(&run, &format!("{pages} pages"));
        assert_eq!(run.certificate.reason, Reason::Full);
        let used = run.log.iter().filter_map(|done| match done {
            Done::Write(offset, data) => Some(offset + data.len() as u64),
            _ => None,
        });
        let left = room - used.max().unwrap();
        // A chunk that is written early is shorter than its slot.
        assert!(left < CHUNK as u64, "{pages} pages: {left} bytes of room are left");
        filled += u32::from(left == 0);
    }
    assert!(filled > 15, "only {filled} media were filled to their last page");
}

/// Recovers, checks that everything acknowledged is there, and that the repaired medium proves
/// itself.
fn recover(medium: &[u8], run: &Run, acknowledged: u64, why: &str) {
    let mut found = survey(medium);
    let digests = check_bytes(&found, medium, run, why);
    let is_less = found.bytes() < acknowledged;
    assert!(found.is_ring() || !is_less, "{why}: {} of {acknowledged} bytes", found.bytes());
    let before = found.bytes();
    let mut medium = medium.to_vec();
    mend(&mut found, &mut medium, &digests);
    let found = survey(&medium);
    let certificate = found.certificate.as_ref().expect("a certificate");
    assert_eq!(certificate.bytes_stored(), before, "{why}");
    let (kept, gone) =
        (certificate.bytes_stored() + certificate.bytes_lost(), certificate.bytes_overwritten());
    assert_eq!(certificate.bytes_in(), kept + gone, "{why}");
    assert_eq!(found.doubt(&digests), None, "{why}: {found:?}");
}

/// Writes what makes the recording on a medium whole.
fn mend(found: &mut Survey, medium: &mut Vec<u8>, digests: &[[u8; 32]]) {
    let slots = (medium.len() as u64).div_ceil(CHUNK as u64);
    let now = Time { nanos: 5, source: TimeSource::Host };
    for patch in found.recover(digests, slots, now, engine::crc32c).steps.into_iter().flatten() {
        apply(medium, patch.slot * CHUNK as u64, &patch.bytes);
    }
}

/// The medium after a power cut in front of the event `cut`, and how many bytes were acknowledged.
/// Each write since the last sync is there or, in other variants than 0, is not there or torn.
fn cut_off(run: &Run, cut: usize, variant: u32, rng: &mut Rng) -> (Vec<u8>, u64) {
    let (mut medium, mut acknowledged) = (Vec::new(), 0);
    let synced = run.log[..cut].iter().rposition(|done| matches!(done, Done::Sync)).unwrap_or(0);
    for (at, done) in run.log[..cut].iter().enumerate() {
        match done {
            Done::Write(offset, data) if at > synced && variant > 0 => match rng.below(3) {
                0 => {}
                1 => apply(&mut medium, *offset, data),
                _ => {
                    let sector = usize::try_from(rng.below(data.len() as u64 / 512)).unwrap() * 512;
                    let torn = if variant == 1 { &data[..sector] } else { &data[sector..] };
                    let start = if variant == 1 { *offset } else { offset + sector as u64 };
                    apply(&mut medium, start, torn);
                }
            },
            Done::Write(offset, data) => apply(&mut medium, *offset, data),
            Done::Acknowledged(bytes) => acknowledged = *bytes,
            Done::Sync => {}
        }
    }
    (medium, acknowledged)
}

#[test]
fn a_cut_at_every_write_costs_only_what_was_under_way() {
    for seed in 0..6 {
        let run = record(seed, 60, |_, _| None);
        let mut rng = Rng::from_seed(seed + 1_000);
        for cut in 0..=run.log.len() {
            for variant in 0..3 {
                let (medium, acknowledged) = cut_off(&run, cut, variant, &mut rng);
                recover(&medium, &run, acknowledged, &format!("seed {seed}, cut {cut}, variant {variant}"));
            }
        }
    }
}

#[test]
fn lost_misdirected_and_changed_writes_are_found_over_many_seeds() {
    for seed in 0..150 {
        let run = record(seed, 120, |_, _| None);
        let mut rng = Rng::from_seed(seed + 2_000);
        let mut writes = BTreeMap::new();
        let (mut medium, mut harmed) = (Vec::new(), 0);
        for done in &run.log {
            let Done::Write(offset, data) = done else { continue };
            let is_data = *offset >= FIRST_SLOT * CHUNK as u64;
            match rng.below(12) {
                0 if is_data => {}
                1 if is_data => {
                    let other = FIRST_SLOT + rng.below(40);
                    apply(&mut medium, other * CHUNK as u64, data);
                }
                2 if is_data => {
                    let mut data = data.clone();
                    let at = usize::try_from(rng.below(data.len() as u64)).unwrap();
                    data[at] ^= 1 << rng.below(8);
                    apply(&mut medium, *offset, &data);
                }
                _ => {
                    apply(&mut medium, *offset, data);
                    continue;
                }
            }
            writes.insert(*offset, ());
            harmed += 1;
        }
        let found = survey(&medium);
        let is_hurt = found.bytes() < run.certificate.bytes_stored();
        assert!(
            !is_hurt || found.doubt_of_account().is_some(),
            "seed {seed}: {harmed} harmed writes stay unnoticed"
        );
        recover(&medium, &run, 0, &format!("seed {seed}"));
    }
}

#[test]
fn a_recording_without_superblock_shows_the_length_of_its_chunks() {
    let run = record(1, 50, |_, _| None);
    let mut medium = Vec::new();
    for done in &run.log {
        if let Done::Write(offset, data) = done {
            apply(&mut medium, *offset, data);
        }
    }
    medium[..CHUNK].fill(0xa5);
    assert_eq!(crate::format::find_chunk_length(&medium, engine::crc32c), Some(CHUNK_MIN));
    let mut found = survey(&medium);
    let digests = check_bytes(&found, &medium, &run, "no superblock");
    assert_eq!((found.holes.len(), found.bad.len(), found.doubt_of_account().is_some()), (0, 1, true));
    mend(&mut found, &mut medium, &digests);
    assert_eq!(survey(&medium).doubt(&digests), None);
}

#[test]
fn a_schedule_is_absolute_and_scales() {
    let start = Instant::from_nanos(1_000);
    let pace = crate::Pace::new(start, 500, Some(2_000));
    assert_eq!(pace.due(500), start);
    assert_eq!(pace.due(2_500), start + Nanos::new(1_000));
    assert_eq!(pace.due(0), start, "a clock that was set back");
    assert_eq!(crate::Pace::new(start, 500, None).due(9_999), start);
}

/// A replay of 24 hours, a chunk each 100 ms or so: each is sent up to 20 ms late, and the lateness
/// of one is no other's. At a speed that divides nothing evenly, the last is due to the nanosecond.
#[test]
fn twenty_four_hours_at_pace_do_not_drift() {
    const DAY: u64 = 24 * 3_600 * 1_000_000_000;
    for speed in [1_000, 1_001, 333] {
        let mut rng = Rng::from_seed(u64::from(speed));
        let (start, first) = (Instant::from_nanos(7_777), 1_700_000_000_000_000_123);
        let pace = crate::Pace::new(start, first, Some(speed));
        let (mut recorded, mut now) = (0, start);
        while recorded < DAY {
            let due = pace.due(first + recorded);
            let exact =
                start + Nanos::new(u64::try_from(u128::from(recorded) * 1_000 / u128::from(speed)).unwrap());
            assert_eq!(due, exact, "speed {speed}, {recorded} ns");
            assert!(due >= now || now - due <= Nanos::from_millis(20), "a delay has grown");
            now = now.max(due) + Nanos::new(rng.below(20_000_000));
            recorded = DAY.min(recorded + 90_000_000 + rng.below(20_000_000));
        }
        let lasts = pace.due(first + DAY) - start;
        assert_eq!(
            lasts.get(),
            DAY / u64::from(speed) * 1_000 + DAY % u64::from(speed) * 1_000 / u64::from(speed)
        );
    }
}

#[test]
fn fuzz_targets_take_any_bytes() {
    let mut rng = Rng::from_seed(3);
    let run = record(2, 40, |_, _| None);
    for done in &run.log {
        let Done::Write(_, data) = done else { continue };
        let mut data = data.clone();
        crate::fuzz::scan(&data);
        for _ in 0..20 {
            let at = usize::try_from(rng.below(300)).unwrap();
            data[at] = u8::try_from(rng.below(256)).unwrap();
            crate::fuzz::scan(&data);
        }
    }
    let head = crate::format::PacketHead::new(20, Time::NONE).emit();
    let mut records: Vec<_> = head.iter().chain(&[7; 20]).copied().cycle().take(200).collect();
    for _ in 0..500 {
        crate::fuzz::packets(&records);
        let at = usize::try_from(rng.below(200)).unwrap();
        records[at] = u8::try_from(rng.below(256)).unwrap();
    }
}
