//! Tests of queues that lanes have.

use std::vec::Vec;

use engine::Engine;
use nvme::wire::StatusCode;
use pcie::memory::Memory;

use super::super::letters::{Change, Report};
use super::super::{Input, LaneStart, QueueLane, ToHome};
use super::{ACQ, ASQ, CC, CSTS, admin, completion, queue_command};
use crate::host::{QueueId, Submission};
use crate::registers::status;
use crate::test_bench::{Letter, MEMORY_BASE, TestBench};
use nvme::wire::SubmissionQueueEntry;

/// A bench with `lanes` lanes whose host is written by hand.
fn enabled(lanes: usize) -> TestBench {
    let mut bench = super::bare();
    (0..lanes).for_each(|_| bench.attach());
    bench.settle();
    super::enable(bench)
}

fn is_ready(bench: &TestBench) -> bool {
    status::READY.of(bench.register(CSTS).into()) == 1
}

fn of_lanes(bench: &TestBench) -> Vec<usize> {
    bench.controller.lanes().map(|(_, queues)| queues).collect()
}

#[test]
fn a_queue_goes_to_the_lane_with_the_fewest() {
    let mut bench = enabled(2);
    for id in 1..=6 {
        let created = admin(&mut bench, id * 2 - 2, queue_command(5, id, 16, 1, MEMORY_BASE + 0x1_0000));
        assert_eq!(created, StatusCode::SuccessfulCompletion);
        let created =
            admin(&mut bench, id * 2 - 1, queue_command(1, id, 16, id << 16 | 1, MEMORY_BASE + 0x2_0000));
        assert_eq!(created, StatusCode::SuccessfulCompletion);
    }
    assert_eq!(of_lanes(&bench), [2, 2]);
    assert_eq!(bench.controller.completion_queues().count(), 3, "the admin queue and two others");
    for (_, lane) in &bench.lanes {
        assert_eq!((lane.completion_queues().count(), lane.submission_queues().count()), (2, 2));
    }
    assert_eq!(admin(&mut bench, 12, queue_command(4, 1, 1, 0, 0)), StatusCode::InvalidQueueDeletion);
    assert_eq!(
        admin(&mut bench, 13, queue_command(5, 1, 16, 1, MEMORY_BASE)),
        StatusCode::InvalidQueueIdentifier
    );
    assert_eq!(admin(&mut bench, 14, queue_command(0, 1, 1, 0, 0)), StatusCode::SuccessfulCompletion);
    assert_eq!(admin(&mut bench, 15, queue_command(0, 1, 1, 0, 0)), StatusCode::InvalidQueueIdentifier);
    assert_eq!(admin(&mut bench, 16, queue_command(4, 1, 1, 0, 0)), StatusCode::SuccessfulCompletion);
    assert_eq!(of_lanes(&bench), [1, 2]);
}

#[test]
fn commands_on_lanes_move_data_and_raise_interrupts() {
    let mut bench = TestBench::with_lanes(1);
    let data = bench.data(0, 64 << 10);
    bench.memory.write(data.address, &[7; 64 << 10]).unwrap();
    assert!(bench.run(bench.write_of(1, 0, data, 1)).status.is_success());
    bench.memory.write(data.address, &[0; 64 << 10]).unwrap();
    assert!(bench.run(bench.read_of(1, 0, data, 2)).status.is_success());
    assert_eq!(bench.memory.slice(data.address, 64 << 10).unwrap(), &[7; 64 << 10]);
    let statistics = bench.lanes[0].1.statistics();
    assert_eq!((statistics.commands, statistics.completions), (2, 2));
    assert_eq!(bench.run(bench.read_of(1, 8 << 20, data, 3)).status.code(), StatusCode::LbaOutOfRange);
    // A read of the log waits for what lanes have counted.
    assert_eq!(bench.controller.tallies().count(), 0);
    bench.pass(engine::Nanos::from_millis(200));
    assert_eq!(bench.controller.counters().error_entries, 1);
    assert!(bench.controller.counters().host_reads >= 1);
}

#[test]
fn the_host_sees_a_reset_end_when_all_lanes_have_acknowledged_it() {
    let mut bench = TestBench::with_lanes(2);
    bench.faults.media_stuck = true;
    bench.submit(bench.write_of(1, 0, bench.data(0, 4096), 1));
    bench.settle();
    assert_eq!(bench.stuck.len(), 1);
    bench.faults.lanes_asleep = true;
    bench.write(CC, &0x0046_0000_u32.to_le_bytes());
    while let Some(output) = bench.controller.poll_output() {
        bench.on_controller(output);
    }
    assert!(is_ready(&bench), "no lane knows of the reset");
    // The host does not wait.
    bench.write(CC, &0x0046_0001_u32.to_le_bytes());
    bench.faults.lanes_asleep = false;
    let steps = (0..1_000).take_while(|_| {
        bench.step();
        is_ready(&bench)
    });
    assert!(steps.count() < 1_000);
    // The medium still has a write of before.
    (0..100).for_each(|_| bench.step());
    assert!(!is_ready(&bench));
    bench.unstick();
    assert!(is_ready(&bench));
}

#[test]
fn a_completion_of_an_earlier_life_is_not_posted() {
    let mut bench = TestBench::with_lanes(1);
    bench.faults.media_stuck = true;
    bench.submit(bench.read_of(1, 0, bench.data(0, 4096), 1));
    bench.settle();
    bench.faults.dead = false;
    bench.host.request_reset(bench.now);
    bench.settle();
    bench.unstick();
    bench.pass(engine::Nanos::from_secs(1));
    assert_eq!(bench.completed.len(), 1, "the host submits the command again");
    let statistics = bench.lanes[0].1.statistics();
    assert_eq!((statistics.commands, statistics.completions), (2, 1));
}

#[test]
fn a_deletion_waits_for_writes_on_lanes() {
    let mut bench = TestBench::with_lanes(1);
    bench.faults.media_stuck = true;
    for cookie in 0..8 {
        bench.submit(bench.read_of(1, 0, bench.data(0, 4096), cookie));
        bench.submit(bench.write_of(1, 0, bench.data(0, 4096), 10 + cookie));
    }
    bench.settle();
    let entry = SubmissionQueueEntry { opcode: 0x00, cdw10: 1, ..Default::default() };
    bench.submit(Submission { queue: QueueId::ADMIN, entry, data: None, cookie: 99 });
    bench.settle();
    assert!(bench.completed.iter().all(|completed| completed.cookie != 99), "writes must be waited for");
    bench.unstick();
    assert_eq!(bench.completed.len(), 17);
    let aborted = StatusCode::AbortedSubmissionQueueDeletion;
    for completed in &bench.completed {
        let is_read = completed.cookie < 8;
        assert_eq!(completed.status.code() == aborted, is_read, "{completed:?}");
    }
}

#[test]
fn a_shutdown_waits_for_commands_on_lanes() {
    let mut bench = TestBench::with_lanes(1);
    bench.faults.media_stuck = true;
    bench.submit(bench.write_of(1, 0, bench.data(0, 4096), 1));
    bench.settle();
    bench.write(CC, &0x0046_4001_u32.to_le_bytes());
    bench.settle();
    let state = |bench: &TestBench| status::SHUTDOWN.of(bench.register(CSTS).into());
    assert_eq!(state(&bench), status::SHUTDOWN_OCCURRING);
    bench.unstick();
    assert_eq!(state(&bench), status::SHUTDOWN_COMPLETE);
    assert_eq!(bench.completed.len(), 1);
    assert_eq!(bench.controller.counters().host_writes, 1, "lanes have reported their counts");
    // The lane fetches nothing more until the host has withdrawn the shutdown.
    bench.submit(bench.write_of(1, 0, bench.data(0, 4096), 2));
    bench.settle();
    assert_eq!(bench.completed.len(), 1);
    bench.write(CC, &0x0046_0001_u32.to_le_bytes());
    bench.settle();
    assert_eq!(bench.completed.len(), 2);
}

#[test]
fn a_bad_doorbell_of_a_lane_is_an_event() {
    let mut bench = TestBench::with_lanes(1);
    bench.write(0x1008, &9_999_u32.to_le_bytes());
    bench.settle();
    assert_eq!(bench.events.len(), 1);
}

#[test]
fn a_lane_takes_doorbells_without_the_controller() {
    let mut bench = enabled(1);
    admin(&mut bench, 0, queue_command(5, 1, 16, 1, MEMORY_BASE + 0x1_0000));
    admin(&mut bench, 1, queue_command(1, 1, 16, 1 << 16 | 1, MEMORY_BASE + 0x2_0000));
    let flush =
        SubmissionQueueEntry { opcode: 0, namespace: crate::test_bench::NAMESPACE, ..Default::default() };
    bench.memory.write(MEMORY_BASE + 0x2_0000, &flush.emit()).unwrap();
    let now = bench.now;
    let tail = 1_u32.to_le_bytes();
    bench.lanes[0].1.handle_input(now, Input::RegisterWrite { offset: 0x1008, bytes: &tail });
    bench.settle();
    assert!(completion(&bench, MEMORY_BASE + 0x1_0000, 0).phase());
    assert_eq!((ASQ, ACQ), (MEMORY_BASE, MEMORY_BASE + 0x1000));
}

#[test]
fn entries_that_a_lane_cannot_read_are_fatal_until_the_reset() {
    let mut bench = TestBench::with_lanes(2);
    bench.faults.dma_fails = true;
    bench.submit(bench.read_of(1, 0, bench.data(0, 512), 1));
    while status::FATAL.of(bench.register(CSTS).into()) == 0 {
        bench.step();
    }
    assert!(is_ready(&bench));
    bench.faults.dma_fails = false;
    bench.host.request_reset(bench.now);
    bench.pass(engine::Nanos::from_secs(1));
    assert_eq!(bench.completed.len(), 1);
}

#[test]
fn a_lane_ends_when_it_has_no_queues_left() {
    let mut bench = TestBench::with_lanes(1);
    assert!(bench.run(bench.read_of(1, 0, bench.data(0, 512), 1)).status.is_success());
    let id = bench.lanes[0].0;
    bench.controller.detach_lane(bench.now, id);
    bench.settle();
    assert_eq!(bench.lanes.len(), 1, "the host uses its queues");
    bench.host.request_reset(bench.now);
    bench.pass(engine::Nanos::from_secs(1));
    assert_eq!((bench.lanes.len(), bench.controller.lanes().count()), (0, 0));
    assert!(bench.run(bench.read_of(1, 0, bench.data(0, 512), 2)).status.is_success());
}

#[test]
fn a_lane_whose_thread_is_gone_fails_the_controller() {
    let mut bench = TestBench::with_lanes(2);
    bench.faults.media_stuck = true;
    bench.submit(bench.read_of(1, 0, bench.data(0, 512), 1));
    bench.settle();
    bench.faults.media_stuck = false;
    let busy = bench.stuck.pop_front().and_then(|(from, _)| from).expect("a lane reads");
    bench.lanes.retain(|(id, _)| *id != busy);
    bench.controller.lane_gone(bench.now, busy);
    assert_eq!(status::FATAL.of(bench.register(CSTS).into()), 1);
    bench.host.request_reset(bench.now);
    bench.pass(engine::Nanos::from_secs(1));
    assert_eq!(bench.completed.len(), 1);
}

#[test]
fn a_report_of_an_earlier_life_is_void() {
    let mut bench = TestBench::with_lanes(1);
    let id = bench.lanes[0].0;
    bench.host.request_reset(bench.now);
    bench.settle();
    bench.pass(engine::Nanos::from_secs(1));
    assert!(bench.host.is_ready());
    for report in [Report::Failed, Report::Done(Change::SubmissionQueueDeleted(1)), Report::Drained] {
        bench.letters.push_back(Letter::ToHome(id, std::boxed::Box::new(ToHome { life: 0, report })));
    }
    bench.settle();
    assert_eq!(bench.register(CSTS), 1);
    assert!(bench.run(bench.read_of(1, 0, bench.data(0, 512), 1)).status.is_success());
}

#[test]
fn a_lane_that_comes_late_knows_what_the_host_has_set() {
    let mut bench = enabled(1);
    let set = |feature: u32, value: u32| SubmissionQueueEntry {
        opcode: 9,
        cdw10: feature,
        cdw11: value,
        ..Default::default()
    };
    // Interrupt Coalescing: four entries, or 10 ms.
    assert_eq!(admin(&mut bench, 0, set(8, 100 << 8 | 3)), StatusCode::SuccessfulCompletion);
    let (_, start): (_, LaneStart) = bench.controller.attach_lane(bench.now);
    let lane = QueueLane::new(bench.now, start);
    assert_ne!(lane.side.settings.coalescing, super::super::interrupts::Coalescing::default());
    assert_eq!(lane.side.settings.coalescing, bench.lanes[0].1.side.settings.coalescing);
}

#[test]
fn a_lane_makes_no_access_while_the_function_may_make_none() {
    let mut bench = TestBench::with_lanes(1);
    assert!(bench.run(bench.read_of(1, 0, bench.data(0, 512), 1)).status.is_success());
    bench.controller.set_bus_master(false);
    bench.settle();
    bench.submit(bench.read_of(1, 0, bench.data(0, 512), 2));
    (0..100).for_each(|_| bench.step());
    assert_eq!(status::FATAL.of(bench.register(CSTS).into()), 1, "the entry cannot be read");
    assert_eq!(bench.lanes[0].1.statistics().commands, 1);
}
