//! Copies over paths that lose, repeat and reorder, compared with the set of passed frames.

use alloc::collections::BTreeSet;

use engine::Rng;

use super::*;

const SOON: Nanos = Nanos::from_micros(10);

#[test]
fn the_tag_is_that_of_the_standard() {
    // 7.8 of 802.1CB-2017: two reserved bytes, the number, and the next header, here IPv4.
    let bytes = [0, 0, 1, 2, 8, 0, 0x45];
    let (tag, rest) = Tag::parse(&bytes).unwrap();
    assert_eq!((tag, rest), (Tag { sequence: 0x0102, ether_type: 0x0800 }, &[0x45][..]));
    assert_eq!(tag.emit(), bytes[..6]);
    assert_eq!(Tag::parse(&bytes[..5]), None);
}

#[test]
fn the_first_copy_passes_whichever_path_brings_it() {
    let (mut merge, mut now) = (Merge::new(2), Instant::ZERO);
    // The numbers wrap around, and the second path is 300 frames behind.
    for index in 0..200_000_u32 {
        now = now + SOON;
        let number = |back: u32| u16::try_from(index.wrapping_sub(back) & 0xffff).unwrap();
        assert!(merge.accept(now, 0, number(0)), "{index}");
        if index >= 300 {
            assert!(!merge.accept(now, 1, number(300)), "{index}");
        }
    }
    let counters = merge.counters();
    assert_eq!((counters.passed, counters.discarded), (200_000, 199_700));
    assert_eq!((counters.lost, counters.rogue, counters.out_of_order), (0, 0, 0));
}

/// Two paths that lose, repeat and reorder independently: every frame that arrives passes once, as
/// long as paths differ by less than the history.
#[test]
fn nothing_passes_twice_and_nothing_that_came_is_missing() {
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let (mut merge, mut now) = (Merge::new(2), Instant::ZERO);
        let first = rng.below(65_536);
        let mut arrivals: Vec<(u64, usize, u16)> = Vec::new();
        for index in 0..5_000 {
            let number = u16::try_from((first + index) & 0xffff).unwrap();
            for (path, slow) in [(0, 1), (1, 200)] {
                if rng.below(10) == 0 {
                    continue;
                }
                for _ in 0..1 + u64::from(rng.below(20) == 0) {
                    arrivals.push((index * 4 + slow + rng.below(60), path, number));
                }
            }
        }
        arrivals.sort_unstable();
        let (mut sent, mut passed) = (BTreeSet::new(), BTreeSet::new());
        for (_, path, number) in arrivals {
            now = now + SOON;
            sent.insert(number);
            if merge.accept(now, path, number) {
                assert!(passed.insert(number), "{number} has passed twice, seed {seed}");
            }
        }
        assert_eq!(passed, sent, "seed {seed}");
        let counters = merge.counters();
        assert_eq!(counters.passed, sent.len() as u64, "seed {seed}");
        // Each missing number was lost on both paths; the latest are not given up yet.
        assert!(counters.lost <= 5_000 - sent.len() as u64, "seed {seed}: {counters:?}");
        assert!(counters.lost * 2 >= 5_000 - sent.len() as u64, "seed {seed}: {counters:?}");
    }
}

#[test]
fn a_path_that_goes_takes_nothing_along() {
    let (mut merge, mut now) = (Merge::new(2), Instant::ZERO);
    for number in 0..3_000 {
        now = now + SOON;
        let both = !(1_000..2_000).contains(&number);
        let first = merge.accept(now, 0, number);
        assert!(first, "{number}");
        assert!(!both || !merge.accept(now, 1, number));
    }
    assert_eq!(merge.paths().map(|path| path.passed).collect::<Vec<_>>(), [3_000, 2_000]);
    // Frames that the second path missed are counted there, and nowhere else. Its history is longer
    // than its gap here, so only numbers that have left it count.
    assert_eq!(merge.counters().lost, 0);
}

/// A path that was down for more frames than are remembered, and less time than the timer, counts
/// again with its next frame; then the other may fail.
#[test]
fn a_path_that_was_away_for_a_moment_counts_at_once() {
    let (mut merge, mut now) = (Merge::new(2), Instant::ZERO);
    for number in 0..20_000 {
        now = now + SOON;
        let on = [number % 8_000 < 4_000, number % 8_000 >= 3_900 || number < 4_000];
        let passed =
            on.iter().enumerate().filter(|(path, on)| **on && merge.accept(now, *path, number)).count();
        assert_eq!(passed, 1, "{number}");
    }
    assert_eq!((merge.counters().rogue, merge.counters().lost), (0, 0));
    // The frames that the paths missed while they were down.
    assert!(merge.paths().map(|path| path.lost).eq([8_000, 7_800]));
}

#[test]
fn a_sender_that_begins_anew_is_taken_after_a_pause() {
    let mut recovery = Recovery::new(64, RESET_AFTER);
    let mut now = Instant::ZERO;
    assert!(recovery.accept(now, 1_000));
    assert!(!recovery.accept(now, 30_000));
    assert_eq!(recovery.counters().rogue, 1);
    now = now + RESET_AFTER;
    assert!(recovery.accept(now, 30_000));
    assert!(!recovery.accept(now, 30_000));
    assert_eq!((recovery.counters().resets, recovery.counters().lost), (1, 0));
    // A path that repeats one frame for ever never gets another chance by that.
    let mut stuck = Recovery::new(64, RESET_AFTER).individual();
    assert!(stuck.accept(now, 7));
    for _ in 0..100 {
        now = now + Nanos::from_millis(500);
        assert!(!stuck.accept(now, 7));
    }
    // Another receiver accepts it again and again, as in 802.1CB without individual recovery.
    let mut naive = Recovery::new(64, RESET_AFTER);
    assert_eq!(
        (0..10)
            .filter(|_| {
                now = now + Nanos::from_millis(500);
                naive.accept(now, 7)
            })
            .count(),
        5
    );
}

#[test]
fn a_missing_frame_is_lost_once_it_is_forgotten() {
    let mut recovery = Recovery::new(64, RESET_AFTER);
    let now = Instant::ZERO;
    for number in (0..640).filter(|number| number % 10 != 5) {
        recovery.accept(now, number);
    }
    // 64 numbers are remembered: of those before, every tenth was lost.
    let counters = recovery.counters();
    assert!((57..=58).contains(&counters.lost), "{counters:?}");
    assert_eq!(counters.out_of_order, 64);
}

#[test]
fn any_frames_may_come_in_any_order() {
    for seed in 0..500 {
        let mut rng = Rng::from_seed(seed);
        let mut data = alloc::vec![0; usize::try_from(rng.below(2_000)).unwrap()];
        rng.fill(&mut data);
        crate::fuzz::redundancy(&data);
    }
}

/// Sends `count` frames, one each `every`, over those of three paths that `works` lets through.
fn send(
    merge: &mut Merge,
    now: &mut Instant,
    (count, every): (u32, Nanos),
    works: impl Fn(usize, u32) -> bool,
) {
    let first = merge.counters().passed;
    for index in 0..count {
        *now = *now + every;
        let number = u16::try_from((first + u64::from(index)) & 0xffff).unwrap();
        (0..3).filter(|path| works(*path, index)).for_each(|path| {
            merge.accept(*now, path, number);
        });
    }
}

fn changes(merge: &mut Merge) -> Vec<(usize, bool)> {
    core::iter::from_fn(|| merge.poll_change()).map(|change| (change.path, change.is_failing)).collect()
}

#[test]
fn a_path_that_fails_silently_is_reported_once_and_again_when_it_works() {
    // A fast stream, and an idle one on which hardly anything passes.
    for (every, count) in [(Nanos::from_millis(1), 5_000), (Nanos::from_secs(4), 20)] {
        let (mut merge, mut now) = (Merge::new(3), Instant::ZERO);
        send(&mut merge, &mut now, (count, every), |_, _| true);
        assert_eq!((changes(&mut merge), merge.counters().latent_errors), (vec![], 0));
        send(&mut merge, &mut now, (count, every), |path, _| path != 1);
        assert_eq!(changes(&mut merge), [(1, true)], "{every}");
        assert!(merge.failing().eq([false, true, false]) && changes(&mut merge).is_empty());
        // It stays reported through every restart.
        send(&mut merge, &mut now, (count * 20, every), |path, _| path != 1);
        assert_eq!(changes(&mut merge), []);
        let errors = merge.counters().latent_errors;
        assert!(errors > 3 && merge.paths().map(|path| path.latent_errors).eq([0, errors, 0]));
        send(&mut merge, &mut now, (count * 20, every), |_, _| true);
        assert_eq!(changes(&mut merge), [(1, false)], "{every}");
        assert!(merge.failing().eq([false; 3]));
    }
}

#[test]
fn losses_and_lags_of_working_paths_are_no_latent_errors() {
    let (mut merge, mut now) = (Merge::new(3), Instant::ZERO);
    // Each path loses a tenth of the frames, and the last one begins 300 frames later.
    send(&mut merge, &mut now, (100_000, Nanos::from_millis(1)), |path, index| {
        (index + u32::try_from(path).unwrap()) % 10 > 0 && (path < 2 || index > 300)
    });
    assert_eq!((changes(&mut merge), merge.counters().latent_errors), (vec![], 0));
}

#[test]
fn nothing_at_all_is_no_error_of_one_path() {
    let (mut merge, mut now) = (Merge::new(3), Instant::ZERO);
    send(&mut merge, &mut now, (5_000, Nanos::from_millis(1)), |_, _| true);
    now = now + Nanos::from_secs(3600);
    send(&mut merge, &mut now, (5_000, Nanos::from_millis(1)), |_, _| true);
    assert_eq!((changes(&mut merge), merge.counters().latent_errors), (vec![], 0));
}
