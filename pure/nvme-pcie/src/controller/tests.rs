//! Tests of registers, queue commands and back-pressure, with a host written by hand.

mod arbitration;
mod memory;
mod pointers;
mod shadow;

use std::vec::Vec;

use engine::Engine;
use nvme::wire::{CompletionQueueEntry, StatusCode, SubmissionQueueEntry};
use pcie::memory::Memory;

use crate::host::{self, QueueId, Submission};
use crate::rig::{MEMORY_BASE, Rig, controller_config, host_config};

const CC: u32 = 0x14;
const CSTS: u32 = 0x1c;
const AQA: u32 = 0x24;
const ASQ: u64 = MEMORY_BASE;
const ACQ: u64 = MEMORY_BASE + 0x1000;

fn bare() -> Rig {
    Rig::new(host_config(), controller_config())
}

fn enabled() -> Rig {
    enable(bare())
}

fn enable(mut rig: Rig) -> Rig {
    rig.write(AQA, &0x001f_001f_u32.to_le_bytes());
    rig.write(0x28, &ASQ.to_le_bytes());
    rig.write(0x30, &ACQ.to_le_bytes());
    rig.write(CC, &0x0046_0001_u32.to_le_bytes());
    assert_eq!(rig.register(CSTS), 1);
    rig
}

/// Puts `entry` at `index` of the admin queue, rings, and returns the status of completion `index`.
fn admin(rig: &mut Rig, index: u32, entry: SubmissionQueueEntry) -> StatusCode {
    rig.memory.write(ASQ + u64::from(index) * 64, &entry.emit()).unwrap();
    rig.write(0x1000, &(index + 1).to_le_bytes());
    rig.settle();
    completion(rig, ACQ, index).status().code()
}

fn completion(rig: &Rig, queue: u64, index: u32) -> CompletionQueueEntry {
    let mut bytes = [0; 16];
    rig.memory.read(queue + u64::from(index) * 16, &mut bytes).unwrap();
    CompletionQueueEntry::parse(&bytes)
}

fn queue_command(opcode: u8, id: u32, size: u32, cdw11: u32, base: u64) -> SubmissionQueueEntry {
    let cdw10 = (size - 1) << 16 | id;
    SubmissionQueueEntry { opcode, cdw10, cdw11, data_pointer: [base, 0], ..Default::default() }
}

#[test]
fn capabilities_say_what_there_is() {
    let rig = bare();
    let mut bytes = [0; 8];
    rig.controller.read_register(0, &mut bytes);
    let capabilities = u64::from_le_bytes(bytes);
    assert_eq!(capabilities & 0xffff, 4095);
    assert_eq!(capabilities >> 16 & 1, 1, "CQR");
    assert_eq!(capabilities >> 17 & 0b11, 1, "AMS");
    assert_eq!(capabilities >> 37 & 1, 1, "NVM command set");
    assert_eq!(rig.register(0x08), 0x0002_0000);
    assert_eq!((rig.register(0x38), rig.register(0x3c), rig.register(0x40)), (0, 0, 0), "no CMB, no BPINFO");
}

#[test]
fn registers_are_read_and_written_in_any_size() {
    let mut rig = bare();
    rig.write(AQA, &[0x1f]);
    rig.write(AQA + 2, &[0x3f, 0xf0]);
    assert_eq!(rig.register(AQA), 0x003f_001f);
    rig.write(0x28, &0x1234_5678_9abc_d000_u64.to_le_bytes());
    let mut bytes = [0; 3];
    rig.controller.read_register(0x2b, &mut bytes);
    assert_eq!(bytes, [0x9a, 0x78, 0x56]);
    rig.write(0x08, &[0xff; 4]);
    assert_eq!(rig.register(0x08), 0x0002_0000);
}

#[test]
fn a_configuration_that_cannot_be_is_a_fatal_error_until_the_reset() {
    for (attributes, configuration) in [
        (0x001f_0000, 0x0046_0001_u32),
        (0x001f_001f, 0x0046_0011),
        (0x001f_001f, 0x0046_1001),
        (0x001f_001f, 0x0046_0781),
    ] {
        let mut rig = bare();
        rig.write(AQA, &u32::to_le_bytes(attributes));
        rig.write(CC, &configuration.to_le_bytes());
        assert_eq!(rig.register(CSTS), 2, "CC {configuration:#x}");
        rig.write(CC, &0_u32.to_le_bytes());
        assert_eq!(rig.register(CSTS), 0);
    }
}

#[test]
fn shutdown_flushes_and_says_so() {
    for notification in [1, 2] {
        let mut rig = enabled();
        rig.faults.media_stuck = true;
        rig.write(CC, &(0x0046_0001_u32 | notification << 14).to_le_bytes());
        rig.settle();
        assert_eq!(rig.register(CSTS), 1 | 1 << 2);
        rig.unstick();
        assert_eq!(rig.register(CSTS), 1 | 2 << 2);
        rig.write(CC, &0_u32.to_le_bytes());
        assert_eq!(rig.register(CSTS), 0);
    }
}

#[test]
fn queue_commands_answer_each_mistake_with_its_status() {
    let mut rig = enabled();
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
        assert_eq!(admin(&mut rig, index, entry), expected, "case {index}");
        let logged = completion(&rig, ACQ, index).status().has_more();
        assert_eq!(logged, expected != StatusCode::SuccessfulCompletion);
    }
}

#[test]
fn an_entry_that_cannot_be_fetched_is_fatal() {
    let mut rig = enabled();
    rig.faults.dma_fails = true;
    rig.write(0x1000, &1_u32.to_le_bytes());
    rig.settle();
    assert_eq!(rig.register(CSTS) & 2, 2);
    rig.faults.dma_fails = false;
    rig.write(0x1000, &2_u32.to_le_bytes());
    rig.settle();
    assert_eq!(completion(&rig, ACQ, 0), CompletionQueueEntry::default());
}

#[test]
fn data_that_cannot_be_moved_fails_the_command_only() {
    let mut rig = Rig::ready();
    let nowhere = host::Data { address: 0x10_0000, length: 4096 };
    let written = rig.run(rig.write_of(1, 0, nowhere, 1));
    assert_eq!(written.status.code(), StatusCode::DataTransferError);
    // The PRP list of a long transfer is in the driver's arena, but the data is unmapped.
    let written = rig.run(rig.write_of(1, 0, host::Data { length: 65536, ..nowhere }, 2));
    assert_eq!(written.status.code(), StatusCode::DataTransferError);
    let written = rig.run(rig.write_of(1, 0, rig.data(0, 4096), 3));
    assert!(written.status.is_success());
}

/// Creates I/O queues 1 with 4 entries by hand, and puts `count` flushes on them. Returns the
/// addresses of the queues.
fn small_queues(rig: &mut Rig, count: u32) -> (u64, u64) {
    let (sq, cq) = (MEMORY_BASE + 0x4000, MEMORY_BASE + 0x5000);
    assert_eq!(admin(rig, 0, queue_command(0x05, 1, 4, 1, cq)), StatusCode::SuccessfulCompletion);
    assert_eq!(admin(rig, 1, queue_command(0x01, 1, 16, 1 << 16 | 1, sq)), StatusCode::SuccessfulCompletion);
    for index in 0..count {
        let command_id = nvme::wire::CommandId(u16::try_from(index).unwrap());
        let namespace = crate::rig::NAMESPACE;
        let entry = SubmissionQueueEntry { opcode: 0, command_id, namespace, ..Default::default() };
        rig.memory.write(sq + u64::from(index) * 64, &entry.emit()).unwrap();
    }
    rig.write(0x1008, &count.to_le_bytes());
    rig.settle();
    (sq, cq)
}

#[test]
fn completions_wait_while_their_queue_is_full() {
    let mut rig = enabled();
    let (_, cq) = small_queues(&mut rig, 10);
    let mut seen = Vec::new();
    let (mut head, mut phase) = (0, true);
    for _ in 0..10 {
        let entry = completion(&rig, cq, head);
        assert_eq!(entry.phase(), phase, "after {seen:?}");
        seen.push(entry.command_id.0);
        head = (head + 1) % 4;
        phase ^= head == 0;
        rig.write(0x100c, &head.to_le_bytes());
        rig.settle();
    }
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    assert_eq!(completion(&rig, cq, 1).submission_queue_head, 10);
    assert_eq!(rig.controller.statistics().completions, 12);
}

#[test]
fn deleting_a_queue_does_not_wait_for_completions_that_nobody_reads() {
    let mut rig = enabled();
    small_queues(&mut rig, 10);
    assert_eq!(admin(&mut rig, 2, queue_command(0x00, 1, 1, 0, 0)), StatusCode::SuccessfulCompletion);
    assert_eq!(admin(&mut rig, 3, queue_command(0x04, 1, 1, 0, 0)), StatusCode::SuccessfulCompletion);
}

#[test]
fn deleting_a_queue_with_commands_in_flight_ends_them_first() {
    let mut rig = Rig::ready();
    rig.faults.media_stuck = true;
    for cookie in 0..8 {
        rig.submit(rig.read_of(1, 0, rig.data(0, 4096), cookie));
        rig.submit(rig.write_of(1, 0, rig.data(0, 4096), 10 + cookie));
    }
    rig.settle();
    let entry = SubmissionQueueEntry { opcode: 0x00, cdw10: 1, ..Default::default() };
    rig.submit(Submission { queue: QueueId::ADMIN, entry, data: None, cookie: 99 });
    rig.settle();
    assert!(rig.completed.iter().all(|completed| completed.cookie != 99), "writes must be waited for");
    rig.unstick();
    assert_eq!(rig.completed.len(), 17);
    let deleted = rig.completed.iter().find(|completed| completed.cookie == 99).unwrap();
    assert!(deleted.status.is_success());
    let aborted = StatusCode::AbortedSubmissionQueueDeletion;
    for completed in &rig.completed {
        let is_read = completed.cookie < 8;
        assert_eq!(completed.status.code() == aborted, is_read, "{completed:?}");
    }
}

#[test]
fn nothing_is_fetched_while_throttled() {
    let mut rig = Rig::ready();
    rig.controller.set_throttled(true);
    rig.submit(rig.read_of(1, 0, rig.data(0, 512), 1));
    rig.settle();
    assert!(rig.completed.is_empty());
    rig.controller.set_throttled(false);
    rig.settle();
    assert_eq!(rig.completed.len(), 1);
}

#[test]
fn bytes_in_flight_are_bounded() {
    let config = super::Config { bytes_in_flight_max: 256 << 10, ..controller_config() };
    let mut rig = Rig::up(host_config(), config);
    rig.faults.media_stuck = true;
    for cookie in 0..8 {
        rig.submit(rig.write_of(1, cookie << 17, rig.data(0, 131_072), cookie));
    }
    rig.settle();
    assert_eq!(rig.stuck.len(), 2);
    rig.unstick();
    assert_eq!(rig.completed.len(), 8);
    assert!(rig.completed.iter().all(|completed| completed.status.is_success()));
}

#[test]
fn a_new_start_waits_for_media_that_work_for_the_old_one() {
    let mut rig = Rig::ready();
    rig.faults.media_stuck = true;
    rig.submit(rig.write_of(1, 0, rig.data(0, 4096), 1));
    rig.settle();
    rig.write(CC, &0_u32.to_le_bytes());
    assert_eq!(rig.register(CSTS), 0);
    rig.write(CC, &0x0046_0001_u32.to_le_bytes());
    assert_eq!(rig.register(CSTS), 0, "a write of before the reset must not overtake new ones");
    let stuck = rig.stuck.pop_front().unwrap();
    let done = nvme::media::Completion::Done { id: stuck.id, result: Ok(()) };
    rig.controller.handle_input(rig.now, super::Input::Media(done));
    assert_eq!(rig.register(CSTS), 1);
}

#[test]
fn an_sgl_moves_the_same_bytes() {
    let mut rig = Rig::ready();
    let base = rig.host.data_region().base;
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
        namespace: crate::rig::NAMESPACE,
        data_pointer: [0, 8].map(|at| u64::from_le_bytes(descriptor[at..at + 8].try_into().unwrap())),
        cdw12: 7,
        ..Default::default()
    };
    let bytes: Vec<u8> = (0..4096_u32).map(|index| (index * 7).to_le_bytes()[0]).collect();
    rig.memory.write(base + 1, &bytes[..1000]).unwrap();
    rig.memory.write(base + 0x2000, &bytes[1000..]).unwrap();
    rig.memory.write(base + 0x8000, &descriptor(0x00, base + 1, 1000)).unwrap();
    rig.memory.write(base + 0x8010, &descriptor(0x00, base + 0x2000, 3096)).unwrap();
    let queue = QueueId(1);
    let written = entry(0x01, descriptor(0x30, base + 0x8000, 32));
    assert!(rig.run(Submission { queue, entry: written, data: None, cookie: 1 }).status.is_success());
    assert_eq!(rig.disk[..4096], bytes);
    let read = entry(0x02, descriptor(0x00, base + 0x4003, 4096));
    assert!(rig.run(Submission { queue, entry: read, data: None, cookie: 2 }).status.is_success());
    assert_eq!(rig.memory.slice(base + 0x4003, 4096).unwrap(), bytes);
    let short = entry(0x02, descriptor(0x00, base, 512));
    let refused = rig.run(Submission { queue, entry: short, data: None, cookie: 3 });
    assert_eq!(refused.status.code(), StatusCode::DataSglLengthInvalid);
    assert!(refused.status.has_more(), "the failure is in the error log");
}
