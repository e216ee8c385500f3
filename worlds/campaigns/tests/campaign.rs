//! A small campaign of every world, 50 seeds and more; the `campaign` binary runs large ones.

#![allow(missing_docs, reason = "a test is its own documentation")]

use campaigns::campaign::{Outcome, run_seeds};
use campaigns::chaos::Trouble;

use campaigns::lanes::{self, Plant};
use campaigns::{ahead, disk, disk_hosts, disk_lanes, fabrics, fleet, recording, sessions, upgrades};

fn campaign(name: &'static str, run: fn(u64) -> Outcome, seeds: u64) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    run_seeds(name, 0..seeds, 2, run, |outcome| {
        outcomes.push(outcome);
        true
    });
    outcomes.sort_by_key(|outcome| outcome.seed);
    outcomes
}

/// Seeds of each world that run a second time: a run is a function of its seed.
const REPEATED: u64 = 10;

fn hold_up(name: &'static str, run: fn(u64) -> Outcome, seeds: u64) -> Vec<Outcome> {
    let outcomes = campaign(name, run, seeds);
    for one in &outcomes {
        assert!(one.failures.is_empty(), "{one}");
    }
    for (one, again) in outcomes.iter().zip(&campaign(name, run, REPEATED)) {
        assert_eq!(one.digest, again.digest, "a run is a function of its seed: {one}");
    }
    outcomes
}

/// Asserts that there were faults: commands failed, and hosts were killed.
#[track_caller]
fn assert_had_faults(outcomes: &[Outcome]) {
    assert!(
        outcomes.iter().any(|outcome| outcome.counts.failed > 0),
        "nothing ever failed: are there faults?"
    );
    assert!(outcomes.iter().any(|outcome| outcome.counts.abandoned > 0), "no host was ever killed");
}

/// In how many runs there was this trouble.
fn seeds_with(outcomes: &[Outcome], trouble: Trouble) -> usize {
    outcomes.iter().filter(|outcome| outcome.troubles.contains(&trouble)).count()
}

/// Asserts that more than `few` runs had each of these troubles.
#[track_caller]
fn assert_had_each(outcomes: &[Outcome], few: usize, troubles: &[Trouble]) {
    for trouble in troubles {
        let (count, all) = (seeds_with(outcomes, *trouble), outcomes.len());
        println!("{trouble:?}: {count} of {all} seeds");
        assert!(count > few, "{trouble:?} happened in {count} of {all} seeds");
    }
}

/// Asserts that a run had all of these troubles.
#[track_caller]
fn assert_had_at_once(outcomes: &[Outcome], troubles: &[Trouble]) {
    assert!(
        outcomes.iter().any(|outcome| troubles.iter().all(|one| outcome.troubles.contains(one))),
        "no seed has {troubles:?} at once"
    );
}

#[test]
fn far_disks_keep_their_promises() {
    let outcomes = hold_up("disk", disk::run, 60);
    assert_had_faults(&outcomes);
}

#[test]
fn far_disks_keep_their_promises_with_lookahead() {
    let outcomes = hold_up("disk-ahead", disk::run_ahead, 60);
    assert!(outcomes.iter().any(|outcome| outcome.counts.failed > 0), "nothing ever failed");
}

#[test]
fn a_crowd_of_strangers_takes_nothing_from_a_host() {
    let outcomes = hold_up("gate", disk::run_gate, 60);
    assert!(outcomes.iter().all(|outcome| outcome.counts.done > 0), "nothing was ever done");
}

#[test]
fn media_that_lie_never_pass_for_data() {
    let outcomes = hold_up("disk-protected", disk::run_protected, 60);
    assert!(outcomes.iter().any(|outcome| outcome.counts.failed > 100), "no lie was found out");
}

#[test]
fn the_same_list_gives_the_same_bytes_with_lookahead_and_without() {
    let outcomes = hold_up("disk-both", disk::run_both, 50);
    assert_had_faults(&outcomes);
}

#[test]
fn devices_that_read_as_they_like_see_what_memory_holds() {
    let outcomes = hold_up("ahead", ahead::run, 50);
    let (ahead, answered) = sum(&outcomes);
    assert!(ahead > 15_000 && answered > 15_000, "{ahead} pieces went ahead, {answered} reads were answered");
}

#[test]
fn hosts_that_keep_no_rule_push_nothing_that_could_not_be_read() {
    let outcomes = hold_up("ahead-unruly", ahead::run_unruly, 50);
    let (ahead, _) = sum(&outcomes);
    assert!(ahead > 1_500, "{ahead} pieces went ahead");
}

fn sum(outcomes: &[Outcome]) -> (u64, u64) {
    let add = |sum: (u64, u64), one: &Outcome| (sum.0 + one.ahead.0, sum.1 + one.ahead.1);
    outcomes.iter().fold((0, 0), add)
}

#[test]
fn a_hundred_cuts_of_a_verified_run_go_unnoticed() {
    for outcome in campaign("cuts", |seed| disk::run_cuts(seed, 100), 10) {
        assert!(outcome.failures.is_empty(), "{outcome}");
        assert!(outcome.counts.done > 500, "{outcome}");
    }
}

#[test]
fn subsystems_over_a_network_keep_their_promises() {
    let outcomes = hold_up("fabrics", fabrics::run, 60);
    assert_had_faults(&outcomes);
}

#[test]
fn two_hosts_of_one_namespace_see_the_same_blocks() {
    hold_up("fabrics-shared", fabrics::run_shared, 50);
}

#[test]
fn a_namespace_behind_a_proxy_keeps_its_promises() {
    hold_up("fabrics-proxy", fabrics::run_proxy, 50);
}

#[test]
fn subsystems_over_rdma_keep_their_promises() {
    let outcomes = hold_up("fabrics-rdma", fabrics::run_rdma, 60);
    assert_had_faults(&outcomes);
}

#[test]
fn subsystems_on_several_cores_keep_their_promises() {
    let outcomes = hold_up("fabrics-cores", fabrics::run_cores, 60);
    assert_had_faults(&outcomes);
}

#[test]
fn subsystems_over_lossy_datagrams_keep_their_promises() {
    let outcomes = hold_up("fabrics-roce", fabrics::run_roce, 60);
    assert_had_faults(&outcomes);
}

#[test]
fn lanes_of_a_subsystem_keep_their_promises() {
    let outcomes = hold_up("fabrics-lanes", lanes::run, 200);
    assert_had_faults(&outcomes);
}

#[test]
fn queues_of_an_ssd_on_lanes_keep_their_promises() {
    let outcomes = hold_up("disk-lanes", disk_lanes::run, 200);
    assert_had_faults(&outcomes);
}

#[test]
fn hosts_of_one_far_ssd_keep_to_themselves_and_to_reservations() {
    let outcomes = hold_up("disk-hosts", disk_hosts::run, 20);
    assert_had_faults(&outcomes);
    let judged: u64 = outcomes.iter().map(|outcome| outcome.judged).sum();
    assert!(judged > 333, "{judged} accesses were judged under a certain reservation");
}

#[test]
fn successors_of_far_ends_change_nothing() {
    hold_up("upgrades", upgrades::run, 6);
}

#[test]
fn faults_between_hosts_are_found() {
    for plant in disk_hosts::Plant::ALL {
        assert_found("disk-hosts", plant, |seed| disk_hosts::run_planted(seed, Some(plant)));
    }
}

/// Asserts that three seeds find a planted fault.
#[track_caller]
fn assert_found(name: &'static str, plant: impl std::fmt::Debug, run: impl Fn(u64) -> Outcome + Sync) {
    let mut found = Vec::new();
    // A fault may also make an engine panic.
    run_seeds(name, 0..1500, 1, run, |outcome| {
        found.extend((!outcome.failures.is_empty()).then_some(outcome));
        found.len() < 3
    });
    let seeds: Vec<_> = found.iter().map(|outcome| outcome.seed).collect();
    println!("{plant:?}: found by the seeds {seeds:?}");
    found.iter().for_each(|outcome| println!("{outcome}"));
    assert_eq!(found.len(), 3, "{plant:?} was found by {seeds:?} only");
}

#[test]
fn faults_of_queues_on_lanes_are_found() {
    use disk_lanes::Plant;
    for plant in Plant::ALL {
        assert_found("disk-lanes", plant, |seed| disk_lanes::run_planted(seed, Some(plant)));
    }
}

#[test]
fn faults_of_lanes_are_found() {
    for plant in Plant::ALL {
        assert_found("fabrics-lanes", plant, |seed| lanes::run_planted(seed, Some(plant)));
    }
}

#[test]
fn fleets_keep_their_promises() {
    let outcomes = hold_up("fleet", fleet::run, 50);
    assert!(outcomes.iter().all(|outcome| outcome.counts.done > 0), "a host never wrote");
    assert!(outcomes.iter().any(|outcome| outcome.counts.failed > 0), "no old host was ever refused");
}

#[test]
fn a_large_fleet_becomes_as_users_want_it() {
    let outcome = fleet::run_large(0);
    assert!(outcome.failures.is_empty(), "{outcome}");
}

#[test]
fn faults_of_fleets_are_found() {
    for plant in fleet::Plant::ALL {
        let mut found = Vec::new();
        run_seeds(
            "fleet",
            0..1500,
            1,
            |seed| fleet::run_planted(seed, Some(plant)),
            |outcome| {
                found.extend((!outcome.failures.is_empty()).then_some(outcome));
                found.is_empty()
            },
        );
        found.iter().for_each(|outcome| println!("{plant:?}: {outcome}"));
        assert!(!found.is_empty(), "1,500 seeds have not found {plant:?}");
    }
}

#[test]
fn sessions_keep_their_promises() {
    let outcomes = hold_up("sessions", sessions::run, 50);
    assert!(outcomes.iter().any(|outcome| outcome.counts.failed > 0), "no link ever went down");
}

#[test]
fn sessions_over_two_paths_keep_their_promises() {
    hold_up("sessions-paths", sessions::run_paths, 50);
}

#[test]
fn sessions_over_datagrams_keep_their_promises() {
    let outcomes = hold_up("sessions-datagrams", sessions::run_datagrams, 50);
    assert!(outcomes.iter().any(|outcome| outcome.counts.failed > 0), "no link ever went down");
}

#[test]
fn recordings_keep_their_promises() {
    let outcomes = hold_up("record", recording::run, 100);
    let troubles = [
        Trouble::PowerCut,
        Trouble::FullMedium,
        Trouble::FastSource,
        Trouble::LossyNetwork,
        Trouble::FullSocket,
        Trouble::LostWrites,
        Trouble::Throttling,
        Trouble::SlowMedia,
        Trouble::Reclaiming,
        Trouble::EndlessSource,
        Trouble::LateCut,
    ];
    assert_had_each(&outcomes, 4, &troubles);
    // The troubles that a recorder has to survive at once.
    let at_once = [Trouble::Throttling, Trouble::SlowMedia, Trouble::LossyNetwork, Trouble::PowerCut];
    assert_had_at_once(&outcomes, &at_once);
}

#[test]
fn rings_keep_their_promises() {
    let outcomes = hold_up("record-ring", recording::run_ring, 100);
    let troubles =
        [Trouble::Overwritten, Trouble::Pinned, Trouble::PowerCut, Trouble::LateCut, Trouble::CutRecovery];
    assert_had_each(&outcomes, 4, &troubles);
    let at_once = [Trouble::Overwritten, Trouble::Pinned, Trouble::MediaErrors, Trouble::PowerCut];
    assert_had_at_once(&outcomes, &at_once);
}

#[test]
fn striped_recordings_keep_their_promises() {
    let outcomes = hold_up("record-striped", recording::run_striped, 100);
    let troubles = [
        Trouble::Overwritten,
        Trouble::PowerCut,
        Trouble::MediaErrors,
        Trouble::Stall,
        Trouble::TornWrites,
        Trouble::FullMedium,
    ];
    assert_had_each(&outcomes, 2, &troubles);
}

#[test]
fn recordings_behind_a_trigger_keep_their_promises() {
    let outcomes = hold_up("record-pretrigger", recording::run_triggered, 100);
    assert!(seeds_with(&outcomes, Trouble::Triggered) < 96, "all recordings are triggered");
    let troubles = [
        Trouble::Triggered,
        Trouble::PowerCut,
        Trouble::FullMedium,
        Trouble::FastSource,
        Trouble::LossyNetwork,
        Trouble::FullSocket,
        Trouble::EndlessSource,
        Trouble::CutRecovery,
    ];
    assert_had_each(&outcomes, 2, &troubles);
}

#[test]
fn raw_recordings_keep_their_promises() {
    let outcomes = hold_up("record-raw", recording::run_raw, 100);
    let troubles = [
        Trouble::PowerCut,
        Trouble::FullMedium,
        Trouble::FastSource,
        Trouble::LossyNetwork,
        Trouble::FullSocket,
        Trouble::EndlessSource,
        Trouble::MediaErrors,
        Trouble::FailedSync,
    ];
    assert_had_each(&outcomes, 2, &troubles);
}

#[test]
fn a_panic_is_an_outcome_with_its_replay() {
    let outcomes = campaign("broken", |seed| panic!("seed {seed} is broken"), 2);
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes[1].failures[0].contains("seed 1 is broken"), "{}", outcomes[1]);
    assert!(outcomes[1].replay().ends_with("--scenario broken --seed 1"));
}
