//! Tests of the driver against the controller, directly in memory.

use std::vec::Vec;

use engine::{Engine, Nanos, Rng};
use nvme::wire::{IoOpcode, Status, StatusCode, SubmissionQueueEntry};
use pcie::memory::Memory;

use super::{Config, Input, Origin, QueueId, ResetReason, Submission, SubmitError};
use crate::controller;
use crate::rig::{DISK_BYTES, NAMESPACE, Rig, controller_config, host_config};

fn fill(rig: &mut Rig, offset: u64, bytes: &[u8]) {
    let address = rig.host.data_region().base + offset;
    rig.memory.write(address, bytes).unwrap();
}

fn contents(rig: &Rig, offset: u64, length: usize) -> Vec<u8> {
    rig.memory.slice(rig.host.data_region().base + offset, length).unwrap().to_vec()
}

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = std::vec![0; length];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

#[test]
fn a_controller_comes_up_and_tells_who_it_is() {
    let rig = Rig::ready();
    let identity = rig.host.identity().unwrap();
    assert_eq!(std::format!("{}", identity.controller.serial_number), "TEST");
    assert_eq!(identity.io_queues, 1);
    let namespace = identity.namespaces[0];
    assert_eq!((namespace.id, namespace.block_bytes), (NAMESPACE, 512));
    assert_eq!(namespace.blocks, DISK_BYTES as u64 / 512);
}

#[test]
fn what_was_written_is_read_back_at_every_length_and_offset() {
    let mut rig = Rig::ready();
    let lengths = [512, 4096, 8192, 8704, 12288, 65536, 131_072];
    for (cookie, (length, offset)) in (0..)
        .step_by(2)
        .zip(lengths.iter().flat_map(|length| [0_u64, 4, 512, 4092].map(|offset| (*length, offset))))
    {
        let bytes = random(cookie, length);
        fill(&mut rig, offset, &bytes);
        let length_u32 = u32::try_from(length).unwrap();
        let written = rig.run(rig.write_of(1, 4096 * cookie, rig.data(offset, length_u32), cookie));
        assert_eq!(written.status, Status::SUCCESS, "{length} B at offset {offset}");
        let place = 1 << 20;
        let read = rig.run(rig.read_of(1, 4096 * cookie, rig.data(place + offset, length_u32), cookie + 1));
        assert_eq!((read.status, read.origin), (Status::SUCCESS, Origin::Controller));
        assert_eq!(contents(&rig, place + offset, length), bytes, "{length} B at offset {offset}");
    }
}

#[test]
fn pieces_of_reads_in_any_order_make_the_same_bytes() {
    let mut rig = Rig::ready();
    rig.faults.pieces = 64;
    let bytes = random(1, 131_072);
    fill(&mut rig, 512, &bytes);
    for cookie in 0..40 {
        rig.submit(rig.write_of(1, cookie * 131_072, rig.data(512, 131_072), cookie));
    }
    rig.settle();
    assert_eq!(rig.completed.len(), 40);
    assert!(rig.completed.iter().all(|completed| completed.status.is_success()));
    assert!((0..40).all(|index| rig.disk[index * 131_072..][..131_072] == bytes));
}

#[test]
fn rings_wrap_many_times() {
    let mut rig = Rig::ready();
    let mut cookie = 0;
    for _ in 0..50 {
        for _ in 0..37 {
            rig.submit(rig.read_of(1, 4096 * (cookie % 1024), rig.data(4096 * (cookie % 64), 4096), cookie));
            cookie += 1;
        }
        rig.settle();
    }
    let mut seen: Vec<u64> = rig.completed.iter().map(|completed| completed.cookie).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..cookie).collect::<Vec<_>>());
    let statistics = rig.controller.statistics();
    assert!(statistics.fetches * 8 < statistics.commands, "entries come in batches: {statistics:?}");
    // A batch has about 4 reads of 4 KiB, because the host shall not wait for more data.
    assert!(statistics.postings * 3 < statistics.completions, "completions leave in batches: {statistics:?}");
    assert!(statistics.postings * 4 > statistics.completions, "and not behind all data: {statistics:?}");
}

#[test]
fn sixty_four_queues_of_4096_entries_all_full() {
    let config = Config {
        queue_pairs: 64,
        queue_entries: 4096,
        transfer_bytes_max: 4096,
        ..Config::new(host_config().arena_base, 64 << 20)
    };
    let mut rig = Rig::up(config, controller_config());
    let mut cookie = 0;
    for queue in 1..=64 {
        for _ in 0..4095 {
            rig.submit(rig.read_of(queue, 512 * (cookie % 4096), rig.data(0, 512), cookie));
            cookie += 1;
        }
        let one_more = rig.read_of(queue, 0, rig.data(0, 512), cookie);
        assert_eq!(rig.host.submit(rig.now, &mut rig.memory, one_more), Err(SubmitError::Busy));
    }
    rig.settle();
    assert_eq!(rig.completed.len(), 64 * 4095);
    assert!(rig.completed.iter().all(|completed| completed.status.is_success()));
    assert_eq!(rig.host.outstanding(), 0);
}

#[test]
fn commands_that_make_no_sense_are_refused_with_their_reason() {
    let mut rig = Rig::ready();
    let mut submit = |submission| rig.host.submit(rig.now, &mut rig.memory, submission).unwrap_err();
    let data = |address, length| super::Data { address, length };
    let read = |data| Submission::on_blocks(IoOpcode::Read, QueueId(1), NAMESPACE, 0, 1, data, 1);
    assert_eq!(submit(read(data(0x1002, 512))), SubmitError::Address(0x1002));
    assert_eq!(submit(read(data(0x1000, 0))), SubmitError::Length { length: 0, limit: 131_072 });
    assert_eq!(submit(read(data(0x1000, 1 << 20))), SubmitError::Length { length: 1 << 20, limit: 131_072 });
    let elsewhere = Submission { queue: QueueId(2), ..read(data(0x1000, 512)) };
    assert_eq!(submit(elsewhere), SubmitError::NoSuchQueue(QueueId(2)));
    let beyond = rig.run(rig.read_of(1, DISK_BYTES as u64, rig.data(0, 512), 7));
    assert_eq!(beyond.status.code(), StatusCode::LbaOutOfRange);
}

#[test]
fn an_arena_that_is_too_short_says_how_long_it_must_be() {
    let error = super::Host::new(Config::new(0, 4096)).unwrap_err();
    assert!(error.need > error.have && error.have == 4096, "{error}");
    assert!(super::Host::new(Config::new(0, error.need)).is_ok());
}

#[test]
fn a_command_that_takes_too_long_is_aborted_and_completes_once() {
    let mut rig = Rig::ready();
    rig.faults.media_stuck = true;
    rig.submit(rig.read_of(1, 0, rig.data(0, 4096), 1));
    rig.pass(Nanos::from_secs(11));
    assert_eq!(rig.host.statistics().aborts, 1);
    assert_eq!(rig.completed.len(), 1);
    assert_eq!(rig.completed[0].status.code(), StatusCode::CommandAbortRequested);
    assert!(rig.resets.is_empty());
    rig.unstick();
    rig.pass(Nanos::from_secs(60));
    assert_eq!(rig.completed.len(), 1);
}

#[test]
fn a_dead_controller_is_reset_and_its_commands_run_again() {
    let mut rig = Rig::ready();
    let bytes = random(5, 4096);
    fill(&mut rig, 0, &bytes);
    rig.faults.dead = true;
    for cookie in 0..10 {
        rig.submit(rig.write_of(1, cookie * 4096, rig.data(0, 4096), cookie));
    }
    rig.pass(Nanos::from_secs(20));
    assert!(rig.completed.is_empty());
    assert!(matches!(rig.resets[0], ResetReason::Timeout { queue: QueueId(_), .. }));
    rig.faults.dead = false;
    rig.pass(Nanos::from_secs(20));
    assert!(rig.host.is_ready());
    let mut cookies: Vec<u64> = rig.completed.iter().map(|completed| completed.cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..10).collect::<Vec<_>>());
    assert!(rig.completed.iter().all(|completed| completed.status.is_success()));
    assert!((0..10).all(|index| rig.disk[index * 4096..][..4096] == bytes));
}

#[test]
fn commands_fail_with_a_status_when_resets_do_not_help() {
    let mut rig = Rig::ready();
    rig.faults.dead = true;
    for cookie in 0..3 {
        rig.submit(rig.read_of(1, 0, rig.data(0, 4096), cookie));
    }
    rig.pass(Nanos::from_secs(300));
    assert_eq!(rig.completed.len(), 3);
    assert!(rig.completed.iter().all(|completed| completed.origin == Origin::Host));
    assert!(rig.completed.iter().all(|completed| completed.status.code() == StatusCode::HostPathingError));
    assert!(rig.failed.is_some());
    let read = rig.read_of(1, 0, rig.data(0, 512), 9);
    let refused = rig.host.submit(rig.now, &mut rig.memory, read);
    assert_eq!(refused, Err(SubmitError::NotReady));
}

#[test]
fn a_device_that_comes_back_in_time_loses_nothing() {
    let mut rig = Rig::ready();
    rig.faults.dead = true;
    rig.submit(rig.write_of(1, 0, rig.data(0, 4096), 1));
    rig.settle();
    rig.host.handle_input(rig.now, Input::DeviceLost);
    rig.submit(rig.write_of(1, 4096, rig.data(0, 4096), 2));
    rig.pass(Nanos::from_secs(4));
    assert!(rig.completed.is_empty());
    rig.controller.reset();
    rig.faults.dead = false;
    rig.host.handle_input(rig.now, Input::DeviceBack);
    rig.pass(Nanos::from_millis(100));
    assert_eq!(rig.completed.len(), 2);
    assert!(rig.completed.iter().all(|completed| completed.status.is_success()));
}

#[test]
fn a_controller_that_was_reset_behind_the_drivers_back_is_found_out_within_two_looks() {
    let watch = Nanos::from_secs(1);
    for (watch, found) in [(watch, true), (Nanos::ZERO, false)] {
        let mut rig = Rig::up(Config { watch, ..host_config() }, controller_config());
        // The driver reads no CSTS while commands complete, or while none is under way.
        let done = rig.run(rig.write_of(1, 0, rig.data(0, 4096), 1));
        assert_eq!(done.status, Status::SUCCESS);
        rig.pass(Nanos::from_secs(3));
        rig.controller.reset();
        rig.submit(rig.write_of(1, 4096, rig.data(0, 4096), 2));
        rig.pass(Nanos::from_millis(900));
        assert_eq!((rig.completed.len(), &rig.resets[..]), (0, &[][..]));
        rig.pass(Nanos::from_millis(1_200));
        if found {
            assert_eq!((rig.completed.len(), &rig.resets[..]), (1, &[ResetReason::Stopped][..]));
            assert_eq!((rig.completed[0].cookie, rig.completed[0].status), (2, Status::SUCCESS));
        } else {
            assert_eq!((rig.completed.len(), &rig.resets[..]), (0, &[][..]));
        }
    }
}

#[test]
fn a_device_that_stays_away_fails_what_was_held() {
    let mut rig = Rig::ready();
    rig.faults.dead = true;
    rig.submit(rig.write_of(1, 0, rig.data(0, 4096), 1));
    rig.settle();
    rig.host.handle_input(rig.now, Input::DeviceLost);
    rig.pass(Nanos::from_secs(6));
    assert_eq!((rig.completed.len(), rig.completed[0].origin), (1, Origin::Host));
    assert_eq!(rig.failed, Some(super::InitError::Lost));
    rig.controller.reset();
    rig.faults.dead = false;
    rig.host.handle_input(rig.now, Input::DeviceBack);
    rig.pass(Nanos::from_millis(100));
    assert!(rig.host.is_ready());
}

#[test]
fn a_disable_in_the_middle_loses_no_command() {
    for seed in 0..20 {
        let mut rig = Rig::ready();
        let mut rng = Rng::from_seed(seed);
        rig.faults.media_stuck = rng.one_in(2);
        rig.faults.pieces = 512;
        for cookie in 0..20 {
            rig.submit(rig.write_of(1, cookie * 8192, rig.data(0, 8192), cookie));
        }
        // Some outputs are moved, then the driver is interrupted.
        rig.host.ring();
        for _ in 0..rng.below(30) {
            rig.step();
        }
        rig.host.request_reset(rig.now);
        rig.settle();
        rig.unstick();
        rig.pass(Nanos::from_secs(1));
        assert!(rig.host.is_ready(), "seed {seed}");
        let mut cookies: Vec<u64> = rig.completed.iter().map(|completed| completed.cookie).collect();
        cookies.sort_unstable();
        assert_eq!(cookies, (0..20).collect::<Vec<_>>(), "seed {seed}");
        assert!(rig.completed.iter().all(|completed| completed.status.is_success()), "seed {seed}");
    }
}

#[test]
fn no_controller_is_an_error_that_says_so() {
    let mut rig = Rig::new(host_config(), controller_config());
    rig.faults.dead = true;
    rig.host.start(rig.now);
    rig.pass(Nanos::from_secs(2));
    assert_eq!(rig.failed, Some(super::InitError::Unreachable { offset: 0 }));
}

#[test]
fn a_controller_that_is_ready_and_has_failed_is_not_waited_for() {
    let mut rig = Rig::new(host_config(), controller_config());
    rig.faults.fatal = true;
    rig.host.start(rig.now);
    rig.pass(Nanos::from_secs(1));
    assert_eq!(rig.failed, Some(super::InitError::Fatal));
}

#[test]
fn events_reach_the_caller_and_are_asked_for_again() {
    let mut rig = Rig::ready();
    for round in 1..=3 {
        // Ring the doorbell of a queue that does not exist.
        rig.write(0x1000 + 8 * 40, &1_u32.to_le_bytes());
        rig.settle();
        assert_eq!(rig.events.len(), round);
        assert_eq!((rig.events[0].kind, rig.events[0].information), (0, 0));
    }
    rig.write(0x1000 + 8, &999_u32.to_le_bytes());
    rig.settle();
    assert_eq!((rig.events[3].kind, rig.events[3].information), (0, 1));
}

#[test]
fn interrupts_are_coalesced_by_threshold_and_by_time() {
    let config = Config { interrupts: true, ..host_config() };
    let mut rig = Rig::up(config, controller_config());
    rig.interrupts.clear();
    rig.run(rig.read_of(1, 0, rig.data(0, 512), 1));
    assert_eq!(rig.interrupts, [1]);
    // Four entries or 500 µs.
    let entry = SubmissionQueueEntry { opcode: 0x09, cdw10: 0x08, cdw11: 0x0503, ..Default::default() };
    let set = Submission { queue: QueueId::ADMIN, entry, data: None, cookie: 2 };
    assert!(rig.run(set).status.is_success());
    rig.interrupts.clear();
    rig.run(rig.read_of(1, 0, rig.data(0, 512), 3));
    assert_eq!(rig.interrupts, []);
    rig.pass(Nanos::from_micros(499));
    assert_eq!(rig.interrupts, []);
    rig.pass(Nanos::from_micros(1));
    assert_eq!(rig.interrupts, [1]);
    for cookie in 0..8 {
        rig.run(rig.read_of(1, 0, rig.data(0, 512), cookie));
    }
    assert_eq!(rig.interrupts, [1, 1, 1]);
}

#[test]
fn fewer_queues_and_entries_than_wanted_are_used_as_granted() {
    let config = Config { queue_pairs: 8, ..host_config() };
    let mut controller = controller_config();
    controller = controller::Config { io_queues: 2, queue_entries_max: 16, ..controller };
    let mut rig = Rig::up(config, controller);
    assert_eq!(rig.host.identity().unwrap().io_queues, 2);
    for cookie in 0..15 {
        rig.submit(rig.read_of(2, 0, rig.data(0, 512), cookie));
    }
    let read = rig.read_of(2, 0, rig.data(0, 512), 15);
    let full = rig.host.submit(rig.now, &mut rig.memory, read);
    assert_eq!(full, Err(SubmitError::Busy));
    rig.settle();
    assert_eq!(rig.completed.len(), 15);
}

/// Random reads and writes with random aborts and resets, checked against a model of the disk. No
/// acknowledged write is lost, no command completes twice, and none remains.
#[test]
fn a_campaign_of_troubles_loses_and_repeats_nothing() {
    for seed in 0..100 {
        campaign(seed);
    }
}

fn campaign(seed: u64) {
    const AREAS: u64 = 32;
    const AREA: u32 = 16_384;
    let mut rng = Rng::from_seed(seed);
    let mut rig = Rig::up(Config { resets_max: 1_000, ..host_config() }, controller_config());
    let mut model = std::vec![0_u8; usize::try_from(AREAS).unwrap()];
    let mut busy = std::vec![None; usize::try_from(AREAS).unwrap()];
    let mut cookie = 0_u64;
    let mut ended = 0;
    for _ in 0..300 {
        let area = usize::try_from(rng.below(AREAS)).unwrap();
        let place = rig.data(area as u64 * u64::from(AREA), AREA);
        if busy[area].is_none() {
            let value = u8::try_from(rng.below(256)).unwrap();
            let write = rng.one_in(2).then_some(value);
            busy[area] = Some((cookie, write));
            let at = area as u64 * u64::from(AREA);
            let submission = match write {
                Some(value) => {
                    rig.memory.write(place.address, &[value; AREA as usize]).unwrap();
                    rig.write_of(1, at, place, cookie)
                }
                None => {
                    rig.memory.write(place.address, &[value; AREA as usize]).unwrap();
                    rig.read_of(1, at, place, cookie)
                }
            };
            rig.submit(submission);
            cookie += 1;
        }
        match rng.below(40) {
            0 => rig.host.request_reset(rig.now),
            1 => rig.faults.media_stuck = true,
            2 => rig.unstick(),
            3 => rig.pass(Nanos::from_secs(11)),
            4..=20 => (0..rng.below(20)).for_each(|_| rig.step()),
            _ => rig.settle(),
        }
        for completed in core::mem::take(&mut rig.completed) {
            ended += 1;
            check(&rig, &mut model, &mut busy, &completed, seed);
        }
    }
    rig.unstick();
    rig.pass(Nanos::from_secs(60));
    rig.unstick();
    rig.pass(Nanos::from_secs(60));
    for completed in core::mem::take(&mut rig.completed) {
        ended += 1;
        check(&rig, &mut model, &mut busy, &completed, seed);
    }
    assert_eq!((ended, rig.host.outstanding()), (cookie, 0), "seed {seed}");
}

fn check(
    rig: &Rig,
    model: &mut [u8],
    busy: &mut [Option<(u64, Option<u8>)>],
    completed: &super::Completed,
    seed: u64,
) {
    let area = busy.iter().position(|busy| busy.is_some_and(|(cookie, _)| cookie == completed.cookie));
    let area = area.unwrap_or_else(|| panic!("seed {seed}: {completed:?} completed twice"));
    let Some((_, write)) = busy[area].take() else { return };
    let length = 16_384;
    if !completed.status.is_success() {
        // An aborted write may or may not have happened.
        model[area] = rig.disk[area * length];
        return;
    }
    match write {
        Some(value) => model[area] = value,
        None => {
            let found = contents(rig, (area * length) as u64, length);
            assert!(found.iter().all(|byte| *byte == model[area]), "seed {seed}, area {area}");
        }
    }
}

#[test]
fn a_doorbell_can_be_rung_at_once() {
    let mut rig = Rig::ready();
    let bytes = random(1, 4096);
    fill(&mut rig, 0, &bytes);
    for cookie in 0..200 {
        rig.submit(rig.write_of(1, 4096 * cookie, rig.data(0, 4096), cookie));
        let mut rung = Vec::new();
        while let Some((offset, value)) = rig.host.poll_doorbell() {
            rung.push(offset);
            rig.write(offset, &value.to_le_bytes());
        }
        // Submission queue 1, and sometimes its completion queue.
        assert!(rung == [0x1008] || rung == [0x100c, 0x1008], "{rung:x?}");
        rig.settle();
        let completed = rig.completed.pop().expect("the command completes");
        assert_eq!((completed.cookie, completed.status), (cookie, Status::SUCCESS));
    }
    let read = rig.run(rig.read_of(1, 4096 * 199, rig.data(8192, 4096), 200));
    assert_eq!((read.status, contents(&rig, 8192, 4096)), (Status::SUCCESS, bytes));
}
