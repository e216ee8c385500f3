//! Raw recordings: every byte is at its address, lost ones take their place.

use super::*;
use crate::{RawConfig, RawRecorder};

const START: u64 = 3 * 4096;

/// Records random pieces, some of them lost, until enough have come or a limit is reached. Returns
/// the medium, which held 0xee before, the pieces (`None` is lost at the buffer), and the account.
fn record(
    seed: u64,
    config: RawConfig,
    mut fails: impl FnMut(u64, usize) -> Option<Fault>,
) -> (Vec<u8>, Vec<Option<u8>>, Certificate, RawRecorder) {
    let mut rng = Rng::from_seed(seed);
    let mut recorder = RawRecorder::new(config);
    let (mut medium, mut came, mut under_way) = (vec![0xee; 4 << 20], Vec::new(), Vec::new());
    let mut now = Instant::ZERO;
    for piece in 0.. {
        now = now + Nanos::from_millis(rng.below(50));
        let wanted = usize::try_from(rng.below(9_000)).unwrap();
        let before = recorder.progress().bytes_in;
        if piece == 200 {
            recorder.finish(Reason::SourceEnded);
        } else if let Some(room) = recorder.room(now).filter(|_| rng.below(8) > 0) {
            let length = wanted.min(room.len());
            room[..length].iter_mut().for_each(|byte| *byte = u8::try_from(rng.below(200)).unwrap() + 1);
            came.extend(room[..length].iter().map(|byte| Some(*byte)));
            recorder.filled(length);
        } else {
            recorder.lose(wanted as u64 * (1 + rng.below(4)), 7);
            let lost = usize::try_from(recorder.progress().bytes_in - before).unwrap();
            came.extend(core::iter::repeat_n(None, lost));
        }
        recorder.handle_timeout(now);
        loop {
            let mut is_quiet = true;
            while let Some(output) = recorder.poll_output() {
                match output {
                    Output::Write { name, offset, data } => under_way.push((name, offset, data.to_vec())),
                    Output::Sync => recorder.handle_input(now, Input::Synced(Ok(()))),
                    Output::Digest { .. } => panic!("it digests itself"),
                    Output::Ended(account) => return (medium, came, account, recorder),
                }
                is_quiet = false;
            }
            while !under_way.is_empty() && (!recorder.is_recording() || rng.below(4) > 0) {
                is_quiet = false;
                let at = usize::try_from(rng.below(under_way.len() as u64)).unwrap();
                let (name, offset, data) = under_way.swap_remove(at);
                let result = fails(offset, data.len()).map_or(Ok(()), Err);
                if result.is_ok() {
                    apply(&mut medium, offset, &data);
                }
                recorder.handle_input(now, Input::Written { name, result });
            }
            let progress = recorder.progress();
            assert_eq!(progress.bytes_in, progress.stored + progress.lost + progress.fill, "seed {seed}");
            if is_quiet {
                break;
            }
        }
    }
    unreachable!("it ends")
}

fn config() -> RawConfig {
    RawConfig { buffer: 32, ..RawConfig::new(CHUNK_MIN, START) }
}

fn check(
    seed: u64,
    (medium, came, account, recorder): &(Vec<u8>, Vec<Option<u8>>, Certificate, RawRecorder),
) {
    assert!(recorder.is_durable());
    assert_eq!(account.bytes_in(), came.len() as u64, "seed {seed}");
    assert_eq!(account.bytes_in(), account.bytes_stored() + account.bytes_lost(), "seed {seed}");
    let start = usize::try_from(START).unwrap();
    let mut lost = vec![false; came.len()];
    for gap in recorder.gaps() {
        let from = usize::try_from(gap.from).unwrap();
        for place in &mut lost[from..from + usize::try_from(gap.bytes).unwrap()] {
            assert!(!core::mem::replace(place, true), "seed {seed}: a byte is lost twice");
        }
    }
    let mut stored = Hasher::new(account.algorithm);
    for (place, byte) in came.iter().enumerate() {
        match (byte, lost[place]) {
            (Some(byte), false) => {
                assert_eq!(medium[start + place], *byte, "seed {seed}, place {place}");
                stored.update(&[*byte]);
            }
            (None, false) => panic!("seed {seed}: a lost byte is not declared"),
            (_, true) => {}
        }
    }
    assert_eq!(account.digest, stored.finalize(), "seed {seed}");
    // Nothing is written outside.
    assert!(medium[..start].iter().all(|byte| *byte == 0xee), "seed {seed}");
    let end = start + came.len().next_multiple_of(4096);
    assert!(medium[end..].iter().all(|byte| *byte == 0xee), "seed {seed}");
}

#[test]
fn every_byte_is_at_its_address_over_many_seeds() {
    let mut lost = 0;
    for seed in 0..60 {
        let run = record(seed, config(), |_, _| None);
        check(seed, &run);
        lost += run.2.bytes_lost();
        let last = run.1.iter().rposition(Option::is_some).unwrap() as u64 + 1;
        assert!((START + last..=START + run.1.len() as u64).contains(&run.3.progress().last_address));
    }
    assert!(lost > 1_000_000);
}

#[test]
fn packets_of_known_length_take_their_place_and_others_none() {
    let mut recorder = RawRecorder::new(config());
    let put = |recorder: &mut RawRecorder, byte: u8| {
        recorder.room(Instant::ZERO).unwrap()[..1_000].fill(byte);
        recorder.filled(1_000);
    };
    let missed = |packets, bytes, place| crate::Missed { packets, bytes, when: 5, place };
    put(&mut recorder, 1);
    recorder.miss(missed(3, 3_000, Place::Wire));
    recorder.miss(missed(2, 0, Place::Socket));
    recorder.miss(missed(0, 0, Place::Wire));
    put(&mut recorder, 2);
    recorder.lose(0, 9);
    recorder.finish(Reason::Asked);
    // Nothing is declared any more.
    recorder.miss(missed(1, 7, Place::Wire));
    let Some(Output::Write { offset, data, .. }) = recorder.poll_output() else {
        panic!("nothing is written")
    };
    assert_eq!((offset, data.len()), (START, 8_192));
    assert!(data[..1_000].iter().all(|byte| *byte == 1) && data[1_000..4_000].iter().all(|byte| *byte == 0));
    assert!(data[4_000..5_000].iter().all(|byte| *byte == 2) && data[5_000..].iter().all(|byte| *byte == 0));
    let gaps: Vec<_> =
        recorder.gaps().iter().map(|gap| (gap.from, gap.bytes, gap.packets, gap.cause)).collect();
    let expected = [
        (1_000, 3_000, 3, Cause::NeverCame),
        (4_000, 0, 2, Cause::Overflow),
        (4_000, 0, 0, Cause::Restarted),
    ];
    assert_eq!(gaps, expected);
    assert_eq!((recorder.progress().bytes_in, recorder.progress().lost), (5_000, 3_000));
}

#[test]
fn gigabytes_that_a_number_claims_to_be_lost_take_no_place() {
    let end = Some(START + (1 << 40));
    let mut recorder = RawRecorder::new(RawConfig { end, ..config() });
    let missed = |bytes, place| crate::Missed { packets: 1, bytes, when: 5, place };
    recorder.room(Instant::ZERO).unwrap()[..1_000].fill(1);
    recorder.filled(1_000);
    recorder.miss(missed(23 << 30, Place::Wire));
    assert_eq!((recorder.progress().bytes_in, recorder.gaps()[0].bytes), (1_000, 0));
    recorder.miss(missed(16 << 20, Place::Wire));
    assert_eq!(recorder.progress().bytes_in, 1_000 + (16 << 20));
    // This host's own counts are right.
    recorder.miss(missed(1 << 30, Place::Socket));
    let progress = recorder.progress();
    assert_eq!((progress.bytes_in, progress.never_came), (1_000 + (16 << 20) + (1 << 30), 16 << 20));
}

#[test]
fn it_ends_at_the_maximum_address_and_after_so_many_chunks() {
    for seed in 0..20 {
        let end = Some(START + (seed + 1) * 4096);
        let run = record(seed, RawConfig { end, ..config() }, |_, _| None);
        check(seed, &run);
        assert_eq!((run.2.reason, run.2.bytes_in()), (Reason::Limit, (seed + 1) * 4096));
        let chunks = Some(seed + 1);
        let run = record(seed, RawConfig { chunks, ..config() }, |_, _| None);
        check(seed, &run);
        assert_eq!((run.2.reason, run.2.bytes_in()), (Reason::Limit, (seed + 1) * CHUNK as u64));
    }
}

#[test]
fn a_medium_that_fails_or_is_full_costs_declared_gaps() {
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let often = 2 + seed % 5;
        let run = record(seed, config(), |_, _| (rng.below(often) == 0).then_some(Fault::Failed));
        check(seed, &run);
        let room = START + 100_000 + seed * 4096;
        let full = |offset: u64, length: usize| (offset + length as u64 > room).then_some(Fault::Full);
        let run = record(seed, config(), full);
        check(seed, &run);
        assert_eq!(run.2.reason, Reason::Full, "seed {seed}");
    }
}
