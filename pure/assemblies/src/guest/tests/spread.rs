//! A guest whose queues are spread over several connections, each with delays of its own.

use engine::Rng;
use nvme::wire::{IoOpcode, NamespaceId};
use tunnel::session;
use tunnel::upstream::PortIndex;

use super::far_end::Pair;
use super::*;

const STRANDS: u8 = 4;
const QUEUES: u16 = 3;
/// Commands of a queue; no entry is used twice.
const COMMANDS: u16 = ENTRIES - 1;
/// Create I/O Completion Queue: Physically Contiguous, Interrupts Enabled.
const WITH_INTERRUPTS: u32 = 0b11;
const PAGE: usize = 4096;
const BLOCKS: u32 = 8;
/// A buffer's content before a command has brought the disk's zeros.
const BEFORE: [u8; PAGE] = [0xaa; PAGE];

/// Where a queue's entries, completions and buffers are in the guest's memory.
fn submissions(queue: u16) -> u64 {
    BASE + u64::from(queue) * 0x4000
}
fn completions(queue: u16) -> u64 {
    submissions(queue) + 0x1000
}
fn buffer(queue: u16, command: u16) -> u64 {
    BASE + 0x1_0000 + u64::from((queue - 1) * COMMANDS + command) * 0x1000
}

fn entry(opcode: u8, command: u16, namespace: u32, data: u64, dwords: [u32; 3]) -> SubmissionQueueEntry {
    let [cdw10, cdw11, cdw12] = dwords;
    SubmissionQueueEntry {
        opcode,
        command_id: CommandId(command),
        namespace: NamespaceId(namespace),
        data_pointer: [data, 0],
        cdw10,
        cdw11,
        cdw12,
        ..SubmissionQueueEntry::default()
    }
}

impl Pair {
    /// Puts an entry into a queue at `address` that has `command` entries already, and rings its
    /// doorbell.
    fn submit(&mut self, queue: u16, address: u64, command: u16, entry: &SubmissionQueueEntry) {
        self.bench.memory.write(address + u64::from(command) * 64, &entry.emit()).unwrap();
        let doorbell = offset::DOORBELLS + u32::from(queue) * 8;
        self.bench.post_register(doorbell, u32::from(command) + 1);
    }

    fn create(&mut self, command: u16, opcode: AdminOpcode, data: u64, queue: u16, cdw11: u32) {
        let size = u32::from(ENTRIES) - 1;
        let entry = entry(opcode.into(), command, 0, data, [size << 16 | u32::from(queue), cdw11, 0]);
        self.admin(command, &entry);
    }

    fn admin(&mut self, command: u16, entry: &SubmissionQueueEntry) {
        self.submit(0, BASE + SUBMISSIONS, command, entry);
        self.until(|bench| bench.completion(command).is_some());
        let completion = self.bench.completion(command).unwrap();
        assert!(completion.status().is_success(), "{completion:?}");
    }

    /// Packets that have come up on each strand.
    fn came(&self) -> Vec<u64> {
        let strands = self.bench.guest.upstream().unwrap().strands(PortIndex(0));
        strands.map(|session| session.statistics().tlps_received).collect()
    }

    /// Number of a queue's commands that have completed. Asserts that each completed command has
    /// its data.
    fn completed(&self, queue: u16) -> u16 {
        let mut count = 0;
        for completion in self.bench.completions(completions(queue)) {
            assert!(completion.status().is_success(), "{completion:?}");
            let bytes = self.bench.memory.slice(buffer(queue, completion.command_id.0), PAGE).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0), "queue {queue}: {completion:?}");
            count += 1;
        }
        count
    }
}

/// A guest with three queues, each with a vector.
fn guest() -> Pair {
    let session = session::Config { lookahead: true, strands: STRANDS, ..session::Config::default() };
    let mut pair = Pair::with(config(), Nanos::from_micros(50), session);
    pair.connect();
    pair.bring_up(BASE);
    let data = InterruptData::Descriptors((0..=u32::from(QUEUES)).map(|vector| EVENTS + vector).collect());
    let (now, range) = (pair.bench.now, (0, u32::from(QUEUES) + 1));
    let kind = InterruptIndex::Msix;
    let set = pair.bench.client.set_interrupts(now, kind, InterruptAction::Trigger, range, data);
    pair.until(|bench| bench.answers.contains_key(&set));
    // Drivers do this first, to learn the block length.
    let identify = entry(AdminOpcode::Identify.into(), 0, 1, buffer(1, 0), [0; 3]);
    pair.admin(0, &identify);
    for queue in 1..=QUEUES {
        let (number, command) = (u32::from(queue), queue * 2 - 1);
        let (completions, submissions) = (completions(queue), submissions(queue));
        let create = AdminOpcode::CreateIoCompletionQueue;
        pair.create(command, create, completions, queue, number << 16 | WITH_INTERRUPTS);
        let create = AdminOpcode::CreateIoSubmissionQueue;
        pair.create(command + 1, create, submissions, queue, number << 16 | 1);
        pair.bench.queues.insert(EVENTS + number, (completions, 0));
        for command in 0..COMMANDS {
            pair.bench.memory.write(buffer(queue, command), &BEFORE).unwrap();
        }
    }
    pair
}

#[test]
fn interrupts_come_with_their_queues_and_behind_completions_and_data() {
    for seed in 0..12 {
        let mut pair = guest();
        let mut rng = Rng::from_seed(seed);
        let before = pair.came();
        let (mut sent, mut done) = ([0; QUEUES as usize], [0; QUEUES as usize]);
        while done != [COMMANDS; QUEUES as usize] {
            let strand = usize::try_from(rng.below(STRANDS.into())).unwrap();
            pair.lag[strand] = Nanos::from_micros(rng.below(400));
            let queue = u16::try_from(rng.below(QUEUES.into())).unwrap() + 1;
            let index = usize::from(queue - 1);
            let command = sent[index];
            if command < COMMANDS {
                let read = IoOpcode::Read.into();
                let block = (u32::from(queue) * 32 + u32::from(command)) * BLOCKS;
                let entry = entry(read, command, 1, buffer(queue, command), [block, 0, BLOCKS - 1]);
                pair.submit(queue, submissions(queue), command, &entry);
                sent[index] += 1;
            }
            for _ in 0..rng.below(10) {
                pair.step();
                done = [1, 2, 3].map(|queue| pair.completed(queue));
            }
        }
        // One interrupt may stand for several completions, but none may come too early.
        pair.until(|bench| bench.queues.values().all(|(_, seen)| *seen == usize::from(COMMANDS)));
        // No packet of the I/O queues has come on the main strand.
        let after = pair.came();
        assert_eq!(before[0], after[0], "seed {seed}: {before:?} {after:?}");
        assert!((1..=usize::from(QUEUES)).all(|strand| after[strand] > before[strand]));
    }
}
