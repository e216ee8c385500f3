//! Tests of the driver against the controller, directly in memory.

use std::vec::Vec;

use engine::{Engine, Nanos, Rng};
use nvme::host::command;
use nvme::wire::{DataTransfer, IoOpcode, NamespaceId, Status, StatusCode, SubmissionQueueEntry};
use pcie::memory::Memory;

use super::{Config, Input, Origin, QueueId, ResetReason, Submission, SubmitError};
use crate::controller;
use crate::test_bench::{DISK_BYTES, NAMESPACE, TestBench, controller_config, host_config};

fn fill(bench: &mut TestBench, offset: u64, bytes: &[u8]) {
    let address = bench.host.data_region().base + offset;
    bench.memory.write(address, bytes).unwrap();
}

fn contents(bench: &TestBench, offset: u64, length: usize) -> Vec<u8> {
    bench.memory.slice(bench.host.data_region().base + offset, length).unwrap().to_vec()
}

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = std::vec![0; length];
    Rng::from_seed(seed).fill(&mut bytes);
    bytes
}

#[test]
fn a_controller_comes_up_and_reports_its_identity() {
    let bench = TestBench::ready();
    let identity = bench.host.identity().unwrap();
    assert_eq!(std::format!("{}", identity.controller.serial_number), "TEST");
    assert_eq!(identity.io_queues, 1);
    let namespace = identity.namespaces[0];
    assert_eq!((namespace.id, namespace.block_bytes), (NAMESPACE, 512));
    assert_eq!(namespace.blocks, DISK_BYTES as u64 / 512);
}

#[test]
fn written_data_are_read_back_at_every_length_and_offset() {
    for sgls in [false, true] {
        write_and_read_back(TestBench::up(Config { sgls, ..host_config() }, controller_config()));
    }
}

fn write_and_read_back(mut bench: TestBench) {
    let lengths = [512, 4096, 8192, 8704, 12288, 65536, 131_072];
    for (cookie, (length, offset)) in (0..)
        .step_by(2)
        .zip(lengths.iter().flat_map(|length| [0_u64, 4, 512, 4092].map(|offset| (*length, offset))))
    {
        let bytes = random(cookie, length);
        fill(&mut bench, offset, &bytes);
        let length_u32 = u32::try_from(length).unwrap();
        let written = bench.run(bench.write_of(1, 4096 * cookie, bench.data(offset, length_u32), cookie));
        assert_eq!(written.status, Status::SUCCESS, "{length} B at offset {offset}");
        let place = 1 << 20;
        let read =
            bench.run(bench.read_of(1, 4096 * cookie, bench.data(place + offset, length_u32), cookie + 1));
        assert_eq!((read.status, read.origin), (Status::SUCCESS, Origin::Controller));
        assert_eq!(contents(&bench, place + offset, length), bytes, "{length} B at offset {offset}");
    }
}

/// The submission queue entry that `submission` becomes, the first of its queue.
fn first_entry(bench: &mut TestBench, submission: Submission) -> SubmissionQueueEntry {
    let queue = usize::from(submission.queue.0);
    bench.submit(submission);
    let base = bench.host.queues().nth(queue).unwrap()[0].base;
    let bytes = bench.memory.slice(base, SubmissionQueueEntry::LENGTH).unwrap();
    SubmissionQueueEntry::parse(bytes.first_chunk().unwrap())
}

#[test]
fn an_sgl_stands_in_for_a_list_where_it_was_asked_for() {
    let pages = |pages: u32| pages * 4096;
    for (sgls, at, length, takes_sgl) in [
        (true, 0, pages(3), true),
        (true, 0, pages(32), true),
        (true, 512, pages(2), true),
        (true, 0, pages(2), false),
        (true, 512, pages(1), false),
        (false, 0, pages(32), false),
    ] {
        let mut bench = TestBench::up(Config { sgls, ..host_config() }, controller_config());
        let data = bench.data(at, length);
        let read = bench.read_of(1, 0, data, 1);
        let entry = first_entry(&mut bench, read);
        let wanted = if takes_sgl { DataTransfer::SglContiguousMetadata } else { DataTransfer::Prp };
        assert_eq!(entry.data_transfer(), wanted, "{length} B at {at}");
        assert_eq!(entry.data_pointer[0], data.address);
        assert_eq!(entry.data_pointer[1] == u64::from(length), takes_sgl);
    }
}

#[test]
fn admin_commands_have_prp_entries() {
    let mut bench = TestBench::up(Config { sgls: true, ..host_config() }, controller_config());
    let entry = command::get_log_page(NamespaceId::ALL, 2, 0, 12 << 10);
    let data = Some(bench.data(0, 12 << 10));
    let done = bench.run(Submission { queue: QueueId::ADMIN, entry, data, cookie: 1 });
    assert_eq!(done.status, Status::SUCCESS);
    let [ring, _] = bench.host.queues().next().unwrap();
    let length = ring.entries as usize * SubmissionQueueEntry::LENGTH;
    let bytes = bench.memory.slice(ring.base, length).unwrap();
    let entries = bytes.as_chunks().0.iter().map(SubmissionQueueEntry::parse);
    let logs: Vec<_> = entries.filter(|one| one.opcode == entry.opcode).collect();
    assert_eq!(logs.iter().map(SubmissionQueueEntry::data_transfer).collect::<Vec<_>>(), [DataTransfer::Prp]);
}

#[test]
fn a_completion_can_be_taken_ahead_of_all_outputs() {
    let mut bench = TestBench::ready();
    for cookie in 1..=3 {
        bench.submit(bench.read_of(1, 0, bench.data(0, 4096), cookie));
    }
    // The host does not poll for completions meanwhile.
    (0..100).for_each(|_| bench.step());
    let take = |bench: &mut TestBench| bench.host.poll_io_completed(bench.now, &mut bench.memory);
    for cookie in 1..=2 {
        let completed = take(&mut bench).unwrap();
        assert_eq!((completed.cookie, completed.status), (cookie, Status::SUCCESS));
    }
    assert_eq!(bench.host.outstanding(), 1);
    // A doorbell that waits as an output goes first.
    bench.submit(bench.read_of(1, 0, bench.data(0, 4096), 4));
    bench.host.ring();
    assert_eq!(take(&mut bench), None);
    bench.step();
    assert_eq!(take(&mut bench).map(|completed| completed.cookie), Some(3));
    assert_eq!(take(&mut bench), None);
    bench.settle();
    assert_eq!(bench.completed.iter().map(|completed| completed.cookie).collect::<Vec<_>>(), [4]);
    assert_eq!(bench.host.statistics().completed, 4);
}

#[test]
fn pieces_of_reads_in_any_order_make_the_same_bytes() {
    let mut bench = TestBench::ready();
    bench.faults.pieces = 64;
    let bytes = random(1, 131_072);
    fill(&mut bench, 512, &bytes);
    for cookie in 0..40 {
        bench.submit(bench.write_of(1, cookie * 131_072, bench.data(512, 131_072), cookie));
    }
    bench.settle();
    assert_eq!(bench.completed.len(), 40);
    assert!(bench.completed.iter().all(|completed| completed.status.is_success()));
    assert!((0..40).all(|index| bench.disk[index * 131_072..][..131_072] == bytes));
}

#[test]
fn rings_wrap_many_times() {
    let mut bench = TestBench::ready();
    let mut cookie = 0;
    for _ in 0..50 {
        for _ in 0..37 {
            bench.submit(bench.read_of(
                1,
                4096 * (cookie % 1024),
                bench.data(4096 * (cookie % 64), 4096),
                cookie,
            ));
            cookie += 1;
        }
        bench.settle();
    }
    let mut seen: Vec<u64> = bench.completed.iter().map(|completed| completed.cookie).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..cookie).collect::<Vec<_>>());
    let statistics = bench.controller.statistics();
    assert!(statistics.fetches * 8 < statistics.commands, "entries are fetched in batches: {statistics:?}");
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
    let mut bench = TestBench::up(config, controller_config());
    let mut cookie = 0;
    for queue in 1..=64 {
        for _ in 0..4095 {
            bench.submit(bench.read_of(queue, 512 * (cookie % 4096), bench.data(0, 512), cookie));
            cookie += 1;
        }
        let one_more = bench.read_of(queue, 0, bench.data(0, 512), cookie);
        assert_eq!(bench.host.submit(bench.now, &mut bench.memory, one_more), Err(SubmitError::Busy));
    }
    bench.settle();
    assert_eq!(bench.completed.len(), 64 * 4095);
    assert!(bench.completed.iter().all(|completed| completed.status.is_success()));
    assert_eq!(bench.host.outstanding(), 0);
}

#[test]
fn commands_that_make_no_sense_are_refused_with_their_reason() {
    let mut bench = TestBench::ready();
    let mut submit = |submission| bench.host.submit(bench.now, &mut bench.memory, submission).unwrap_err();
    let data = |address, length| super::Data { address, length };
    let read = |data| Submission::on_blocks(IoOpcode::Read, QueueId(1), NAMESPACE, 0, 1, data, 1);
    assert_eq!(submit(read(data(0x1002, 512))), SubmitError::Address(0x1002));
    assert_eq!(submit(read(data(0x1000, 0))), SubmitError::Length { length: 0, limit: 131_072 });
    assert_eq!(submit(read(data(0x1000, 1 << 20))), SubmitError::Length { length: 1 << 20, limit: 131_072 });
    let elsewhere = Submission { queue: QueueId(2), ..read(data(0x1000, 512)) };
    assert_eq!(submit(elsewhere), SubmitError::NoSuchQueue(QueueId(2)));
    let beyond = bench.run(bench.read_of(1, DISK_BYTES as u64, bench.data(0, 512), 7));
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
    let mut bench = TestBench::ready();
    bench.faults.media_stuck = true;
    bench.submit(bench.read_of(1, 0, bench.data(0, 4096), 1));
    bench.pass(Nanos::from_secs(11));
    assert_eq!(bench.host.statistics().aborts, 1);
    assert_eq!(bench.completed.len(), 1);
    assert_eq!(bench.completed[0].status.code(), StatusCode::CommandAbortRequested);
    assert!(bench.resets.is_empty());
    bench.unstick();
    bench.pass(Nanos::from_secs(60));
    assert_eq!(bench.completed.len(), 1);
}

#[test]
fn a_dead_controller_is_reset_and_its_commands_run_again() {
    let mut bench = TestBench::ready();
    let bytes = random(5, 4096);
    fill(&mut bench, 0, &bytes);
    bench.faults.dead = true;
    for cookie in 0..10 {
        bench.submit(bench.write_of(1, cookie * 4096, bench.data(0, 4096), cookie));
    }
    bench.pass(Nanos::from_secs(20));
    assert!(bench.completed.is_empty());
    assert!(matches!(bench.resets[0], ResetReason::Timeout { queue: QueueId(_), .. }));
    bench.faults.dead = false;
    bench.pass(Nanos::from_secs(20));
    assert!(bench.host.is_ready());
    let mut cookies: Vec<u64> = bench.completed.iter().map(|completed| completed.cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..10).collect::<Vec<_>>());
    assert!(bench.completed.iter().all(|completed| completed.status.is_success()));
    assert!((0..10).all(|index| bench.disk[index * 4096..][..4096] == bytes));
}

#[test]
fn commands_fail_with_a_status_when_resets_do_not_help() {
    let mut bench = TestBench::ready();
    bench.faults.dead = true;
    for cookie in 0..3 {
        bench.submit(bench.read_of(1, 0, bench.data(0, 4096), cookie));
    }
    bench.pass(Nanos::from_secs(300));
    assert_eq!(bench.completed.len(), 3);
    assert!(bench.completed.iter().all(|completed| completed.origin == Origin::Host));
    assert!(bench.completed.iter().all(|completed| completed.status.code() == StatusCode::HostPathingError));
    assert!(bench.failed.is_some());
    let read = bench.read_of(1, 0, bench.data(0, 512), 9);
    let refused = bench.host.submit(bench.now, &mut bench.memory, read);
    assert_eq!(refused, Err(SubmitError::NotReady));
}

#[test]
fn a_device_that_comes_back_in_time_loses_nothing() {
    let mut bench = TestBench::ready();
    bench.faults.dead = true;
    bench.submit(bench.write_of(1, 0, bench.data(0, 4096), 1));
    bench.settle();
    bench.host.handle_input(bench.now, Input::DeviceLost);
    bench.submit(bench.write_of(1, 4096, bench.data(0, 4096), 2));
    bench.pass(Nanos::from_secs(4));
    assert!(bench.completed.is_empty());
    bench.controller.reset();
    bench.faults.dead = false;
    bench.host.handle_input(bench.now, Input::DeviceBack);
    bench.pass(Nanos::from_millis(100));
    assert_eq!(bench.completed.len(), 2);
    assert!(bench.completed.iter().all(|completed| completed.status.is_success()));
}

#[test]
fn a_device_that_returns_with_shorter_queues_fails_the_commands_beyond_them() {
    let mut bench = TestBench::ready();
    bench.faults.dead = true;
    for cookie in 0..40 {
        bench.submit(bench.write_of(1, cookie * 4096, bench.data(0, 4096), cookie));
    }
    bench.settle();
    bench.host.handle_input(bench.now, Input::DeviceLost);
    let shorter = controller::Config { queue_entries_max: 16, ..controller_config() };
    bench.controller = controller::Controller::new(bench.now, shorter);
    bench.faults.dead = false;
    bench.host.handle_input(bench.now, Input::DeviceBack);
    bench.pass(Nanos::from_millis(100));
    assert!(bench.host.is_ready());
    let by_host = bench.completed.iter().filter(|completed| completed.origin == Origin::Host).count();
    assert_eq!((bench.completed.len(), by_host, bench.host.outstanding()), (40, 25, 0));
    let success = bench.completed.iter().filter(|completed| completed.status.is_success()).count();
    assert_eq!(success, 15);
}

#[test]
fn a_controller_that_was_reset_behind_the_drivers_back_is_found_out_within_two_looks() {
    let watch = Nanos::from_secs(1);
    for (watch, found) in [(watch, true), (Nanos::ZERO, false)] {
        let mut bench = TestBench::up(Config { watch, ..host_config() }, controller_config());
        // The driver reads no CSTS while commands complete, or while none is outstanding.
        let done = bench.run(bench.write_of(1, 0, bench.data(0, 4096), 1));
        assert_eq!(done.status, Status::SUCCESS);
        bench.pass(Nanos::from_secs(3));
        bench.controller.reset();
        bench.submit(bench.write_of(1, 4096, bench.data(0, 4096), 2));
        bench.pass(Nanos::from_millis(900));
        assert_eq!((bench.completed.len(), &bench.resets[..]), (0, &[][..]));
        bench.pass(Nanos::from_millis(1_200));
        if found {
            assert_eq!((bench.completed.len(), &bench.resets[..]), (1, &[ResetReason::Stopped][..]));
            assert_eq!((bench.completed[0].cookie, bench.completed[0].status), (2, Status::SUCCESS));
        } else {
            assert_eq!((bench.completed.len(), &bench.resets[..]), (0, &[][..]));
        }
    }
}

#[test]
fn a_device_that_stays_away_fails_the_held_commands() {
    let mut bench = TestBench::ready();
    bench.faults.dead = true;
    bench.submit(bench.write_of(1, 0, bench.data(0, 4096), 1));
    bench.settle();
    bench.host.handle_input(bench.now, Input::DeviceLost);
    bench.pass(Nanos::from_secs(6));
    assert_eq!((bench.completed.len(), bench.completed[0].origin), (1, Origin::Host));
    assert_eq!(bench.failed, Some(super::InitError::Lost));
    bench.controller.reset();
    bench.faults.dead = false;
    bench.host.handle_input(bench.now, Input::DeviceBack);
    bench.pass(Nanos::from_millis(100));
    assert!(bench.host.is_ready());
}

#[test]
fn a_disable_in_the_middle_loses_no_command() {
    for seed in 0..20 {
        let mut bench = TestBench::ready();
        let mut rng = Rng::from_seed(seed);
        bench.faults.media_stuck = rng.one_in(2);
        bench.faults.pieces = 512;
        for cookie in 0..20 {
            bench.submit(bench.write_of(1, cookie * 8192, bench.data(0, 8192), cookie));
        }
        // Some outputs are moved, then the driver is interrupted.
        bench.host.ring();
        for _ in 0..rng.below(30) {
            bench.step();
        }
        bench.host.request_reset(bench.now);
        bench.settle();
        bench.unstick();
        bench.pass(Nanos::from_secs(1));
        assert!(bench.host.is_ready(), "seed {seed}");
        let mut cookies: Vec<u64> = bench.completed.iter().map(|completed| completed.cookie).collect();
        cookies.sort_unstable();
        assert_eq!(cookies, (0..20).collect::<Vec<_>>(), "seed {seed}");
        assert!(bench.completed.iter().all(|completed| completed.status.is_success()), "seed {seed}");
    }
}

#[test]
fn no_controller_is_an_error_that_says_so() {
    let mut bench = TestBench::new(host_config(), controller_config());
    bench.faults.dead = true;
    bench.host.start(bench.now);
    bench.pass(Nanos::from_secs(2));
    assert_eq!(bench.failed, Some(super::InitError::Unreachable { offset: 0 }));
}

#[test]
fn a_controller_that_is_ready_and_has_failed_is_not_waited_for() {
    let mut bench = TestBench::new(host_config(), controller_config());
    bench.faults.fatal = true;
    bench.host.start(bench.now);
    bench.pass(Nanos::from_secs(1));
    assert_eq!(bench.failed, Some(super::InitError::Fatal));
}

#[test]
fn events_reach_the_caller_and_are_asked_for_again() {
    let mut bench = TestBench::ready();
    for round in 1..=3 {
        // Ring the doorbell of a queue that does not exist.
        bench.write(0x1000 + 8 * 40, &1_u32.to_le_bytes());
        bench.settle();
        assert_eq!(bench.events.len(), round);
        assert_eq!((bench.events[0].kind, bench.events[0].information), (0, 0));
    }
    bench.write(0x1000 + 8, &999_u32.to_le_bytes());
    bench.settle();
    assert_eq!((bench.events[3].kind, bench.events[3].information), (0, 1));
}

#[test]
fn events_are_asked_for_again_once_the_admin_queue_has_room() {
    let mut bench = TestBench::ready();
    let event_of_a_wrong_doorbell = |bench: &mut TestBench| {
        bench.write(0x1000 + 8 * 40, &1_u32.to_le_bytes());
        // The host does not poll for completions meanwhile.
        (0..100).for_each(|_| bench.step());
    };
    event_of_a_wrong_doorbell(&mut bench);
    let entry = command::get_log_page(NamespaceId::ALL, 2, 0, 512);
    let data = Some(bench.data(0, 512));
    let mut commands = 0;
    let submission = Submission { queue: QueueId::ADMIN, entry, data, cookie: 7 };
    while bench.host.submit(bench.now, &mut bench.memory, submission).is_ok() {
        commands += 1;
    }
    // The event's completion makes room for one command, and two are due.
    bench.host.poll_completions(bench.now, &mut bench.memory);
    bench.settle();
    assert_eq!((bench.events.len(), bench.completed.len()), (1, commands));
    event_of_a_wrong_doorbell(&mut bench);
    bench.settle();
    assert_eq!(bench.events.len(), 2);
}

#[test]
fn interrupts_are_coalesced_by_threshold_and_by_time() {
    let config = Config { interrupts: true, ..host_config() };
    let mut bench = TestBench::up(config, controller_config());
    bench.interrupts.clear();
    bench.run(bench.read_of(1, 0, bench.data(0, 512), 1));
    assert_eq!(bench.interrupts, [1]);
    // Four entries or 500 µs.
    let entry = SubmissionQueueEntry { opcode: 0x09, cdw10: 0x08, cdw11: 0x0503, ..Default::default() };
    let set = Submission { queue: QueueId::ADMIN, entry, data: None, cookie: 2 };
    assert!(bench.run(set).status.is_success());
    bench.interrupts.clear();
    bench.run(bench.read_of(1, 0, bench.data(0, 512), 3));
    assert_eq!(bench.interrupts, []);
    bench.pass(Nanos::from_micros(499));
    assert_eq!(bench.interrupts, []);
    bench.pass(Nanos::from_micros(1));
    assert_eq!(bench.interrupts, [1]);
    for cookie in 0..8 {
        bench.run(bench.read_of(1, 0, bench.data(0, 512), cookie));
    }
    assert_eq!(bench.interrupts, [1, 1, 1]);
}

#[test]
fn fewer_queues_and_entries_than_wanted_are_used_as_granted() {
    let config = Config { queue_pairs: 8, ..host_config() };
    let mut controller = controller_config();
    controller = controller::Config { io_queues: 2, queue_entries_max: 16, ..controller };
    let mut bench = TestBench::up(config, controller);
    assert_eq!(bench.host.identity().unwrap().io_queues, 2);
    for cookie in 0..15 {
        bench.submit(bench.read_of(2, 0, bench.data(0, 512), cookie));
    }
    let read = bench.read_of(2, 0, bench.data(0, 512), 15);
    let full = bench.host.submit(bench.now, &mut bench.memory, read);
    assert_eq!(full, Err(SubmitError::Busy));
    bench.settle();
    assert_eq!(bench.completed.len(), 15);
}

/// Random reads and writes with random aborts and resets, checked against a model of the disk. No
/// acknowledged write is lost, no command completes twice, and none remains.
#[test]
fn a_campaign_of_troubles_loses_and_repeats_nothing() {
    for seed in 0..100 {
        campaign(seed, 0);
    }
}

#[test]
fn neither_does_one_whose_queues_are_on_lanes() {
    for seed in 0..100 {
        campaign(seed, 1 + usize::try_from(seed % 3).unwrap());
    }
}

fn campaign(seed: u64, lanes: usize) {
    const AREAS: u64 = 32;
    const AREA: u32 = 16_384;
    let mut rng = Rng::from_seed(seed);
    let mut bench = TestBench::new(Config { resets_max: 1_000, ..host_config() }, controller_config());
    (0..lanes).for_each(|_| bench.attach());
    bench.host.start(bench.now);
    bench.settle();
    let mut model = std::vec![0_u8; usize::try_from(AREAS).unwrap()];
    let mut busy = std::vec![None; usize::try_from(AREAS).unwrap()];
    let mut cookie = 0_u64;
    let mut ended = 0;
    for _ in 0..300 {
        let area = usize::try_from(rng.below(AREAS)).unwrap();
        let place = bench.data(area as u64 * u64::from(AREA), AREA);
        if busy[area].is_none() {
            let value = u8::try_from(rng.below(256)).unwrap();
            let write = rng.one_in(2).then_some(value);
            busy[area] = Some((cookie, write));
            let at = area as u64 * u64::from(AREA);
            let submission = match write {
                Some(value) => {
                    bench.memory.write(place.address, &[value; AREA as usize]).unwrap();
                    bench.write_of(1, at, place, cookie)
                }
                None => {
                    bench.memory.write(place.address, &[value; AREA as usize]).unwrap();
                    bench.read_of(1, at, place, cookie)
                }
            };
            bench.submit(submission);
            cookie += 1;
        }
        match rng.below(40) {
            0 => bench.host.request_reset(bench.now),
            1 => bench.faults.media_stuck = true,
            2 => bench.unstick(),
            3 => bench.pass(Nanos::from_secs(11)),
            4..=20 => (0..rng.below(20)).for_each(|_| bench.step()),
            _ => bench.settle(),
        }
        for completed in core::mem::take(&mut bench.completed) {
            ended += 1;
            check(&bench, &mut model, &mut busy, &completed, seed);
        }
    }
    bench.unstick();
    bench.pass(Nanos::from_secs(60));
    bench.unstick();
    bench.pass(Nanos::from_secs(60));
    for completed in core::mem::take(&mut bench.completed) {
        ended += 1;
        check(&bench, &mut model, &mut busy, &completed, seed);
    }
    assert_eq!((ended, bench.host.outstanding()), (cookie, 0), "seed {seed}");
}

fn check(
    bench: &TestBench,
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
        model[area] = bench.disk[area * length];
        return;
    }
    match write {
        Some(value) => model[area] = value,
        None => {
            let found = contents(bench, (area * length) as u64, length);
            assert!(found.iter().all(|byte| *byte == model[area]), "seed {seed}, area {area}");
        }
    }
}

#[test]
fn a_doorbell_can_be_rung_at_once() {
    let mut bench = TestBench::ready();
    let bytes = random(1, 4096);
    fill(&mut bench, 0, &bytes);
    for cookie in 0..200 {
        bench.submit(bench.write_of(1, 4096 * cookie, bench.data(0, 4096), cookie));
        let mut rung = Vec::new();
        while let Some((offset, value)) = bench.host.poll_doorbell() {
            rung.push(offset);
            bench.write(offset, &value.to_le_bytes());
        }
        // Submission queue 1, and sometimes its completion queue.
        assert!(rung == [0x1008] || rung == [0x100c, 0x1008], "{rung:x?}");
        bench.settle();
        let completed = bench.completed.pop().expect("the command completes");
        assert_eq!((completed.cookie, completed.status), (cookie, Status::SUCCESS));
    }
    let read = bench.run(bench.read_of(1, 4096 * 199, bench.data(8192, 4096), 200));
    assert_eq!((read.status, contents(&bench, 8192, 4096)), (Status::SUCCESS, bytes));
}
