//! Tests of registers, queue commands and back-pressure, with a host written by hand.

mod arbitration;
mod lanes;
mod memory;
mod pointers;
mod shadow;

use std::vec::Vec;

use engine::Engine;
use nvme::wire::{CompletionQueueEntry, IoOpcode, StatusCode, SubmissionQueueEntry};
use pcie::memory::Memory;

use crate::host::{self, QueueId, Submission};
use crate::test_bench::{MEMORY_BASE, TestBench, controller_config, host_config};

const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const AQA: u32 = 0x24;
const ASQ: u64 = MEMORY_BASE;
const ACQ: u64 = MEMORY_BASE + 0x1000;

fn bare() -> TestBench {
    TestBench::new(host_config(), controller_config())
}

fn enabled() -> TestBench {
    enable(bare())
}

fn enable(mut bench: TestBench) -> TestBench {
    bench.write(AQA, &0x001f_001f_u32.to_le_bytes());
    bench.write(0x28, &ASQ.to_le_bytes());
    bench.write(0x30, &ACQ.to_le_bytes());
    bench.write(CC, &0x0046_0001_u32.to_le_bytes());
    assert_eq!(bench.register(CSTS), 1);
    bench
}

/// Puts `entry` at `index` of the admin queue, rings, and returns the status of completion `index`.
fn admin(bench: &mut TestBench, index: u32, entry: SubmissionQueueEntry) -> StatusCode {
    bench.memory.write(ASQ + u64::from(index) * 64, &entry.emit()).unwrap();
    bench.write(0x1000, &(index + 1).to_le_bytes());
    bench.settle();
    completion(bench, ACQ, index).status().code()
}

fn completion(bench: &TestBench, queue: u64, index: u32) -> CompletionQueueEntry {
    let mut bytes = [0; 16];
    bench.memory.read(queue + u64::from(index) * 16, &mut bytes).unwrap();
    CompletionQueueEntry::parse(&bytes)
}

fn queue_command(opcode: u8, id: u32, size: u32, cdw11: u32, base: u64) -> SubmissionQueueEntry {
    let cdw10 = (size - 1) << 16 | id;
    SubmissionQueueEntry { opcode, cdw10, cdw11, data_pointer: [base, 0], ..Default::default() }
}

#[test]
fn capabilities_report_the_features() {
    let bench = bare();
    let mut bytes = [0; 8];
    bench.controller.read_register(0, &mut bytes);
    let capabilities = u64::from_le_bytes(bytes);
    assert_eq!(capabilities & 0xffff, 4095);
    assert_eq!(capabilities >> 16 & 1, 1, "CQR");
    assert_eq!(capabilities >> 17 & 0b11, 1, "AMS");
    assert_eq!(capabilities >> 37 & 1, 1, "NVM command set");
    assert_eq!(bench.register(0x08), 0x0002_0000);
    assert_eq!(
        (bench.register(0x38), bench.register(0x3c), bench.register(0x40)),
        (0, 0, 0),
        "no CMB, no BPINFO"
    );
}

#[test]
fn registers_are_read_and_written_in_any_size() {
    let mut bench = bare();
    bench.write(AQA, &[0x1f]);
    bench.write(AQA + 2, &[0x3f, 0xf0]);
    assert_eq!(bench.register(AQA), 0x003f_001f);
    bench.write(0x28, &0x1234_5678_9abc_d000_u64.to_le_bytes());
    let mut bytes = [0; 3];
    bench.controller.read_register(0x2b, &mut bytes);
    assert_eq!(bytes, [0x9a, 0x78, 0x56]);
    bench.write(0x08, &[0xff; 4]);
    assert_eq!(bench.register(0x08), 0x0002_0000);
}

#[test]
fn all_command_sets_may_be_selected() {
    let mut bench = bare();
    // CAP.CSS: the NVM command set, and I/O command sets.
    assert_eq!(bench.register(0x04) >> 5 & 0xff, 0b0100_0001);
    bench.write(AQA, &0x001f_001f_u32.to_le_bytes());
    bench.write(0x28, &ASQ.to_le_bytes());
    bench.write(0x30, &ACQ.to_le_bytes());
    bench.write(CC, &0x0046_0061_u32.to_le_bytes());
    assert_eq!(bench.register(CSTS), 1);
}

#[test]
fn a_configuration_that_cannot_be_is_a_fatal_error_until_the_reset() {
    for (attributes, configuration) in [
        (0x001f_0000, 0x0046_0001_u32),
        (0x001f_001f, 0x0046_0011),
        (0x001f_001f, 0x0046_1001),
        (0x001f_001f, 0x0046_0781),
    ] {
        let mut bench = bare();
        bench.write(AQA, &u32::to_le_bytes(attributes));
        bench.write(CC, &configuration.to_le_bytes());
        assert_eq!(bench.register(CSTS), 2, "CC {configuration:#x}");
        bench.write(CC, &0_u32.to_le_bytes());
        assert_eq!(bench.register(CSTS), 0);
    }
}

#[test]
fn shutdown_flushes_and_says_so() {
    for notification in [1, 2] {
        let mut bench = enabled();
        bench.faults.media_stuck = true;
        bench.write(CC, &(0x0046_0001_u32 | notification << 14).to_le_bytes());
        bench.settle();
        assert_eq!(bench.register(CSTS), 1 | 1 << 2);
        bench.unstick();
        assert_eq!(bench.register(CSTS), 1 | 2 << 2);
        bench.write(CC, &0_u32.to_le_bytes());
        assert_eq!(bench.register(CSTS), 0);
    }
}

#[test]
fn queue_commands_answer_each_mistake_with_its_status() {
    let mut bench = enabled();
    let create_cq = |id, size, cdw11, base| queue_command(0x05, id, size, cdw11, base);
    let create_sq = |id, size, cdw11, base| queue_command(0x01, id, size, cdw11, base);
    let base = MEMORY_BASE + 0x4000;
    let cases = [
        (create_cq(0, 16, 1, base), StatusCode::InvalidQueueIdentifier),
        (create_cq(65, 16, 1, base), StatusCode::InvalidQueueIdentifier),
        (create_cq(1, 1, 1, base), StatusCode::InvalidQueueSize),
        (create_cq(1, 4097, 1, base), StatusCode::InvalidQueueSize),
        (create_cq(1, 16, 0, base), StatusCode::InvalidField),
        (create_cq(1, 16, 1, base + 8), StatusCode::PrpOffsetInvalid),
        (create_cq(1, 16, 65 << 16 | 3, base), StatusCode::InvalidInterruptVector),
        (create_cq(1, 16, 1, base), StatusCode::SuccessfulCompletion),
        (create_cq(1, 16, 1, base), StatusCode::InvalidQueueIdentifier),
        (create_sq(1, 16, 1, base), StatusCode::InvalidQueueIdentifier),
        (create_sq(1, 16, 2 << 16 | 1, base), StatusCode::CompletionQueueInvalid),
        (create_sq(1, 16, 99 << 16 | 1, base), StatusCode::InvalidQueueIdentifier),
        (create_sq(1, 16, 1 << 16 | 1, base), StatusCode::SuccessfulCompletion),
        (queue_command(0x04, 1, 1, 0, 0), StatusCode::InvalidQueueDeletion),
        (queue_command(0x00, 2, 1, 0, 0), StatusCode::InvalidQueueIdentifier),
        (queue_command(0x00, 0, 1, 0, 0), StatusCode::InvalidQueueIdentifier),
        (queue_command(0x00, 1, 1, 0, 0), StatusCode::SuccessfulCompletion),
        (queue_command(0x04, 1, 1, 0, 0), StatusCode::SuccessfulCompletion),
        (queue_command(0x04, 1, 1, 0, 0), StatusCode::InvalidQueueIdentifier),
    ];
    for (index, (entry, expected)) in (0..).zip(cases) {
        assert_eq!(admin(&mut bench, index, entry), expected, "case {index}");
        let logged = completion(&bench, ACQ, index).status().has_more();
        assert_eq!(logged, expected != StatusCode::SuccessfulCompletion);
    }
}

#[test]
fn an_entry_that_cannot_be_fetched_is_fatal() {
    let mut bench = enabled();
    bench.faults.dma_fails = true;
    bench.write(0x1000, &1_u32.to_le_bytes());
    bench.settle();
    assert_eq!(bench.register(CSTS) & 2, 2);
    bench.faults.dma_fails = false;
    bench.write(0x1000, &2_u32.to_le_bytes());
    bench.settle();
    assert_eq!(completion(&bench, ACQ, 0), CompletionQueueEntry::default());
}

#[test]
fn data_that_cannot_be_moved_fails_the_command_only() {
    let mut bench = TestBench::ready();
    let nowhere = host::Data { address: 0x10_0000, length: 4096 };
    let written = bench.run(bench.write_of(1, 0, nowhere, 1));
    assert_eq!(written.status.code(), StatusCode::DataTransferError);
    // The PRP list of a long transfer is in the driver's arena, but the data is unmapped.
    let written = bench.run(bench.write_of(1, 0, host::Data { length: 65536, ..nowhere }, 2));
    assert_eq!(written.status.code(), StatusCode::DataTransferError);
    let written = bench.run(bench.write_of(1, 0, bench.data(0, 4096), 3));
    assert!(written.status.is_success());
}

/// Creates I/O queues 1 with 4 entries by hand, and puts `count` flushes on them. Returns the
/// addresses of the queues.
fn small_queues(bench: &mut TestBench, count: u32) -> (u64, u64) {
    let (sq, cq) = (MEMORY_BASE + 0x4000, MEMORY_BASE + 0x5000);
    assert_eq!(admin(bench, 0, queue_command(0x05, 1, 4, 1, cq)), StatusCode::SuccessfulCompletion);
    assert_eq!(
        admin(bench, 1, queue_command(0x01, 1, 16, 1 << 16 | 1, sq)),
        StatusCode::SuccessfulCompletion
    );
    for index in 0..count {
        let command_id = nvme::wire::CommandId(u16::try_from(index).unwrap());
        let namespace = crate::test_bench::NAMESPACE;
        let entry = SubmissionQueueEntry { opcode: 0, command_id, namespace, ..Default::default() };
        bench.memory.write(sq + u64::from(index) * 64, &entry.emit()).unwrap();
    }
    bench.write(0x1008, &count.to_le_bytes());
    bench.settle();
    (sq, cq)
}

#[test]
fn completions_wait_while_their_queue_is_full() {
    let mut bench = enabled();
    let (_, cq) = small_queues(&mut bench, 10);
    let mut seen = Vec::new();
    let (mut head, mut phase) = (0, true);
    for _ in 0..10 {
        let entry = completion(&bench, cq, head);
        assert_eq!(entry.phase(), phase, "after {seen:?}");
        seen.push(entry.command_id.0);
        head = (head + 1) % 4;
        phase ^= head == 0;
        bench.write(0x100c, &head.to_le_bytes());
        bench.settle();
    }
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    assert_eq!(completion(&bench, cq, 1).submission_queue_head, 10);
    assert_eq!(bench.controller.statistics().completions, 12);
}

#[test]
fn deleting_a_queue_does_not_wait_for_unread_completions() {
    let mut bench = enabled();
    small_queues(&mut bench, 10);
    assert_eq!(admin(&mut bench, 2, queue_command(0x00, 1, 1, 0, 0)), StatusCode::SuccessfulCompletion);
    assert_eq!(admin(&mut bench, 3, queue_command(0x04, 1, 1, 0, 0)), StatusCode::SuccessfulCompletion);
}

#[test]
fn deleting_a_queue_does_not_wait_for_room_for_commands_that_end_later() {
    let mut bench = enabled();
    bench.faults.media_stuck = true;
    small_queues(&mut bench, 8);
    admin(&mut bench, 2, queue_command(0x00, 1, 1, 0, 0));
    assert_eq!((bench.stuck.len(), completion(&bench, ACQ, 2).phase()), (8, false));
    bench.unstick();
    let deleted = completion(&bench, ACQ, 2);
    assert_eq!((deleted.phase(), deleted.status().code()), (true, StatusCode::SuccessfulCompletion));
}

#[test]
fn deleting_a_queue_with_commands_in_flight_ends_them_first() {
    let mut bench = TestBench::ready();
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
    let deleted = bench.completed.iter().find(|completed| completed.cookie == 99).unwrap();
    assert!(deleted.status.is_success());
    let aborted = StatusCode::AbortedSubmissionQueueDeletion;
    for completed in &bench.completed {
        let is_read = completed.cookie < 8;
        assert_eq!(completed.status.code() == aborted, is_read, "{completed:?}");
    }
}

/// The first or the second half of a fused pair.
fn half(bench: &TestBench, fuse: u8, cookie: u64) -> Submission {
    let mut submission = bench.write_of(1, 4096, bench.data(32 << 10, 512), cookie);
    if fuse == 1 {
        submission.entry.opcode = IoOpcode::Compare.into();
    }
    submission.entry.flags |= fuse;
    submission
}

#[test]
fn the_first_half_of_a_pair_that_arrives_during_a_deletion_ends() {
    let mut bench = TestBench::ready();
    bench.submit(half(&bench, 1, 1));
    bench.step();
    let fetch = bench.controller.poll_output().expect("the entry is fetched");
    let entry = SubmissionQueueEntry { opcode: 0x00, cdw10: 1, ..Default::default() };
    bench.submit(Submission { queue: QueueId::ADMIN, entry, data: None, cookie: 2 });
    bench.settle();
    assert!(bench.completed.is_empty(), "the entry is still on its way");
    bench.on_controller(fetch);
    bench.settle();
    let codes: Vec<_> = bench.completed.iter().map(|one| (one.cookie, one.status.code())).collect();
    let aborted = StatusCode::AbortedSubmissionQueueDeletion;
    assert_eq!(codes.len(), 2);
    assert!(codes.contains(&(1, aborted)) && codes.contains(&(2, StatusCode::SuccessfulCompletion)));
}

#[test]
fn a_pair_does_not_wait_for_the_bytes_of_those_that_wait_for_it() {
    let config = super::Config { bytes_in_flight_max: 16 << 10, ..controller_config() };
    let mut bench = TestBench::up(host_config(), config);
    bench.submit(bench.write_of(1, 16 << 10, bench.data(0, 16 << 10), 1));
    bench.submit(half(&bench, 1, 2));
    bench.submit(half(&bench, 2, 3));
    bench.settle();
    assert_eq!(bench.completed.len(), 3);
}

#[test]
fn nothing_is_fetched_while_throttled() {
    let mut bench = TestBench::ready();
    bench.controller.set_throttled(true);
    bench.submit(bench.read_of(1, 0, bench.data(0, 512), 1));
    bench.settle();
    assert!(bench.completed.is_empty());
    bench.controller.set_throttled(false);
    bench.settle();
    assert_eq!(bench.completed.len(), 1);
}

#[test]
fn bytes_in_flight_are_bounded() {
    let config = super::Config { bytes_in_flight_max: 256 << 10, ..controller_config() };
    let mut bench = TestBench::up(host_config(), config);
    bench.faults.media_stuck = true;
    for cookie in 0..8 {
        bench.submit(bench.write_of(1, cookie << 17, bench.data(0, 131_072), cookie));
    }
    bench.settle();
    assert_eq!(bench.stuck.len(), 2);
    bench.unstick();
    assert_eq!(bench.completed.len(), 8);
    assert!(bench.completed.iter().all(|completed| completed.status.is_success()));
}

#[test]
fn a_new_start_waits_for_media_that_work_for_the_old_one() {
    let mut bench = TestBench::ready();
    bench.faults.media_stuck = true;
    bench.submit(bench.write_of(1, 0, bench.data(0, 4096), 1));
    bench.settle();
    bench.write(CC, &0_u32.to_le_bytes());
    assert_eq!(bench.register(CSTS), 0);
    bench.write(CC, &0x0046_0001_u32.to_le_bytes());
    assert_eq!(bench.register(CSTS), 0, "a write of before the reset must not overtake new ones");
    let (_, stuck) = bench.stuck.pop_front().unwrap();
    let done = nvme::media::Completion::Done { id: stuck.id, result: Ok(()) };
    bench.controller.handle_input(bench.now, super::Input::Media(done));
    assert_eq!(bench.register(CSTS), 1);
}

#[test]
fn an_sgl_moves_the_same_bytes() {
    let mut bench = TestBench::ready();
    let base = bench.host.data_region().base;
    let descriptor = |kind: u8, address: u64, length: u32| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[15] = kind;
        bytes
    };
    let entry = |opcode: u8, descriptor: [u8; 16]| SubmissionQueueEntry {
        opcode,
        flags: 0x40,
        namespace: crate::test_bench::NAMESPACE,
        data_pointer: [0, 8].map(|at| u64::from_le_bytes(descriptor[at..at + 8].try_into().unwrap())),
        cdw12: 7,
        ..Default::default()
    };
    let bytes: Vec<u8> = (0..4096_u32).map(|index| (index * 7).to_le_bytes()[0]).collect();
    bench.memory.write(base + 1, &bytes[..1000]).unwrap();
    bench.memory.write(base + 0x2000, &bytes[1000..]).unwrap();
    bench.memory.write(base + 0x8000, &descriptor(0x00, base + 1, 1000)).unwrap();
    bench.memory.write(base + 0x8010, &descriptor(0x00, base + 0x2000, 3096)).unwrap();
    let queue = QueueId(1);
    let written = entry(0x01, descriptor(0x30, base + 0x8000, 32));
    assert!(bench.run(Submission { queue, entry: written, data: None, cookie: 1 }).status.is_success());
    assert_eq!(bench.disk[..4096], bytes);
    let read = entry(0x02, descriptor(0x00, base + 0x4003, 4096));
    assert!(bench.run(Submission { queue, entry: read, data: None, cookie: 2 }).status.is_success());
    assert_eq!(bench.memory.slice(base + 0x4003, 4096).unwrap(), bytes);
    let short = entry(0x02, descriptor(0x00, base, 512));
    let refused = bench.run(Submission { queue, entry: short, data: None, cookie: 3 });
    assert_eq!(refused.status.code(), StatusCode::DataSglLengthInvalid);
    assert!(refused.status.has_more(), "the failure is in the error log");
}
