//! A controller's queues, its memory and data in every form, packet by packet.

use std::vec::Vec;

use engine::{Buffer, Instant};
use nvme::wire::{
    AdminOpcode, CommandId, CompletionQueueEntry, IoOpcode, NamespaceId, QueueId, SubmissionQueueEntry,
};
use pcie::wire::{Bdf, Packet, Tag};

use super::{Knowledge, Ring};
use crate::{Analyser, Command, Direction, Seen, Step};

const HOST: Bdf = Bdf::new(0, 0, 0);
const DEVICE: Bdf = Bdf::new(1, 0, 0);
const BAR: u64 = 0xfeb0_0000;
const SUBMISSIONS: u64 = 0x10_0000;
const COMPLETIONS: u64 = 0x11_0000;
/// The controller's memory, where a queue may be.
const BUFFER: u64 = 0xfec0_0000;
/// PRP or SGL for Data Transfer: an SGL, and a contiguous buffer for metadata.
const SGL: u8 = 0x40;

/// A capture that begins behind the set-up of a controller with one I/O queue.
struct Bench {
    analyser: Analyser,
    at: u64,
}

impl Bench {
    fn new(submissions: u64) -> Self {
        let ring = |base| Ring { id: 1, base, entries: 64 };
        let mut analyser = Analyser::new();
        analyser.learn(&Knowledge {
            function: DEVICE,
            bar: BAR,
            stride: 4,
            submissions: [ring(submissions)].into(),
            completions: [ring(COMPLETIONS)].into(),
            blocks: [(1, 4096)].into(),
        });
        Self { analyser, at: 0 }
    }

    fn see(&mut self, direction: Direction, packet: &Packet) {
        self.at += 10;
        let (at, payload) = (Instant::from_nanos(self.at), packet.payload.as_ref());
        self.analyser.see(&Seen { number: 0, at, direction, header: &packet.header, payload });
    }

    fn down(&mut self, address: u64, bytes: &[u8]) {
        self.see(Direction::Down, &Packet::memory_write(HOST, address, Buffer::copy_from_slice(bytes)));
    }

    fn up(&mut self, address: u64, bytes: &[u8]) {
        self.see(Direction::Up, &Packet::memory_write(DEVICE, address, Buffer::copy_from_slice(bytes)));
    }

    /// The device reads `bytes` at `address`.
    fn fetch(&mut self, address: u64, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap();
        let request = Packet::memory_read(DEVICE, Tag::new(3), address, length);
        self.see(Direction::Up, &request);
        let data = Buffer::copy_from_slice(bytes);
        self.see(Direction::Down, &Packet::completion_with_data(HOST, &request.header, 0, data));
    }

    fn complete(&mut self, id: u16) {
        let entry = CompletionQueueEntry {
            command_id: CommandId(id),
            submission_queue: QueueId(1),
            ..CompletionQueueEntry::default()
        };
        self.up(COMPLETIONS, &entry.emit());
        self.down(BAR + 0x100c, &[1, 0, 0, 0]);
    }

    fn commands(mut self) -> Vec<Command> {
        self.analyser.finish();
        let statistics = self.analyser.statistics();
        assert_eq!(statistics.known, statistics.of_devices, "each packet of the device has its place");
        core::iter::from_fn(|| self.analyser.poll_command()).collect()
    }
}

fn read(id: u16, flags: u8, data_pointer: [u64; 2]) -> [u8; 64] {
    let entry = SubmissionQueueEntry {
        opcode: IoOpcode::Read.into(),
        flags,
        command_id: CommandId(id),
        namespace: NamespaceId(1),
        data_pointer,
        ..SubmissionQueueEntry::EMPTY
    };
    entry.emit()
}

/// The halves of an SGL descriptor.
fn descriptor(address: u64, length: u32, kind: u8) -> [u64; 2] {
    [address, u64::from(length) | u64::from(kind) << 60]
}

fn steps(command: &Command) -> Vec<(Step, u32)> {
    command.hops.iter().map(|hop| (hop.step, hop.packets)).collect()
}

#[test]
fn sgls_distinguish_commands_whose_blocks_share_a_page() {
    let mut bench = Bench::new(SUBMISSIONS);
    bench.down(BAR + 0x1008, &[2, 0, 0, 0]);
    let first = read(1, SGL, descriptor(0x5000, 512, 0));
    bench.fetch(SUBMISSIONS, &[first, read(2, SGL, descriptor(0x5200, 1024, 0))].concat());
    bench.up(0x5200, &[0; 512]);
    bench.up(0x5000, &[0; 512]);
    bench.up(0x5400, &[0; 512]);
    bench.complete(2);
    bench.complete(1);
    let commands = bench.commands();
    let bytes: Vec<_> = commands.iter().map(|one| (one.id, one.bytes)).collect();
    assert_eq!(bytes, [(Some(2), 1024), (Some(1), 512)]);
}

#[test]
fn segments_of_descriptors_are_followed_from_one_to_the_next() {
    let mut bench = Bench::new(SUBMISSIONS);
    bench.down(BAR + 0x1008, &[1, 0, 0, 0]);
    bench.fetch(SUBMISSIONS, &read(1, SGL, descriptor(0x9000, 32, 2)));
    let halves =
        |of: [[u64; 2]; 2]| of.concat().iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<_>>();
    bench.fetch(0x9000, &halves([descriptor(0x20_0000, 512, 0), descriptor(0xa000, 32, 3)]));
    bench.fetch(0xa000, &halves([descriptor(0x30_0010, 512, 0), descriptor(0x40_0000, 3072, 0)]));
    for (address, length) in [(0x20_0000, 512), (0x30_0010, 512), (0x40_0000, 3072)] {
        bench.up(address, &std::vec![0; length]);
    }
    bench.complete(1);
    let commands = bench.commands();
    assert_eq!((commands.len(), commands[0].bytes), (1, 4096));
    use Step::{Completion, Data, Doorbell, Entry, Fetch, HeadDoorbell, List, Listed};
    let expected = [
        (Doorbell, 1),
        (Fetch, 1),
        (Entry, 1),
        (List, 2),
        (Listed, 2),
        (Data, 3),
        (Completion, 1),
        (HeadDoorbell, 1),
    ];
    assert_eq!(steps(&commands[0]), expected);
}

#[test]
fn entries_in_the_controllers_memory_need_no_fetch_and_may_come_in_pieces() {
    let mut bench = Bench::new(BUFFER);
    for (id, slot) in [(1, 0), (2, 64)] {
        let entry = read(id, 0, [u64::from(id) << 12, 0]);
        // Processors write as much at once as they like to.
        for (at, piece) in (0_u64..).step_by(8).zip(entry.chunks(8)) {
            bench.down(BUFFER + slot + at, piece);
        }
    }
    bench.down(BAR + 0x1008, &[2, 0, 0, 0]);
    for id in [1, 2] {
        bench.up(id << 12, &[0; 4096]);
        bench.complete(u16::try_from(id).unwrap());
    }
    let commands = bench.commands();
    assert_eq!(commands.len(), 2);
    for command in commands {
        use Step::{Completion, Data, Doorbell, Entry, HeadDoorbell};
        let expected = [(Entry, 1), (Doorbell, 1), (Data, 1), (Completion, 1), (HeadDoorbell, 1)];
        assert_eq!((steps(&command), command.bytes), (expected.into(), 4096));
    }
}

#[test]
fn an_admin_command_changes_the_knowledge_only_if_it_changes_a_queue() {
    let mut bench = Bench::new(SUBMISSIONS);
    let admin = Ring { id: 0, base: 0x12_0000, entries: 64 };
    bench.analyser.learn(&Knowledge {
        function: DEVICE,
        bar: BAR,
        stride: 4,
        submissions: [admin].into(),
        completions: Vec::new(),
        blocks: Vec::new(),
    });
    let mut changes_of = |opcode: AdminOpcode| {
        let entry = SubmissionQueueEntry {
            opcode: opcode.into(),
            command_id: CommandId(1),
            data_pointer: [SUBMISSIONS, 0],
            cdw10: 63 << 16 | 1,
            ..SubmissionQueueEntry::EMPTY
        };
        let before = bench.analyser.changes();
        bench.fetch(admin.base, &entry.emit());
        bench.analyser.changes() - before
    };
    for (opcode, changes) in [
        (AdminOpcode::GetLogPage, 0),
        (AdminOpcode::CreateIoSubmissionQueue, 1),
        (AdminOpcode::CreateIoSubmissionQueue, 0),
        (AdminOpcode::GetLogPage, 0),
        (AdminOpcode::DeleteIoSubmissionQueue, 1),
        (AdminOpcode::DeleteIoSubmissionQueue, 0),
    ] {
        assert_eq!(changes_of(opcode), changes, "{opcode}");
    }
}

#[test]
fn a_queue_may_end_where_the_addresses_do() {
    let base = u64::MAX - 63;
    let mut bench = Bench::new(base);
    bench.down(base, &read(1, 0, [0x1000, 0]));
    bench.up(0x1000, &[0; 512]);
    bench.complete(1);
    assert_eq!(bench.commands().len(), 1);
}
