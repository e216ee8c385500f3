use std::collections::BTreeMap;
use std::vec::Vec;

use engine::{Buffer, Instant};
use nvme::wire::{CommandId, NamespaceId, SubmissionQueueEntry};
use pcie::config::{ClassCode, Identity};
use pcie::switch::{Ascent, Interposer, Surroundings, Switch, SwitchConfig};
use pcie::wire::{Bdf, Packet, Tag};
use proptest::prelude::{ProptestConfig, any, prop, proptest};

use crate::tests::Link;
use crate::{Lookahead, Refusals};

const ROOT: Bdf = Bdf::new(0, 0, 0);
const DEVICE: Bdf = Bdf::new(3, 0, 0);
const BAR: u64 = 0xc000_0000;
/// The queues: admin, and I/O queue 1.
const ADMIN: [u64; 2] = [0x4000_0000, 0x4000_1000];
const IO: [u64; 2] = [0x4000_2000, 0x4000_3000];
const INTERRUPT: (u64, u32) = (0xfee0_1000, 0x55);
const DATA: u64 = 0x5000_0000;

fn switch() -> Switch {
    let identity = Identity {
        vendor: 1,
        device: 1,
        revision: 0,
        class: ClassCode::PCI_BRIDGE,
        subsystem_vendor: 0,
        subsystem: 0,
    };
    let link = pcie::config::Link::default();
    Switch::new(&SwitchConfig {
        upstream: identity,
        downstream: identity,
        ports: 1,
        link,
        surprise: true,
        serial_number: 1,
    })
}

/// A host with its memory, the rule, and a device that the test controls.
struct World {
    lookahead: Lookahead,
    switch: Switch,
    link: [Link; 1],
    memory: BTreeMap<u64, u8>,
    now: Instant,
    tag: u16,
    tails: [u32; 2],
    ends: [u32; 2],
}

impl World {
    /// A controller with its admin queues of 32 entries, and one MSI-X vector.
    fn enabled() -> Self {
        let mut lookahead = Lookahead::new(1);
        lookahead.set_strict(0);
        let mut world = Self {
            lookahead,
            switch: switch(),
            link: [Link::default()],
            memory: BTreeMap::new(),
            now: Instant::ZERO,
            tag: 0,
            tails: [0; 2],
            ends: [0; 2],
        };
        world.lookahead.on_link(0, &Link::default());
        world.ask(Packet::config_read(ROOT, Tag::new(0), DEVICE, 0x08, 4), 0x0108_0200);
        // Capabilities: MSI-X at 40h, with the table at 2000h, then PCI Express at 60h.
        for (at, value) in [(0x34, 0x40), (0x40, 0x6011), (0x44, 0x2000), (0x60, 0x10)] {
            world.ask(Packet::config_read(ROOT, Tag::new(0), DEVICE, at, 4), value);
        }
        world.configure(0x10, 0xc000_0004);
        world.configure(0x04, 6);
        let capabilities = Packet::memory_read(ROOT, Tag::new(0), BAR + 4, 4);
        world.ask(capabilities, 0);
        for (index, value) in [(0, 0xfee0_1000), (1, 0), (2, INTERRUPT.1), (3, 0)] {
            world.register(0x2000 + index * 4, value);
        }
        world.enable();
        world
    }

    fn enable(&mut self) {
        self.register(0x24, 0x1f_001f);
        for (at, base) in [(0x28, ADMIN[0]), (0x30, ADMIN[1])] {
            self.register(at, u32::try_from(base).unwrap());
        }
        self.register(0x14, 0x46_0001);
        (self.tails, self.ends) = ([0; 2], [0; 2]);
    }

    fn with_queue() -> Self {
        let mut world = Self::enabled();
        for (opcode, base, cdw11) in [(5, IO[1], 1), (1, IO[0], 1 | 1 << 16)] {
            let entry = SubmissionQueueEntry { cdw10: 1 | 15 << 16, cdw11, ..command(opcode, 9, [base, 0]) };
            world.give(0, &entry);
            assert!(world.complete(0, 9));
        }
        // Namespace 1 has blocks of 512 bytes.
        let entry = SubmissionQueueEntry { namespace: NamespaceId(1), ..command(6, 10, [DATA, 0]) };
        world.give(0, &entry);
        let mut data = std::vec![0; 4096];
        data[130] = 9;
        assert!(world.write(DATA, &data) && world.complete(0, 10));
        world
    }

    fn down(&mut self, mut packet: Packet) {
        let Self { lookahead, switch, link, now, .. } = self;
        let mut around = Surroundings { now: *now, switch, links: link, is_clear: true };
        lookahead.on_down(&mut around, 0, &mut packet);
    }
    fn up(&mut self, packet: &Packet) -> bool {
        self.lookahead.on_up(self.now, 0, packet, &mut self.link[0]) == Ascent::On
    }
    fn ask(&mut self, question: Packet, value: u32) {
        let header = question.header;
        self.down(question);
        let data = Buffer::copy_from_slice(&value.to_le_bytes());
        self.up(&Packet::completion_with_data(DEVICE, &header, 0, data));
    }
    fn configure(&mut self, at: u16, value: u32) {
        let data = Buffer::copy_from_slice(&value.to_le_bytes());
        self.down(Packet::config_write(ROOT, Tag::new(0), DEVICE, at, data));
    }
    fn register(&mut self, at: u64, value: u32) {
        self.down(Packet::memory_write(ROOT, BAR + at, Buffer::copy_from_slice(&value.to_le_bytes())));
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        self.memory.extend((address..).zip(bytes.iter().copied()));
    }
    fn put_quads(&mut self, address: u64, quads: &[u64]) {
        let bytes: Vec<u8> = quads.iter().flat_map(|quad| quad.to_le_bytes()).collect();
        self.put(address, &bytes);
    }
    /// The device reads. Returns whether it may; the answer passes, too.
    fn read(&mut self, address: u64, length: u32) -> bool {
        self.tag = (self.tag + 1) % 256;
        let packet = Packet::memory_read(DEVICE, Tag::new(self.tag), address, length);
        let passes = self.up(&packet);
        if passes {
            let at = |offset| self.memory.get(&(address + u64::from(offset))).copied().unwrap_or(0);
            let data: Vec<u8> = (0..length).map(at).collect();
            let data = Buffer::copy_from_slice(&data);
            self.down(Packet::completion_with_data(ROOT, &packet.header, 0, data));
        }
        passes
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        self.up(&Packet::memory_write(DEVICE, address, Buffer::copy_from_slice(bytes)))
    }

    /// The host writes an entry and rings.
    fn submit(&mut self, queue: usize, entry: &SubmissionQueueEntry) -> u64 {
        let (base, entries) = [(ADMIN[0], 32), (IO[0], 16)][queue];
        let address = base + u64::from(self.tails[queue]) * 64;
        self.put(address, &entry.emit());
        self.tails[queue] = (self.tails[queue] + 1) % entries;
        self.register(0x1000 + queue as u64 * 8, self.tails[queue]);
        address
    }
    /// The host submits an entry, and the device reads it.
    fn give(&mut self, queue: usize, entry: &SubmissionQueueEntry) {
        let address = self.submit(queue, entry);
        assert!(self.read(address, 64), "the entry was rung");
    }
    /// The device completes a command with success, and the host takes the completion.
    fn complete(&mut self, queue: usize, id: u16) -> bool {
        let (base, entries) = [(ADMIN[1], 32), (IO[1], 16)][queue];
        let address = base + u64::from(self.ends[queue]) * 16;
        let passes = self.write(address, &completion(queue, id, self.tails[queue]));
        if passes {
            self.ends[queue] = (self.ends[queue] + 1) % entries;
            self.register(0x1004 + queue as u64 * 8, self.ends[queue]);
        }
        passes
    }
    fn refused(&self) -> (u64, u64) {
        let Refusals { reads, writes } = self.lookahead.refusals(0).unwrap();
        (reads, writes)
    }
}

fn command(opcode: u8, id: u16, data_pointer: [u64; 2]) -> SubmissionQueueEntry {
    SubmissionQueueEntry { opcode, command_id: CommandId(id), data_pointer, ..Default::default() }
}
/// Moves blocks of namespace 1.
fn io(opcode: u8, id: u16, blocks: u32, data_pointer: [u64; 2]) -> SubmissionQueueEntry {
    SubmissionQueueEntry { namespace: NamespaceId(1), cdw12: blocks - 1, ..command(opcode, id, data_pointer) }
}
fn completion(queue: usize, id: u16, head: u32) -> Vec<u8> {
    let mut entry = std::vec![0; 16];
    entry[8..10].copy_from_slice(&head.to_le_bytes()[..2]);
    entry[10..12].copy_from_slice(&queue.to_le_bytes()[..2]);
    entry[12..14].copy_from_slice(&id.to_le_bytes());
    entry
}

#[test]
fn a_read_reaches_its_buffer_from_its_entry_to_its_completion() {
    let mut world = World::with_queue();
    assert_eq!(world.refused(), (0, 0));
    assert!(!world.read(IO[0], 64), "not rung");
    let address = world.submit(1, &io(2, 7, 1, [DATA, 0]));
    assert!(!world.write(DATA, &[1; 512]), "the device has not read the entry");
    assert!(world.read(address, 64) && !world.read(address + 64, 64) && !world.read(address + 32, 64));
    assert!(world.write(DATA, &[1; 256]) && world.write(DATA + 256, &[1; 256]));
    assert!(!world.write(DATA + 512, &[1; 4]) && !world.write(DATA + 508, &[1; 8]));
    assert!(!world.read(DATA, 4), "a buffer for the device to write");
    assert!(!world.write(address, &[0; 64]), "an entry");
    assert!(world.complete(1, 7));
    assert!(!world.write(DATA, &[2; 512]), "late");
    assert!(!world.read(address, 64), "the host may write another entry there");
    assert_eq!(world.refused(), (5, 5));
}

#[test]
fn a_write_reads_its_data_and_lists_and_writes_nothing() {
    let mut world = World::with_queue();
    let pages = [DATA + 0x1_0000, DATA + 0x3_0000, DATA + 0x2_0000];
    world.put_quads(DATA + 0x100, &pages);
    world.give(1, &io(1, 3, 32, [DATA + 0x8000, DATA + 0x100]));
    assert!(world.read(DATA + 0x8000, 4096) && !world.read(pages[0], 64));
    // The device reads the list in two parts, and uses the first before it requests the second.
    assert!(world.read(DATA + 0x100, 8) && world.read(pages[0], 4096) && !world.read(pages[1], 4));
    assert!(world.read(DATA + 0x108, 16) && world.read(pages[1], 4096) && world.read(pages[2], 4096));
    for address in [DATA + 0x8000, DATA + 0x100, pages[0], pages[2]] {
        assert!(!world.write(address, &[0; 8]), "{address:#x}");
    }
    assert!(world.complete(1, 3) && !world.read(pages[1], 64));
}

#[test]
fn an_sgl_and_metadata_are_followed() {
    let mut world = World::with_queue();
    let block = |address: u64, length: u64| [address, length];
    world.put_quads(DATA, &[block(DATA + 0x1004, 1000), block(DATA + 0x6000, 4000)].concat());
    let entry = SubmissionQueueEntry { flags: 0x40, ..io(2, 4, 8, [DATA, 32 | 0x30 << 56]) };
    world.give(1, &entry);
    assert!(!world.write(DATA + 0x1004, &[0; 4]), "the list was not read");
    assert!(world.read(DATA, 32));
    assert!(world.write(DATA + 0x1004, &[0; 1000]) && world.write(DATA + 0x6000, &[0; 3096]));
    assert!(!world.write(DATA + 0x6000, &[0; 3100]), "more than the command moves");
    assert!(!world.write(DATA, &[0; 16]), "a list");
}

#[test]
fn a_completion_is_the_next_of_its_queue_and_ends_an_outstanding_command() {
    let mut world = World::with_queue();
    world.give(1, &io(2, 7, 1, [DATA, 0]));
    world.give(1, &io(2, 8, 1, [DATA + 0x1000, 0]));
    let next = ADMIN[1] + u64::from(world.ends[0]) * 16;
    assert!(!world.write(next, &completion(1, 7, 2)), "of another queue");
    assert!(!world.write(IO[1] + 16, &completion(1, 7, 2)), "not the next");
    assert!(!world.write(IO[1], &completion(1, 9, 2)), "no such command");
    assert!(!world.write(IO[1], &completion(0, 7, 2)), "of the admin queue");
    assert!(!world.write(IO[1], &completion(1, 7, 2)[..8]), "half an entry");
    let twice = [completion(1, 7, 2), completion(1, 7, 2)].concat();
    assert!(!world.write(IO[1], &twice), "one command twice");
    let both = [completion(1, 7, 2), completion(1, 8, 2)].concat();
    assert!(world.write(IO[1], &both));
    assert!(!world.write(DATA, &[0; 4]) && !world.write(DATA + 0x1000, &[0; 4]));
    assert_eq!(world.refused(), (0, 8));
}

#[test]
fn a_completion_queue_does_not_overflow() {
    let mut world = World::with_queue();
    for id in 0..15 {
        world.give(1, &io(0, id, 1, [0, 0]));
    }
    let head = world.tails[1];
    for id in 0..15 {
        assert!(world.write(IO[1] + u64::from(id) * 16, &completion(1, id, head)));
    }
    world.give(1, &io(0, 20, 1, [0, 0]));
    assert!(
        !world.write(IO[1] + 15 * 16, &completion(1, 20, world.tails[1])),
        "the host has taken no completion"
    );
    world.register(0x100c, 3);
    assert!(world.write(IO[1] + 15 * 16, &completion(1, 20, world.tails[1])));
}

#[test]
fn interrupts_go_where_the_host_has_programmed_them() {
    let mut world = World::enabled();
    let (address, data) = INTERRUPT;
    assert!(world.write(address, &data.to_le_bytes()));
    assert!(!world.write(address, &(data + 1).to_le_bytes()));
    assert!(
        !world.write(address + 4, &data.to_le_bytes()) && !world.write(address, &[0x55, 0, 0, 0, 0, 0, 0, 0])
    );
    // The host moves the interrupt. The message before may be on its way.
    world.register(0x200c, 1);
    world.register(0x2008, 0x66);
    world.register(0x200c, 0);
    assert!(world.write(address, &0x66_u32.to_le_bytes()) && world.write(address, &data.to_le_bytes()));
}

#[test]
fn a_disabled_controller_goes_on_until_it_says_that_it_has_stopped() {
    let mut world = World::with_queue();
    world.give(1, &io(2, 7, 1, [DATA, 0]));
    world.register(0x14, 0x46_0000);
    assert!(world.write(DATA, &[0; 512]), "on its way");
    let status = Packet::memory_read(ROOT, Tag::new(0), BAR + 0x1c, 4);
    world.ask(status.clone(), 1);
    assert!(world.write(DATA, &[0; 512]));
    world.ask(status, 0);
    assert!(!world.write(DATA, &[0; 512]) && !world.complete(1, 7) && !world.read(IO[0], 64));
    // The next controller begins with an empty state.
    world.enable();
    assert!(!world.write(DATA, &[0; 512]));
    world.give(0, &command(6, 1, [DATA, 0]));
    assert!(world.write(DATA, &[0; 4096]));
}

#[test]
fn a_controller_that_never_stops_loses_its_memory() {
    let mut world = World::with_queue();
    world.give(1, &io(2, 7, 1, [DATA, 0]));
    world.register(0x14, 0x46_0000);
    assert!(world.write(DATA, &[0; 512]));
    world.now = world.now + super::CLOSING;
    assert!(!world.write(DATA, &[0; 512]));
}

#[test]
fn resets_and_bus_master_enable_take_everything() {
    for reset in 0..3 {
        let mut world = World::with_queue();
        world.give(1, &io(2, 7, 1, [DATA, 0]));
        match reset {
            0 => world.configure(0x68, 0x8000),
            1 => world.lookahead.on_reset(0),
            _ => world.configure(0x04, 2),
        }
        assert!(!world.write(DATA, &[0; 512]) && !world.complete(1, 7), "{reset}");
        assert!(!world.write(INTERRUPT.0, &INTERRUPT.1.to_le_bytes()), "{reset}");
    }
}

#[test]
fn other_functions_and_operations_are_refused() {
    let mut world = World::with_queue();
    let other = Bdf::new(3, 0, 1);
    let write = Packet::memory_write(other, DATA, Buffer::zeroed(4));
    assert!(!world.up(&write), "its class was not read");
    // A function of another class reaches all mapped memory, once it is a bus master.
    world.ask(Packet::config_read(ROOT, Tag::new(0), other, 0x08, 4), 0x0200_0000);
    assert!(!world.up(&write));
    let enable = Buffer::copy_from_slice(&[4, 0, 0, 0]);
    world.down(Packet::config_write(ROOT, Tag::new(0), other, 4, enable));
    assert!(world.up(&write));
}

#[test]
fn a_tag_is_in_use_until_its_answer() {
    let mut world = World::with_queue();
    world.submit(1, &io(1, 7, 1, [DATA, 0]));
    let read = Packet::memory_read(DEVICE, Tag::new(200), IO[0], 64);
    assert!(world.up(&read) && !world.up(&read));
    let entry = Buffer::copy_from_slice(&io(1, 7, 1, [DATA, 0]).emit());
    world.down(Packet::completion_with_data(ROOT, &read.header, 0, entry));
    assert!(world.up(&read) && world.read(DATA, 512));
}

#[test]
fn admin_commands_reach_the_memory_that_they_name() {
    let mut world = World::enabled();
    // Get Log Page of 64 bytes, Set Features with a time stamp, Security Receive of 100 bytes.
    world.give(0, &SubmissionQueueEntry { cdw10: 2 | 15 << 16, ..command(2, 1, [DATA, 0]) });
    assert!(world.write(DATA, &[0; 64]) && !world.write(DATA + 64, &[0; 4]));
    world.give(0, &SubmissionQueueEntry { cdw10: 0x0e, ..command(9, 2, [DATA + 0x1000, 0]) });
    assert!(world.read(DATA + 0x1000, 8) && !world.read(DATA + 0x1008, 4));
    world.give(0, &SubmissionQueueEntry { cdw11: 100, ..command(0x82, 3, [DATA + 0x2000, 0]) });
    assert!(world.write(DATA + 0x2000, &[0; 100]) && !world.write(DATA + 0x2064, &[0; 4]));
    // An event request names no memory. A vendor's command reaches its pages in its direction.
    world.give(0, &command(0x0c, 4, [DATA + 0x3000, 0]));
    assert!(!world.write(DATA + 0x3000, &[0; 4]));
    world.give(0, &command(0xc2, 5, [DATA + 0x4000, DATA + 0x6000]));
    assert!(world.write(DATA + 0x6000, &[0; 4096]) && !world.write(DATA + 0x5000, &[0; 4]));
}

#[test]
fn the_host_memory_buffer_is_reached_until_it_is_disabled() {
    let mut world = World::enabled();
    world.put_quads(DATA, &[DATA + 0x10_0000, 2, DATA + 0x20_0000, 1]);
    let list = u32::try_from(DATA).unwrap();
    let set = |id, enable| SubmissionQueueEntry {
        cdw10: 0x0d,
        cdw11: enable,
        cdw12: 3,
        cdw13: list,
        cdw15: 2,
        ..command(9, id, [0, 0])
    };
    world.give(0, &set(1, 1));
    assert!(!world.write(DATA + 0x10_0000, &[0; 4]) && world.read(DATA, 32));
    assert!(world.complete(0, 1));
    assert!(world.write(DATA + 0x10_1000, &[0; 4096]) && world.read(DATA + 0x20_0000, 4096));
    assert!(!world.write(DATA + 0x10_2000, &[0; 4]) && !world.write(DATA, &[0; 16]));
    world.give(0, &set(2, 0));
    assert!(world.complete(0, 2) && !world.write(DATA + 0x10_1000, &[0; 4]));
}

#[test]
fn shadow_doorbells_ring_when_the_device_reads_them() {
    let mut world = World::with_queue();
    let [doorbells, events] = [DATA + 0x1_0000, DATA + 0x1_1000];
    world.give(0, &command(0x7c, 1, [doorbells, events]));
    assert!(world.complete(0, 1));
    assert!(world.write(events + 8, &[0; 4]) && !world.write(doorbells + 8, &[0; 4]));
    world.put(IO[0], &io(2, 7, 1, [DATA, 0]).emit());
    world.put(doorbells + 8, &[1, 0, 0, 0]);
    assert!(!world.read(IO[0], 64), "the device cannot know of the entry");
    assert!(world.read(doorbells + 8, 4) && world.read(IO[0], 64) && world.write(DATA, &[0; 512]));
}

#[test]
fn shadow_doorbells_may_end_with_all_addresses() {
    let place = u64::MAX - 4095;
    let mut world = World::with_queue();
    world.give(1, &io(1, 7, 1, [place, 0]));
    world.give(0, &command(0x7c, 1, [place, place]));
    assert!(world.read(place, 512) && !world.read(place + 512, 512));
    assert!(!world.read(u64::MAX - 511, 512) && !world.write(u64::MAX - 3, &[0; 4]));
}

#[test]
fn queues_need_not_be_contiguous() {
    let mut world = World::enabled();
    let pages = [DATA + 0x9000, DATA + 0x5000, DATA + 0x7000];
    world.put_quads(DATA, &pages);
    let create = |opcode, id, base, size: u32, cdw11| SubmissionQueueEntry {
        cdw10: 1 | size << 16,
        cdw11,
        ..command(opcode, id, [base, 0])
    };
    // 256 completions in one page, and 128 entries in two.
    world.give(0, &create(5, 1, DATA + 16, 255, 0));
    assert!(world.read(DATA + 16, 8) && world.complete(0, 1));
    world.give(0, &create(1, 2, DATA, 127, 1 << 16));
    assert!(world.read(DATA, 16) && world.complete(0, 2));
    world.put(pages[1], &command(2, 7, [DATA + 0x1_0000, 0]).emit());
    world.register(0x1008, 65);
    assert!(world.read(pages[0], 4096) && world.read(pages[1], 64) && !world.read(pages[1] + 64, 64));
    assert!(world.write(pages[2], &completion(1, 7, 65)));
}

#[test]
fn entries_in_the_controllers_memory_count_when_they_are_rung() {
    let mut world = World::enabled();
    let inside = BAR + 0x8000;
    for (opcode, base, cdw11) in [(5, IO[1], 1), (1, inside, 1 | 1 << 16)] {
        let entry = SubmissionQueueEntry { cdw10: 1 | 15 << 16, cdw11, ..command(opcode, 9, [base, 0]) };
        world.give(0, &entry);
        assert!(world.complete(0, 9));
    }
    let entry = command(2, 7, [DATA, 0]).emit();
    for (at, part) in (0_u64..).zip(entry.chunks(8)) {
        world.down(Packet::memory_write(ROOT, inside + at * 8, Buffer::copy_from_slice(part)));
    }
    assert!(!world.write(DATA, &[0; 512]));
    world.register(0x1008, 1);
    assert!(world.write(DATA, &[0; 512]) && world.write(IO[1], &completion(1, 7, 1)));
}

#[test]
fn an_entry_that_changes_counts_as_the_device_was_given_it() {
    let mut world = World::with_queue();
    let address = world.submit(1, &io(2, 7, 1, [DATA, 0]));
    world.put(address, &io(2, 7, 1, [DATA + 0x1000, 0]).emit());
    assert!(world.read(address, 64));
    assert!(world.write(DATA + 0x1000, &[0; 512]) && !world.write(DATA, &[0; 512]));
    // Parts of an entry arrive in any order.
    let address = world.submit(1, &io(2, 8, 1, [DATA + 0x2000, 0]));
    assert!(world.read(address + 32, 32) && !world.write(DATA + 0x2000, &[0; 512]));
    assert!(world.read(address, 32) && world.write(DATA + 0x2000, &[0; 512]));
}

#[test]
fn a_list_that_names_itself_ends() {
    let mut world = World::with_queue();
    let list = DATA + 0xff8;
    world.put_quads(list, &[DATA]);
    world.put_quads(DATA, &[DATA; 512]);
    world.give(1, &io(1, 7, 0x8000, [DATA + 0x1000, list]));
    for _ in 0..1000 {
        world.read(list, 8);
        world.read(DATA, 4096);
    }
    assert!(world.complete(1, 7) && !world.read(DATA, 8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    /// Random buffers of random commands: the device reaches exactly these.
    #[test]
    fn only_named_memory_is_reached(
        commands in prop::collection::vec((0_u64..64, 1_u32..8, any::<bool>()), 1..12),
        probes in prop::collection::vec((0_u64..66, 0_u64..1024, 1_u32..64, any::<bool>()), 200),
        ended in any::<u16>(),
    ) {
        let mut world = World::with_queue();
        let mut named = Vec::new();
        for (id, (page, blocks, to_host)) in (0_u16..).zip(&commands) {
            let address = DATA + page * 4096;
            world.give(1, &io(if *to_host { 2 } else { 1 }, id, *blocks, [address, 0]));
            named.push((id, address, address + u64::from(*blocks) * 512, *to_host));
        }
        let over = |id: u16| ended >> id & 1 == 1;
        for (id, ..) in named.iter().filter(|(id, ..)| over(*id)) {
            assert!(world.complete(1, *id));
        }
        for (page, dword, dwords, write) in probes {
            let start = DATA + page * 4096 + dword * 4;
            let length = u64::from(dwords).min(1024 - dword) * 4;
            let is_named = |at: u64| named.iter().any(|(id, from, to, to_host)| {
                !over(*id) && *to_host == write && *from <= at && at < *to
            });
            let expected = (start..start + length).step_by(4).all(is_named);
            let length = usize::try_from(length).unwrap();
            let reached = if write {
                world.write(start, &std::vec![0; length])
            } else {
                world.read(start, u32::try_from(length).unwrap())
            };
            assert_eq!(reached, expected, "{start:#x} +{length}, write {write}, {named:x?}");
        }
    }
}

#[test]
fn a_refusal_is_reported_and_the_next_ones_later() {
    let mut world = World::with_queue();
    assert!(!world.write(DATA, &[0; 64]) && !world.read(DATA, 64));
    let (port, refusal) = world.lookahead.poll_refusal().unwrap();
    assert_eq!((port, refusal.function, refusal.write, refusal.untold), (0, DEVICE, true, 0));
    assert!(world.lookahead.poll_refusal().is_none());
    world.now = world.now + super::REPORT_EVERY;
    assert!(!world.read(DATA, 64));
    let (_, refusal) = world.lookahead.poll_refusal().unwrap();
    let text = "function 03:00.0 was refused a read of 64 B at 0x50000000, which the host has not named \
                to it (and 1 other requests since the last report)";
    assert_eq!(std::format!("{refusal}"), text);
}
