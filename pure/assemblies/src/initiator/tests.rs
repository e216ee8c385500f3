//! An initiator against target connections that the test plays, over streams that are cut anywhere
//! and connections that break.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use engine::{Buffer, Engine, Instant, Nanos, Pool, Rng, next_wake};
use nvme::host::{Command, Data};
use nvme::wire::{AdminOpcode, CompletionQueueEntry, IoOpcode, NamespaceId, SubmissionQueueEntry};
use nvme_fabrics::host;
use nvme_fabrics::host::multipath::{self, Completed, PathIndex, Request};
use nvme_fabrics::transport::ControllerEnd;
use nvme_fabrics::wire::{ConnectData, FABRICS_OPCODE, FabricsCommand, HostId, Nqn, QueueId, property};
use nvme_tcp::SharedPool;
use nvme_tcp::controller::{self, Queue, Slot};
use nvme_tcp::host as tcp;

use super::{Config, ConnectionId, Initiator, Input, Output, end};

/// Bytes of a block of the namespace.
const BLOCK: u32 = 512;

fn pool() -> SharedPool {
    Rc::new(RefCell::new(Pool::default()))
}

/// The controller's end of a connection, and its commands under way.
struct Line {
    connection: controller::Connection,
    /// Entries of commands whose data are on their way.
    pulling: BTreeMap<Slot, SubmissionQueueEntry>,
}

struct World {
    now: Instant,
    initiator: Initiator,
    lines: BTreeMap<ConnectionId, Line>,
    /// CC of each path's controller.
    configuration: [u32; 2],
    reachable: [bool; 2],
    /// Controllers enable header digests on I/O queues.
    io_digests: bool,
    errors: Vec<tcp::Closed>,
    blocks: BTreeMap<u64, Vec<u8>>,
    done: BTreeMap<u64, Completed>,
    rng: Rng,
}

impl World {
    fn new(seed: u64, digests: bool) -> Self {
        Self::with_admin_queue(seed, digests, 32)
    }

    fn with_admin_queue(seed: u64, digests: bool, admin_queue_size: u16) -> Self {
        let name = |text: &str| text.parse::<Nqn>().unwrap();
        let (subsystem, own) = (name("nqn.2014-08.org.example:disk"), name("nqn.2014-08.org.example:host"));
        let association = host::Config {
            io_queues: 2,
            queue_size: 16,
            admin_queue_size,
            ..host::Config::new(subsystem, own, HostId([1; 16]))
        };
        let digest = tcp::DigestUse::preferred_if(digests);
        let connection =
            tcp::Config { header_digest: digest, data_digest: digest, ..tcp::Config::new(pool()) };
        let config = Config { multipath: multipath::Config::default(), connection: connection.into() };
        let mut world = Self {
            now: Instant::from_nanos(1),
            initiator: Initiator::new(config, Vec::from([association.clone(), association])),
            lines: BTreeMap::new(),
            configuration: [0; 2],
            reachable: [true; 2],
            io_digests: true,
            errors: Vec::new(),
            blocks: BTreeMap::new(),
            done: BTreeMap::new(),
            rng: Rng::from_seed(seed),
        };
        world.initiator.start(world.now);
        world.drain();
        world
    }

    /// Waits until every path is live.
    fn connect(&mut self) {
        self.run(|world| world.initiator.multipath().paths().all(|path| path.live));
    }

    /// Sends an admin command: Identify of the controller, with cookie 7.
    fn identify_controller(&mut self) {
        let entry = SubmissionQueueEntry {
            opcode: AdminOpcode::Identify.into(),
            cdw10: 1,
            ..SubmissionQueueEntry::default()
        };
        let command = Command { cookie: 7, entry, data: Data::Read(4096) };
        self.initiator.submit_admin(self.now, command).unwrap();
    }

    fn drain(&mut self) {
        while let Some(output) = self.initiator.poll_output() {
            match output {
                Output::Dial(id) if self.reachable[usize::from(id.path.0)] => {
                    let config = controller::Config {
                        ready_to_transfer_bytes_max: 4096,
                        header_digest: id.queue.is_admin() || self.io_digests,
                        ..controller::Config::new(pool())
                    };
                    let connection = controller::Connection::new(self.now, config);
                    self.lines.insert(id, Line { connection, pulling: BTreeMap::new() });
                    self.initiator.handle_input(self.now, Input::Connected(id));
                }
                Output::Dial(id) => self.initiator.handle_input(self.now, Input::Closed(id)),
                Output::Close { connection, .. } => {
                    self.lines.remove(&connection);
                    if connection.queue.is_admin() {
                        self.configuration[usize::from(connection.path.0)] = 0;
                    }
                }
                Output::Completed(completed) => {
                    let cookie = completed.cookie;
                    assert!(self.done.insert(cookie, completed).is_none(), "{cookie} ended twice");
                }
                Output::ProtocolError(_, why) if self.io_digests && self.errors.is_empty() => panic!("{why}"),
                Output::ProtocolError(_, end::Closed::Tcp(why)) => self.errors.push(why),
                _ => {}
            }
        }
    }

    /// Moves a piece of each stream in each direction, and lets some time pass.
    fn step(&mut self) {
        let ids: Vec<ConnectionId> = self.lines.keys().copied().collect();
        let mut moved = false;
        for id in ids {
            let bytes: Vec<u8> = self
                .initiator
                .outbox(id)
                .map(|outbox| outbox.slices().flatten().copied().collect())
                .unwrap_or_default();
            if let Some(line) = self.lines.get_mut(&id).filter(|_| !bytes.is_empty()) {
                let count = usize::try_from(1 + self.rng.below(bytes.len() as u64)).unwrap();
                self.initiator.sent(id, count);
                let bytes = Buffer::copy_from_slice(&bytes[..count]);
                line.connection.handle_input(self.now, controller::Input::Received(bytes));
                moved = true;
            }
            self.serve(id);
            moved |= self.answer(id);
        }
        if !moved {
            let wake = next_wake(&self.initiator, self.now);
            self.now =
                wake.unwrap_or(self.now + Nanos::from_millis(1)).min(self.now + Nanos::from_millis(50));
            if self.initiator.poll_timeout().is_some_and(|at| at <= self.now) {
                self.initiator.handle_timeout(self.now);
            }
        }
        self.drain();
    }

    /// Passes the controller's bytes to the host, cut anywhere.
    fn answer(&mut self, id: ConnectionId) -> bool {
        let Some(line) = self.lines.get_mut(&id) else { return false };
        let bytes: Vec<u8> = line.connection.outbox().slices().flatten().copied().collect();
        if bytes.is_empty() {
            return false;
        }
        let count = usize::try_from(1 + self.rng.below(bytes.len() as u64)).unwrap();
        line.connection.sent(count);
        let mut rest = &bytes[..count];
        if let Some(place) = self.initiator.landing(id) {
            let landed = place.len().min(rest.len());
            place[..landed].copy_from_slice(&rest[..landed]);
            rest = &rest[landed..];
            self.initiator.handle_input(self.now, Input::Landed { connection: id, count: landed });
        }
        let bytes = Buffer::copy_from_slice(rest);
        self.initiator.handle_input(self.now, Input::Received { connection: id, bytes });
        true
    }

    fn serve(&mut self, id: ConnectionId) {
        while let Some(line) = self.lines.get_mut(&id) {
            match line.connection.poll_output() {
                None => return,
                Some(controller::Output::Initialized(_)) => {}
                Some(controller::Output::Command { slot, entry }) => self.on_command(id, slot, entry),
                Some(controller::Output::HostData { slot, data }) => {
                    let entry = line.pulling.remove(&slot).unwrap();
                    self.on_data(id, slot, entry, &data);
                }
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    fn on_command(&mut self, id: ConnectionId, slot: Slot, entry: SubmissionQueueEntry) {
        let line = self.lines.get_mut(&id).unwrap();
        let blocks = (entry.cdw12 & 0xffff) + 1;
        let pulls = match entry.opcode {
            FABRICS_OPCODE => {
                matches!(FabricsCommand::parse(&entry), Ok(FabricsCommand::Connect(_))).then_some(1024)
            }
            _ if id.queue.is_admin() => None,
            opcode => (IoOpcode::from(opcode) == IoOpcode::Write).then_some(blocks * BLOCK),
        };
        if let Some(length) = pulls {
            match line.connection.pull(slot, length).unwrap() {
                Some(data) => self.on_data(id, slot, entry, &data),
                None => assert!(line.pulling.insert(slot, entry).is_none()),
            }
            return;
        }
        let mut result = CompletionQueueEntry::default();
        let mut pushed = Vec::new();
        if entry.opcode == FABRICS_OPCODE {
            result.dw0 = self.property(id, &entry);
        } else if !id.queue.is_admin() {
            for block in 0..u64::from(blocks) {
                let bytes = self.blocks.get(&(entry.starting_lba() + block)).cloned();
                pushed.extend(bytes.unwrap_or_else(|| std::vec![0; 512]));
            }
        } else {
            match AdminOpcode::from(entry.opcode) {
                AdminOpcode::AsynchronousEventRequest => return,
                AdminOpcode::SetFeatures if entry.cdw10 == 7 => result.dw0 = entry.cdw11,
                AdminOpcode::Identify => pushed = identify(entry.cdw10),
                _ => {}
            }
        }
        let line = self.lines.get_mut(&id).unwrap();
        let length = u32::try_from(pushed.len()).unwrap();
        line.connection.push(slot, 0, length, Buffer::from(pushed)).unwrap();
        line.connection.complete(slot, result);
    }

    fn property(&mut self, id: ConnectionId, entry: &SubmissionQueueEntry) -> u32 {
        let configuration = &mut self.configuration[usize::from(id.path.0)];
        match FabricsCommand::parse(entry).unwrap() {
            FabricsCommand::PropertySet(set) => {
                *configuration = u32::try_from(set.value).unwrap();
                0
            }
            FabricsCommand::PropertyGet(get) => match get.offset {
                property::CAPABILITIES => 0x0f00_03ff,
                property::STATUS if property::SHUTDOWN.is_set(*configuration) => 0b1001,
                property::STATUS => property::ENABLE.of(*configuration),
                property::CONFIGURATION => *configuration,
                _ => property::VERSION_2_0,
            },
            other => panic!("{other:?}"),
        }
    }

    fn on_data(&mut self, id: ConnectionId, slot: Slot, entry: SubmissionQueueEntry, data: &[u8]) {
        let line = self.lines.get_mut(&id).unwrap();
        let mut result = CompletionQueueEntry::default();
        if let Ok(FabricsCommand::Connect(connect)) = FabricsCommand::parse(&entry)
            && entry.opcode == FABRICS_OPCODE
        {
            let parsed = ConnectData::parse(data).unwrap();
            assert!(parsed.subsystem.as_str().ends_with(":disk") && connect.queue == id.queue);
            let size = connect.submission_queue_size + 1;
            line.connection.set_queue(Queue { size, capsule_data_max: 8192, success_flag: true });
            result.dw0 = u32::from(id.path.0) + 1;
        } else {
            for (block, bytes) in (0_u64..).zip(data.chunks(512)) {
                self.blocks.insert(entry.starting_lba() + block, bytes.to_vec());
            }
        }
        line.connection.complete(slot, result);
    }

    fn run(&mut self, met: impl Fn(&Self) -> bool) {
        for _ in 0..2_000_000 {
            if met(self) {
                return;
            }
            self.step();
        }
        panic!("it never came to pass at {}", self.now.as_nanos());
    }

    fn submit(&mut self, cookie: u64, lba: u64, blocks: u32, write: Option<u8>) {
        let opcode = if write.is_some() { IoOpcode::Write } else { IoOpcode::Read };
        let entry = SubmissionQueueEntry {
            opcode: opcode.into(),
            namespace: NamespaceId(1),
            cdw12: blocks - 1,
            ..SubmissionQueueEntry::default()
        };
        let data = match write {
            Some(byte) => Data::Write(Buffer::from(std::vec![byte; (blocks * BLOCK) as usize])),
            None => Data::Read(blocks * BLOCK),
        };
        let queue = u16::try_from(cookie % 3).unwrap();
        let request = Request { cookie, entry: entry.with_starting_lba(lba), data, queue };
        self.initiator.submit(self.now, request).unwrap();
    }

    /// The network takes a path away or gives it back.
    fn set_reachable(&mut self, path: u16, reachable: bool) {
        self.reachable[usize::from(path)] = reachable;
        if !reachable {
            let gone: Vec<_> = self.lines.keys().filter(|id| id.path == PathIndex(path)).copied().collect();
            for id in gone {
                self.lines.remove(&id);
                self.initiator.handle_input(self.now, Input::Closed(id));
            }
            self.configuration[usize::from(path)] = 0;
            self.drain();
        }
    }
}

/// The Identify data of a controller, of the namespace list, or of a namespace.
fn identify(structure: u32) -> Vec<u8> {
    let mut page = std::vec![0; 4096];
    match structure {
        1 => {
            // MDTS of 1 MiB, KAS, IOCCSZ of 8 KiB and 64 B.
            (page[77], page[320]) = (8, 10);
            page[1792..1794].copy_from_slice(&516_u16.to_le_bytes());
        }
        2 => page[0] = 1,
        _ => (page[1], page[130]) = (16, 9),
    }
    page
}

#[test]
fn blocks_are_written_and_read_while_paths_come_and_go() {
    for seed in 0..12 {
        let mut world = World::new(seed, !seed.is_multiple_of(2));
        world.connect();
        let mut model: BTreeMap<u64, u8> = BTreeMap::new();
        for round in 0..40_u64 {
            // Eight extents of 1 to 32 blocks, all at once, in the capsule and beyond it. Each is
            // written and then read.
            for write in [true, false] {
                for extent in 0..8_u64 {
                    let cookie = (round * 2 + u64::from(write)) * 8 + extent;
                    let blocks = 1 << (extent % 6);
                    let byte = u8::try_from((round * 8 + extent) % 251).unwrap();
                    world.submit(cookie, extent * 64, blocks, write.then_some(byte));
                    if write {
                        model.insert(extent, byte);
                    }
                }
                if world.rng.one_in(6) {
                    let path = u16::try_from(world.rng.below(2)).unwrap();
                    for _ in 0..world.rng.below(40) {
                        world.step();
                    }
                    let reachable = !world.reachable[usize::from(path)];
                    world.set_reachable(path, reachable);
                }
                if world.reachable == [false; 2] {
                    world.set_reachable(1, true);
                }
                world.run(|world| world.initiator.multipath().outstanding() == 0);
            }
            for extent in 0..8 {
                let read = &world.done[&(round * 16 + extent)];
                assert!(read.entry.status().is_success());
                let expected = model[&extent];
                assert!(read.data.iter().all(|byte| *byte == expected), "seed {seed}, extent {extent}");
            }
        }
        assert_eq!(world.done.len(), 640);
        world.initiator.shut_down(world.now);
        world.run(|world| world.initiator.multipath().is_over());
        assert!(world.lines.is_empty());
    }
}

/// One flipped bit of an ICReq or ICResp takes a queue's digests away. The Admin Queue's digests
/// show that the I/O queue must have digests, too.
#[test]
fn an_io_queue_has_the_digests_of_its_admin_queue() {
    let mut world = World::new(5, true);
    world.io_digests = false;
    world.run(|world| world.errors.len() >= 3);
    assert!(world.errors.iter().all(|why| *why == tcp::Closed::DigestsDiffer), "{:?}", world.errors);
    assert!(world.initiator.multipath().paths().all(|path| !path.live));
    world.io_digests = true;
    world.connect();
    assert!(
        world.initiator.parameters(PathIndex(0)).is_some_and(|agreed| agreed.tcp().unwrap().header_digest)
    );
}

#[test]
fn admin_commands_end_once_even_when_the_path_is_lost() {
    let mut world = World::new(3, false);
    world.connect();
    world.identify_controller();
    let path = PathIndex(0);
    let id = *world.lines.keys().find(|id| id.path == path && id.queue == QueueId::ADMIN).unwrap();
    world.lines.remove(&id);
    world.initiator.handle_input(world.now, Input::Closed(id));
    let mut ended = 0;
    while let Some(output) = world.initiator.poll_output() {
        if let Output::AdminCompleted(completed) = output {
            assert!(completed.cookie == 7 && !completed.entry.status().is_success());
            ended += 1;
        }
    }
    assert_eq!(ended, 1);
}

#[test]
fn a_shutdown_waits_for_a_place_in_the_admin_queue() {
    let mut world = World::with_admin_queue(7, false, 2);
    world.connect();
    // The request for events has one place of the Admin Queue, and this command has the other.
    world.identify_controller();
    world.initiator.shut_down(world.now);
    let mut shut_down = [false; 2];
    while !world.initiator.multipath().is_over() {
        world.step();
        for (shut_down, configuration) in shut_down.iter_mut().zip(world.configuration) {
            *shut_down |= property::SHUTDOWN.is_set(configuration);
        }
    }
    assert_eq!(shut_down, [true; 2]);
}
