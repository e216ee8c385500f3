//! Tests of shadow doorbells, with a host that rings only on request.

use proptest::prelude::*;

use super::*;

const SQ: u64 = MEMORY_BASE + 0x4000;
const CQ: u64 = MEMORY_BASE + 0x5000;
const DOORBELLS: u64 = MEMORY_BASE + 0x6000;
const EVENTS: u64 = MEMORY_BASE + 0x7000;
const SQ_ENTRIES: u32 = 8;
const CQ_ENTRIES: u32 = 4;

fn bench() -> TestBench {
    let config = crate::controller::Config { doorbell_buffers: true, ..controller_config() };
    enable(TestBench::new(host_config(), config))
}

fn buffer_config(doorbells: u64, events: u64) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode: 0x7c, data_pointer: [doorbells, events], ..Default::default() }
}

/// A driver of one queue pair.
struct Driver {
    bench: TestBench,
    tail: u32,
    head: u32,
    phase: bool,
    submitted: u32,
    completed: u32,
    rung: u32,
}

impl Driver {
    fn new() -> Self {
        let mut bench = bench();
        let commands = [
            queue_command(0x05, 1, CQ_ENTRIES, 1, CQ),
            queue_command(0x01, 1, SQ_ENTRIES, 1 << 16 | 1, SQ),
            buffer_config(DOORBELLS, EVENTS),
        ];
        for (index, command) in (0..).zip(commands) {
            assert_eq!(admin(&mut bench, index, command), StatusCode::SuccessfulCompletion);
        }
        Self { bench, tail: 0, head: 0, phase: true, submitted: 0, completed: 0, rung: 0 }
    }

    fn word(&self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        self.bench.memory.read(address, &mut bytes).unwrap();
        u32::from_le_bytes(bytes)
    }

    /// Moves a shadow doorbell, and rings the real one if EventIdx requires it.
    fn move_doorbell(&mut self, number: u32, old: u32, new: u32) {
        let at = u64::from(number) * 4;
        self.bench.memory.write(DOORBELLS + at, &new.to_le_bytes()).unwrap();
        let event = self.word(EVENTS + at);
        let narrow = |value: u32| u16::try_from(value & 0xffff).unwrap();
        if narrow(new).wrapping_sub(narrow(event)).wrapping_sub(1) < narrow(new).wrapping_sub(narrow(old)) {
            self.rung += 1;
            self.bench.write(0x1000 + number * 4, &new.to_le_bytes());
        }
    }

    fn submit(&mut self) -> bool {
        if self.submitted - self.completed >= SQ_ENTRIES - 1 {
            return false;
        }
        let command_id = nvme::wire::CommandId(u16::try_from(self.submitted & 0xffff).unwrap());
        let namespace = crate::test_bench::NAMESPACE;
        let entry = SubmissionQueueEntry { opcode: 0, command_id, namespace, ..Default::default() };
        self.bench.memory.write(SQ + u64::from(self.tail) * 64, &entry.emit()).unwrap();
        let old = self.tail;
        self.tail = (old + 1) % SQ_ENTRIES;
        self.submitted += 1;
        self.move_doorbell(2, old, self.tail);
        true
    }

    fn reap(&mut self) {
        while completion(&self.bench, CQ, self.head).phase() == self.phase {
            let entry = completion(&self.bench, CQ, self.head);
            assert!(entry.status().is_success());
            self.completed += 1;
            let old = self.head;
            self.head = (old + 1) % CQ_ENTRIES;
            self.phase ^= self.head == 0;
            self.move_doorbell(3, old, self.head);
        }
    }
}

#[test]
fn buffers_are_pages_and_only_where_they_are_offered() {
    let mut plain = enabled();
    let refused = admin(&mut plain, 0, buffer_config(DOORBELLS, EVENTS));
    assert_eq!(refused, StatusCode::InvalidCommandOpcode);
    let mut bench = bench();
    assert_eq!(admin(&mut bench, 0, buffer_config(DOORBELLS + 8, EVENTS)), StatusCode::InvalidField);
    assert_eq!(admin(&mut bench, 1, buffer_config(DOORBELLS, EVENTS + 4)), StatusCode::InvalidField);
    assert_eq!(admin(&mut bench, 2, buffer_config(DOORBELLS, EVENTS)), StatusCode::SuccessfulCompletion);
    let page = MEMORY_BASE + 0x8000;
    let identify =
        SubmissionQueueEntry { opcode: 6, cdw10: 1, data_pointer: [page, 0], ..Default::default() };
    assert_eq!(admin(&mut bench, 3, identify), StatusCode::SuccessfulCompletion);
    assert_eq!(bench.memory.slice(page + 256, 2).unwrap()[1] & 1, 1, "OACS");
}

#[test]
fn a_knock_is_answered_and_asked_for_again() {
    let mut driver = Driver::new();
    driver.bench.settle();
    assert!(driver.submit());
    assert_eq!(driver.rung, 1, "the controller sleeps");
    driver.bench.settle();
    driver.reap();
    assert_eq!((driver.completed, driver.word(EVENTS + 8)), (1, 1));
    // The value of the real doorbell does not matter.
    driver.bench.write(0x1008, &5_u32.to_le_bytes());
    driver.bench.settle();
    assert_eq!(driver.bench.controller.statistics().commands, 4);
    // Submissions while the controller is busy ring no doorbell.
    let before = driver.rung;
    assert!(driver.submit() && driver.submit() && driver.submit());
    assert_eq!(driver.rung, before + 1);
    driver.bench.settle();
    driver.reap();
    assert_eq!(driver.completed, 4);
    // After a reset the buffers are forgotten, and real doorbells count again.
    driver.bench.write(CC, &0_u32.to_le_bytes());
    driver.bench.settle();
    let mut bench = enable(driver.bench);
    let before = bench.controller.statistics().commands;
    small_queues(&mut bench, 2);
    assert_eq!(bench.controller.statistics().commands, before + 4);
}

#[test]
fn a_tail_that_cannot_be_is_reported_and_harms_nothing() {
    let mut driver = Driver::new();
    driver.bench.settle();
    driver.bench.memory.write(DOORBELLS + 8, &99_u32.to_le_bytes()).unwrap();
    driver.bench.write(0x1008, &1_u32.to_le_bytes());
    driver.bench.settle();
    assert!(driver.submit());
    driver.bench.write(0x1008, &1_u32.to_le_bytes());
    driver.bench.settle();
    driver.reap();
    assert_eq!(driver.completed, 1);
    driver.bench.faults.dma_fails = true;
    driver.bench.write(0x1008, &1_u32.to_le_bytes());
    driver.bench.settle();
    assert_eq!(driver.bench.register(CSTS) & 2, 2, "a doorbell that can't be read is fatal");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_command_or_completion_is_forgotten(moves in prop::collection::vec(0..4_u8, 1..400)) {
        let mut driver = Driver::new();
        for one in moves {
            match one {
                0 => { driver.submit(); }
                1 => driver.reap(),
                _ => driver.bench.step(),
            }
        }
        // The host submits no more commands, and everything completes with only the rings that
        // EventIdx required.
        for _ in 0..64 {
            driver.bench.settle();
            driver.reap();
        }
        prop_assert_eq!(driver.completed, driver.submitted);
    }
}
